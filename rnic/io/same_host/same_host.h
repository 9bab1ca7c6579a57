/* The link between processes of one host and user, in front of the UDP link: packets for a queue
 * pair of a process in our registry, at an address of this host, go into its inbox; all others, and
 * those of QP1 and to groups, go by UDP.
 *
 * A process is chosen once: which inbox it has is looked up when the first packet for it is sent,
 * so what goes to one queue pair stays in order. What cannot be reached so (it lives in another
 * namespace of processes, /proc hides it, it may not be traced, it runs under a limit of file size)
 * is reached by UDP, and counted. A lane that stays full (its owner is stopped, or hangs) holds up
 * the queue pairs that send there for SAME_HOST_PATIENCE_NS, then their packets are lost, as on a
 * wire, until it takes some again.
 *
 * Under the engine's lock, but same_host_is_quiet, same_host_addresses_changed,
 * same_host_next_grant and the direct link's settle. */
#ifndef WEIR_IO_SAME_HOST_H
#define WEIR_IO_SAME_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/io/registry/handoff.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/same_host/inbox.h"
#include "rnic/transport/direct.h"
#include "rnic/transport/port.h"

#define SAME_HOST_PATIENCE_NS 500000000u

struct same_host;

struct same_host_config {
    struct registry *registry;
    struct handoff *handoff;       /* carries wake-ups */
    struct packet_sink *otherwise; /* the UDP link */
    uint64_t seed;
    const struct gid *bind; /* the addresses of this registry's processes, two; NULL: all */
    bool off;               /* no inbox: everything goes by UDP */
    bool copies;            /* no payload stays in its sender's memory */
};

struct same_host_counters {
    uint64_t packets_sent;
    uint64_t bytes_sent; /* payload */
    uint64_t packets_received;
    uint64_t long_records;   /* ... that stand for several, and have brought their bytes along */
    uint64_t peers;          /* processes whose inbox we have opened, now */
    uint64_t unreachable;    /* ... whose inbox we could not open: theirs goes by UDP */
    uint64_t elsewhere;      /* packets that went by UDP, for too many pairs of addresses */
    uint64_t wake_ups;       /* system calls for sleeping peers */
    uint64_t full;           /* a lane had no room when it had had some */
    uint64_t dropped;        /* packets that waited too long for room */
    uint64_t refused;        /* lanes of ours that held what none of us writes */
    uint64_t readable;       /* senders whose memory we may read, so far, */
    uint64_t opaque;         /* ... which the kernel does not let us read: theirs is copied */
    uint64_t withdrawn;      /* packets by reference whose peer died as they were sent */
    uint64_t lanes;          /* of ours, taken now */
    uint64_t reclaimed;      /* of ours, of senders that died */
    uint64_t address_reads;  /* how often the kernel was asked for the host's addresses */
    uint64_t common_regions; /* of ours, whose memory others have mapped or may, now */
    uint64_t common_made;    /* ... so far */
};

/* NO_MEMORY. A kernel without sealed memory files makes it send nothing and receive nothing. */
enum status same_host_create(const struct same_host_config *config,
                             struct same_host **ret_same_host) MUST_USE;
/* Before the registry is closed. NULL is allowed. */
void same_host_destroy(struct same_host *same_host);
/* In a forked child. */
void same_host_abandon(struct same_host *same_host);

struct packet_sink *same_host_sink(struct same_host *same_host);
/* NULL: there is none. */
struct direct_link *same_host_direct(struct same_host *same_host);
/* By a thread that lives as long as the engine does: from now on others may send to us, and touch
 * what is shown. */
void same_host_live(struct same_host *same_host);
/* When others' wishes for regions to be made common (hot_regions.h) are to be granted; NEVER: there
 * are none. By the thread that grants them, which takes milliseconds. */
struct instant same_host_next_grant(const struct same_host *same_host);
void same_host_grant_wishes(struct same_host *same_host, struct instant now);
/* Any thread: from now on nothing becomes common until same_host_has_forked. */
void same_host_is_to_fork(struct same_host *same_host);
/* Then: our memory is to be ours alone. What is registered now stays so for good, other
 * regions until it is over. */
void same_host_keep_memory(struct same_host *same_host);
/* In the parent. Any thread. */
void same_host_has_forked(struct same_host *same_host);
/* Shows what was sent, and wakes who sleeps. False: a lane was full, come back soon. */
bool same_host_flush(struct same_host *same_host);

/* See inbox.h and inbox_sleep.h. */
uint32_t same_host_receive(struct same_host *same_host, struct inbox_receiver *receiver,
                           uint32_t budget);
uint32_t same_host_receive_next(struct same_host *same_host, struct inbox_receiver *receiver,
                                uint32_t budget);
bool same_host_is_quiet(const struct same_host *same_host);
void same_host_fence_for_all(struct same_host *same_host);
bool same_host_fences_for_all(const struct same_host *same_host);
bool same_host_fall_asleep(struct same_host *same_host);
void same_host_wake_up(struct same_host *same_host);
bool same_host_is_crowded(struct same_host *same_host);
/* See bell.h; -1: none. */
int same_host_bell(const struct same_host *same_host);
bool same_host_is_asleep(const struct same_host *same_host);

/* Gives back what belonged to processes that are gone; costs something, so now and then. True:
 * processes that we have sent to are among them, see same_host_is_of_dead. */
bool same_host_tidy(struct same_host *same_host);
/* The queue pair at the other end of `path` belonged to one of those; asked before the next packet
 * is sent, for its number may soon be somebody else's. */
bool same_host_is_of_dead(struct same_host *same_host, const struct path *path,
                          struct qpn destination);
/* Any thread: which addresses are this host's is to be asked anew. */
void same_host_addresses_changed(struct same_host *same_host);

/* What carries packets to processes of this host, and why, in words: "memory". Static. */
const char *same_host_describe(const struct same_host *same_host);
void same_host_count(const struct same_host *same_host, struct same_host_counters *ret_counters);

#endif
