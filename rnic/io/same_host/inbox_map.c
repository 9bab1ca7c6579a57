#include <sys/mman.h>

#include "rnic/io/same_host/inbox_private.h"

static void *map(int file, uint64_t offset, size_t length, int protection)
{
    void *memory = mmap(NULL, length, protection, MAP_SHARED, file, (off_t)offset);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, length, MADV_DONTFORK);
    (void)madvise(memory, length, MADV_DONTDUMP);
    return memory;
}

void *inbox_map(int file, uint64_t offset, size_t length)
{
    return map(file, offset, length, PROT_READ | PROT_WRITE);
}

const void *inbox_map_to_read(int file, uint64_t offset, size_t length)
{
    return map(file, offset, length, PROT_READ);
}
