/* Puts and gets: cut into pieces, spread over lanes, put together again into one completion. */
#ifndef WEIR_CHANNEL_TRANSFER_H
#define WEIR_CHANNEL_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/channel/stride.h"

#define TRANSFER_IMMEDIATE_MAX ((size_t)1 << 20) /* longest put whose notice is its immediate */
#define TRANSFER_BUSY          64                /* pieces posted on one lane at once */

struct posted;
struct transfer;
typedef void transfer_finished(struct weir_connection *connection, struct transfer *transfer,
                               enum weir_status status);

struct transfer {
    struct transfer *next, *previous; /* all that are not finished */
    struct transfer *next_waiting;    /* those with pieces to post */
    bool is_put;
    bool has_notice;
    bool is_late; /* a message that the peer announced while we close: holds up neither a limit nor
                     our last message, or a peer that goes on sending would */
    uint32_t notice;
    uint8_t *local;
    uint32_t local_key;
    uint64_t remote;
    uint32_t remote_key;
    size_t length;
    size_t posted;   /* bytes */
    uint32_t flying; /* pieces */
    bool is_posted;  /* all of it */
    enum weir_status status;
    transfer_finished *finished;
    weir_done_callback *done;
    void *argument;
};

struct transfers {
    struct transfer *first; /* all */
    size_t awaited;         /* of them not late */
    struct transfer *waiting, **waiting_end;
    struct stride stride;
    unsigned next_lane;
};

void transfers_init(struct weir_connection *connection);
void transfers_fini(struct weir_connection *connection, enum weir_status status);
/* Posts pieces as far as lanes have room. */
void transfers_advance(struct weir_connection *connection);
/* True if none is under way, but for late ones. */
bool transfers_are_idle(const struct weir_connection *connection);

/* Begins a get for the receiver's own use. */
struct transfer *transfer_pull(struct weir_connection *connection, struct weir_memory *memory,
                               size_t length, uint64_t remote, uint32_t remote_key,
                               transfer_finished *finished, void *argument);

/* For the sender, which posts what must keep its place among messages. */
bool transfer_is_ready_for_notice(const struct weir_connection *connection,
                                  const struct transfer *transfer);
bool transfer_post_immediate(struct weir_connection *connection, struct transfer *transfer,
                             const struct posted *posted);
/* What it posted is done. */
void transfer_immediate_ended(struct weir_connection *connection);
void transfer_end(struct weir_connection *connection, struct transfer *transfer,
                  enum weir_status status);

#endif
