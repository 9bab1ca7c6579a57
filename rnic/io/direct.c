#include "rnic/io/direct.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "rnic/base/check.h"
#include "rnic/io/clock.h"
#include "rnic/io/guarded.h"
#include "rnic/io/life.h"
#include "rnic/transport/port.h"

#define TRIES    8u       /* where the owner hides this and that all the time */
#define SPIN_NS  100000u  /* then the waiting sleeps in between */
#define PAUSE_NS 20000u   /* for so long, */
#define ASK_NS   1000000u /* and asks so often */

struct direct_table direct_table_of(const struct direct_shown *shown)
{
    struct direct_shown *own = (struct direct_shown *)(uintptr_t)shown;
    return (struct direct_table){own->qps, own->keys, DIRECT_QPS, DIRECT_KEYS};
}

void direct_reach_init(struct direct_reach *reach, const struct direct_shown *shown,
                       struct direct_announcement *announcement, uint32_t process)
{
    *reach =
        (struct direct_reach){.shown = shown, .announcement = announcement, .process = process};
    uint32_t count = atomic_load(&announcement->count);
    atomic_store(&announcement->count, (count | 1) + 1); /* whoever had it before is gone */
}

/* The process of that number is the owner, as long as the owner's life is held. */
static bool prove(struct direct_reach *reach)
{
    struct pull_identity identity = reach->shown->identity;
    if (!reach->proven) {
        reach->proven = identity.process == reach->process &&
                        pull(&identity, NULL, 0, 0, NULL, 0) &&
                        life_is_held(atomic_load(&reach->shown->life));
        reach->hopeless = !reach->proven;
    }
    return reach->proven;
}

static uint32_t life_in(uint64_t guard)
{
    uint32_t life;
    memcpy(&life, &guard, sizeof life);
    return life;
}

/* -1 and errno, as guarded_move. */
static ssize_t move(const struct direct_reach *reach, uint64_t guard,
                    const struct direct_access *access, uint64_t there)
{
    struct iovec here[OUTGOING_FRAGMENT_MAX];
    struct iovec remote = {(void *)(uintptr_t)there, access->part};
    CHECK(access->place_count <= OUTGOING_FRAGMENT_MAX);
    if (access->part == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < access->place_count; i++) {
        here[i] = (struct iovec){access->places[i].bytes, access->places[i].length};
    }
    return guarded_move(&reach->shown->guard, guard, access->write, (pid_t)reach->process, here,
                        access->place_count, &remote);
}

/* Announced. */
static bool access_announced(struct direct_reach *reach, const struct direct_access *access)
{
    struct direct_table table = direct_table_of(reach->shown);
    for (uint32_t tries = 0; tries < TRIES; tries++) {
        uint64_t there, guard = atomic_load(&reach->shown->guard);
        if (!life_is_held(life_in(guard)) || !direct_table_grants(&table, access, &there) ||
            !prove(reach)) {
            return false;
        }
        ssize_t moved = move(reach, guard, access, there);
        if (moved == (ssize_t)access->part) {
            return true;
        }
        if (moved >= 0 || errno != ESTALE) {
            reach->hopeless |= moved < 0 && (errno == EPERM || errno == ENOSYS);
            return false;
        }
    }
    return false;
}

bool direct_reach_access(struct direct_reach *reach, const struct direct_access *access)
{
    if (reach->hopeless) {
        return false;
    }
    _Atomic uint32_t *count = &reach->announcement->count;
    uint32_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_exchange(count, before + 1);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with direct_settle */
    bool done = access_announced(reach, access);
    atomic_store_explicit(count, before + 2, memory_order_release);
    return done;
}

static void pause_for(struct instant since, struct instant now)
{
    if (instant_elapsed_ns(since, now) < SPIN_NS) {
        sched_yield();
        return;
    }
    struct timespec time = {.tv_nsec = PAUSE_NS};
    nanosleep(&time, NULL);
}

static void wait_for(const struct direct_announcement *announcement, uint32_t index,
                     uint32_t before, struct direct_patience *patience)
{
    struct instant since = clock_now(), asked = since;
    while (atomic_load_explicit(&announcement->count, memory_order_acquire) == before) {
        struct instant now = clock_now();
        if (instant_elapsed_ns(asked, now) >= ASK_NS) {
            asked = now;
            if (!patience->goes_on(patience, index, instant_elapsed_ns(since, now))) {
                return;
            }
        }
        pause_for(since, now);
    }
}

void direct_settle(struct direct_shown *shown, const struct direct_announcement *announcements,
                   uint32_t count, struct direct_patience *patience)
{
    atomic_fetch_add(&shown->hidden, 1);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with direct_reach_access */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = atomic_load_explicit(&announcements[i].count, memory_order_acquire);
        if ((before & 1) != 0) {
            wait_for(&announcements[i], i, before, patience);
        }
    }
}
