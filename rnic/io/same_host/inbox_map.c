#include <sys/mman.h>

#include "rnic/io/same_host/inbox_private.h"

/* `place`: where to; NULL: anywhere. */
static void *map(void *place, int file, uint64_t offset, size_t length, int protection)
{
    int flags = MAP_SHARED | (place != NULL ? MAP_FIXED : 0);
    void *memory = mmap(place, length, protection, flags, file, (off_t)offset);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, length, MADV_DONTFORK);
    (void)madvise(memory, length, MADV_DONTDUMP);
    return memory;
}

void *inbox_map(int file, uint64_t offset, size_t length)
{
    return map(NULL, file, offset, length, PROT_READ | PROT_WRITE);
}

const void *inbox_map_to_read(int file, uint64_t offset, size_t length)
{
    return map(NULL, file, offset, length, PROT_READ);
}

void *inbox_map_at(void *place, int file, uint64_t offset, size_t length)
{
    return map(place, file, offset, length, PROT_READ | PROT_WRITE);
}

void inbox_leave_place(void *place, size_t length)
{
    void *zeroes = mmap(place, length, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (zeroes != MAP_FAILED) {
        (void)madvise(place, length, MADV_DONTFORK);
    }
}
