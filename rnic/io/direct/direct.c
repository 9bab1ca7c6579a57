#include "rnic/io/direct/direct.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/direct/common.h"
#include "rnic/io/direct/whole.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/guarded.h"
#include "rnic/io/system/life.h"
#include "rnic/transport/port.h"

#define SPIN_NS     100000u  /* then who waits sleeps in between */
#define PAUSE_NS    20000u   /* for so long, */
#define ASK_NS      1000000u /* and asks so often */
#define WHOLE_BYTES 8u

/* A region is made common for about what so many short calls cost, and a call for each so many of
 * its bytes; one that moves so many costs as much as two that move none. */
#define WISH_CALLS   32u
#define LENGTH_BYTES 1024u
#define CALL_BYTES   16384u
#define WISHES_MOST  12u /* doublings */

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

bool direct_makes_common(void)
{
    const char *wanted = secure_getenv("WEIR_DIRECT");
    return wanted == NULL || strcmp(wanted, "calls") != 0;
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

static bool is_there(struct direct_mover *mover, uint32_t life)
{
    return life_is_held(life);
}

/* Whether the process of that thread is the owner, as long as the owner's life is held, and can be
 * called upon. */
static bool may_call(struct direct_reach *reach)
{
    if (reach->calls == DIRECT_CALLS_UNTRIED) {
        struct pull_identity identity = reach->shown->identity;
        bool made = identity.thread == reach->thread && pull(&identity, NULL, 0, 0, NULL, 0) &&
                    life_is_held(atomic_load(&reach->shown->guard.life));
        reach->calls = made ? DIRECT_CALLS_MADE : DIRECT_CALLS_REFUSED;
    }
    return reach->calls == DIRECT_CALLS_MADE;
}

static uint32_t *refusal(struct direct_reach *reach, struct memory_key key)
{
    return &reach->refused[(key.value >> 8) % DIRECT_REFUSED];
}

/* Programs wait for a word to change, and take it for all that was written. */
static bool is_word(const struct direct_access *access, uint64_t there)
{
    uint32_t length = access->length;
    return length <= WHOLE_BYTES && length != 1 && (length & (length - 1)) == 0 &&
           there % length == 0;
}

/* A gathered one is copied piece by piece. */
static bool stays_whole(const struct direct_access *access, uint64_t there)
{
    return !is_word(access, there) || (access->place_count <= 1 && whole_is_moved(access->length));
}

static void note_refusal(struct direct_reach *reach, const struct direct_access *access,
                         ssize_t moved, int error)
{
    if (moved < 0 && (error == EPERM || error == ENOSYS)) {
        reach->calls = DIRECT_CALLS_REFUSED;
    } else if (moved >= 0 || error == EFAULT) {
        *refusal(reach, access->key) = access->key.value;
    }
}

static bool is_refused(struct direct_reach *reach, const struct direct_access *access)
{
    return *refusal(reach, access->key) == access->key.value;
}

static bool may_be_moved(struct direct_reach *reach, const struct direct_access *access,
                         uint64_t there)
{
    return !is_refused(reach, access) && stays_whole(access, there);
}

/* A word that would not stay whole in a call, and would as a store. */
static bool only_stores_move(struct direct_reach *reach, const struct direct_access *access,
                             uint64_t there)
{
    return !is_refused(reach, access) && access->place_count <= 1 && !stays_whole(access, there);
}

static uint32_t count_whole(const struct direct_access *accesses, uint32_t count, uint64_t bytes)
{
    uint32_t whole = 0;
    for (; whole < count && accesses[whole].part <= bytes; whole++) {
        bytes -= accesses[whole].part;
    }
    return whole;
}

/* Where a part lies in memory that we have mapped, too; NULL: nowhere. */
static uint8_t *find_mapped(struct direct_reach *reach, const struct direct_access *access,
                            const struct direct_there *there)
{
    const struct direct_common *common = &there->common;
    if (common->length == 0 || common->length > COMMON_RANGE_MAX || access->may_fault ||
        access->part > common->length || there->within > common->length - access->part ||
        (access->place_count > 1 && is_word(access, there->bytes))) {
        return NULL;
    }
    struct common_owner owner = {(pid_t)reach->thread, reach->shown->common};
    uint8_t *bytes = common_view_find(&reach->view, &owner, common);
    return bytes == NULL || !life_is_held(atomic_load(&reach->shown->guard.life))
               ? NULL
               : bytes + there->within;
}

/* False: the guard has changed. */
static bool copy(const struct direct_reach *reach, uint64_t guard,
                 const struct direct_access *access, uint8_t *there)
{
    bool same = true;
    for (uint32_t i = 0; i < access->place_count && same; i++) {
        const struct payload_place *place = &access->places[i];
        same = guarded_copy(&reach->shown->guard.word, guard, access->write ? there : place->bytes,
                            access->write ? place->bytes : there, place->length);
        there += place->length;
    }
    return same;
}

/* Those that lie in common memory, from the first on. False: the guard has changed. */
static bool copy_some(struct direct_reach *reach, uint64_t guard,
                      const struct direct_access *accesses, uint32_t count,
                      const struct direct_there *there, uint32_t *ret_copied)
{
    uint8_t *bytes;
    for (*ret_copied = 0; *ret_copied < count && (bytes = find_mapped(reach, &accesses[*ret_copied],
                                                                      &there[*ret_copied])) != NULL;
         ++*ret_copied) {
        if (!copy(reach, guard, &accesses[*ret_copied], bytes)) {
            return *ret_copied > 0;
        }
    }
    return true;
}

/* So many bytes of it cannot be had without a call. Once calls have cost what it would cost to do
 * without them, its owner is asked to. */
static void warm(struct direct_reach *reach, const struct direct_access *access,
                 const struct direct_there *there, uint32_t bytes)
{
    struct direct_heat *heat = &reach->heat[(access->key.value >> 8) % DIRECT_REFUSED];
    if (there->common.lead == DIRECT_NEVER || there->length > COMMON_RANGE_MAX ||
        reach->view.hopeless) {
        reach->hopeless |= reach->view.hopeless && reach->calls == DIRECT_CALLS_REFUSED;
        return;
    }
    if (heat->key != access->key.value || there->common.length != 0) {
        *heat = (struct direct_heat){.key = access->key.value};
    }
    heat->calls += 1 + bytes / CALL_BYTES;
    uint64_t enough = (WISH_CALLS + there->length / LENGTH_BYTES) << heat->wishes;
    if (heat->calls >= enough) {
        uint32_t nothing = 0;
        heat->calls = 0; /* it may not be granted, and is wished the more rarely */
        heat->wishes += heat->wishes < WISHES_MOST;
        reach->wishes |= atomic_compare_exchange_strong(&reach->turn.announcement->wish, &nothing,
                                                        access->key.value);
    }
}

/* Which of them can be moved by one call, from the first on, and how. */
struct call {
    struct iovec here[DIRECT_PLACES], there[DIRECT_BATCH];
    uint32_t places, count, bytes;
};

static void prepare(struct call *call, struct direct_reach *reach,
                    const struct direct_access *accesses, uint32_t count,
                    const struct direct_there *there)
{
    call->places = call->bytes = 0;
    for (call->count = 0; call->count < count &&
                          may_be_moved(reach, &accesses[call->count], there[call->count].bytes);
         call->count++) {
        const struct direct_access *access = &accesses[call->count];
        CHECK(call->count < DIRECT_BATCH && access->place_count <= DIRECT_PLACES - call->places);
        for (uint32_t i = 0; i < access->place_count; i++) {
            call->here[call->places++] =
                (struct iovec){access->places[i].bytes, access->places[i].length};
        }
        call->there[call->count] =
            (struct iovec){(void *)(uintptr_t)there[call->count].bytes, access->part};
        call->bytes += access->part;
    }
}

static bool make_call(struct direct_reach *reach, uint64_t guard,
                      const struct direct_access *accesses, uint32_t count,
                      const struct direct_there *there, uint32_t *ret_moved)
{
    struct call call;
    prepare(&call, reach, accesses, count, there);
    if (!may_call(reach)) { /* which may be all that is ever asked of a message */
        warm(reach, accesses, there, accesses->length);
        return true;
    }
    *ret_moved = call.count;
    if (call.places == 0) {
        if (only_stores_move(reach, accesses, there->bytes)) {
            warm(reach, accesses, there, accesses->length);
        }
        return true;
    }
    warm(reach, accesses, there, call.bytes);
    ssize_t bytes =
        guarded_move(&reach->shown->guard.word, guard, accesses->write, (pid_t)reach->thread,
                     call.here, call.places, call.there, call.count);
    int error = errno;
    if (bytes < 0 && error == ESTALE) {
        return false;
    }
    *ret_moved = count_whole(accesses, call.count, bytes < 0 ? 0 : (uint64_t)bytes);
    if (*ret_moved < call.count) {
        note_refusal(reach, &accesses[*ret_moved], bytes, error);
    }
    return true;
}

static bool move(struct direct_mover *mover, uint64_t guard, const struct direct_access *accesses,
                 uint32_t count, const struct direct_there *there, uint32_t *ret_moved)
{
    struct direct_reach *reach = (struct direct_reach *)mover;
    if (!copy_some(reach, guard, accesses, count, there, ret_moved)) {
        return false;
    }
    reach->stores = *ret_moved > 0;
    return reach->stores || make_call(reach, guard, accesses, count, there, ret_moved);
}

static bool is_ours(uint32_t thread)
{
    return syscall(SYS_tgkill, getpid(), thread, 0) == 0;
}

void direct_reach_init(struct direct_reach *reach, const struct direct_shown *shown,
                       struct direct_announcement *announcement, uint32_t thread)
{
    *reach = (struct direct_reach){
        .mover = {is_there, move},
        .table = direct_table_of(shown),
        .shown = shown,
        .thread = thread,
        .own_process = (uint32_t)getpid(),
    };
    reach->turn = (struct direct_turn){&reach->table, &shown->guard, announcement, &reach->mover,
                                       &reach->seen};
    common_view_init(&reach->view);
    /* Our own would be mapped twice here, and what we look for when we turn it back found there. */
    reach->view.hopeless = !direct_makes_common() || is_ours(thread);
    direct_turn_init(&reach->turn);
}

void direct_reach_end(struct direct_reach *reach)
{
    common_view_end(&reach->view);
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
