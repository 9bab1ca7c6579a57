/* Priorities: a failure is final; a demand for the expected PSN replaces an acknowledgement, since
 * it acknowledges everything before too. */
#include "rnic/transport/acknowledge.h"

/* A requester that asks for no acknowledgement gets one per so many packets. */
#define UNANSWERED_MAX 64u

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

void acknowledge_executed(struct acknowledge *acknowledge, bool requested)
{
    if (acknowledge->owed == OWED_RNR_NAK || acknowledge->owed == OWED_NAK_SEQUENCE) {
        acknowledge->owed = OWED_ACK;
    }
    acknowledge->demanded = false;
    acknowledge->unanswered++;
    if (requested || acknowledge->unanswered >= UNANSWERED_MAX) {
        owe(acknowledge, OWED_ACK);
    }
}

void acknowledge_executed_with_response(struct acknowledge *acknowledge)
{
    acknowledge->demanded = false;
    acknowledge_paid(acknowledge);
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

void acknowledge_receiver_not_ready(struct acknowledge *acknowledge)
{
    acknowledge->demanded = true;
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
