/* What processes hand to each other over local datagram sockets of abstract name: packets and ICMP
 * messages that reached the wrong one, and what targets of XRC and their deputies have to say
 * (relays.h). Only who can read the registry is heard, and takes up room. The kernel lets few
 * datagrams wait, so what does not fit is kept for a while and tried again; then it is dropped: to
 * the transport that is a loss on the wire. A process that is stopped keeps nobody else waiting:
 * each slot has a queue of its own, and after the first that waited in vain nothing waits for it
 * until it has read something. */
#ifndef WEIR_IO_HANDOFF_H
#define WEIR_IO_HANDOFF_H

#include "rnic/base/time.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/system/complaints.h"
#include "rnic/io/udp/udp.h"
#include "rnic/transport/relay.h"

struct handoff;

struct handoff_counters {
    uint64_t packets_sent, packets_received; /* datagrams: each holds one run of packets */
    uint64_t relayed, relayed_to_us;         /* messages of the relay */
    uint64_t complaints_sent, complaints_received;
    uint64_t delayed;         /* the peer's queue was full: kept */
    uint64_t dropped;         /* ... for too long, or the peer is gone */
    uint64_t packets_dropped; /* in runs of those */
    uint64_t refused;         /* malformed */
    uint64_t wake_ups;        /* received */
};

enum status handoff_create(const struct registry *registry, struct handoff **ret_handoff) MUST_USE;
void handoff_destroy(struct handoff *handoff);
/* In a forked child: closes the child's copy of the socket. */
void handoff_abandon(struct handoff *handoff);

/* CLOSED: nobody has that slot any more. */
enum status handoff_send(struct handoff *handoff, struct instant now, uint32_t slot,
                         const struct udp_datagrams *datagrams) MUST_USE;
/* Where the other's queue is full it is dropped: if it matters, it will be said again. */
void handoff_send_complaint(struct handoff *handoff, uint32_t slot,
                            const struct complaint *complaint);
/* Leaves with the next handoff_flush. CLOSED: nobody had the slot when something was sent to it
 * a moment ago. */
enum status handoff_send_relayed(struct handoff *handoff, struct instant now, uint32_t slot,
                                 const struct relay_message *message, const uint8_t *bytes,
                                 uint32_t length) MUST_USE;
struct handoff_relay_receiver {
    void (*receive)(struct handoff_relay_receiver *receiver, uint32_t from,
                    const struct relay_message *message, const uint8_t *bytes, uint32_t length);
};
/* None is set: such messages are refused. */
void handoff_set_relay_receiver(struct handoff *handoff, struct handoff_relay_receiver *receiver);

/* A process that sleeps looks into its inbox. False: not by us; where its queue is full it wakes up
 * anyway. */
bool handoff_wake(struct handoff *handoff, uint32_t slot) MUST_USE;
/* Tries again what is kept. False: some is left, come back soon. */
bool handoff_flush(struct handoff *handoff, struct instant now);
/* Reads what waits, without blocking; returns how many runs it passed on. */
uint32_t handoff_receive(struct handoff *handoff, struct udp_receiver *receiver);
int handoff_descriptor(const struct handoff *handoff);
const struct handoff_counters *handoff_counters(const struct handoff *handoff);

#endif
