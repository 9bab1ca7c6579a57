/* Work requests into request packets.
 *
 * Three PSNs say where a reliable requester stands: everything before `unacked` is answered, the
 * packet at `cursor` is sent next, nothing from `frontier` on was ever sent:
 * unacked <= cursor <= frontier. Going back means cursor = unacked. The slot at the send queue's
 * head is always the one that `unacked` lies in; the slots between head and `position` wait for
 * their answers.
 *
 * READs travel in chunks of a fixed grid, so that responses are under the congestion window too and
 * a repeated request never spans two that the responder remembers separately. [IBA 9.7.5.1.1]
 *
 * Here: order, windows, fences, what each packet holds. Not here: what answers do (completer), when
 * to repeat (retransmit). */
#ifndef WEIR_TRANSPORT_REQUESTER_H
#define WEIR_TRANSPORT_REQUESTER_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/queue/work.h"
#include "rnic/transport/step.h"
#include "rnic/wire/psn.h"

struct qp;
struct send_slot;

struct requester {
    struct psn unacked;
    struct psn cursor;
    struct psn frontier;
    uint32_t packet;      /* that of the request at `position` which the cursor is at */
    uint64_t position;    /* send queue position that the cursor lies in */
    uint32_t answered;    /* packets of the head slot that are before `unacked` */
    uint32_t unrequested; /* packets sent since an acknowledgement was last asked for */
    uint16_t reads_out;   /* READ chunks and atomics in unacked .. cursor */
    uint16_t run_left;    /* packets that the run which was begun has room for */

    uint8_t rnr_retries : 4; /* since progress */
    uint8_t rnr_copies : 4;  /* NAKs since the packet at `unacked` left last */
    uint8_t rnr_timer : 5;   /* how long it was told to wait, as a code, */
    bool rnr_is_vague : 1;   /* ... at a time that was long ago already, maybe */
    uint8_t gaps_answered;   /* how often a gap in responses made us go back, since progress */
    bool doubts : 1;  /* what is before `doubted` may have been lost: it is repeated as bytes */
    bool repeats : 1; /* what is before `doubted` is repeated, and not answered */
    struct psn doubted;

    /* Bytes, said of an unanswered packet that was longer, or of any of a queue pair that nobody
     * answers; 0: all is well. */
    uint16_t way_takes;
    uint16_t interface_takes; /* bytes, for the completion of a message that it has refused */

    struct instant rnr_resume; /* NEVER: not told to wait */
    struct instant repeated;   /* when the packet at `unacked` left again, or was to, last */
};

void requester_reset(struct qp *qp, struct psn first);
enum step requester_transmit(struct qp *qp, struct instant now);
/* Everything from `unacked` on is to be sent again, as far as the peer is not known to hold it. */
void requester_go_back(struct qp *qp);
/* ... because some of it seems to be lost. */
void requester_repeat(struct qp *qp);
/* Packet `index` of a request at `position` of the send queue leaves again (see repair.h), or the
 * demand for what it draws from there on. */
enum step requester_send_again(struct qp *qp, struct instant now, struct send_slot *slot,
                               uint64_t position, uint32_t index);
/* The request at the cursor, a new one, left as one packet that asks for an acknowledgement, of a
 * queue pair that repeats nothing, see short_way.h. */
void requester_sent_short(struct qp *qp, struct instant now, struct send_slot *slot);
/* The peer is alive; `waiting`: for more of it. */
void requester_heard(struct qp *qp, struct instant now, bool waiting);
/* `count` packets at `unacked` are answered; they belong to the head slot. */
void requester_answered(struct qp *qp, struct instant now, uint32_t count);

/* Of up to `most` packets at `unacked`, all answered by acknowledgement, those of requests that are
 * one packet each, together; returns how many. 0: they are for requester_answered. */
uint32_t requester_answered_row(struct qp *qp, struct instant now, uint32_t most);

/* Whether responses answer it, and no acknowledgement can. An atomic write's brings nothing: it is
 * a READ response of length 0. */
bool requester_awaits_response(enum work_kind kind);
/* Brings the cursor to a request that has a packet to send; NULL if there is none now. */
struct send_slot *requester_next(struct qp *qp);
/* No request has been begun and not been finished. */
bool requester_is_drained(const struct qp *qp);
/* Completes the oldest requests as far as they are finished. */
void requester_settle(struct qp *qp);

#endif
