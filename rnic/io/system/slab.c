/* A run begins with a line that says how large its blocks are, so that who gives one back need not
 * know. */
#include "rnic/io/system/slab.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rnic/base/check.h"
#include "rnic/io/system/lock.h"

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#if SLAB_IS_WATCHED

void *slab_take(size_t size)
{
    void *block = NULL;
    CHECK(size > 0 && size <= SLAB_MAX);
    return posix_memalign(&block, SLAB_LINE, size) == 0 ? memset(block, 0, size) : NULL;
}

void slab_give(void *block)
{
    free(block);
}

#else

#define RUN_BYTES ((size_t)2 << 20) /* what one entry of a page directory maps */

struct run {
    size_t block_bytes;
};

struct vacancy {
    struct vacancy *next;
};

/* Blocks of one size: those given back, the latest first, and what is left of the latest run. */
struct rank {
    struct vacancy *vacant;
    uint8_t *fresh;
    size_t left; /* bytes */
};

static struct rank ranks[SLAB_MAX / SLAB_LINE];
static struct lock lock;

static void hold(void)
{
    lock_take(&lock, LOCK_OUTER);
}

static void let_go(void)
{
    lock_give(&lock, LOCK_OUTER);
}

/* Early, so that the lock is taken after those of whoever uses it, which may be held across a fork,
 * too. */
__attribute__((constructor)) static void survive_forks(void)
{
    pthread_atfork(hold, let_go, let_go);
}

static struct rank *rank_of(size_t block_bytes)
{
    return &ranks[block_bytes / SLAB_LINE - 1];
}

static struct run *run_of(void *block)
{
    return (struct run *)((uintptr_t)block & ~(uintptr_t)(RUN_BYTES - 1));
}

/* NULL and errno. */
static uint8_t *map_run(void)
{
    uint8_t *whole = mmap(NULL, 2 * RUN_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) {
        return NULL;
    }
    size_t before = -(uintptr_t)whole & (RUN_BYTES - 1);
    if (before > 0) {
        munmap(whole, before);
    }
    munmap(whole + before + RUN_BYTES, RUN_BYTES - before);
    return whole + before;
}

/* Lock held. */
static bool begin_run(struct rank *rank, size_t block_bytes)
{
    uint8_t *memory = map_run();
    if (memory == NULL) {
        return false;
    }
    ((struct run *)memory)->block_bytes = block_bytes;
    rank->fresh = memory + SLAB_LINE;
    rank->left = RUN_BYTES - SLAB_LINE;
    return true;
}

/* Lock held. */
static void *take_vacant(struct rank *rank)
{
    struct vacancy *vacancy = rank->vacant;
    if (vacancy != NULL) {
        rank->vacant = vacancy->next;
    }
    return vacancy;
}

/* Lock held. Bytes that were never used. */
static void *take_fresh(struct rank *rank, size_t block_bytes, bool *ret_full)
{
    if (rank->left < block_bytes && !begin_run(rank, block_bytes)) {
        return NULL;
    }
    void *block = rank->fresh;
    rank->fresh += block_bytes;
    rank->left -= block_bytes;
    *ret_full = rank->left < block_bytes;
    return block;
}

void *slab_take(size_t size)
{
    CHECK(size > 0 && size <= SLAB_MAX);
    size_t block_bytes = (size + SLAB_LINE - 1) / SLAB_LINE * SLAB_LINE;
    struct rank *rank = rank_of(block_bytes);
    bool full = false;
    hold();
    void *vacant = take_vacant(rank);
    void *block = vacant != NULL ? vacant : take_fresh(rank, block_bytes, &full);
    let_go();
    if (vacant != NULL) {
        memset(block, 0, block_bytes);
    }
    if (full) {
        (void)madvise(run_of(block), RUN_BYTES, MADV_COLLAPSE); /* as well without */
    }
    return block;
}

void slab_give(void *block)
{
    if (block == NULL) {
        return;
    }
    struct vacancy *vacancy = block;
    struct rank *rank = rank_of(run_of(block)->block_bytes);
    hold();
    vacancy->next = rank->vacant;
    rank->vacant = vacancy;
    let_go();
}

#endif
