/* A hash of callers, chained, which are also in the order heard. Places are indices plus one. */
#include "weir/group/seen.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_LEAST 16u
#define WORD_BITS      64u

struct seen_caller {
    uint64_t caller;
    uint64_t greatest;
    uint32_t chain;        /* the next of the same hash */
    uint32_t newer, older; /* in the order heard */
    uint64_t bits[SEEN_WINDOW / WORD_BITS];
};

void seen_fini(struct seen *seen)
{
    free(seen->callers);
    free(seen->places);
    *seen = (struct seen){0};
}

static uint32_t *place_of(const struct seen *seen, uint64_t caller)
{
    uint64_t mixed = caller * UINT64_C(0x9e3779b97f4a7c15);
    return &seen->places[(mixed >> 32) & (2 * seen->capacity - 1)];
}

static struct seen_caller *at(const struct seen *seen, uint32_t place)
{
    return &seen->callers[place - 1];
}

static uint32_t find(const struct seen *seen, uint64_t caller)
{
    uint32_t place = seen->capacity > 0 ? *place_of(seen, caller) : 0;
    while (place != 0 && at(seen, place)->caller != caller) {
        place = at(seen, place)->chain;
    }
    return place;
}

static void put_in_chain(struct seen *seen, uint32_t place)
{
    uint32_t *first = place_of(seen, at(seen, place)->caller);
    at(seen, place)->chain = *first;
    *first = place;
}

static void take_from_chain(struct seen *seen, uint32_t place)
{
    uint32_t *link = place_of(seen, at(seen, place)->caller);
    while (*link != place) {
        link = &at(seen, *link)->chain;
    }
    *link = at(seen, place)->chain;
}

static void take_from_order(struct seen *seen, uint32_t place)
{
    const struct seen_caller *caller = at(seen, place);
    *(caller->newer != 0 ? &at(seen, caller->newer)->older : &seen->newest) = caller->older;
    *(caller->older != 0 ? &at(seen, caller->older)->newer : &seen->oldest) = caller->newer;
}

static void put_newest(struct seen *seen, uint32_t place)
{
    at(seen, place)->newer = 0;
    at(seen, place)->older = seen->newest;
    *(seen->newest != 0 ? &at(seen, seen->newest)->newer : &seen->oldest) = place;
    seen->newest = place;
}

static bool grow(struct seen *seen)
{
    uint32_t capacity = seen->capacity > 0 ? 2 * seen->capacity : CAPACITY_LEAST;
    uint32_t *places = calloc(2 * (size_t)capacity, sizeof(*places));
    struct seen_caller *callers = realloc(seen->callers, capacity * sizeof(*callers));
    seen->callers = callers != NULL ? callers : seen->callers;
    if (places == NULL || callers == NULL) {
        free(places);
        return false;
    }
    free(seen->places);
    seen->places = places;
    seen->capacity = capacity;
    for (uint32_t place = 1; place <= seen->count; place++) {
        put_in_chain(seen, place);
    }
    return true;
}

/* Room for one more, in the place of the one that was heard the longest ago if there are as many as
 * may be. 0: no memory. */
static uint32_t make_room(struct seen *seen)
{
    if (seen->count == SEEN_CALLERS) {
        uint32_t place = seen->oldest;
        take_from_order(seen, place);
        take_from_chain(seen, place);
        return place;
    }
    if (seen->count == seen->capacity && !grow(seen)) {
        return 0;
    }
    return ++seen->count;
}

static bool test_and_set(struct seen_caller *caller, uint64_t number)
{
    uint64_t *word = &caller->bits[number % SEEN_WINDOW / WORD_BITS];
    uint64_t bit = UINT64_C(1) << (number % WORD_BITS);
    bool was = (*word & bit) != 0;
    *word |= bit;
    return was;
}

static void advance(struct seen_caller *caller, uint64_t number)
{
    if (number - caller->greatest >= SEEN_WINDOW) {
        memset(caller->bits, 0, sizeof(caller->bits));
    } else {
        for (uint64_t i = caller->greatest + 1; i <= number; i++) {
            caller->bits[i % SEEN_WINDOW / WORD_BITS] &= ~(UINT64_C(1) << (i % WORD_BITS));
        }
    }
    caller->greatest = number;
}

enum seen_verdict seen_take(struct seen *seen, uint64_t caller, uint64_t number)
{
    uint32_t place = find(seen, caller);
    if (place != 0) {
        take_from_order(seen, place);
    } else {
        place = make_room(seen);
        if (place == 0) {
            return SEEN_NO_MEMORY;
        }
        *at(seen, place) = (struct seen_caller){.caller = caller, .greatest = number};
        put_in_chain(seen, place);
    }
    put_newest(seen, place);
    struct seen_caller *known = at(seen, place);
    if (number > known->greatest) {
        advance(known, number);
    } else if (known->greatest - number >= SEEN_WINDOW) {
        return SEEN_BEFORE;
    }
    return test_and_set(known, number) ? SEEN_BEFORE : SEEN_NEW;
}
