/* The source's part in a fan-out (docs/fanout.md): to its session it is the link to one receiver,
 * and behind it are many. What the sender says and puts goes into one stream, to the first of them;
 * what they answer comes from each by itself, and becomes one answer.
 *
 * One that ends or does not keep to the protocol fails, and the others go on. */
#ifndef TOOLS_TRANSFER_FANOUT_H
#define TOOLS_TRANSFER_FANOUT_H

#include <stdbool.h>
#include <time.h>

#include "tools/transfer/chain/relay.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/ends/report.h"

#define FANOUT_MEMBERS_MAX 256

struct fanout;

/* One receiver; all is borrowed. */
struct fanout_member {
    const char *name; /* for messages to the others */
    const char *path; /* there */
    const struct report *report;
};

struct fanout_options {
    const struct fanout_member *members; /* in the order of the chain */
    unsigned count;
    /* Begins to connect to one of them by its next address. NULL: there is none more, see ret_why.
     */
    struct link *(*connect)(void *user, unsigned member, char ret_why[HOP_WHY_LENGTH]);
    /* Where others can reach it: the addresses, and whether chunks are to be sealed. */
    void (*locate)(void *user, unsigned member, struct hop_target *target);
    time_t (*clock_s)(void *user); /* of a clock that never goes back */
    struct hop_dialer dialer; /* for the chain's first connection; its user is the above's, too */
};

/* NULL: no memory. */
struct fanout *fanout_create(const struct fanout_options *options);
/* After its session. Drops all links. */
void fanout_destroy(struct fanout *fanout);
struct link *fanout_link(struct fanout *fanout);
/* Does what can be done without waiting; to be called before each session_pump. */
void fanout_pump(struct fanout *fanout);

/* Of one receiver: COMPLETE, or RUNNING, or how it failed and why. */
enum session_outcome fanout_outcome(const struct fanout *fanout, unsigned member);
const char *fanout_why(const struct fanout *fanout, unsigned member);
/* What carries the data there, in its own words; "" before it is known. */
const char *fanout_device(const struct fanout *fanout, unsigned member);
/* What it says that it has done; before its end, only what failed. */
const struct tally *fanout_tally(const struct fanout *fanout, unsigned member);
/* Chunks that were put by the source itself, in bytes, and how often it began to feed somebody. */
uint64_t fanout_bytes_put(const struct fanout *fanout);
unsigned fanout_feeds(const struct fanout *fanout);

#endif
