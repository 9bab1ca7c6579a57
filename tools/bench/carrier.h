/* What carries the operations of one case: a queue pair, or a channel of libweir. Both ends make
 * one; `describe` and `attach` tell each about the other; then runs follow, in which both ends do
 * their part of `count` operations.
 *
 * Invariants: all memory is touched before the first run. What the first run moved is compared
 * byte by byte by `check`, outside of any timing. A run ends with an error when the other end is
 * gone or nothing moves for PATIENCE_S. */
#ifndef TOOLS_BENCH_CARRIER_H
#define TOOLS_BENCH_CARRIER_H

#include <jansson.h>

#include <weir/fabric.h>

#include "tools/bench/clock.h"
#include "tools/bench/control.h"
#include "tools/bench/histogram.h"
#include "tools/bench/plan.h"

struct carrier;

struct carrier_operations {
    /* What the other end must know. */
    json_t *(*describe)(const struct carrier *carrier);
    bool (*attach)(struct carrier *carrier, const json_t *peer, struct weir_error *ret_error);
    /* Waits until a run may begin; called on both ends before each. */
    bool (*ready)(struct carrier *carrier, struct weir_error *ret_error);
    /* `samples`: round trips go there, NULL on the server. */
    bool (*run)(struct carrier *carrier, uint64_t count, struct histogram *samples,
                struct weir_error *ret_error);
    bool (*check)(struct carrier *carrier, uint64_t count, struct weir_error *ret_error);
    void (*destroy)(struct carrier *carrier);
};

struct carrier {
    const struct carrier_operations *operations;
    struct plan_case item;
    struct control *control;
};

/* NULL: ret_error says why; UNSUPPORTED: this device has no such operation. */
struct carrier *verbs_carrier_create(struct weir_fabric *fabric, struct control *control,
                                     const struct plan_case *item, struct weir_error *ret_error);
struct carrier *channel_carrier_create(struct weir_fabric *fabric, struct control *control,
                                       const struct plan_case *item, struct weir_error *ret_error);

/* CPU seconds of this process, all threads. */
double carrier_cpu_s(void);
/* Called whenever something has moved: whether nobody has interrupted this end. */
bool carrier_may_go_on(struct weir_error *ret_error);
/* Called now and then while nothing moves; *since_ns is 0 before the first call of a wait. */
bool carrier_may_wait(struct carrier *carrier, uint64_t *since_ns, struct weir_error *ret_error);
/* Two buffers of `size` bytes or more, at *ret_span from each other: the first filled with what
 * this end sends, the second, for what arrives, with the same, which the other end never sends. */
uint8_t *carrier_map(const struct carrier *carrier, size_t *ret_span, struct weir_error *ret_error);
void carrier_unmap(uint8_t *bytes, size_t span);
/* What an end sends, byte by byte; another on each end. */
void carrier_fill(uint8_t *bytes, size_t length, bool is_server);
/* The first byte that is not what that end sends; `length` if all are. */
size_t carrier_compare(const uint8_t *bytes, size_t length, bool is_server);

#endif
