/* What is measured of a queue pair: ping-pongs, one operation at a time, and many under way. */
#include <stdlib.h>
#include <string.h>

#include "tools/bench/stopwatch.h"
#include "tools/bench/verbs_pair.h"

#define LOOKS 65536 /* at memory, before looking what else there is */

static bool has_room(const struct verbs_pair *pair)
{
    return pair->posted - pair->completed < pair->capacity;
}

/* Posts one, of which every so many is signalled. */
static bool post_one(struct verbs_pair *pair, struct weir_error *ret_error)
{
    while (!has_room(pair)) {
        if (!verbs_pair_wait(pair, ret_error)) {
            return false;
        }
    }
    return verbs_pair_post(pair, (pair->posted + 1) % pair->signal_every == 0, ret_error);
}

static bool wait_for_receives(struct verbs_pair *pair, uint64_t wanted,
                              struct weir_error *ret_error)
{
    while (pair->received < wanted) {
        if (!verbs_pair_wait(pair, ret_error)) {
            return false;
        }
    }
    return true;
}

static void sample(struct histogram *samples, uint64_t *last)
{
    uint64_t now = stopwatch_ticks();
    histogram_add(samples, stopwatch_ns(now - *last));
    *last = now;
}

/* Messages, or immediates: each end answers what it receives. */
static bool ping_pong(struct verbs_pair *pair, uint64_t count, struct histogram *samples,
                      struct weir_error *ret_error)
{
    bool is_first = samples != NULL;
    uint64_t base = pair->received;
    uint64_t last = stopwatch_ticks();
    for (uint64_t i = 1; i <= count; i++) {
        if (is_first && !post_one(pair, ret_error)) {
            return false;
        }
        if (!wait_for_receives(pair, base + i, ret_error)) {
            return false;
        }
        if (is_first) {
            sample(samples, &last);
        } else if (!post_one(pair, ret_error)) {
            return false;
        }
    }
    return true;
}

/* Until the other end's write number `sequence` has put its last byte in place: it answers one of
 * this end's, which may have failed, or is not there any more. */
static bool watch_byte(struct verbs_pair *pair, uint8_t sequence, struct weir_error *ret_error)
{
    const uint8_t *byte = pair->bytes + pair->span + pair->carrier.item.size - 1;
    uint64_t since_ns = 0;
    for (unsigned looks = 1; __atomic_load_n(byte, __ATOMIC_ACQUIRE) != sequence; looks++) {
        if (looks % LOOKS == 0 && (verbs_pair_take(pair, ret_error) < 0 ||
                                   !carrier_may_wait(&pair->carrier, &since_ns, ret_error))) {
            return false;
        }
    }
    return true;
}

static bool write_ping_pong(struct verbs_pair *pair, uint64_t count, struct histogram *samples,
                            struct weir_error *ret_error)
{
    bool is_first = samples != NULL;
    uint8_t *mark = pair->bytes + pair->carrier.item.size - 1;
    uint64_t last = stopwatch_ticks();
    for (uint64_t i = 0; i < count; i++) {
        uint8_t sequence = (uint8_t)(pair->posted + 1);
        if (!is_first && !watch_byte(pair, sequence, ret_error)) {
            return false;
        }
        *mark = sequence;
        if (!post_one(pair, ret_error)) {
            return false;
        }
        if (is_first) {
            if (!watch_byte(pair, sequence, ret_error)) {
                return false;
            }
            sample(samples, &last);
        }
    }
    return true;
}

/* One at a time, to its completion. */
static bool one_by_one(struct verbs_pair *pair, uint64_t count, struct histogram *samples,
                       struct weir_error *ret_error)
{
    uint64_t last = stopwatch_ticks();
    for (uint64_t i = 0; i < count; i++) {
        if (!verbs_pair_post(pair, true, ret_error)) {
            return false;
        }
        while (pair->completed < pair->posted) {
            if (!verbs_pair_wait(pair, ret_error)) {
                return false;
            }
        }
        sample(samples, &last);
    }
    return true;
}

/* As many under way as there is room for; this end's all complete, the other's all received. */
static bool stream(struct verbs_pair *pair, uint64_t to_post, uint64_t to_receive,
                   struct weir_error *ret_error)
{
    uint64_t last = pair->posted + to_post, last_received = pair->received + to_receive;
    while (pair->completed < last || pair->received < last_received) {
        while (pair->posted < last && has_room(pair)) {
            bool is_signalled =
                (pair->posted + 1) % pair->signal_every == 0 || pair->posted + 1 == last;
            if (!verbs_pair_post(pair, is_signalled, ret_error)) {
                return false;
            }
        }
        if (!verbs_pair_wait(pair, ret_error)) {
            return false;
        }
    }
    return true;
}

static bool run(struct carrier *carrier, uint64_t count, struct histogram *samples,
                struct weir_error *ret_error)
{
    struct verbs_pair *pair = (struct verbs_pair *)carrier;
    const struct plan_case *item = &carrier->item;
    bool is_server = carrier->control->is_server;
    if (item->measure == PLAN_BANDWIDTH) {
        bool receives = plan_is_received(item->operation) && (is_server || item->both_ways);
        return stream(pair, !is_server || item->both_ways ? count : 0, receives ? count : 0,
                      ret_error);
    }
    if (plan_is_ping_pong(item)) {
        return item->operation == PLAN_WRITE ? write_ping_pong(pair, count, samples, ret_error)
                                             : ping_pong(pair, count, samples, ret_error);
    }
    return is_server || one_by_one(pair, count, samples, ret_error);
}

static bool ready(struct carrier *carrier, struct weir_error *ret_error)
{
    return true;
}

/* Each atomic operation has counted the other end's word up by one. */
static bool check_word(const struct verbs_pair *pair, uint64_t count, struct weir_error *ret_error)
{
    uint64_t word, before;
    bool is_server = pair->carrier.control->is_server;
    memcpy(&word, pair->bytes + pair->span, sizeof(word));
    memcpy(&before, pair->bytes, sizeof(before));
    bool both = pair->carrier.item.both_ways;
    uint64_t wanted = is_server || both ? count : 0;
    if (word != wanted || ((!is_server || both) && before != count - 1)) {
        return control_error(
            ret_error, WEIR_PROTOCOL, "%s: after %llu operations the word is %llu, not %llu",
            plan_operation_name(pair->carrier.item.operation), (unsigned long long)count,
            (unsigned long long)word, (unsigned long long)wanted);
    }
    return true;
}

static bool check(struct carrier *carrier, uint64_t count, struct weir_error *ret_error)
{
    const struct verbs_pair *pair = (const struct verbs_pair *)carrier;
    const struct plan_case *item = &carrier->item;
    bool is_server = carrier->control->is_server;
    if (plan_is_atomic(item->operation)) {
        return check_word(pair, count, ret_error);
    }
    bool arrives_here =
        item->both_ways || plan_is_ping_pong(item) || is_server == (item->operation != PLAN_READ);
    if (!arrives_here) {
        return true;
    }
    /* The last byte of a ping-pong of writes is its sequence number. */
    bool is_marked = plan_is_ping_pong(item) && item->operation == PLAN_WRITE;
    size_t length = item->size - is_marked;
    size_t same = carrier_compare(pair->bytes + pair->span, length, !is_server);
    return same == length ||
           control_error(ret_error, WEIR_PROTOCOL, "%s of %zu B: byte %zu arrived wrong",
                         plan_operation_name(item->operation), item->size, same);
}

static void destroy(struct carrier *carrier)
{
    struct verbs_pair *pair = (struct verbs_pair *)carrier;
    verbs_pair_destroy(pair);
    free(pair);
}

struct carrier *verbs_carrier_create(struct weir_fabric *fabric, struct control *control,
                                     const struct plan_case *item, struct weir_error *ret_error)
{
    static const struct carrier_operations operations = {
        verbs_pair_describe, verbs_pair_attach, ready, run, check, destroy};
    struct verbs_pair *pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        control_error(ret_error, WEIR_NO_MEMORY, "no memory");
        return NULL;
    }
    pair->carrier = (struct carrier){&operations, *item, control};
    pair->fabric = fabric;
    if (!verbs_pair_create(pair, ret_error)) {
        destroy(&pair->carrier);
        return NULL;
    }
    return &pair->carrier;
}
