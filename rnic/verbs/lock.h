/* A lock of four bytes, for objects that there are many of: an application's thread that finds it
 * taken sleeps. Zeroed: free. */
#ifndef WEIR_VERBS_LOCK_H
#define WEIR_VERBS_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
    _Atomic uint32_t state; /* 0: free, 1: taken, 2: taken, and somebody may sleep */
};

static inline void lock_take(struct lock *lock)
{
    uint32_t state = 0;
    if (atomic_compare_exchange_strong_explicit(&lock->state, &state, 1, memory_order_acquire,
                                                memory_order_relaxed)) {
        return;
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0) {
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

static inline void lock_give(struct lock *lock)
{
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2) {
        syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

#endif
