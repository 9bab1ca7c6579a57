/* What the device that carries the data had to send again: it is this side's, for this side puts
 * them. */

#include "tools/transfer/ends/sender_private.h"
#include "tools/transfer/wire/clock.h"

/* Between two looks at it. */
#define LOOK_INTERVAL_NS 200000000u

static void say(struct sender *sender, uint64_t count)
{
    struct again_at_device *again = &sender->again;
    struct message message = {.type = MESSAGE_RETRANSMITTED};
    message.retransmitted.count = count;
    again->is_said = true;
    again->said = count;
    sender_send_plain(sender, &message);
}

void sender_look_at_device(struct sender *sender, bool is_end)
{
    struct again_at_device *again = &sender->again;
    struct tally *tally = sender->options.tally;
    struct link *link = sender->link;
    uint64_t count, now = now_ns();
    if (link->operations->retransmissions == NULL ||
        (!is_end && now - again->looked_ns < LOOK_INTERVAL_NS)) {
        return;
    }
    again->looked_ns = now;
    if (!link->operations->retransmissions(link, &count)) {
        return;
    }
    if (!tally->retransmissions_known) {
        tally->retransmissions_known = true;
        again->before = count;
    }
    tally->retransmissions = count - again->before;
    bool sends = sender->state != SENDER_FINISHED && sender->state != SENDER_DONE &&
                 link->backlog_length < SENDER_BACKLOG;
    if (sends && (!again->is_said || again->said != tally->retransmissions)) {
        say(sender, tally->retransmissions);
    }
}
