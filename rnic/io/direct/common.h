/* Pages of this process that others may map: ranges of private memory, which the program has from
 * malloc or mmap, are turned, in place and while its threads go on using them, into pages of a file
 * in memory; and back.
 *
 * Who touches a page just then, be it the program itself or the kernel for it (read(2) into it),
 * waits until the page is there again, and notices nothing: nothing that was stored is lost, and no
 * call fails. What such a range costs is that time, and that of a fault at each page's first use:
 * see COMMON_RANGE_MAX. The mapping that was taken away is kept aside, empty, and put back by
 * common_end: with its advice, its policy, its name, and one with its neighbours as before.
 *
 * While a range is shared,
 * - a forked child would share it with its parent: end all ranges before the process forks. Not
 *   concerned are vfork, posix_spawn, system and popen. No fork may happen during begin or end;
 * - MADV_DONTNEED brings no zeros, but the file's content again;
 * - what the program has advised (MADV_DONTDUMP, MADV_HUGEPAGE, mbind) does not hold, and what it
 *   advises then is forgotten at the end. What it protects (other than by keys), locks, unmaps or
 *   maps over stays so.
 *
 * A range must not hold what the kernel writes when a thread ends: another thread's control block,
 * or a robust mutex that it has not unlocked.
 *
 * It takes Linux 6.11, and the right to userfaultfd(2) for what the kernel touches, too
 * (CAP_SYS_PTRACE, access to /dev/userfaultfd or vm.unprivileged_userfaultfd=1).
 *
 * One call at a time. */
#ifndef WEIR_IO_COMMON_H
#define WEIR_IO_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"

/* Who touches a range while it is turned waits some 60 us and 0.25 ms for each MiB, as long as the
 * caller has a processor; the caller needs 50 us and 0.6 ms for each MiB, and in both some
 * microseconds more for each thread of the process (the caller only: one for each descriptor). */
#define COMMON_NAME      "weir-common" /* of the file */
#define COMMON_RANGE_MAX (UINT64_C(16) << 20)

struct common; /* of a process: the file */

struct common_range {
    uint8_t *bytes;
    uint64_t length; /* both whole pages */
    uint64_t offset; /* in the file; never used again for another range. As bytes, modulo 2 MiB */
    uint8_t *kept;   /* the module's: where the mapping is that was taken away */
    uint32_t forks;  /* the module's: how many had begun when it did */
    bool remains;    /* after its end its pages are in the file, for a forked child may need them */
};

/* UNSUPPORTED: the kernel has not what it takes, or does not let us. */
enum status common_create(struct common **ret_common) MUST_USE;
/* It takes less than a millisecond: it looks at every thread and at every descriptor. */
bool common_is_quick(void);
/* The kernel lets us hold what is touched. What else it takes only common_create finds out. */
bool common_is_likely(void);
/* All ranges have ended. May be NULL. */
void common_destroy(struct common *common);
/* Before the process forks. Ranges that have not ended then are the child's, too, until it has its
 * copies: their pages are never given back. Any thread. */
void common_fork_begins(void);
/* In a forked child, instead of destroying it: closes what is the parent's. */
void common_abandon(struct common *common);
/* Then: gives the child a copy of a range that had not ended before the fork, or nothing where that
 * fails. It needs a descriptor. */
void common_unshare(const struct common *common, const struct common_range *range);
/* Of the file, which peers open through /proc. Its size never changes; beyond the ranges it has no
 * pages, but who touches them there makes some. */
int common_descriptor(const struct common *common);

/* Turns the whole pages within [bytes, bytes + length). Nothing has changed unless it is OK.
 * TOO_LONG: more than COMMON_RANGE_MAX. DENIED: not plain private memory that can be read and
 * written, locked, used by a userfaultfd, or what this thread itself needs; or the process has
 * descriptors by which the kernel may do I/O to memory unseen (see pins.h), so that it could not be
 * ended. BUSY: some page is pinned for I/O just now, or some thread sleeps there (see sleepers.h);
 * later it may work. FULL, NO_MEMORY. */
enum status common_begin(struct common *common, uint8_t *bytes, uint64_t length,
                         struct common_range *ret_range) MUST_USE;

/* Turns back what of the range is still there: what the program has unmapped or mapped over in the
 * meantime stays as the program made it. What it has moved (mremap) is turned back where it is now;
 * by what it let it grow then, that stays shared. Who has the file mapped no longer sees what is
 * stored, and what he stores is lost; he should have been told before. BUSY: the kernel may be
 * doing I/O to it unseen (see pins.h), or some thread sleeps there (see sleepers.h); or our
 * descriptors were closed; or this thread's stack is there. NO_MEMORY. Then some or all of it is
 * still shared, and it can be tried again. */
enum status common_end(struct common *common, struct common_range *range) MUST_USE;
/* As common_end, whoever is at it: before a fork, which has begun, and after which parent and child
 * would go on sharing it. What such I/O brings just then may be lost, and a sleeper may miss that
 * it is woken. */
enum status common_end_anyway(struct common *common, struct common_range *range) MUST_USE;

#endif
