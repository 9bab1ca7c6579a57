#include "tools/bench/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const operation_names[PLAN_OPERATION_COUNT] = {
    "send", "write", "write-imm", "read", "fetch-add", "compare-swap", "message", "put",
};
static const char *const measure_names[PLAN_MEASURE_COUNT] = {"latency", "bandwidth"};
static const char *const direction_names[2] = {"one-way", "both-ways"};
static const char *const mode_names[2] = {"poll", "event"};

static const struct {
    const char *const *names;
    unsigned count;
} sets[] = {
    [PLAN_OPERATIONS] = {operation_names, PLAN_OPERATION_COUNT},
    [PLAN_MEASURES] = {measure_names, PLAN_MEASURE_COUNT},
    [PLAN_DIRECTIONS] = {direction_names, 2},
    [PLAN_MODES] = {mode_names, 2},
};

const char *plan_operation_name(enum plan_operation operation)
{
    return operation_names[operation];
}

const char *plan_measure_name(enum plan_measure measure)
{
    return measure_names[measure];
}

const char *plan_direction_name(bool both_ways)
{
    return direction_names[both_ways];
}

const char *plan_mode_name(bool is_blocked)
{
    return mode_names[is_blocked];
}

bool plan_is_atomic(enum plan_operation operation)
{
    return operation == PLAN_FETCH_ADD || operation == PLAN_COMPARE_SWAP;
}

bool plan_is_channel(enum plan_operation operation)
{
    return operation == PLAN_MESSAGE || operation == PLAN_PUT;
}

bool plan_is_received(enum plan_operation operation)
{
    return operation == PLAN_SEND || operation == PLAN_WRITE_IMMEDIATE || operation == PLAN_MESSAGE;
}

bool plan_is_ping_pong(const struct plan_case *item)
{
    return item->measure == PLAN_LATENCY && (plan_is_received(item->operation) ||
                                             (item->operation == PLAN_WRITE && !item->is_blocked));
}

const char *plan_method(const struct plan_case *item)
{
    if (item->measure == PLAN_BANDWIDTH) {
        return item->both_ways
                   ? "sum of both ends' rates, each by its own clock, to the last completion"
                   : "from the first post to the last completion";
    }
    if (!plan_is_ping_pong(item)) {
        return "from post to completion: there and back";
    }
    return item->operation == PLAN_WRITE
               ? "half of a round trip; each end looks at the last byte written"
               : "half of a round trip";
}

/* The index of a word of a list in `names`, or -1. */
static int find(const char *word, size_t length, const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], word, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static void cut(const char *word, size_t length, char ret_text[32])
{
    snprintf(ret_text, 32, "%.*s", length < 31 ? (int)length : 31, word);
}

bool plan_parse_set(enum plan_set kind, const char *text, unsigned *ret_set, char ret_bad[32])
{
    unsigned set = 0;
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        int index = find(word, length, sets[kind].names, sets[kind].count);
        if (length == 3 && memcmp(word, "all", 3) == 0) {
            set |= (1u << sets[kind].count) - 1;
        } else if (index < 0) {
            cut(word, length, ret_bad);
            return false;
        } else {
            set |= 1u << index;
        }
        word += length;
        if (*word == '\0') {
            *ret_set = set;
            return true;
        }
    }
}

void plan_words(enum plan_set kind, char ret_text[PLAN_WORDS])
{
    int length = 0;
    for (unsigned i = 0; i < sets[kind].count && length < PLAN_WORDS; i++) {
        length +=
            snprintf(ret_text + length, PLAN_WORDS - (size_t)length, "%s, ", sets[kind].names[i]);
    }
    if (length < PLAN_WORDS) {
        snprintf(ret_text + length, PLAN_WORDS - (size_t)length, "all");
    }
}

static bool parse_size(const char *word, size_t length, size_t *ret_size)
{
    char *end;
    unsigned long long value = strtoull(word, &end, 10);
    unsigned shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : 0;
    end += shift > 0;
    if (*word < '0' || *word > '9' || end != word + length || value == 0 ||
        value > PLAN_SIZE_MAX >> shift) {
        return false;
    }
    *ret_size = (size_t)value << shift;
    return true;
}

bool plan_parse_sizes(struct plan *plan, const char *text, char ret_bad[32])
{
    plan->size_count = 0;
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        if (plan->size_count == PLAN_SIZES_MAX ||
            !parse_size(word, length, &plan->sizes[plan->size_count])) {
            cut(word, length, ret_bad);
            return false;
        }
        plan->size_count++;
        word += length;
        if (*word == '\0') {
            return true;
        }
    }
}

void plan_size_text(size_t size, char ret_text[PLAN_SIZE_TEXT])
{
    if (size >= 1 << 20 && size % (1 << 20) == 0) {
        snprintf(ret_text, PLAN_SIZE_TEXT, "%zu MiB", size >> 20);
    } else if (size >= 1 << 10 && size % (1 << 10) == 0) {
        snprintf(ret_text, PLAN_SIZE_TEXT, "%zu KiB", size >> 10);
    } else {
        snprintf(ret_text, PLAN_SIZE_TEXT, "%zu B", size);
    }
}

static bool walk_sizes(const struct plan *plan, struct plan_case item, plan_each *each, void *user)
{
    if (plan_is_atomic(item.operation)) {
        item.size = sizeof(uint64_t);
        return each(user, &item);
    }
    for (unsigned i = 0; i < plan->size_count; i++) {
        item.size = plan->sizes[i];
        if (!each(user, &item)) {
            return false;
        }
    }
    return true;
}

bool plan_walk(const struct plan *plan, plan_each *each, void *user)
{
    for (unsigned bits = 0; bits < PLAN_OPERATION_COUNT * PLAN_MEASURE_COUNT * 4; bits++) {
        struct plan_case item = {
            .measure = (enum plan_measure)(bits / (PLAN_OPERATION_COUNT * 4)),
            .operation = (enum plan_operation)(bits / 4 % PLAN_OPERATION_COUNT),
            .both_ways = bits & 1,
            .is_blocked = bits >> 1 & 1,
            .is_huge = plan->is_huge,
            .depth = plan->depth,
        };
        /* A ping-pong goes both ways already. */
        bool is_wanted =
            plan->operations >> item.operation & 1 && plan->measures >> item.measure & 1 &&
            plan->modes >> item.is_blocked & 1 &&
            (item.measure == PLAN_LATENCY ? !item.both_ways
                                          : (plan->directions >> item.both_ways & 1) != 0);
        if (is_wanted && !walk_sizes(plan, item, each, user)) {
            return false;
        }
    }
    return true;
}

json_t *plan_case_to_json(const struct plan_case *item)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:i, s:b}", "operation", plan_operation_name(item->operation),
        "measure", plan_measure_name(item->measure), "direction",
        plan_direction_name(item->both_ways), "mode", plan_mode_name(item->is_blocked), "size",
        (json_int_t)item->size, "depth", (int)item->depth, "huge_pages", item->is_huge);
}

static int find_in(const json_t *object, const char *key, enum plan_set kind)
{
    const char *word = json_string_value(json_object_get(object, key));
    return word != NULL ? find(word, strlen(word), sets[kind].names, sets[kind].count) : -1;
}

bool plan_case_from_json(const json_t *object, struct plan_case *ret_item)
{
    int operation = find_in(object, "operation", PLAN_OPERATIONS);
    int measure = find_in(object, "measure", PLAN_MEASURES);
    int direction = find_in(object, "direction", PLAN_DIRECTIONS);
    int mode = find_in(object, "mode", PLAN_MODES);
    json_int_t size = json_integer_value(json_object_get(object, "size"));
    json_int_t depth = json_integer_value(json_object_get(object, "depth"));
    if (operation < 0 || measure < 0 || direction < 0 || mode < 0 || size < 1 ||
        size > (json_int_t)PLAN_SIZE_MAX || depth < 1 || depth > PLAN_DEPTH_MAX ||
        (plan_is_atomic((enum plan_operation)operation) && size != sizeof(uint64_t))) {
        return false;
    }
    *ret_item = (struct plan_case){
        .operation = (enum plan_operation)operation,
        .measure = (enum plan_measure)measure,
        .both_ways = direction == 1,
        .is_blocked = mode == 1,
        .is_huge = json_is_true(json_object_get(object, "huge_pages")),
        .size = (size_t)size,
        .depth = (unsigned)depth,
    };
    return true;
}
