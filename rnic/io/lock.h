/* A lock of four bytes that costs two atomic exchanges: for what each message takes, and for
 * objects that there are many of. A thread that finds it taken sleeps. Zeroed: free. Giving it is
 * ordered before whatever its giver looks at afterwards, as a sequentially consistent exchange is.
 */
#ifndef WEIR_IO_LOCK_H
#define WEIR_IO_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    if (lock_try(lock)) {
        return;
    }
    while (atomic_exchange(&lock->state, 2) != 0) {
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

static inline void lock_give(struct lock *lock)
{
    if (atomic_exchange(&lock->state, 0) == 2) {
        syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

#endif
