/* See the invariants in common.c. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/direct/common_private.h"
#include "rnic/io/direct/hold.h"
#include "rnic/io/direct/pins.h"
#include "rnic/io/direct/sleepers.h"
#include "rnic/io/system/stretch.h"

/* What is turned back at once: within one mapping, then and now. */
struct back {
    int file, stretches, hold;
    uint8_t *bytes;
    uint64_t length;
    uint64_t offset;
    uint8_t *kept;
    const uint8_t *seen; /* the file once more, whatever the program does to the range */
    int protection;      /* now */
    bool anyway;         /* whoever sleeps there */
    uint8_t *ready;      /* where the kept mapping is filled, before it goes there */
};

bool common_is_file(const struct common *common, const struct stretch *stretch)
{
    dev_t device = common->identities[COMMON_FILE].device;
    return stretch->inode == common->identities[COMMON_FILE].inode &&
           stretch->major == major(device) && stretch->minor == minor(device);
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* What a mapping shows of the range, from `at` on, and has not been turned back: of that the kept
 * mapping is left inaccessible. False: nothing. */
static bool find_part(const struct common *common, const struct common_range *range, uintptr_t at,
                      const struct stretch *now, struct back *ret_back)
{
    uintptr_t first = now->start > at ? now->start : at;
    uint64_t offset = now->offset + (first - now->start);
    uint64_t below = offset < range->offset ? range->offset - offset : 0;
    uint64_t skip = offset + below - range->offset, length = range->length;
    for (first += below; common_is_file(common, now) && first < now->end && skip < length;) {
        struct stretch then;
        uintptr_t kept = (uintptr_t)range->kept + skip;
        CHECK(stretch_at(common->stretches, kept, &then) && then.start <= kept);
        uint64_t part = least(length - skip, least(now->end - first, then.end - kept));
        if (then.protection != PROT_NONE) {
            *ret_back = (struct back){
                .file = common->file,
                .stretches = common->stretches,
                .hold = common->hold,
                .bytes = (uint8_t *)first,
                .length = part,
                .offset = range->offset + skip,
                .kept = range->kept + skip,
                .protection = now->protection,
            };
            return true;
        }
        first += part;
        skip += part;
    }
    return false;
}

/* The first place at or behind `at` that still shows some of the range. */
static bool find_rest(const struct common *common, const struct common_range *range, uintptr_t at,
                      uintptr_t end, struct back *ret_back)
{
    struct stretch now;
    for (; stretch_at(common->stretches, at, &now) && now.start < end; at = now.end) {
        if (find_part(common, range, at, &now, ret_back)) {
            return true;
        }
    }
    return false;
}

/* By what the kernel refuses to advise. These pages are not needed for long. */
static bool is_locked(const struct common *common, const struct back *back)
{
    return madvise(back->bytes, common->page_bytes, MADV_COLD) != 0;
}

/* Makes the pages that the file has, and copies them. */
static bool take_over(const struct back *back, bool copy)
{
    for (uint64_t done = 0; done < back->length;) {
        long data = syscall(SYS_lseek, back->file, back->offset + done, SEEK_DATA);
        long hole = data < 0 ? -1 : syscall(SYS_lseek, back->file, data, SEEK_HOLE);
        if (hole < 0 || (uint64_t)data >= back->offset + back->length) {
            break; /* no more */
        }
        uint64_t at = (uint64_t)data - back->offset, rest = back->length - at;
        uint64_t part = (uint64_t)(hole - data) < rest ? (uint64_t)(hole - data) : rest;
        if (!common_populate(back->ready + at, part)) {
            return false;
        }
        if (copy) {
            memcpy(back->ready + at, back->seen + at, part);
        }
        done = at + part;
    }
    return true;
}

static bool is_still_there(const struct back *back)
{
    struct stretch stretch;
    uintptr_t at = (uintptr_t)back->bytes;
    return stretch_at(back->stretches, at, &stretch) && stretch.start <= at &&
           stretch.end - at >= back->length && stretch.inode != 0 &&
           stretch.protection == back->protection &&
           stretch.offset + (at - stretch.start) == back->offset;
}

static bool put_back(const struct back *back)
{
    if (!take_over(back, true) ||
        (back->protection != (PROT_READ | PROT_WRITE) &&
         syscall(SYS_mprotect, back->ready, back->length, back->protection) != 0) ||
        !is_still_there(back)) {
        return false;
    }
    bool moved = common_move_over(back->ready, back->length, back->bytes);
    if (!moved) {
        (void)common_mend(back->bytes, back->length, back->protection, back->file, back->offset);
    }
    return moved;
}

static enum status turn_back_held(const struct back *back)
{
    enum status status = STATUS_NO_MEMORY;
    if (hold_writers(back->hold, back->bytes, back->length)) {
        bool sleepers = !back->anyway && sleepers_are_in(back->bytes, back->length);
        status = sleepers ? STATUS_BUSY : put_back(back) ? STATUS_OK : STATUS_NO_MEMORY;
        hold_release(back->hold, back->bytes, back->length);
    }
    return status;
}

static enum status turn_back_silently(const struct back *back)
{
    struct silence silence;
    silence_begin(&silence);
    enum status status = turn_back_held(back);
    silence_end(&silence);
    return status;
}

static enum status turn_back_seen(const struct common *common, struct back *back)
{
    back->ready = common_reserve(back->bytes, back->length, PROT_READ | PROT_WRITE);
    if (back->ready == NULL) {
        return STATUS_NO_MEMORY;
    }
    bool locked = is_locked(common, back);
    enum status status =
        common_move_out(back->kept, back->length, back->ready) && take_over(back, false)
            ? turn_back_silently(back)
            : STATUS_NO_MEMORY;
    if (status != STATUS_OK) {
        common_give_up(back->ready, back->length);
        return status;
    }
    (void)mprotect(back->kept, back->length, PROT_NONE);
    if (locked) {
        syscall(SYS_mlock, back->bytes, back->length); /* as far as it may */
    }
    return status;
}

static enum status turn_back(const struct common *common, struct back *back)
{
    if (common_is_own(&(struct common_range){.bytes = back->bytes, .length = back->length})) {
        return STATUS_BUSY; /* a fiber, whose stack the program has registered */
    }
    void *seen = mmap(NULL, back->length, PROT_READ, MAP_SHARED, back->file, (off_t)back->offset);
    if (seen == MAP_FAILED) {
        return STATUS_NO_MEMORY;
    }
    back->seen = seen;
    enum status status = turn_back_seen(common, back);
    munmap(seen, back->length);
    return status;
}

/* Between two addresses; adds what is done to `done`. */
static enum status end_between(const struct common *common, const struct common_range *range,
                               uintptr_t at, uintptr_t end, bool anyway, uint64_t *done)
{
    struct back back;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && find_rest(common, range, at, end, &back)) {
        back.anyway = anyway;
        status = turn_back(common, &back);
        *done += back.length;
        at = (uintptr_t)back.bytes + back.length;
    }
    return status;
}

/* But for one fork that waits for the end. Asked when nothing is mapped any longer: a fork that
 * begins later finds nothing. */
static bool was_forked(const struct common_range *range, bool anyway)
{
    return common_forks() - range->forks > (anyway ? 1 : 0);
}

static enum status end(struct common *common, struct common_range *range, bool anyway)
{
    uint64_t done = 0;
    uintptr_t start = (uintptr_t)range->bytes;
    enum status status = end_between(common, range, start, start + range->length, anyway, &done);
    if (status == STATUS_OK && done < range->length) { /* the program may have moved it */
        status = end_between(common, range, 0, UINTPTR_MAX, anyway, &done);
    }
    if (status == STATUS_OK) {
        munmap(range->kept, range->length);
        range->remains = was_forked(range, anyway);
        if (!range->remains) {
            common_forget(common->file, range->offset, range->length);
        }
    }
    return status;
}

/* Where it was made common, or where the program has moved it. */
static bool is_mapped(const struct common *common, const struct common_range *range)
{
    struct back back;
    uintptr_t start = (uintptr_t)range->bytes;
    return find_rest(common, range, start, start + range->length, &back) ||
           find_rest(common, range, 0, UINTPTR_MAX, &back);
}

enum status common_end(struct common *common, struct common_range *range)
{
    bool waits = !common_is_whole(common) || (is_mapped(common, range) && pins_are_possible());
    return waits ? STATUS_BUSY : end(common, range, false);
}

enum status common_end_anyway(struct common *common, struct common_range *range)
{
    return common_is_whole(common) ? end(common, range, true) : STATUS_BUSY;
}
