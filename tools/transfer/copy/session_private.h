/* A session, between its files: session.c (what is done when), session_server.c (what a server
 * hears first) and session_facts.c (what is to be known of it). */
#ifndef TOOLS_TRANSFER_SESSION_PRIVATE_H
#define TOOLS_TRANSFER_SESSION_PRIVATE_H

#include "tools/transfer/choice/walk.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/ends/receiver.h"
#include "tools/transfer/ends/sender.h"
#include "tools/transfer/wire/listing.h"

struct relay;

enum session_state {
    SESSION_GREETING, /* client: to WELCOME; server: to HELLO */
    SESSION_SOURCES,  /* server, pull: the rules, and the list of what is wanted */
    SESSION_TRANSFER,
    SESSION_FEEDING, /* it feeds another one here, which is a relay's */
    SESSION_ENDING,  /* nothing more is expected but the link's end */
    SESSION_CLOSED,
};

struct session {
    struct link *link;
    const struct report *report;
    bool is_server;
    struct session_request request;  /* a server's is the client's HELLO */
    char named[NAME_LENGTH_MAX + 1]; /* server, push: the only source's name */
    struct filter *filter;           /* server, pull: the client's */
    unsigned rules;                  /* of it, that are to come */
    struct listing listing;          /* server, pull: the client's */
    unsigned listed;                 /* of it, that are to come */
    size_t held, granted;            /* bytes of the client's names, and how many there may be */
    struct session_service service;
    size_t root_name; /* a server's: octets of each path that have named the root */
    enum session_state state;
    enum session_outcome outcome;
    enum session_rest rest;
    enum problem_code refusal;
    bool opened;
    uint64_t heard;      /* events of the peer's making */
    struct relay *relay; /* ours, between the link and us; NULL: none */
    struct relay *fed;   /* feeding: whom; NULL: it is gone */
    bool feeds;
    struct tally tally;
    struct sender *sender;
    struct receiver *receiver;
    struct target target; /* server, push */
    char **names;         /* server, pull: the sources; client, pull: what they are called here */
    unsigned name_count;
    char reason[TEXT_LENGTH_MAX + 128];
    char device[TEXT_LENGTH_MAX + 1];
    uint8_t head[MESSAGE_HEAD_MAX];
};

void session_send(struct session *session, const struct message *message);
/* Only the first one counts. */
void session_set_outcome(struct session *session, enum session_outcome outcome, const char *reason);
/* Ends in order; what was sent is delivered. */
void session_finish(struct session *session);
/* Ends at once, and tells the peer why. */
void session_give_up(struct session *session, const char *reason);
void session_peer_broke(struct session *session, const char *how);
/* The session's events come from it. */
void session_take_link(struct session *session, struct link *link);
/* So much more is kept for the client; false: it may not be, see session_service. */
bool session_hold(struct session *session, size_t length);
bool session_add_name(struct session *session, const char *name, size_t length);

/* What a walk hands out besides files, directories and symbolic links. */
struct walk_options session_walk(const struct session *session);
bool session_start_sender(struct session *session, const struct walk_options *walk,
                          const char *const *sources);
bool session_start_receiver(struct session *session, struct target *target,
                            const char *const *names, struct weir_error *ret_error);

/* session_server.c: a server's first messages. */
void session_receive_hello(struct session *session, const struct message *message);
void session_receive_hop(struct session *session, const void *bytes, size_t length);
void session_receive_source(struct session *session, const struct message *message);

#endif
