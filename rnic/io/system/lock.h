/* A lock of four bytes that costs one atomic exchange: for what each message takes, and for objects
 * that there are many of. A thread that finds it taken sleeps. Zeroed: free.
 *
 * Giving it is a load and a store, so who comes to sleep between the two is not seen and not woken;
 * nobody sleeps for longer than LOCK_LOOK_NS without looking again. */
#ifndef WEIR_IO_LOCK_H
#define WEIR_IO_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_LOOK_NS 50000

struct lock {
    _Atomic uint32_t state; /* 0: free, 1: taken, 2: taken, and somebody may sleep */
};

static inline bool lock_try(struct lock *lock)
{
    uint32_t state = 0;
    return atomic_compare_exchange_strong(&lock->state, &state, 1);
}

static inline void lock_take(struct lock *lock)
{
    static const struct timespec look = {.tv_nsec = LOCK_LOOK_NS};
    if (lock_try(lock)) {
        return;
    }
    while (atomic_exchange(&lock->state, 2) != 0) {
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, &look, NULL, 0);
    }
}

static inline void lock_wake(struct lock *lock)
{
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline void lock_give(struct lock *lock)
{
    bool may_sleep = atomic_load_explicit(&lock->state, memory_order_relaxed) == 2;
    atomic_store_explicit(&lock->state, 0, memory_order_release);
    if (may_sleep) {
        lock_wake(lock);
    }
}

/* The same at the price of an exchange, sequentially consistent: before whatever its giver looks at
 * afterwards. */
static inline void lock_give_in_order(struct lock *lock)
{
    if (atomic_exchange(&lock->state, 0) == 2) {
        lock_wake(lock);
    }
}

#endif
