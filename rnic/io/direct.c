#include "rnic/io/direct.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/clock.h"
#include "rnic/io/guarded.h"
#include "rnic/io/life.h"
#include "rnic/io/whole.h"
#include "rnic/transport/port.h"

#define SPIN_NS     100000u  /* then who waits sleeps in between */
#define PAUSE_NS    20000u   /* for so long, */
#define ASK_NS      1000000u /* and asks so often */
#define WHOLE_BYTES 8u

struct direct_table direct_table_of(const struct direct_shown *shown)
{
    struct direct_shown *own = (struct direct_shown *)(uintptr_t)shown;
    return (struct direct_table){own->qps, own->keys, DIRECT_QPS, DIRECT_KEYS};
}

bool direct_is_on(void)
{
    const char *wanted = secure_getenv("WEIR_DIRECT");
    return guarded_is_possible() && (wanted == NULL || strcmp(wanted, "0") != 0);
}

/* A forked child has its parent's variables. */
static uint32_t own_thread(uint32_t own_process)
{
    static _Thread_local uint32_t process, thread;
    if (process != own_process) {
        process = own_process;
        thread = (uint32_t)syscall(SYS_gettid);
    }
    return thread;
}

/* The process of that number is the owner, as long as the owner's life is held. */
static bool is_there(struct direct_mover *mover, uint32_t life)
{
    struct direct_reach *reach = (struct direct_reach *)mover;
    if (!reach->proven && life_is_held(life)) {
        struct pull_identity identity = reach->shown->identity;
        reach->proven = identity.process == reach->process &&
                        pull(&identity, NULL, 0, 0, NULL, 0) &&
                        life_is_held(atomic_load(&reach->shown->guard.life));
        reach->hopeless = !reach->proven;
    }
    return reach->proven && life_is_held(life);
}

static uint32_t *refusal(struct direct_reach *reach, struct memory_key key)
{
    return &reach->refused[(key.value >> 8) % DIRECT_REFUSED];
}

/* Programs wait for a word to change, and take it for all that was written. A gathered one is
 * copied piece by piece. */
static bool stays_whole(const struct direct_access *access, uint64_t there)
{
    uint32_t length = access->length;
    return length > WHOLE_BYTES || length == 1 || (length & (length - 1)) != 0 ||
           there % length != 0 || (access->place_count <= 1 && whole_is_moved(length));
}

static void note_refusal(struct direct_reach *reach, const struct direct_access *access,
                         ssize_t moved, int error)
{
    if (moved < 0 && (error == EPERM || error == ENOSYS)) {
        reach->hopeless = true;
    } else if (moved >= 0 || error == EFAULT) {
        *refusal(reach, access->key) = access->key.value;
    }
}

static bool may_be_moved(struct direct_reach *reach, const struct direct_access *access,
                         uint64_t there)
{
    return *refusal(reach, access->key) != access->key.value && stays_whole(access, there);
}

static uint32_t count_whole(const struct direct_access *accesses, uint32_t count, uint64_t bytes)
{
    uint32_t whole = 0;
    for (; whole < count && accesses[whole].part <= bytes; whole++) {
        bytes -= accesses[whole].part;
    }
    return whole;
}

static bool move(struct direct_mover *mover, uint64_t guard, const struct direct_access *accesses,
                 uint32_t count, const uint64_t *there, uint32_t *ret_moved)
{
    struct direct_reach *reach = (struct direct_reach *)mover;
    struct iovec here[DIRECT_PLACES], remote[DIRECT_BATCH];
    uint32_t places = 0, chosen = 0;
    for (; chosen < count && may_be_moved(reach, &accesses[chosen], there[chosen]); chosen++) {
        const struct direct_access *access = &accesses[chosen];
        CHECK(chosen < DIRECT_BATCH && access->place_count <= DIRECT_PLACES - places);
        for (uint32_t i = 0; i < access->place_count; i++) {
            here[places++] = (struct iovec){access->places[i].bytes, access->places[i].length};
        }
        remote[chosen] = (struct iovec){(void *)(uintptr_t)there[chosen], access->part};
    }
    *ret_moved = chosen;
    if (places == 0) {
        return true;
    }
    ssize_t bytes = guarded_move(&reach->shown->guard.word, guard, accesses->write,
                                 (pid_t)reach->process, here, places, remote, chosen);
    int error = errno;
    if (bytes < 0 && error == ESTALE) {
        return false;
    }
    *ret_moved = count_whole(accesses, chosen, bytes < 0 ? 0 : (uint64_t)bytes);
    if (*ret_moved < chosen) {
        note_refusal(reach, &accesses[*ret_moved], bytes, error);
    }
    return true;
}

void direct_reach_init(struct direct_reach *reach, const struct direct_shown *shown,
                       struct direct_announcement *announcement, uint32_t process)
{
    *reach = (struct direct_reach){
        .mover = {is_there, move},
        .table = direct_table_of(shown),
        .shown = shown,
        .process = process,
        .own_process = (uint32_t)getpid(),
    };
    reach->turn = (struct direct_turn){&reach->table, &shown->guard, announcement, &reach->mover};
    direct_turn_init(&reach->turn);
}

uint32_t direct_reach_access(struct direct_reach *reach, const struct direct_access *accesses,
                             uint32_t count)
{
    return reach->hopeless
               ? 0
               : direct_turn_take(&reach->turn, accesses, count, own_thread(reach->own_process));
}

static void pause_for(uint64_t waited_ns)
{
    if (waited_ns < SPIN_NS) {
        sched_yield();
        return;
    }
    struct timespec time = {.tv_nsec = PAUSE_NS};
    nanosleep(&time, NULL);
}

/* Until he at wait->index is not at it. False: given up. */
static bool wait_for(struct direct_wait *wait, struct direct_waiter *waiter)
{
    uint32_t index = wait->index;
    struct instant since = clock_now(), ask_at = since;
    while (!direct_wait_is_over(wait) && wait->index == index) {
        struct instant now = clock_now();
        uint64_t waited_ns = instant_elapsed_ns(since, now);
        enum direct_patience patience = DIRECT_WAIT;
        if (!instant_before(now, ask_at)) {
            ask_at = instant_after(now, ASK_NS);
            patience = waiter->ask(waiter, index, atomic_load(&wait->announcements[index].thread),
                                   waited_ns);
        }
        if (patience == DIRECT_PASS) {
            direct_wait_pass(wait);
        } else if (patience == DIRECT_GIVE_UP) {
            return false;
        } else {
            pause_for(waited_ns);
        }
    }
    return true;
}

bool direct_settle(struct direct_shown *shown, const struct direct_announcement *announcements,
                   const _Atomic uint32_t *end, uint32_t most, struct direct_waiter *waiter)
{
    struct direct_wait wait;
    direct_wait_begin(&wait, &shown->guard, announcements, end);
    wait.count = wait.count < most ? wait.count : most;
    while (!direct_wait_is_over(&wait)) {
        if (!waiter->is_concerned(waiter, wait.index)) {
            direct_wait_pass(&wait);
        } else if (!wait_for(&wait, waiter)) {
            return false;
        }
    }
    return true;
}
