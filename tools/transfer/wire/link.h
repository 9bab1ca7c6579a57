/* What a transfer needs of a connection, so that it runs over a weir channel (channel_link.h) and,
 * in tests, over a pair in memory (memory_link.h).
 *
 * Messages arrive in the order sent, and a put's notice in order with them. Everything posted ends
 * before `closed`, which comes exactly once, and after which nothing of the link is called. */
#ifndef TOOLS_TRANSFER_LINK_H
#define TOOLS_TRANSFER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/channel.h>

struct link;

/* The link's user gets these; all are called from the link's own event loop, none from within a
 * call into the link. */
struct link_events {
    void (*opened)(void *user);
    void (*received)(void *user, const void *bytes, size_t length);
    void (*noticed)(void *user, uint32_t notice, size_t length);
    /* Of a link that carries data: file data, instead of notices. The bytes last until it returns,
     * and no peer can write to them. NULL elsewhere. */
    void (*data)(void *user, const void *bytes, size_t length);
    /* The put from `offset` of this side's memory is through. Not called for one that failed: the
     * link closes then. */
    void (*put_done)(void *user, size_t offset);
    void (*closed)(void *user, const struct weir_error *reason);
};

/* For a link that nobody uses any more, or does not use yet: nothing is done. */
extern const struct link_events link_unheard;

/* The reason that a link was ended for is one that another connection would end for, too: the peer
 * has found that we break the protocol, or that what we sent is not what came. libweir hands on the
 * words alone, so it is by them that they are known. */
bool link_is_verdict(const char *reason);

struct link_put {
    size_t offset; /* in the memory that allocate() gave */
    size_t length;
    struct weir_remote remote;
    uint64_t remote_offset;
    uint32_t notice;
};

struct link_operations {
    /* Copies the pieces. False when the link is closing; `closed` follows then. They may wait for
     * the next flush, put or close. */
    bool (*send)(struct link *link, const struct weir_piece *pieces, unsigned count);
    bool (*flush)(struct link *link);
    bool (*put)(struct link *link, const struct link_put *put);
    /* This side's data memory, once; it lives as long as the link. NULL: see ret_error. */
    void *(*allocate)(struct link *link, size_t length, unsigned rights,
                      struct weir_remote *ret_remote, struct weir_error *ret_error);
    void (*close)(struct link *link);
    void (*abort)(struct link *link, const char *reason);
    /* How often the device that carries the link has sent something again, since it was there.
     * False: it does not say. NULL: there is no device. */
    bool (*retransmissions)(struct link *link, uint64_t *ret_count);
    /* From any thread, while the link is open: its owner is to pump its session again. NULL: nobody
     * is to be woken. */
    void (*wake)(struct link *link);
};

struct link {
    const struct link_operations *operations;
    const struct link_events *events;
    void *user;
    size_t backlog_length;  /* of messages not yet taken by the peer */
    unsigned backlog_count; /* messages not yet taken by the peer */
    bool carries_data;      /* no memory is given to the peer to put data into: see `data` */
    bool is_private;        /* what allocate() gave gets copies of what the peer puts, before the
                               notice of that: between events it stays as it is */
};

#endif
