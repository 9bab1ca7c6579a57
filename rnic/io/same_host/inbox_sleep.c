#include "rnic/io/same_host/inbox_sleep.h"

#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/system/heavy_fence.h"
#include "rnic/io/system/processor.h"

void inbox_sleep_fence_for_all(struct inbox_sleep *sleep)
{
    if (heavy_fence_works() && !sleep->fences_for_all) {
        sleep->fences_for_all = true;
        atomic_store_explicit(&sleep->head->fences_for_all, 1, memory_order_release);
    }
}

bool inbox_sleep_fences_for_all(const struct inbox_sleep *sleep)
{
    return sleep->fences_for_all || !heavy_fence_works();
}

void inbox_sleep_fence(struct inbox_sleep *sleep)
{
    if (!sleep->fences_for_all) {
        atomic_thread_fence(memory_order_seq_cst);
        return;
    }
    sleep->fences_for_all = false;
    atomic_store_explicit(&sleep->head->fences_for_all, 0, memory_order_relaxed);
    (void)heavy_fence_everywhere();
}

void inbox_sleep_begin(struct inbox_sleep *sleep)
{
    sleep->count += sleep->count == UINT32_MAX ? 2 : 1; /* not 0 */
    atomic_store_explicit(&sleep->head->rung_on, PROCESSOR_UNKNOWN, memory_order_relaxed);
    atomic_store_explicit(&sleep->head->asleep, sleep->count, memory_order_relaxed);
    inbox_sleep_fence(sleep);
}

void inbox_sleep_end(struct inbox_sleep *sleep)
{
    atomic_store_explicit(&sleep->head->asleep, 0, memory_order_relaxed);
}

bool inbox_sleep_is_on(const struct inbox_sleep *sleep)
{
    return atomic_load_explicit(&sleep->head->asleep, memory_order_relaxed) != 0;
}

bool inbox_sleep_was_ended_here(const struct inbox_sleep *sleep)
{
    uint32_t there = atomic_load_explicit(&sleep->head->rung_on, memory_order_relaxed);
    return there != PROCESSOR_UNKNOWN && there == processor_here();
}
