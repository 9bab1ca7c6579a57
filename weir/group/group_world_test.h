/* Groups in one process, for the end-to-end tests: members with an rpc each, on one poller, over
 * the fabric of weir/channel/world_test.h. */
#ifndef WEIR_GROUP_WORLD_TEST_H
#define WEIR_GROUP_WORLD_TEST_H

#include "weir/channel/world_test.h"

#include <weir/group.h>

#define FAILURES_KEPT 64u
#define REPLY_KEPT    4096u

struct group_world;

struct group_member {
    struct group_world *world;
    uint32_t rank;
    struct weir_rpc *rpc; /* NULL: it is gone */
    struct weir_group *group;
    struct weir_group_procedure *sum, *list, *count, *keep;
    unsigned runs;                   /* of any handler here */
    struct weir_group_request *kept; /* by "keep", not answered */
    bool refuses;                    /* with 100 + rank */
};

struct group_world {
    struct weir_poller *poller;
    struct group_member *members;
    uint32_t size;
    char **addresses;
    struct weir_group_options options;
};

/* What became of a call: the argument of group_told. */
struct group_outcome {
    bool is_told;
    struct weir_group_reply reply;
    struct weir_group_failure failures[FAILURES_KEPT];
    uint8_t bytes[REPLY_KEPT];
};

/* `size` members that listen and have the procedures: "sum" replies a u64, the rank plus the
 * request's, combined by adding; "list" its rank as a u32, combined by joining; "count" replies
 * nothing and combines nothing; "keep" keeps the request. `options` may be NULL. */
void group_world_open(struct group_world *world, uint32_t size,
                      const struct weir_group_options *options);
void group_world_close(struct group_world *world);
void group_world_poll(struct group_world *world);
/* Polls until *flag, or fails the test. */
void group_world_run_until(struct group_world *world, const bool *flag);
/* Without a word to anybody. */
void group_world_kill(struct group_world *world, uint32_t rank);
void group_world_register(struct group_member *member);

weir_group_replied group_told;
void group_call(struct weir_group *group, struct weir_group_procedure *procedure, uint64_t value,
                const struct weir_group_call_options *options, struct group_outcome *outcome);
/* The u64 that "sum" has replied. */
uint64_t group_sum(const struct group_outcome *outcome);
/* How that rank failed; OK: it did not. */
enum weir_status group_failure(const struct group_outcome *outcome, uint32_t rank);

#endif
