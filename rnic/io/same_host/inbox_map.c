#include <sys/mman.h>
#include <unistd.h>

#include "rnic/io/same_host/inbox_private.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

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

void inbox_touch(void *bytes, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)bytes & ~(page - 1);
    int result = madvise((void *)start, (uintptr_t)bytes + length - start, MADV_POPULATE_WRITE);
    (void)result; /* else at their first touch */
}

void *inbox_map(int file, uint64_t offset, size_t length)
{
    return map(file, offset, length, PROT_READ | PROT_WRITE);
}

const void *inbox_map_to_read(int file, uint64_t offset, size_t length)
{
    return map(file, offset, length, PROT_READ);
}
