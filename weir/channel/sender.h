/* The sending side of a connection's messages: the line of those that wait for credit, those on
 * their way, and the small messages that need no credit.
 *
 * Invariants: messages leave in the order sent; `done` is called in that order too; a message
 * leaves only with credit in hand. */
#ifndef WEIR_CHANNEL_SENDER_H
#define WEIR_CHANNEL_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/channel/credit.h"
#include "weir/channel/message.h"
#include "weir/channel/outgoing.h"

struct transfer;

#define SENDER_BUFFERS 64 /* messages on their way at once */
#define SENDER_RESERVE 32 /* buffers, and places in the lane's book, for small messages */

struct sender {
    struct outgoing *waiting, **waiting_end;
    size_t waiting_count;
    struct outgoing *flying, **flying_end; /* also those that were sent and wait their turn */
    struct outgoing_spares spares;
    unsigned announced; /* not pulled yet */
    uint32_t next_identifier;
    uint32_t pulled[CREDIT_PULLS_MAX]; /* to be told */
    unsigned pulled_count;
    bool has_bye, has_abort; /* posted */
    bool bye_is_sent;        /* and known to have arrived */
    bool owes_answer;        /* to the peer's BYE, which crossed ours */
    bool answer_is_flying;
    enum weir_status abort_status;
    char abort_text[MESSAGE_TEXT_MAX];
};

void sender_init(struct weir_connection *connection);
/* Completes what is left with `status`. */
void sender_fini(struct weir_connection *connection, enum weir_status status);

/* Posts what can be posted. */
void sender_advance(struct weir_connection *connection);
bool sender_is_idle(const struct weir_connection *connection);
void sender_post_abort(struct weir_connection *connection);

/* The put's notice takes its place in the line of messages; if `is_immediate`, so does its data.
 */
enum weir_status sender_add_put(struct weir_connection *connection, struct transfer *transfer,
                                bool is_immediate);

/* The peer has read the message it names; false: there is none. */
bool sender_take_pulled(struct weir_connection *connection, uint32_t identifier);
/* A message of the peer was read: it is to be told. */
void sender_tell_pulled(struct weir_connection *connection, uint32_t identifier);

#endif
