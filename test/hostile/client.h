/* What the parts of the honest clients (client.c) share. */
#ifndef WEIR_TEST_HOSTILE_CLIENT_H
#define WEIR_TEST_HOSTILE_CLIENT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum kind {
    STREAM,   /* RC: write, read back, count up, send */
    VISITOR,  /* the same, connecting anew each time */
    WINDOW,   /* as STREAM, through a window that each send ends and each echo says is bound anew */
    EXTENDED, /* XRC: as STREAM, without an echo */
    UNCERTAIN,         /* UC: sends */
    DATAGRAM,          /* UD: sends, having asked for the service */
    GROUP,             /* UD: sends to a group */
    SOCKET,            /* an rsocket's echo */
    INTRUDER,          /* RC: uses others' keys */
    INTRUDER_EXTENDED, /* XRC: and queues */
};

struct client {
    const char *name;
    enum kind kind;
    const char *from, *to;
    bool sheltered;
    uint16_t ports_after; /* NEIGHBOUR: of the second process */
};

struct result {
    uint64_t exchanges, connections, refused, broken, faults;
    uint64_t slowest_ms; /* to connect, the tries that were refused included */
};

extern const struct client clients[];
extern struct result results[]; /* of each */
extern volatile sig_atomic_t stopping;

void fault(const struct client *client, const char *what);
void pause_ms(long ms);
/* client_rsocket.c: one connection, until `stopping` or its end. */
void serve_socket(const struct client *client);

#endif
