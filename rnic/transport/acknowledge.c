/* Priorities: a failure is final; a demand for the expected PSN replaces an acknowledgement, since
 * it acknowledges everything before too. */
#include "rnic/transport/acknowledge.h"

#include "rnic/wire/psn.h"

/* A requester gets an acknowledgement per so many packets unasked: the kernel's stops 128 behind
 * the last, and asks each 66, so that one that is lost must not be all it gets. */
#define UNANSWERED_MAX 64u
/* One that lets more than twice as many pass before it asks in the middle of a message has room for
 * them, and gets one per so many. */
#define UNANSWERED_LATE 256u

void acknowledge_reset(struct acknowledge *acknowledge)
{
    *acknowledge = (struct acknowledge){.owed = OWED_NOTHING};
}

static void owe(struct acknowledge *acknowledge, enum owed owed)
{
    if (acknowledge->owed < owed) {
        acknowledge->owed = owed;
    }
}

static void count(struct acknowledge *acknowledge, bool requested, uint32_t most)
{
    acknowledge->unanswered++;
    if (requested || acknowledge->unanswered >= most) {
        owe(acknowledge, OWED_ACK);
    }
}

static void note_asking(struct acknowledge *acknowledge, bool requested, bool ends_message)
{
    acknowledge->unasked += acknowledge->unasked < UINT16_MAX;
    if (requested) {
        if (!ends_message) {
            acknowledge->asks_late = acknowledge->unasked > 2 * UNANSWERED_MAX;
        }
        acknowledge->unasked = 0;
    }
}

/* What a NAK asked for has been executed. One that said that it was missing has been heard by a
 * sender that looks for the rest, if it has left; one for want of a receive told him only to wait.
 */
static void meet_demand(struct acknowledge *acknowledge)
{
    acknowledge->left_out &= acknowledge->unready || acknowledge->owed == OWED_NAK_SEQUENCE;
    acknowledge->demanded = acknowledge->unready = false;
    if (acknowledge->owed == OWED_RNR_NAK || acknowledge->owed == OWED_NAK_SEQUENCE) {
        acknowledge->owed = OWED_ACK;
    }
    if (acknowledge->left_out) {
        owe(acknowledge, OWED_REST);
    }
}

void acknowledge_executed(struct acknowledge *acknowledge, bool requested, bool ends_message)
{
    if (acknowledge->demanded) {
        meet_demand(acknowledge);
    }
    note_asking(acknowledge, requested, ends_message);
    count(acknowledge, requested, acknowledge->asks_late ? UNANSWERED_LATE : UNANSWERED_MAX);
}

void acknowledge_kept(struct acknowledge *acknowledge, bool requested)
{
    count(acknowledge, requested, UNANSWERED_MAX);
}

void acknowledge_executed_with_response(struct acknowledge *acknowledge)
{
    if (acknowledge->demanded) {
        meet_demand(acknowledge);
    }
    if (acknowledge->owed != OWED_REST) {
        acknowledge_paid(acknowledge);
    }
}

void acknowledge_duplicate(struct acknowledge *acknowledge)
{
    owe(acknowledge, OWED_ACK);
}

bool acknowledge_out_of_sequence(struct acknowledge *acknowledge)
{
    if (acknowledge->demanded) {
        return false;
    }
    acknowledge->demanded = true;
    owe(acknowledge, OWED_NAK_SEQUENCE);
    return true;
}

void acknowledge_left_out(struct acknowledge *acknowledge, struct psn psn)
{
    if (!acknowledge->left_out || psn_before(acknowledge->left_psn, psn)) {
        acknowledge->left_out = true;
        acknowledge->left_psn = psn;
    }
}

void acknowledge_rest(struct acknowledge *acknowledge, struct psn expected)
{
    acknowledge->left_out = false;
    acknowledge->owed = OWED_ACK;
    if (!psn_before(acknowledge->left_psn, expected)) {
        (void)acknowledge_out_of_sequence(acknowledge);
    }
}

void acknowledge_unreadable(struct acknowledge *acknowledge)
{
    acknowledge->demanded = false; /* this is what came of it */
    (void)acknowledge_out_of_sequence(acknowledge);
}

void acknowledge_receiver_not_ready(struct acknowledge *acknowledge)
{
    acknowledge->demanded = acknowledge->unready = true;
    if (acknowledge->owed == OWED_NAK_SEQUENCE) {
        acknowledge->owed = OWED_NOTHING;
    }
    owe(acknowledge, OWED_RNR_NAK);
}

void acknowledge_fail(struct acknowledge *acknowledge, enum nak_code code, struct psn psn)
{
    acknowledge->failed = true;
    acknowledge->fatal_code = (uint8_t)code;
    acknowledge->fatal_psn = psn;
    acknowledge->owed = OWED_NAK_FATAL;
}

void acknowledge_repeat_failure(struct acknowledge *acknowledge)
{
    acknowledge->owed = OWED_NAK_FATAL;
}

void acknowledge_paid(struct acknowledge *acknowledge)
{
    acknowledge->owed = OWED_NOTHING;
    acknowledge->unanswered = 0;
}
