/* A lock of eight bytes for what each message takes, and for objects that there are many of. A
 * thread that finds it taken sleeps. Zeroed: free.
 *
 * Who takes it again and again is favoured: to take it costs that thread neither an exchange nor a
 * fence, until another one comes. That one ends the favour, which costs it a heavy fence; where
 * those do not work nobody is favoured. Any other taking costs one exchange.
 *
 * Another thread than the one that took it may give it, if it knows which one that was.
 *
 * Giving it is a load and a store, so who comes to sleep between the two is not seen and not woken;
 * nobody sleeps for longer than LOCK_LOOK_NS without looking again. */
#ifndef WEIR_IO_LOCK_H
#define WEIR_IO_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCK_LOOK_NS 50000

/* `favour`: the number of the thread that took it last, or 0; in how many takings of a row; and
 * whether it is favoured for that. Written by who has the state, or has it taken away. */
#define LOCK_FAVOURED UINT32_C(0x80000000)
#define LOCK_IN_ROW   UINT32_C(0x00000400)
#define LOCK_THREAD   (LOCK_IN_ROW - 1)
#define LOCK_ROW_LONG (UINT32_C(512) * LOCK_IN_ROW) /* earns the favour */

struct lock {
    _Atomic uint32_t state; /* 0: free or held by favour, 1: taken, 2: and somebody may sleep */
    _Atomic uint32_t favour;
};

/* Where a lock stands among those that a thread takes within one another; the same at each call. */
enum lock_level {
    LOCK_OUTER, /* an object's */
    LOCK_INNER, /* the engine's, which is taken within those, too */
    LOCK_LEVELS,
};

/* A thread, and which locks it has by favour: one of each level. All others it takes by their
 * state. Written by the thread, but for what another one gives in its place. */
struct lock_holder {
    uint32_t number;
    uint32_t favour; /* with LOCK_FAVOURED, as its locks have it */
    _Atomic(const struct lock *) inside[LOCK_LEVELS];
};

/* The calling thread's; before it has one, and where there are too many, one of number 0, which is
 * never favoured. */
extern _Thread_local struct lock_holder *lock_self
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* What follows is the slow part of the functions below. */
/* Of who has just got the state: counts, ends another's favour, waiting for that one to let go: as
 * long as it takes, or else a moment. False: that was too short, and the state is given back. */
bool lock_settle(struct lock *lock, enum lock_level level, bool waits);
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

/* The second look is after the place was written, in the order that lock_settle's heavy fence sees:
 * either it sees the place, or we see that the favour has ended. */
static inline bool lock_take_by_favour(struct lock *lock, enum lock_level level)
{
    struct lock_holder *self = lock_self;
    _Atomic(const struct lock *) *place = &self->inside[level];
    uint32_t ours = self->favour;
    if (atomic_load_explicit(&lock->favour, memory_order_relaxed) != ours ||
        atomic_load_explicit(place, memory_order_acquire) != NULL) {
        return false;
    }
    atomic_store_explicit(place, lock, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&lock->favour, memory_order_acquire) == ours) {
        return true;
    }
    atomic_store_explicit(place, NULL, memory_order_release);
    return false;
}

static inline bool lock_take_state(struct lock *lock)
{
    uint32_t state = 0;
    return atomic_compare_exchange_strong(&lock->state, &state, 1);
}

/* The usual case of lock_settle: the same thread as before. */
static inline bool lock_goes_on(struct lock *lock)
{
    uint32_t favour = atomic_load_explicit(&lock->favour, memory_order_relaxed);
    uint32_t row = favour - lock_self->number;
    if (row >= LOCK_ROW_LONG || (row & LOCK_THREAD) != 0) {
        return false;
    }
    atomic_store_explicit(&lock->favour, favour + LOCK_IN_ROW, memory_order_relaxed);
    return true;
}

/* False: another has it, or has had it until just now. */
static inline bool lock_try(struct lock *lock, enum lock_level level)
{
    return lock_take_by_favour(lock, level) ||
           (lock_take_state(lock) && (lock_goes_on(lock) || lock_settle(lock, level, false)));
}

static inline void lock_take(struct lock *lock, enum lock_level level)
{
    if (lock_take_by_favour(lock, level)) {
        return;
    }
    if (!lock_take_state(lock)) {
        lock_wait(lock);
    }
    if (!lock_goes_on(lock)) {
        (void)lock_settle(lock, level, true);
    }
}

static inline bool lock_give_by_favour(const struct lock *lock, enum lock_level level,
                                       struct lock_holder *taker)
{
    _Atomic(const struct lock *) *place = &taker->inside[level];
    if (atomic_load_explicit(place, memory_order_relaxed) != lock) {
        return false;
    }
    atomic_store_explicit(place, NULL, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    return true;
}

/* `taker`: what lock_self was where it was taken, right after that. */
static inline void lock_give_for(struct lock *lock, enum lock_level level,
                                 struct lock_holder *taker)
{
    if (lock_give_by_favour(lock, level, taker)) {
        return;
    }
    bool may_sleep = atomic_load_explicit(&lock->state, memory_order_relaxed) == 2;
    atomic_store_explicit(&lock->state, 0, memory_order_release);
    if (may_sleep) {
        lock_wake(lock);
    }
}

static inline void lock_give(struct lock *lock, enum lock_level level)
{
    lock_give_for(lock, level, lock_self);
}

/* The same, before whatever its giver looks at afterwards, in the order that all see who write that
 * and then try the lock: by favour for nothing, as theirs is the heavy fence, else at the price of
 * an exchange. */
static inline void lock_give_in_order(struct lock *lock, enum lock_level level)
{
    if (!lock_give_by_favour(lock, level, lock_self) && atomic_exchange(&lock->state, 0) == 2) {
        lock_wake(lock);
    }
}

#endif
