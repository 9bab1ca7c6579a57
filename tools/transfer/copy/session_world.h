/* A client's and a server's session over a pair of links in memory, with a folder for each, for
 * tests: both ends as they are, the line between them ours. */
#ifndef TOOLS_TRANSFER_SESSION_WORLD_H
#define TOOLS_TRANSFER_SESSION_WORLD_H

#include <limits.h>
#include <stdbool.h>

#include "tools/transfer/copy/session.h"
#include "tools/transfer/disk/scratch.h"
#include "tools/transfer/wire/memory_link.h"

#define MIB (1u << 20)

struct world {
    struct scratch *scratch; /* "here" is the client's folder, "root" the server's */
    int root;
    struct memory_pair *pair;
    struct session *client, *server;
    struct target target;
    struct session_request request;
    const char *source;
    char problems[2][2048]; /* client's, server's */
    struct report reports[2];
    char target_path[PATH_MAX];
    /* Called by world_run after each step. */
    void (*between)(struct world *world, unsigned step);
    bool replaced;        /* between's own: it has done what it does once */
    bool sealed;          /* as a link does it that gives copies: a thread writes large files */
    unsigned crowd;       /* so many more events come before both sides work again */
    bool goes_on_pumping; /* threads work meanwhile: how many steps it takes is not known */
};

/* For cmocka. */
int world_setup(void **state);
int world_teardown(void **state);

/* Both sides greet; what was before is ended. */
void world_connect(struct world *world, bool read_only);
/* Lets both sides work and delivers one event. False: nothing is left to do. */
bool world_step(struct world *world);
void world_run(struct world *world);

/* One source: "here/SOURCE" to the server's `target`, or the server's `source` to "here/TARGET". */
void world_begin_push(struct world *world, const char *source, const char *target);
void world_begin_pull(struct world *world, const char *source, const char *target);
/* The same to its end, as the client sees it. */
enum session_outcome world_push(struct world *world, const char *source, const char *target);
enum session_outcome world_pull(struct world *world, const char *source, const char *target);

/* The server says this. */
void world_inject(struct world *world, const struct message *message);

/* For tests of a peer that lies: the client waits for "/x" into its folder; the server says nothing
 * but welcome, and the test speaks for it. */
void world_begin_lies(struct world *world, bool recursive);
/* A message, and the server says it; a file's bytes ride along. */
struct message world_entry(uint32_t id, enum entry_kind kind, const char *name, const char *data);
void world_inject_entry(struct world *world, uint32_t id, enum entry_kind kind, const char *name,
                        const char *data);
/* The server begins "x", which is to go by chunks. */
void world_chunked_entry(struct world *world, uint64_t size);
/* The client finds that the server broke the protocol, and ends. */
void world_expect_broken(struct world *world);

#endif
