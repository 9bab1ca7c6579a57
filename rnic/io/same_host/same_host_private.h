/* The link between processes of one host, as its parts see it: same_host.c (packets) and
 * same_host_direct.c (memory). */
#ifndef WEIR_IO_SAME_HOST_PRIVATE_H
#define WEIR_IO_SAME_HOST_PRIVATE_H

#include "rnic/io/direct/hot_regions.h"
#include "rnic/io/registry/near_addresses.h"
#include "rnic/io/same_host/outbox.h"
#include "rnic/io/same_host/same_host.h"

/* A process of the host, by its slot. */
struct peer {
    uint64_t incarnation;
    struct outbox *outbox;     /* NULL: it has none for us */
    struct instant full_since; /* NEVER: there was room last */
    bool unflushed;
};

/* Where a packet went last: most go there again. */
struct latest {
    struct peer *peer; /* with an outbox; NULL: to none */
    uint32_t slot;
    struct qpn destination;
    struct gid remote;
};

struct same_host {
    struct packet_sink sink;
    struct direct_link direct;
    struct direct_table table; /* what we show */
    struct hot_regions hot;
    uint32_t wishes;            /* of others for that, heard so far */
    struct instant grant_after; /* not before: somebody was at it */
    uint64_t grant_later_ns;    /* if somebody is again */
    struct inbox_room room;
    struct packet_sink *otherwise;
    struct registry *registry;
    struct handoff *handoff;
    struct inbox *inbox; /* NULL: there is none, and nothing is sent to others */
    int spare;           /* a descriptor whose place an inbox is opened in; -1: there is none */
    uint64_t incarnation;
    struct pull_identity identity; /* address 0: nobody is to read our memory */
    const char *description;
    struct peer *peers[SLOT_COUNT];
    uint32_t unflushed[SLOT_COUNT]; /* slots */
    uint32_t unflushed_count;
    bool stalled;             /* a lane was full since the last flush */
    bool has_responded;       /* by reference, ever */
    uint32_t full_count;      /* peers with `full_since` */
    bool is_dead[SLOT_COUNT]; /* its holder was found gone by the last tidy */
    struct near_addresses near;
    struct latest latest;
    struct same_host_counters counters;
};

/* The process that the queue pair at the end of `path` is of, if it is reached through memory. */
struct peer *same_host_find(struct same_host *same_host, const struct path *path,
                            struct qpn destination);
/* What was put for it is shown by the next same_host_flush, and it is woken if it sleeps. */
void same_host_remember(struct same_host *same_host, uint32_t slot, struct peer *peer);
/* A full lane has been emptied since its owner last looked whether we sleep. */
bool same_host_has_new_room(struct same_host *same_host);
/* The process of that incarnation. */
bool same_host_lives(void *same_host, uint64_t incarnation);
/* See port.h. */
bool same_host_responds_with(struct packet_sink *sink, const uint8_t *bytes, uint64_t length,
                             struct instant until);
void same_host_revoke(struct packet_sink *sink, const uint8_t *bytes, uint64_t length,
                      struct instant until);
/* Lets others touch our memory, and us theirs. */
void same_host_let_access(struct same_host *same_host);

#endif
