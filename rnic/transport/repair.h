/* The sending side of selective repeat: what reports mean for requests that are under way, and what
 * is sent again. Only of queue pairs that have agreed (selective.h).
 *
 * While a queue pair repairs, the requester's cursor stands at its frontier: new packets leave
 * there, lost ones from the scoreboard, lost ones first. Responses that overtook others are kept
 * and taken in order; of a READ whose responses are missing those are demanded again
 * (repair_demand). */
#ifndef WEIR_TRANSPORT_REPAIR_H
#define WEIR_TRANSPORT_REPAIR_H

#include "rnic/transport/selective.h"

struct send_slot;

bool repair_is_on(const struct qp *qp);
/* From go-back-N, once it has nothing left to repeat; a no-op else. */
void repair_begin(struct qp *qp, struct instant now);

/* `count` packets at `unacked` are answered. */
void repair_answered(struct qp *qp, struct instant now, uint32_t count);
/* The sender's part of a report that has proved true. */
void repair_receive_report(struct qp *qp, struct instant now, const struct report *report);
/* Everything that is not known to be held is to be sent again. */
void repair_all(struct qp *qp);
/* The oldest packet found no receive. What came behind it is kept, but for what left before the
 * peer knew that it may be: that is sent again, too. */
void repair_unready(struct qp *qp);
/* The oldest packet is missing, and the peer has no place for what came behind it, or did not know
 * that it may keep it. What of the rest is dropped shows when the oldest has come, but for what
 * left so long ago that it has been. */
void repair_dropped(struct qp *qp, struct instant now);
/* The retransmission timer's deadline has passed. True: it was a probe's. Then the last packet is
 * sent again: a loss among the last ones shows only in what arrives later, and an answer that was
 * lost comes again. */
bool repair_probe(struct qp *qp, struct instant now);
/* Nothing was heard for too long. */
void repair_silence(struct qp *qp, struct instant now);
/* The first lost packet leaves. IDLE: there is none, or no window for it. */
enum step repair_transmit(struct qp *qp, struct instant now);
/* There is a lost one: then nothing new leaves before it. */
bool repair_is_due(const struct qp *qp);

/* An answer came at `psn`, and before it responses are missing: it is early, or they are lost. */
void repair_await_response(struct qp *qp, struct instant now, struct psn psn);
void repair_keep_response(struct qp *qp, struct instant now, const struct packet *packet);
/* An answer came to what has been answered. */
void repair_came_again(struct qp *qp, const struct packet *packet);
/* An RNR NAK, which nobody says again unless asked. */
void repair_keep_refusal(struct qp *qp, const struct packet *packet);
/* How many packets of response are to be asked for again, from packet `index` of the slot on: of
 * its demand, where some behind have come, up to the last that is lost; else all. */
uint32_t repair_demand(const struct qp *qp, const struct send_slot *slot, uint32_t index);
/* Takes the responses whose turn has come. */
void repair_take_responses(struct qp *qp, struct instant now);

/* The wait that the peer asked for is over: what it has not heard of is waited for again. */
void repair_resume(struct qp *qp, struct instant now);

void repair_expire(struct qp *qp, struct instant now);

#endif
