/* Ending a favour. Who has the state takes the favour away and has a heavy fence: then either the
 * favoured thread has seen that, or its place says that it is inside, and nobody else comes in
 * meanwhile. The places are the threads' own, and others only empty those of locks that they give,
 * so a thread that was kept from running between its two looks puts nothing there that concerns
 * others. */
#include "rnic/io/system/lock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rnic/io/system/heavy_fence.h"

#define CACHE_LINE 64u
#define HOLDERS    256u /* threads at a time; the others are not favoured */
#define LOOKS      50u  /* before who waits sleeps, or gives up */
#define PAUSES     32u  /* between two looks */

_Static_assert(HOLDERS <= LOCK_THREAD, "numbers");

struct padded_holder {
    _Alignas(CACHE_LINE) struct lock_holder holder;
    _Atomic bool taken;
};

static struct padded_holder holders[HOLDERS];
/* Who has not asked for one, and who got none. */
static struct lock_holder nobody = {.favour = LOCK_FAVOURED}, crowd = {.favour = LOCK_FAVOURED};
_Thread_local struct lock_holder *lock_self = &nobody;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t end_of_thread;
static bool has_key;

/* Nothing of the thread's is favoured by number any more than the next one's that gets it: who had
 * the lock has given it, or another is to give it, for whichever has the number by then. */
static void give_holder(void *holder)
{
    struct padded_holder *ours = holder;
    lock_self = &nobody;
    atomic_store_explicit(&ours->taken, false, memory_order_release);
}

static void make_key(void)
{
    has_key = pthread_key_create(&end_of_thread, give_holder) == 0;
}

/* For a thread that has none. */
static void find_holder(void)
{
    lock_self = &crowd;
    pthread_once(&once, make_key);
    for (uint32_t i = 1; i < HOLDERS && has_key; i++) {
        struct padded_holder *padded = &holders[i];
        if (atomic_load_explicit(&padded->taken, memory_order_relaxed) ||
            atomic_exchange_explicit(&padded->taken, true, memory_order_acquire)) {
            continue;
        }
        if (pthread_setspecific(end_of_thread, padded) != 0) {
            atomic_store_explicit(&padded->taken, false, memory_order_release);
            return;
        }
        padded->holder.number = i;
        padded->holder.favour = LOCK_FAVOURED | i;
        lock_self = &padded->holder;
        return;
    }
}

static bool is_inside(uint32_t number, const struct lock *lock)
{
    const struct lock_holder *holder = &holders[number].holder;
    bool is = false;
    for (uint32_t level = 0; level < LOCK_LEVELS; level++) {
        is |= atomic_load_explicit(&holder->inside[level], memory_order_acquire) == lock;
    }
    return is;
}

static void sleep_for_a_look(void)
{
    static const struct timespec look = {.tv_nsec = LOCK_LOOK_NS};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &look, NULL);
}

static void pause_between_looks(void)
{
    for (uint32_t i = 0; i < PAUSES; i++) {
#if defined __x86_64__
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
    }
}

/* False: it is inside still. */
static bool wait_for(uint32_t number, const struct lock *lock, bool waits)
{
    for (uint32_t looks = 0; is_inside(number, lock); looks++) {
        if (looks < LOOKS) {
            pause_between_looks();
        } else if (waits) {
            sleep_for_a_look();
        } else {
            return false;
        }
    }
    return true;
}

/* Whoever found the state taken by us may count on a look of the giver's, see lock_give_in_order.
 * True: that is still to come. */
static bool give_up(struct lock *lock, uint32_t favour)
{
    uint32_t number = favour & LOCK_THREAD;
    atomic_store_explicit(&lock->favour, favour, memory_order_release);
    if (atomic_exchange(&lock->state, 0) == 2) {
        lock_wake(lock);
    }
    (void)heavy_fence();
    return is_inside(number, lock);
}

/* State held, by another than the favoured thread, or by a handler of one of its signals. */
static bool take_away(struct lock *lock, uint32_t favour, bool waits)
{
    atomic_store_explicit(&lock->favour, 0, memory_order_relaxed);
    (void)heavy_fence();
    return wait_for(favour & LOCK_THREAD, lock, waits);
}

/* Who has more locks by favour than there are places took this one by its state. */
static bool is_another(uint32_t favour, const struct lock *lock)
{
    uint32_t number = favour & LOCK_THREAD;
    return number != lock_self->number || is_inside(number, lock);
}

/* Where lock_take_by_favour of ours has just written that, and we are a handler of a signal that
 * came before it has seen that the favour has ended: it takes nothing there any more, and who gives
 * the lock is to find that it has the state. */
static void leave_place(const struct lock *lock, enum lock_level level)
{
    _Atomic(const struct lock *) *place = &lock_self->inside[level];
    if (atomic_load_explicit(place, memory_order_relaxed) == lock) {
        atomic_store_explicit(place, NULL, memory_order_relaxed);
    }
}

/* State held. From the first it is held by favour: who has a favoured lock by its state has no
 * place that keeps handlers of its signals from taking it by favour. False: its place is taken. */
static bool favour_us(struct lock *lock, enum lock_level level)
{
    struct lock_holder *self = lock_self;
    _Atomic(const struct lock *) *place = &self->inside[level];
    if (atomic_load_explicit(place, memory_order_acquire) != NULL) {
        return false;
    }
    atomic_store_explicit(place, lock, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&lock->favour, self->favour, memory_order_release);
    if (atomic_exchange(&lock->state, 0) == 2) {
        lock_wake(lock);
    }
    return true;
}

/* One more taking of the row, or the first. */
static void count(struct lock *lock, enum lock_level level, uint32_t favour)
{
    if (lock_self == &nobody) {
        find_holder();
    }
    leave_place(lock, level);
    uint32_t ours = lock_self->number;
    bool is_long = (favour & LOCK_THREAD) == ours && favour - ours >= LOCK_ROW_LONG;
    bool earned = is_long && ours != 0 && heavy_fence_works();
    if (!earned || !favour_us(lock, level)) {
        atomic_store_explicit(&lock->favour, ours | LOCK_IN_ROW, memory_order_release);
    }
}

bool lock_settle(struct lock *lock, enum lock_level level, bool waits)
{
    uint32_t favour = atomic_load_explicit(&lock->favour, memory_order_relaxed);
    while ((favour & LOCK_FAVOURED) != 0) {
        if (!is_another(favour, lock) || take_away(lock, favour, waits)) {
            favour = 0; /* ours ends by itself: see favour_us */
        } else if (give_up(lock, favour) || !lock_take_state(lock)) {
            return false;
        } else {
            favour = atomic_load_explicit(&lock->favour, memory_order_relaxed);
        }
    }
    count(lock, level, favour);
    return true;
}

void lock_wait(struct lock *lock)
{
    static const struct timespec look = {.tv_nsec = LOCK_LOOK_NS};
    while (atomic_exchange(&lock->state, 2) != 0) {
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, &look, NULL, 0);
    }
}

void lock_wake(struct lock *lock)
{
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
