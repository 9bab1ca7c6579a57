/* Congestion notification: packets that came with the ECN mark "congestion experienced" are
 * answered with a CNP, and CNPs of the peer slow our data down. [RoCEv2 annex A17.9.3]
 *
 * The notification point answers for connected queue pairs (RC, UC, XRC), one CNP in NOTICE_NS per
 * queue pair at most. A CNP leaves on the queue pair's path, itself not ECN-capable. What it does
 * to the sender: rate.h. Who may be marked at all says the traffic class of the path, which is the
 * application's: ECN-capable where it says so (ECT(0): traffic class 2 in the two low bits, as in
 * the customary 106), as on the kernel's rxe; a network adapter's firmware sets those bits by
 * itself where it has been configured to. So a CNP for what could not be marked is forged and not
 * heard; one for what could may be forged just as well, which is why the rate has a floor. A mark
 * counts on a packet with a PSN that is due (any of UC), or who cannot see our packets could make
 * us slow down our peer. */
#ifndef WEIR_TRANSPORT_NOTICE_H
#define WEIR_TRANSPORT_NOTICE_H

#include <stdbool.h>

#include "rnic/base/time.h"
#include "rnic/transport/step.h"
#include "rnic/wire/path.h"

#define NOTICE_NS       UINT64_C(50000)
#define NOTICE_LASTS_NS UINT64_C(10000000) /* by then a peer's rate has climbed (rate.h) */

struct qp;

/* A packet of the peer came with the mark. */
void notice_marked(struct qp *qp, struct instant now);
/* Whether the network may mark what is sent along it. */
bool notice_may_come(const struct path *path);
/* The CNP that is owed. */
enum step notice_transmit(struct qp *qp, struct instant now);
/* Whether the peer was told to slow down so lately that it may still be slow. */
bool notice_is_recent(const struct qp *qp, struct instant now);
/* The peer's CNP came. */
void notice_receive(struct qp *qp, struct instant now);

#endif
