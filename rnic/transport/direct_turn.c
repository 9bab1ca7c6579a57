#include "rnic/transport/direct_turn.h"

#include "rnic/base/check.h"

#define TRIES 8u /* where the owner takes this and that back all the time */

static uint32_t life_in(uint64_t word)
{
    struct direct_guard guard;
    atomic_init(&guard.word, word);
    return atomic_load_explicit(&guard.life, memory_order_relaxed);
}

void direct_turn_init(const struct direct_turn *turn)
{
    uint32_t count = atomic_load(&turn->announcement->count);
    atomic_store(&turn->announcement->count, (count | 1) + 1);
    atomic_store(&turn->announcement->wish, 0);
}

/* Announced. False: the owner has taken something back meanwhile. */
static bool look_and_move(const struct direct_turn *turn, const struct direct_access *accesses,
                          uint32_t count, uint32_t *ret_moved)
{
    struct direct_there there[DIRECT_BATCH];
    uint64_t guard = atomic_load(&turn->guard->word);
    uint32_t life = life_in(guard);
    *ret_moved = 0;
    if (life == 0 || !turn->mover->is_there(turn->mover, life)) {
        return true;
    }
    uint32_t granted = direct_table_grants(turn->table, turn->seen, accesses, count, there);
    return granted == 0 ||
           turn->mover->move(turn->mover, guard, accesses, granted, there, ret_moved);
}

/* In the one order of all accesses to the words and the guard (both sequentially consistent) the
 * announcement comes before the owner's look at it, or his count before our look at the guard. */
uint32_t direct_turn_take(const struct direct_turn *turn, const struct direct_access *accesses,
                          uint32_t count, uint32_t thread)
{
    struct direct_announcement *own = turn->announcement;
    uint32_t moved = 0, tries = 0;
    uint32_t before = atomic_load_explicit(&own->count, memory_order_relaxed);
    CHECK(count <= DIRECT_BATCH);
    atomic_store_explicit(&own->thread, thread, memory_order_relaxed);
    atomic_exchange(&own->count, before + 1);
    while (!look_and_move(turn, accesses, count, &moved) && ++tries < TRIES) {
    }
    atomic_store_explicit(&own->count, before + 2, memory_order_release);
    return tries < TRIES ? moved : 0;
}

void direct_wait_begin(struct direct_wait *wait, struct direct_guard *guard,
                       const struct direct_announcement *announcements, const _Atomic uint32_t *end)
{
    atomic_fetch_add(&guard->hidden, 1);
    *wait = (struct direct_wait){.announcements = announcements, .count = atomic_load(end)};
}

bool direct_wait_is_over(struct direct_wait *wait)
{
    for (; wait->index < wait->count; direct_wait_pass(wait)) {
        uint32_t now = atomic_load(&wait->announcements[wait->index].count);
        bool waits = (wait->before & 1) != 0;
        if ((now & 1) != 0 && (!waits || now == wait->before)) {
            wait->before = now;
            return false;
        }
    }
    return true;
}

void direct_wait_pass(struct direct_wait *wait)
{
    wait->index++;
    wait->before = 0;
}
