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
/* What as much costs in small pages, and what may be lost by finding out. A wait for processors
 * that do something else meanwhile, the engine's part of the copy as a rule, costs less. */
#define WORTH_NS      ((uint64_t)700 * 1000)
#define TRIAL_NS      ((uint64_t)2000 * 1000)
#define TRIAL_WAIT_NS ((uint64_t)20000 * 1000)
/* Times LARGE_PAGES_LENGTH that get small pages before others are tried; twice as many next time.
 */
#define PAUSE_FIRST 8
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

/* A place in memory that is free, and aligned. NULL: none. */
static char *find_room(void)
{
    const size_t length = LARGE_PAGES_LENGTH + LARGE_LENGTH;
    char *room = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        return NULL;
    }
    munmap(room, length);
    return room + (LARGE_LENGTH - (uintptr_t)room % LARGE_LENGTH) % LARGE_LENGTH;
}

/* Nobody touches the mapping, which would fault where another cuts the file. A thread that has
 * taken the place meanwhile keeps it. */
static bool make(int fd, uint64_t offset)
{
    bool begun = begin_each(fd, offset) && !is_made(fd, offset + LARGE_PAGES_LENGTH);
    char *room = begun ? find_room() : NULL;
    char *mapped = room != NULL ? mmap(room, LARGE_PAGES_LENGTH, PROT_READ,
                                       MAP_SHARED | MAP_FIXED_NOREPLACE, fd, (off_t)offset)
                                : MAP_FAILED;
    if (mapped == MAP_FAILED) {
        return false;
    }
    bool made = mapped == room && madvise(mapped, LARGE_PAGES_LENGTH, MADV_COLLAPSE) == 0;
    munmap(mapped, LARGE_PAGES_LENGTH);
    return made;
}

static bool pays(const struct large_pages *pages)
{
    uint64_t worth_ns = pages->count * WORTH_NS;
    return pages->worked_ns <= TRIAL_NS + worth_ns && pages->waited_ns <= TRIAL_WAIT_NS + worth_ns;
}

static void begin_pause(struct large_pages *pages)
{
    unsigned pause = pages->last_pause == 0 ? PAUSE_FIRST : 2 * pages->last_pause;
    *pages = (struct large_pages){.pause = pause, .last_pause = pause};
}

void large_pages_make(struct large_pages *pages, int fd, uint64_t offset)
{
    pages->refused |= !is_in_tmpfs(fd);
    if (pages->refused || !ends_at(fd, offset)) {
        return;
    }
    if (pages->pause > 0) {
        pages->pause--;
        return;
    }
    uint64_t begin_ns = now_ns(), begin_worked_ns = worked_ns();
    pages->refused = !make(fd, offset);
    uint64_t worked = worked_ns() - begin_worked_ns, took = now_ns() - begin_ns;
    pages->worked_ns += worked;
    pages->waited_ns += took > worked ? took - worked : 0;
    pages->count++;
    if (!pages->refused && !pays(pages)) {
        begin_pause(pages);
    }
}
