/* Mappings that take each other's places. mremap unmaps what it is to replace before it knows that
 * it can, so it is asked only for what no limit can refuse it then: what moves is no more than what
 * it replaces, of every kind that is limited, and the number of mappings is looked at first. What
 * is left is a kernel without memory for itself. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rnic/io/direct/common_private.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

uint8_t *common_reserve(const uint8_t *like, uint64_t length, int protection)
{
    uint8_t *all = mmap(NULL, length + HUGE_BYTES, protection,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    uint64_t skew = ((uintptr_t)like - (uintptr_t)all) % HUGE_BYTES;
    if (skew > 0) {
        munmap(all, skew);
    }
    munmap(all + skew + length, HUGE_BYTES - skew);
    return all + skew;
}

void common_give_up(uint8_t *bytes, uint64_t length)
{
    if (bytes != NULL) {
        syscall(SYS_munmap, bytes, length);
    }
}

bool common_move_out(uint8_t *from, uint64_t length, uint8_t *to)
{
    return syscall(SYS_mremap, from, length, length,
                   MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != -1;
}

bool common_move_over(uint8_t *from, uint64_t length, uint8_t *to)
{
    return syscall(SYS_mremap, from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) != -1;
}

bool common_mend(uint8_t *bytes, uint64_t length, int protection, int file, uint64_t offset)
{
    return syscall(SYS_mmap, bytes, length, protection, MAP_SHARED | MAP_FIXED_NOREPLACE, file,
                   offset) == (long)(uintptr_t)bytes;
}
