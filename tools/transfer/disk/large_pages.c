#include "tools/transfer/disk/large_pages.h"

#include <linux/magic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tools/transfer/wire/clock.h"

#define PAGE_LENGTH  4096u
#define LARGE_LENGTH ((size_t)2 << 20)
/* What as much costs in small pages, and what may be lost by finding out. */
#define WORTH_NS ((uint64_t)700 * 1000)
#define TRIAL_NS ((uint64_t)2000 * 1000)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static bool is_in_tmpfs(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

static bool ends_at(int fd, uint64_t offset)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (uint64_t)status.st_size == offset;
}

/* As where tmpfs takes large pages by itself (mounted with huge=always). */
static bool is_made(int fd, uint64_t end)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (uint64_t)status.st_blocks * 512 >= end;
}

/* What has no page at all is taken for cut off, and not made large. */
static bool begin_each(int fd, uint64_t offset)
{
    static const char zeros[PAGE_LENGTH];
    for (size_t at = 0; at < LARGE_PAGES_LENGTH; at += LARGE_LENGTH) {
        if (pwrite(fd, zeros, sizeof(zeros), (off_t)(offset + at)) != (ssize_t)sizeof(zeros)) {
            return false;
        }
    }
    return true;
}

/* Nobody touches the mapping, which would fault where another cuts the file. */
static bool make(int fd, uint64_t offset)
{
    const size_t reserved = LARGE_PAGES_LENGTH + LARGE_LENGTH;
    char *room = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        return false;
    }
    char *aligned = room + (LARGE_LENGTH - (uintptr_t)room % LARGE_LENGTH) % LARGE_LENGTH;
    bool made = begin_each(fd, offset) && !is_made(fd, offset + LARGE_PAGES_LENGTH) &&
                mmap(aligned, LARGE_PAGES_LENGTH, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
                     (off_t)offset) == aligned &&
                madvise(aligned, LARGE_PAGES_LENGTH, MADV_COLLAPSE) == 0;
    munmap(room, reserved);
    return made;
}

void large_pages_make(struct large_pages *pages, int fd, uint64_t offset)
{
    pages->refused |= !is_in_tmpfs(fd);
    if (pages->refused || !ends_at(fd, offset)) {
        return;
    }
    uint64_t begin_ns = now_ns();
    pages->refused = !make(fd, offset);
    pages->spent_ns += now_ns() - begin_ns;
    pages->count++;
    pages->refused |= pages->spent_ns > TRIAL_NS + pages->count * WORTH_NS;
}
