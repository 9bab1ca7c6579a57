/* Packets that reached the wrong process, handed on to the right one over a local datagram socket
 * of abstract name. Only processes of the same user are heard. The kernel lets few datagrams wait
 * there, so what does not fit is kept for a while and tried again; then it is dropped: to the
 * transport that is a loss on the wire. */
#ifndef WEIR_IO_HANDOFF_H
#define WEIR_IO_HANDOFF_H

#include "rnic/base/time.h"
#include "rnic/io/registry.h"
#include "rnic/io/udp.h"

struct handoff;

struct handoff_counters {
    uint64_t packets_sent, packets_received; /* datagrams: each holds one run of packets */
    uint64_t delayed;                        /* the peer's queue was full: kept */
    uint64_t dropped;                        /* ... for too long, or the peer is gone */
    uint64_t refused;                        /* of another user, or malformed */
};

enum status handoff_create(const struct registry *registry, struct handoff **ret_handoff) MUST_USE;
void handoff_destroy(struct handoff *handoff);
/* In a forked child: closes the child's copy of the socket. */
void handoff_abandon(struct handoff *handoff);

/* CLOSED: nobody has that slot any more. */
enum status handoff_send(struct handoff *handoff, struct instant now, uint32_t slot,
                         const struct udp_datagrams *datagrams) MUST_USE;
/* Tries again what is kept. False: some is left, come back soon. */
bool handoff_flush(struct handoff *handoff, struct instant now);
/* Reads what waits, without blocking; returns how many runs it passed on. */
uint32_t handoff_receive(struct handoff *handoff, struct udp_receiver *receiver);
int handoff_descriptor(const struct handoff *handoff);
const struct handoff_counters *handoff_counters(const struct handoff *handoff);

#endif
