/* Most deadlines are the same time away as those before them, so they come in order: whatever is
 * not before the last in line goes behind it, and leaves from wherever it stands, at the cost of
 * its neighbours. The others are in a pairing heap: setting is constant, taking the earliest
 * logarithmic over time. No recursion, so a heap of any shape fits any stack.
 *
 * Who is in line is its own child. */
#include "rnic/base/timers.h"

void timers_init(struct timers *timers)
{
    *timers = (struct timers){0};
}

static bool comes_before(const struct timer *a, const struct timer *b)
{
    return a->deadline.ns != b->deadline.ns ? a->deadline.ns < b->deadline.ns : a->order < b->order;
}

/* Joins two trees whose roots have no siblings; either may be NULL. */
static struct timer *meld(struct timer *a, struct timer *b)
{
    if (a == NULL || b == NULL) {
        return a == NULL ? b : a;
    }
    struct timer *winner = comes_before(a, b) ? a : b;
    struct timer *loser = winner == a ? b : a;
    loser->previous = winner;
    loser->next = winner->child;
    if (loser->next != NULL) {
        loser->next->previous = loser;
    }
    winner->child = loser;
    return winner;
}

static struct timer *detach(struct timer *timer)
{
    timer->next = NULL;
    timer->previous = NULL;
    return timer;
}

/* Makes one tree of a row of siblings: melds them in pairs from the left, then the pairs from the
 * right. The pairs wait in a stack through `next`. */
static struct timer *meld_siblings(struct timer *first)
{
    struct timer *pairs = NULL;
    while (first != NULL) {
        struct timer *second = first->next;
        struct timer *rest = second == NULL ? NULL : second->next;
        struct timer *pair = meld(detach(first), second == NULL ? NULL : detach(second));
        pair->next = pairs;
        pairs = pair;
        first = rest;
    }
    struct timer *tree = NULL;
    while (pairs != NULL) {
        struct timer *rest = pairs->next;
        tree = meld(tree, detach(pairs));
        pairs = rest;
    }
    return tree;
}

static bool is_in_line(const struct timer *timer)
{
    return timer->child == timer;
}

static void get_in_line(struct timers *timers, struct timer *timer)
{
    timer->child = timer;
    timer->previous = timers->last;
    if (timers->last != NULL) {
        timers->last->next = timer;
    } else {
        timers->first = timer;
    }
    timers->last = timer;
}

static void leave_line(struct timers *timers, const struct timer *timer)
{
    if (timer->previous != NULL) {
        timer->previous->next = timer->next;
    } else {
        timers->first = timer->next;
    }
    if (timer->next != NULL) {
        timer->next->previous = timer->previous;
    } else {
        timers->last = timer->previous;
    }
}

static void unlink_from_siblings(struct timer *timer)
{
    if (timer->previous->child == timer) {
        timer->previous->child = timer->next;
    } else {
        timer->previous->next = timer->next;
    }
    if (timer->next != NULL) {
        timer->next->previous = timer->previous;
    }
}

static void leave_heap(struct timers *timers, struct timer *timer)
{
    struct timer *orphans = meld_siblings(timer->child);
    if (timer == timers->root) {
        timers->root = orphans;
    } else {
        unlink_from_siblings(timer);
        timers->root = meld(timers->root, orphans);
    }
}

void timers_cancel(struct timers *timers, struct timer *timer)
{
    if (!timer_is_set(timer)) {
        return;
    }
    if (is_in_line(timer)) {
        leave_line(timers, timer);
    } else {
        leave_heap(timers, timer);
    }
    *timer = (struct timer){.deadline = timer->deadline};
}

void timers_set(struct timers *timers, struct timer *timer, struct instant deadline)
{
    timers_cancel(timers, timer);
    if (instant_is_never(deadline)) {
        return;
    }
    *timer = (struct timer){.deadline = deadline, .order = ++timers->last_order};
    if (timers->last == NULL || !instant_before(deadline, timers->last->deadline)) {
        get_in_line(timers, timer);
    } else {
        timers->root = meld(timers->root, timer);
    }
}

struct timer *timers_pop_due(struct timers *timers, struct instant now)
{
    struct timer *timer = timers->first;
    if (timer == NULL || (timers->root != NULL && comes_before(timers->root, timer))) {
        timer = timers->root;
    }
    if (timer == NULL || instant_before(now, timer->deadline)) {
        return NULL;
    }
    timers_cancel(timers, timer);
    return timer;
}
