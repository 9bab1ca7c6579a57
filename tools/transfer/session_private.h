/* A session, between its files: session.c (what is done when) and session_facts.c (what is to be
 * known of it). */
#ifndef TOOLS_TRANSFER_SESSION_PRIVATE_H
#define TOOLS_TRANSFER_SESSION_PRIVATE_H

#include "tools/transfer/session.h"

struct receiver;
struct relay;
struct sender;

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
    struct session_request request; /* a server's is the client's HELLO */
    struct filter *filter;          /* server, pull: the client's */
    unsigned rules;                 /* of it, that are to come */
    struct session_service service;
    enum session_state state;
    enum session_outcome outcome;
    enum session_rest rest;
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

#endif
