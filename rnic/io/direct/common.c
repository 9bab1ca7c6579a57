/* Invariants of the hold, that is from the first page moved or mapping held to the last wake: the
 * calling thread touches nothing but its own stack and registers, calls nothing that was not called
 * before (for then the dynamic linker, whose tables are in malloc's memory, would), and takes no
 * lock; what it needs of struct common it has copied. common_create turns a range of its own there
 * and back, so that all has been called once; and system calls are made by syscall(), which is no
 * point where a thread is cancelled. */
#include "rnic/io/direct/common_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/direct/hold.h"
#include "rnic/io/direct/pins.h"
#include "rnic/io/direct/present.h"
#include "rnic/io/direct/sleepers.h"
#include "rnic/io/system/sealed_file.h"
#include "rnic/io/system/stretch.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define FILE_BYTES (UINT64_C(1) << 62)
/* Between ranges: a program that lets a range grow (mremap) finds zeros, no other range. */
#define GAP_BYTES         (UINT64_C(1) << 34)
#define QUICK_THREADS     32
#define QUICK_DESCRIPTORS 96          /* what /proc/thread-self/fd is long, since Linux 6.2 */
#define STACK_BYTES       (64u << 10) /* more than this thread has below the frame of common_begin */
#define BLOCK_BYTES       4096u       /* more than a thread's control block has */
#define TRIAL_PAGES       3u

/* A range that is being turned. On the stack, complete before anything is held. */
struct turn {
    int file, stretches, pages, hold;
    uint8_t *bytes;
    uint64_t length;
    uint64_t offset;
    uint8_t *aside;  /* where the pages go */
    uint8_t *shared; /* the file, until it takes their place */
    uint8_t *kept;   /* where the mapping goes */
};

void silence_begin(struct silence *silence)
{
    uint64_t all = UINT64_MAX;
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &silence->before, sizeof all) == 0);
}

void silence_end(const struct silence *silence)
{
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &silence->before, NULL,
                  sizeof silence->before) == 0);
}

int common_descriptor(const struct common *common)
{
    return common->file;
}

static int descriptor(const struct common *common, uint32_t index)
{
    const int all[COMMON_DESCRIPTORS] = {common->file, common->stretches, common->pages,
                                         common->hold};
    return all[index];
}

static void remember_descriptors(struct common *common)
{
    for (uint32_t i = 0; i < COMMON_DESCRIPTORS; i++) {
        (void)own_file_remember(descriptor(common, i), &common->identities[i]);
    }
}

static bool is_ours(const struct common *common, uint32_t index)
{
    return own_file_is_at(descriptor(common, index), &common->identities[index]);
}

bool common_is_whole(const struct common *common)
{
    bool whole = true;
    for (uint32_t i = 0; i < COMMON_DESCRIPTORS; i++) {
        whole = whole && is_ours(common, i);
    }
    return whole;
}

static bool overlaps(const struct common_range *range, uintptr_t start, uintptr_t end)
{
    uintptr_t range_start = (uintptr_t)range->bytes;
    return range_start < end && start < range_start + range->length;
}

bool common_is_own(const struct common_range *range)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    uintptr_t block = (uintptr_t)pthread_self(), error = (uintptr_t)&errno;
    return overlaps(range, frame - STACK_BYTES, frame + sizeof(struct turn)) ||
           overlaps(range, block, block + BLOCK_BYTES) ||
           overlaps(range, error, error + sizeof errno);
}

/* What of the range from `at` on is one mapping of the right kind; 0: it begins with something
 * else. */
static uint64_t plain_part(int stretches, const uint8_t *at, uint64_t left)
{
    struct stretch stretch;
    uintptr_t start = (uintptr_t)at;
    if (!stretch_at(stretches, start, &stretch) || stretch.start > start || !stretch.plain ||
        stretch.protection != (PROT_READ | PROT_WRITE)) {
        return 0;
    }
    return stretch.end - start < left ? stretch.end - start : left;
}

static bool is_plain(const struct common *common, const struct common_range *range)
{
    uint64_t done = 0, part;
    do {
        part = plain_part(common->stretches, range->bytes + done, range->length - done);
        done += part;
    } while (part > 0 && done < range->length);
    return part > 0;
}

static bool choose_offset(struct common *common, struct common_range *range)
{
    uint64_t skew = ((uintptr_t)range->bytes - common->next) % HUGE_BYTES;
    range->offset = common->next + skew;
    return FILE_BYTES - range->offset > range->length + GAP_BYTES;
}

bool common_populate(uint8_t *bytes, uint64_t length)
{
    return syscall(SYS_madvise, bytes, length, MADV_POPULATE_WRITE) == 0;
}

/* Makes pages, to write to, at `places` where there are some at `bytes`. */
static bool make_pages(const struct turn *turn, uint8_t *bytes, uint8_t *places)
{
    struct present_run run;
    for (uint64_t done = 0; present_next(turn->pages, bytes + done, turn->length - done, &run);) {
        uint64_t at = (uint64_t)(run.bytes - bytes);
        if (!common_populate(places + at, run.length)) {
            return false;
        }
        done = at + run.length;
    }
    return true;
}

static bool prepare(struct turn *turn)
{
    turn->aside = common_reserve(turn->bytes, turn->length, PROT_READ | PROT_WRITE);
    turn->shared = common_reserve(turn->bytes, turn->length, PROT_NONE);
    turn->kept = common_reserve(turn->bytes, turn->length, PROT_READ | PROT_WRITE);
    if (turn->aside == NULL || turn->shared == NULL || turn->kept == NULL ||
        mmap(turn->shared, turn->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, turn->file,
             (off_t)turn->offset) == MAP_FAILED) {
        return false;
    }
    return make_pages(turn, turn->bytes, turn->shared); /* before anybody has to wait */
}

static bool copy_to_file(const struct turn *turn)
{
    struct present_run run;
    for (uint64_t done = 0;
         present_next(turn->pages, turn->aside + done, turn->length - done, &run);) {
        uint64_t at = (uint64_t)(run.bytes - turn->aside);
        if (!common_populate(turn->shared + at, run.length)) {
            return false;
        }
        memcpy(turn->shared + at, run.bytes, run.length);
        done = at + run.length;
    }
    return true;
}

/* Moves the mapping itself away and leaves an empty one of its kind, in which all wait. */
static bool keep_mapping(const struct turn *turn)
{
    for (uint64_t done = 0, part; done < turn->length; done += part) {
        part = plain_part(turn->stretches, turn->bytes + done, turn->length - done);
        if (part == 0 || !common_move_out(turn->bytes + done, part, turn->kept + done)) {
            return false;
        }
    }
    return true;
}

static bool put_file_there(const struct turn *turn)
{
    return copy_to_file(turn) && keep_mapping(turn) &&
           (common_move_over(turn->shared, turn->length, turn->bytes) ||
            (common_mend(turn->bytes, turn->length, PROT_READ | PROT_WRITE, turn->file,
                         turn->offset) &&
             syscall(SYS_munmap, turn->shared, turn->length) == 0));
}

static enum status take_pages(const struct turn *turn, uint64_t *ret_taken)
{
    enum status status = STATUS_OK;
    uint64_t moved;
    for (*ret_taken = 0; *ret_taken < turn->length && status == STATUS_OK; *ret_taken += moved) {
        uint8_t *from = turn->bytes + *ret_taken;
        uint64_t part = plain_part(turn->stretches, from, turn->length - *ret_taken);
        moved = 0;
        status = part == 0 ? STATUS_DENIED
                           : hold_move(turn->hold, turn->aside + *ret_taken, from, part, &moved);
    }
    return status;
}

/* Where pages cannot be moved because the program has protected them meanwhile they are copied.
 * What it has unmapped is gone. */
static void return_some(const struct turn *turn, uint64_t at, uint64_t length)
{
    uint64_t moved;
    uint8_t *from = turn->aside + at, *to = turn->bytes + at;
    if (hold_move(turn->hold, to, from, length, &moved) == STATUS_OK) {
        return;
    }
    struct present_run run;
    while (present_next(turn->pages, from, (uint64_t)(turn->aside + at + length - from), &run)) {
        (void)hold_copy(turn->hold, turn->bytes + (run.bytes - turn->aside), run.bytes, run.length);
        from = run.bytes + run.length;
    }
}

static void return_pages(const struct turn *turn, uint64_t taken)
{
    struct stretch stretch;
    uintptr_t start = (uintptr_t)turn->bytes, at = start, end = start + taken;
    for (; at < end && stretch_at(turn->stretches, at, &stretch); at = stretch.end) {
        uintptr_t from = stretch.start > at ? stretch.start : at;
        uintptr_t to = stretch.end < end ? stretch.end : end;
        if (from < to) {
            return_some(turn, from - start, to - from);
        }
    }
}

/* Nothing has changed unless it is OK. */
static enum status turn_held(const struct turn *turn)
{
    enum status status = hold_absent(turn->hold, turn->aside, turn->length);
    if (status == STATUS_OK) {
        status = hold_absent(turn->hold, turn->bytes, turn->length);
    }
    if (status != STATUS_OK) {
        return status; /* before anybody had to wait */
    }
    uint64_t taken;
    status = take_pages(turn, &taken);
    hold_release(turn->hold, turn->aside, turn->length); /* or the copy would wait at its holes */
    if (status == STATUS_OK && sleepers_are_in(turn->bytes, turn->length)) {
        status = STATUS_BUSY;
    }
    if (status == STATUS_OK && !put_file_there(turn)) {
        status = STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        return_pages(turn, taken);
    }
    hold_release(turn->hold, turn->bytes, turn->length);
    return status;
}

static enum status turn_silently(const struct turn *turn)
{
    struct silence silence;
    silence_begin(&silence);
    enum status status = turn_held(turn);
    silence_end(&silence);
    return status;
}

static enum status turn_range(struct common *common, struct common_range *range)
{
    struct turn turn = {
        .file = common->file,
        .stretches = common->stretches,
        .pages = common->pages,
        .hold = common->hold,
        .bytes = range->bytes,
        .length = range->length,
        .offset = range->offset,
    };
    enum status status = prepare(&turn) ? turn_silently(&turn) : STATUS_NO_MEMORY;
    /* Of pages that a forked child has, too, we get our own, as if we had written to them. */
    if (status == STATUS_BUSY && make_pages(&turn, turn.bytes, turn.bytes)) {
        status = turn_silently(&turn);
    }
    common_give_up(turn.aside, turn.length);
    range->kept = turn.kept;
    if (status != STATUS_OK) {
        common_give_up(turn.shared, turn.length);
        common_give_up(turn.kept, turn.length);
        common_forget(common->file, range->offset, range->length);
    }
    return status;
}

static bool whole_pages(const struct common *common, uint8_t *bytes, uint64_t length,
                        struct common_range *ret_range)
{
    uint64_t mask = common->page_bytes - 1, start = (uintptr_t)bytes;
    if (length > UINT64_MAX - mask - start) {
        return false;
    }
    uint64_t first = (start + mask) & ~mask, end = (start + length) & ~mask;
    *ret_range = (struct common_range){.bytes = bytes + (first - start), .length = end - first};
    return end > first;
}

enum status common_begin(struct common *common, uint8_t *bytes, uint64_t length,
                         struct common_range *ret_range)
{
    struct common_range range;
    if (!whole_pages(common, bytes, length, &range)) {
        return STATUS_DENIED;
    }
    if (range.length > COMMON_RANGE_MAX) {
        return STATUS_TOO_LONG;
    }
    if (!common_is_whole(common) || common_is_own(&range) || !is_plain(common, &range) ||
        pins_are_possible()) {
        return STATUS_DENIED;
    }
    if (!choose_offset(common, &range)) {
        return STATUS_FULL;
    }
    range.forks = common_forks();
    enum status status = turn_range(common, &range);
    if (status == STATUS_OK) {
        common->next = range.offset + range.length + GAP_BYTES;
        *ret_range = range;
    }
    return status;
}

void common_forget(int file, uint64_t offset, uint64_t length)
{
    (void)fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length);
}

/* Where the kernel promises memory when it is mapped, and a file's page may then be one too many:
 * who touches it gets a signal, and would not have got one for its own memory. */
static bool is_promised(void)
{
    char mode = '2';
    int setting = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (setting >= 0) {
        mode = read(setting, &mode, 1) == 1 ? mode : '2';
        close(setting);
    }
    return mode == '2';
}

/* Whether all of it works here; see the invariants, too. */
static bool is_tried(struct common *common)
{
    uint64_t length = TRIAL_PAGES * common->page_bytes;
    uint8_t *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        return false;
    }
    struct common_range range;
    uint8_t *middle = bytes + common->page_bytes;
    *middle = 1;
    bool works = common_begin(common, bytes, length, &range) == STATUS_OK && *middle == 1;
    *middle = 2;
    works = works && common_end(common, &range) == STATUS_OK && *middle == 2;
    munmap(bytes, length);
    return works;
}

bool common_is_likely(void)
{
    int hold = hold_open();
    if (hold >= 0) {
        close(hold);
    }
    return hold >= 0;
}

bool common_is_quick(void)
{
    struct stat threads, descriptors;
    return stat("/proc/self/task", &threads) == 0 && threads.st_nlink <= 2 + QUICK_THREADS &&
           stat("/proc/thread-self/fd", &descriptors) == 0 &&
           descriptors.st_size <= QUICK_DESCRIPTORS;
}

enum status common_create(struct common **ret_common)
{
    if (sizeof(void *) < sizeof(uint64_t)) {
        return STATUS_UNSUPPORTED;
    }
    struct common *common = calloc(1, sizeof *common);
    if (common == NULL) {
        return STATUS_NO_MEMORY;
    }
    *common = (struct common){
        .file = sealed_file_create(COMMON_NAME, FILE_BYTES),
        .stretches = stretch_open(),
        .pages = present_open(),
        .hold = hold_open(),
        .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
    };
    remember_descriptors(common);
    if (common->file < 0 || common->stretches < 0 || common->pages < 0 || common->hold < 0 ||
        is_promised() || !is_tried(common)) {
        common_destroy(common);
        return STATUS_UNSUPPORTED;
    }
    *ret_common = common;
    return STATUS_OK;
}

void common_abandon(struct common *common)
{
    for (uint32_t i = 0; i < COMMON_DESCRIPTORS; i++) {
        if (is_ours(common, i)) { /* it may be the program's by now */
            close(descriptor(common, i));
        }
    }
    common->file = common->stretches = common->pages = common->hold = -1;
}

void common_destroy(struct common *common)
{
    if (common != NULL) {
        common_abandon(common);
        free(common);
    }
}
