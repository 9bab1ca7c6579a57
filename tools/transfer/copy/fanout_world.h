/* A source and several receivers in one process, joined by links in memory, with a folder for each,
 * for tests: every end as it is, the lines between them ours. A receiver can be killed at any
 * event. */
#ifndef TOOLS_TRANSFER_FANOUT_WORLD_H
#define TOOLS_TRANSFER_FANOUT_WORLD_H

#include <limits.h>
#include <stdbool.h>

#include "tools/transfer/copy/fanout.h"
#include "tools/transfer/disk/scratch.h"
#include "tools/transfer/wire/memory_link.h"

#define NODES_MAX 8
#define WIRES_MAX 256

struct fanout_world;

/* A receiver. */
struct node {
    struct fanout_world *world;
    unsigned number;
    int root;
    bool dead, unreachable, refuses;
    bool lags;   /* whoever feeds it gets nothing through */
    bool deaf;   /* nobody can connect to feed it */
    bool mute;   /* it and the source hear nothing of each other, though they are connected */
    bool frozen; /* see fanout_world_freeze */
    struct relay_host host;
    struct report report; /* the source's, of it */
    struct report own;
    char problems[1024];
};

struct wire {
    struct memory_pair *pair;
    struct node *client; /* NULL: the source */
    struct node *server;
    struct session *session; /* the server's */
    bool opened, to_feed;
};

struct fanout_world {
    struct scratch *scratch; /* "here", and "root0" and so on */
    struct node nodes[NODES_MAX];
    unsigned count;
    struct wire wires[WIRES_MAX];
    unsigned wire_count, next;
    struct fanout_member members[NODES_MAX];
    struct session_request request;
    struct report report;
    char problems[1024];
    char source[PATH_MAX];
    const char *sources[1];
    struct fanout *fanout;
    struct session *client;
    unsigned random;
    time_t now_s; /* by the source's clock */
    /* Called before a step; NULL: not. */
    void (*between)(struct fanout_world *world, unsigned step);
};

int fanout_world_setup(void **state);
int fanout_world_teardown(void **state);
/* Of "here/SOURCE" to the roots of so many; what was before is ended, and nobody is dead. */
void fanout_world_begin(struct fanout_world *world, const char *source, unsigned count);
/* Everybody does what can be done, and one event is delivered. False: nothing is left to do. */
bool fanout_world_step(struct fanout_world *world);
/* To the end; how many steps it took. */
unsigned fanout_world_run(struct fanout_world *world);
/* Seconds pass for the source, in each of which all is done that can be done. */
void fanout_world_wait(struct fanout_world *world, unsigned seconds);
/* Without a word. */
void fanout_world_kill(struct fanout_world *world, unsigned node);
/* It does nothing and hears nothing any more, and its lines stay as they are. */
void fanout_world_freeze(struct fanout_world *world, unsigned node);
/* The line by which it is fed breaks. False: there is none. */
bool fanout_world_cut(struct fanout_world *world, unsigned node);
/* The memory that it gives to whom feeds it; NULL: to nobody. */
uint8_t *fanout_world_memory(struct fanout_world *world, unsigned node);
/* Who connected last to feed it; NULL: the source. Somebody has. */
struct node *fanout_world_feeder(const struct fanout_world *world, unsigned node);

#endif
