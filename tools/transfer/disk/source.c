#include "tools/transfer/disk/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS  INT64_C(20000000) /* with some room: the slowest has 10 ms */
#define PAUSE_NS 500000

static bool is_same_time(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec == other->tv_sec && one->tv_nsec == other->tv_nsec;
}

/* The clock that gives files their times has not gone on since this one. Some are a little ahead of
 * it; others, where it was set back, are not waited for. */
static bool is_of_this_tick(const struct timespec *changed)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    int64_t seconds = now.tv_sec - changed->tv_sec;
    if (seconds < -1 || seconds > 0) {
        return false;
    }
    int64_t age_ns = seconds * INT64_C(1000000000) + now.tv_nsec - changed->tv_nsec;
    return age_ns <= 0 && age_ns > -TICK_NS;
}

/* All that is done to a file within a tick of that clock may get one time: what changes it in the
 * tick of its last change leaves no trace. */
static void wait_for_next_tick(const struct timespec *changed)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (unsigned i = 0; i < TICK_NS / PAUSE_NS && is_of_this_tick(changed); i++) {
        nanosleep(&pause, NULL);
    }
}

void source_open(struct source *source, int fd, const struct stat *status)
{
    *source = (struct source){
        .fd = fd,
        .status = *status,
        .sparse = (uint64_t)status->st_blocks * 512 < (uint64_t)status->st_size,
        .size = (uint64_t)status->st_size,
    };
    wait_for_next_tick(&status->st_ctim);
}

void source_close(struct source *source)
{
    if (source->fd >= 0) {
        close(source->fd);
        source->fd = -1;
    }
}

uint64_t source_skip_hole(struct source *source)
{
    uint64_t from = source->position;
    source->data_end = source->size;
    if (!source->sparse) {
        return 0;
    }
    off_t data = lseek(source->fd, (off_t)from, SEEK_DATA);
    if (data < 0 && errno == ENXIO) { /* nothing but a hole up to the end */
        data = (off_t)source->size;
    }
    if (data < 0) { /* the file system does not tell holes */
        source->sparse = false;
        return 0;
    }
    source->position = (uint64_t)data < source->size ? (uint64_t)data : source->size;
    off_t hole = lseek(source->fd, (off_t)source->position, SEEK_HOLE);
    if (hole > data && (uint64_t)hole < source->size) {
        source->data_end = (uint64_t)hole;
    }
    return source->position - from;
}

enum problem_code source_read(struct source *source, void *bytes, size_t length, size_t room,
                              const char **ret_text)
{
    size_t done = 0;
    bool is_end = source->position + length == source->size && source->size < INT64_MAX;
    size_t beyond = is_end && room > length ? 1 : 0;
    while (done < length) {
        size_t left = length - done;
        ssize_t count = pread(source->fd, (char *)bytes + done, left + beyond,
                              (off_t)(source->position + done));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            *ret_text = strerror(errno);
            return problem_code_of_errno(errno);
        }
        if (count == 0) {
            *ret_text = "shrank while it was read";
            return PROBLEM_CHANGED;
        }
        source->ended = beyond > 0 && (size_t)count == left;
        done += (size_t)count < left ? (size_t)count : left;
    }
    source->position += length;
    return PROBLEM_NONE;
}

bool source_is_unchanged(const struct stat *before, const struct stat *after)
{
    return before->st_dev == after->st_dev && before->st_ino == after->st_ino &&
           before->st_size == after->st_size && is_same_time(&before->st_mtim, &after->st_mtim) &&
           is_same_time(&before->st_ctim, &after->st_ctim);
}

/* Files of /proc and of some network file systems hold more than their size says. */
static enum problem_code check_end(const struct source *source, const char **ret_text)
{
    char byte;
    ssize_t count;
    do {
        count = pread(source->fd, &byte, 1, (off_t)source->size);
    } while (count < 0 && errno == EINTR);
    if (count > 0) {
        *ret_text = "holds more than its size says";
        return PROBLEM_CHANGED;
    }
    if (count < 0) {
        *ret_text = strerror(errno);
        return problem_code_of_errno(errno);
    }
    return PROBLEM_NONE;
}

enum problem_code source_check(const struct source *source, const char **ret_text)
{
    struct stat after;
    if (fstat(source->fd, &after) != 0) {
        *ret_text = strerror(errno);
        return problem_code_of_errno(errno);
    }
    if (after.st_nlink == 0 && source->status.st_nlink > 0) {
        *ret_text = "removed while it was read";
        return PROBLEM_VANISHED;
    }
    if (!source_is_unchanged(&source->status, &after)) {
        *ret_text = "changed while it was read";
        return PROBLEM_CHANGED;
    }
    bool is_longest = source->size == INT64_MAX; /* nothing can be behind it */
    return source->ended || is_longest ? PROBLEM_NONE : check_end(source, ret_text);
}
