/* What can be measured: operations, measures, directions and modes by name, sizes as people type
 * them, and one combination of all as a case. Both ends speak of cases in these words. */
#ifndef TOOLS_BENCH_PLAN_H
#define TOOLS_BENCH_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_SIZES_MAX 32
#define PLAN_SIZE_MAX  ((size_t)64 << 20)
#define PLAN_DEPTH_MAX 1024
#define PLAN_SIZE_TEXT 24

enum plan_operation {
    PLAN_SEND,
    PLAN_WRITE,
    PLAN_WRITE_IMMEDIATE,
    PLAN_READ,
    PLAN_FETCH_ADD,
    PLAN_COMPARE_SWAP,
    PLAN_MESSAGE, /* of libweir's channel, as the next */
    PLAN_PUT,
    PLAN_OPERATION_COUNT,
};

enum plan_measure {
    PLAN_LATENCY,
    PLAN_BANDWIDTH, /* and rate: many under way */
    PLAN_MEASURE_COUNT,
};

struct plan_case {
    enum plan_operation operation;
    enum plan_measure measure;
    bool both_ways;  /* bandwidth only */
    bool is_blocked; /* who waits sleeps, else polls */
    bool is_huge;    /* huge pages, else pages of the usual size */
    size_t size;
    unsigned depth; /* operations under way */
};

/* Sets of enumerators, bit by bit. */
struct plan {
    unsigned operations, measures, directions, modes;
    size_t sizes[PLAN_SIZES_MAX];
    unsigned size_count, depth, runs;
    bool is_huge;
    double seconds; /* of a run */
};

const char *plan_operation_name(enum plan_operation operation);
const char *plan_measure_name(enum plan_measure measure);
const char *plan_direction_name(bool both_ways);
const char *plan_mode_name(bool is_blocked);
bool plan_is_atomic(enum plan_operation operation);
bool plan_is_channel(enum plan_operation operation);
/* A message or an immediate comes out at the other end. */
bool plan_is_received(enum plan_operation operation);
/* The latency is half of a round trip; else it is the time from posting to completion. */
bool plan_is_ping_pong(const struct plan_case *item);
/* How the figure was got, in words for a report. */
const char *plan_method(const struct plan_case *item);

/* "send,read" or "all" into sets. False: `*ret_bad` is the word that names nothing. */
enum plan_set {
    PLAN_OPERATIONS,
    PLAN_MEASURES,
    PLAN_DIRECTIONS,
    PLAN_MODES
};
bool plan_parse_set(enum plan_set kind, const char *text, unsigned *ret_set, char ret_bad[32]);
/* "poll, event, all": what it takes. */
#define PLAN_WORDS 128
void plan_words(enum plan_set kind, char ret_text[PLAN_WORDS]);
/* "8,4k,1m", of 1 to 64m each. */
bool plan_parse_sizes(struct plan *plan, const char *text, char ret_bad[32]);
/* "8 B", "4 KiB" */
void plan_size_text(size_t size, char ret_text[PLAN_SIZE_TEXT]);

/* Calls `each` for every case of the plan until it returns false; false then. */
typedef bool plan_each(void *user, const struct plan_case *item);
bool plan_walk(const struct plan *plan, plan_each *each, void *user);

json_t *plan_case_to_json(const struct plan_case *item);
/* From the other end: false unless every part is within its bounds. */
bool plan_case_from_json(const json_t *object, struct plan_case *ret_item);

#endif
