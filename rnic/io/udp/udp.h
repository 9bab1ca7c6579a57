/* The RoCEv2 link: packets of the device as UDP datagrams of port 4791, IPv4 and IPv6.
 *
 * Out: a packet sink. Packets are copied, with their ICRC, into runs of one path and one size; a
 * run leaves as one UDP_SEGMENT send where the kernel takes that. In: datagrams, split where the
 * kernel joined them (UDP_GRO), with their addresses; ICRC and ownership are ingress.h.
 *
 * Both sockets are unconnected and send with DF, whatever the kernel believes of the path MTU, so
 * the IPv4 identification is 0, or counts up from 0 inside a segmented send. Not here: who owns a
 * packet, locks, waiting. One thread at a time. */
#ifndef WEIR_IO_UDP_H
#define WEIR_IO_UDP_H

#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/transport/port.h"
#include "rnic/wire/path.h"

enum udp_family {
    UDP_IPV4,
    UDP_IPV6,
    UDP_FAMILY_COUNT,
};

struct complaint;
struct complaints;
struct udp;

/* One read: `length` bytes of UDP payload, datagrams of `segment` bytes each (the last may be
 * shorter), all from one sender. Borrowed for the call. */
struct udp_datagrams {
    struct arrival arrival;
    enum udp_family family;
    const uint8_t *bytes;
    uint32_t length;
    uint32_t segment;
    uint32_t first_place; /* of the first datagram in the read that the kernel joined */
    bool handed_on;       /* by another process: whoever gets it keeps it */
    bool broadcast;       /* to an IPv4 broadcast address: all sockets of the port have a copy */
};

struct udp_receiver {
    void (*receive)(struct udp_receiver *receiver, const struct udp_datagrams *datagrams);
    /* What another process has heard of a packet that may be ours; the link itself does not call
     * it, see udp_complaints. NULL: nobody listens. */
    void (*hear)(struct udp_receiver *receiver, const struct complaint *complaint);
};

struct udp_config {
    uint16_t port;          /* ROCE_UDP_PORT, but in tests */
    const struct gid *bind; /* one for each family, zero: none of that; NULL: all addresses */
    const char *fault;      /* text for fault_parse; NULL: none */
};

/* Bytes that a queue pair has in flight at most; on a long way, where losses are repaired, it has
 * more, and then lends nothing to the kernel (lender.h). */
#define UDP_FLIGHT_MAX (1u << 20)

struct udp_counters {
    uint64_t packets_sent, packets_received;
    uint64_t send_calls, receive_calls;
    uint64_t segmented_sends;     /* runs of more than one packet */
    uint64_t lent_runs;           /* of those, sent without a copy by the kernel */
    uint64_t unsegmented;         /* runs that the kernel refused as such: they left one by one */
    uint64_t blocked;             /* the socket's buffer was full: waited */
    uint64_t held;                /* enough waited in this host: a stream did, too */
    uint64_t dropped_too_long;    /* EMSGSIZE */
    uint64_t dropped_unreachable; /* no route, no such source address, forbidden */
    uint64_t dropped_other;
    uint64_t icmp_too_long, icmp_port_unreachable, icmp_other;
    uint64_t truncated; /* datagrams received longer than the buffer, or without their address */
    uint64_t faults;    /* injected */
};

/* IN_USE: the port is taken by somebody who does not share it. NOT_FOUND: `bind` is no address of
 * the host. INVALID: `fault` does not parse. UNSUPPORTED: neither IPv4 nor IPv6. Each leaves a
 * reason in words in *ret_message (static). */
enum status udp_create(const struct udp_config *config, struct udp **ret_udp,
                       const char **ret_message) MUST_USE;
/* Closes the sockets; what was not flushed is lost. NULL is allowed. */
void udp_destroy(struct udp *udp);
/* In a forked child: closes the child's copies of the sockets and makes the link a dead end. */
void udp_abandon(struct udp *udp);

struct packet_sink *udp_sink(struct udp *udp);
/* Hands everything to the kernel. False: its buffers are full, flush again when
 * udp_waiting_descriptor is writable. */
bool udp_flush(struct udp *udp);
/* Packets wait for a flush: the kernel was full, or a fault delays them. */
bool udp_has_waiting(const struct udp *udp);
/* After a flush that did not end: the socket that is full, which may be a source port's. */
int udp_waiting_descriptor(struct udp *udp);

/* Reads one batch from one family's socket without blocking; returns how many reads it made. It
 * asks for one where the last found nothing, and for more as more come: who polls waits for the
 * first, and each that does not come costs time. */
uint32_t udp_receive(struct udp *udp, enum udp_family family, struct udp_receiver *receiver);
/* Closes source ports of flow labels that nothing has left from for UDP_PORT_IDLE_NS to twice that.
 * The next packet takes its port again, if it is to be had. To be called when udp_next_tidy says;
 * sooner, it does nothing. */
#define UDP_PORT_IDLE_NS UINT64_C(10000000000)
void udp_tidy(struct udp *udp, struct instant now);
struct instant udp_next_tidy(const struct udp *udp);
/* Nobody has read for a while: the next udp_receive asks for as many as it can take. */
void udp_expect_many(struct udp *udp);

/* Addresses of the host have come, gone or moved: which interface has one is asked anew. */
void udp_addresses_changed(struct udp *udp);

/* What is said of packets of ours that did not get through. */
struct complaints *udp_complaints(struct udp *udp);
/* Reads what the kernel holds for a family's socket: due when poll(2) says POLLERR, else done where
 * a call fails. Returns how many there were. */
uint32_t udp_take_errors(struct udp *udp, enum udp_family family);

/* -1: the host does not have the family. */
int udp_descriptor(const struct udp *udp, enum udp_family family);
/* What the kernel granted for packets that wait to be received, in one family's socket. */
uint32_t udp_receive_buffer(const struct udp *udp);
/* Datagrams that the kernel dropped at them: for want of room, or for their UDP checksum. */
uint64_t udp_dropped_unread(const struct udp *udp);
const struct udp_counters *udp_counters(const struct udp *udp);
/* The last reason why packets could not be sent, in words; "" if there was none. */
const char *udp_message(const struct udp *udp);

#endif
