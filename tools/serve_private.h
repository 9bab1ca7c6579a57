/* The server of transfers, between its files. */
#ifndef TOOLS_SERVE_PRIVATE_H
#define TOOLS_SERVE_PRIVATE_H

#include <limits.h>

#include "tools/command.h"
#include "tools/hop_dial.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/serve_options.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/wire/link.h"
#include "tools/trust/keys.h"

struct serve;

enum standing {
    STANDING_STRANGER, /* has proven nothing yet */
    STANDING_SERVED,
    STANDING_TURNED_AWAY, /* only hears that there is no room */
    STANDING_FEEDING,     /* brings what another one, of a fan-out, copies to here */
    STANDING_COUNT,
};

/* What the name that a client came by was, when its secret was looked for. */
enum proof {
    PROOF_NONE,
    PROOF_KEY,
    PROOF_SESSION, /* of the shell that has started this */
    PROOF_HOP,     /* to feed one that is part of a fan-out, and no more */
};

/* One client. */
struct served {
    struct served *next;
    struct serve *serve;
    struct link *link;
    struct session *session; /* NULL: its peer has proven nothing yet */
    struct output output;
    struct report report;
    enum standing standing;
    enum proof proof;          /* offered; proven when it is let in */
    bool is_sent_away;         /* a stranger, for the sake of others; it is ending */
    bool is_gone;              /* before it proved anything */
    double began_s, awaited_s; /* the latter: since when its greeting is */
    size_t held;               /* bytes of names that it has listed */
    uint64_t activity;
    double active_s; /* when the activity last changed, or there was something to do for us */
    uint64_t complaints;
    char peer[LOCATION_ADDRESS_LENGTH];
    char key[SECRET_NAME_MAX + 1]; /* by which it came; "" */
    uint8_t copy[COPY_ID_LENGTH];  /* of its greeting */
};

struct serve {
    const struct command *command;
    struct serve_options options;
    struct session_service service;
    struct session_root roots[SERVE_ROOTS_MAX]; /* those that have names */
    char shown[4 * PATH_MAX];                   /* what is served, for people */
    struct keys keys;
    struct certificates certificates;
    struct secret secret; /* of a session */
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    /* A session's second one is for IPv6; may be NULL. */
    struct weir_listener *listeners[SERVE_LISTENERS_MAX];
    struct served *transfers;
    struct hop_dial dial; /* to those that are fed from here */
    struct relay_host relays;
    unsigned counts[STANDING_COUNT]; /* of transfers */
    unsigned strangers, strangers_of_minute;
    double minute_s;
    double pumped_s;
    bool had_session;
    uint8_t copy[COPY_ID_LENGTH]; /* that a session is for */
    enum session_outcome outcome; /* of the last transfer */
    char device[512];
    char crowded[128], greedy[128]; /* why a client is turned away */
};

/* Opens what --root says. -1, or the exit status when it has been said what is wrong. */
int serve_open_roots(struct serve *serve);
/* What the options name: keys, certificates. False: why not has been said; serve_trust.c. */
bool serve_load_trust(struct serve *serve);
/* Of a guard, whose user is a struct served; serve_admit.c. */
const struct secret *serve_find_secret(void *user, const char *name);
/* What a peer may that has proven to know the secret of this name: that of a key, which has to be
 * there still, or of one that is to be fed here. One that came without, by a certificate or where
 * anyone may, has no name that a key could have. NULL, or why it may nothing. */
const char *serve_admit(struct served *served, const char *name,
                        struct session_service *ret_service);
/* A descriptor of the folder, which `option` has named; -1: it has been said why not. */
int serve_open_folder(const struct serve *serve, const char *option, const char *folder,
                      char ret_path[PATH_MAX]);

/* Lets the process open as many files as it ever may. How deep one transfer's directories may lie
 * in each other, of which each is an open file, so that one client leaves the others theirs. */
unsigned serve_share_files(unsigned transfers);

/* A client is an address, or a key: "" for one that has none. */
bool serve_is_same_client(const struct served *served, const char *peer, const char *key);
/* Those of the peer's address, with those that are ending. */
unsigned serve_count_strangers(const struct serve *serve, const char *peer);
/* A session_service's `hold`: what clients list is bounded for each of them, and for all. */
bool serve_hold(void *user, size_t length);

/* What the server's log, or its events, tell; serve_say.c. */
/* `root`: the path of the only one. */
void serve_say_listening(const struct serve *serve, const char *root);
/* `name`: of the key that it came with; NULL: keys are not asked for. */
void serve_say_connected(const struct served *served, const char *name);
/* One who came and was not let in. */
void serve_say_stranger(struct serve *serve, const char *peer, const char *why);
/* Of one transfer; `user` is its struct served. */
void serve_say_problem(void *user, const struct problem *problem);
void serve_say_end(const struct served *served);

#endif
