/* What a fork means for what is common then. Who ends a range and forgets its pages may do so while
 * another thread forks, which had no patience: the child would copy zeros. */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rnic/io/direct/common_private.h"
#include "rnic/io/system/stretch.h"

static _Atomic uint32_t begun; /* of the process, as a fork is */

uint32_t common_forks(void)
{
    return atomic_load(&begun);
}

void common_fork_begins(void)
{
    atomic_fetch_add(&begun, 1);
}

/* Rather a signal for the child than its stores in its parent's memory. */
static void take_copy(uint8_t *bytes, uint64_t length, int protection)
{
    uint8_t *copy = common_reserve(bytes, length, PROT_READ | PROT_WRITE);
    bool copied = copy != NULL && mprotect(bytes, length, PROT_READ) == 0;
    if (copied) {
        memcpy(copy, bytes, length);
        copied = mprotect(copy, length, protection) == 0 && common_move_over(copy, length, bytes);
    }
    if (!copied) {
        munmap(bytes, length);
    }
}

/* What a mapping shows of the range, wherever the program has moved it. */
static void unshare_part(const struct common_range *range, const struct stretch *now)
{
    uint64_t first = now->offset, end = first + (now->end - now->start);
    uint64_t range_end = range->offset + range->length;
    first = first > range->offset ? first : range->offset;
    end = end < range_end ? end : range_end;
    if (first < end) {
        take_copy((uint8_t *)(now->start + (first - now->offset)), end - first, now->protection);
    }
}

void common_unshare(const struct common *common, const struct common_range *range)
{
    int stretches = stretch_open(); /* the parent's says what the parent has */
    if (stretches < 0) {
        munmap(range->bytes, range->length);
        return;
    }
    struct stretch now;
    for (uintptr_t at = 0; stretch_at(stretches, at, &now); at = now.end) {
        if (common_is_file(common, &now)) {
            unshare_part(range, &now);
        }
    }
    close(stretches);
}
