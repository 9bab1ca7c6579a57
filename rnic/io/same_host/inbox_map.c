#include <sys/mman.h>
#include <unistd.h>

#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/system/raw_file.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

static void keep_to_ourselves(void *memory, size_t length)
{
    (void)madvise(memory, length, MADV_DONTFORK);
    (void)madvise(memory, length, MADV_DONTDUMP);
}

static void *map(int file, uint64_t offset, size_t length, int protection)
{
    void *memory = mmap(NULL, length, protection, MAP_SHARED, file, (off_t)offset);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    keep_to_ourselves(memory, length);
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

void inbox_unmap(const void *memory, size_t length)
{
    if (memory != NULL) {
        munmap((void *)(uintptr_t)memory, length);
    }
}

struct direct_shown *inbox_make_shown(int *ret_file)
{
    void *shown;
    int file = sealed_file_create_to_show(INBOX_SHOWN_NAME, INBOX_SHOWN_BYTES, &shown);
    if (file < 0) {
        return NULL;
    }
    keep_to_ourselves(shown, INBOX_SHOWN_BYTES);
    *ret_file = file;
    return shown;
}

const struct direct_shown *inbox_find_shown(pid_t thread, int descriptor)
{
    struct stat stat;
    enum status status;
    const struct direct_shown *shown = NULL;
    int file = sealed_file_open(thread, descriptor, INBOX_SHOWN_LINK, &stat, &status);
    if (file < 0) {
        return NULL;
    }
    if (stat.st_size == (off_t)INBOX_SHOWN_BYTES && stat.st_uid == geteuid()) {
        shown = map(file, 0, INBOX_SHOWN_BYTES, PROT_READ);
    }
    raw_close(file);
    return shown;
}
