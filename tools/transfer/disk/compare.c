#include "tools/transfer/disk/compare.h"

static bool has_sizes(const struct wishes *wishes)
{
    return wishes->size_min > 0 || (wishes->bits & WISH_MAX_SIZE) != 0;
}

bool compare_is_wanted(const struct wishes *wishes)
{
    const uint32_t about_names = WISH_EXISTING | WISH_IGNORE_EXISTING | WISH_UPDATE;
    const uint32_t not_by_time = WISH_CHECKSUM | WISH_SIZE_ONLY;
    return (wishes->bits & (about_names | not_by_time)) != 0 ||
           (wishes->bits & WISH_IGNORE_TIMES) == 0 || has_sizes(wishes);
}

/* Below 0: the first is older. */
static int order(const struct wishes *wishes, const struct timespec *one,
                 const struct timespec *other)
{
    if ((wishes->bits & WISH_WINDOW) == 0 && one->tv_sec == other->tv_sec) {
        return (one->tv_nsec > other->tv_nsec) - (one->tv_nsec < other->tv_nsec);
    }
    uint64_t apart = one->tv_sec > other->tv_sec ? (uint64_t)one->tv_sec - (uint64_t)other->tv_sec
                                                 : (uint64_t)other->tv_sec - (uint64_t)one->tv_sec;
    uint64_t window = (wishes->bits & WISH_WINDOW) != 0 ? wishes->window_s : 0;
    return apart <= window ? 0 : one->tv_sec < other->tv_sec ? -1 : 1;
}

bool compare_times(const struct wishes *wishes, const struct timespec *one,
                   const struct timespec *other)
{
    return order(wishes, one, other) == 0;
}

bool compare_is_newer(const struct wishes *wishes, const struct stat *there,
                      const struct timespec *mtime)
{
    return (wishes->bits & WISH_UPDATE) != 0 && S_ISREG(there->st_mode) &&
           order(wishes, mtime, &there->st_mtim) < 0;
}

enum answer compare_other(const struct wishes *wishes, const struct stat *there, bool is_directory,
                          uint32_t *ret_left)
{
    if (there == NULL && (wishes->bits & WISH_EXISTING) != 0) {
        *ret_left = LEFT_MISSING;
        return ANSWER_LEFT;
    }
    if (there != NULL && (wishes->bits & WISH_IGNORE_EXISTING) != 0 &&
        !(is_directory && S_ISDIR(there->st_mode))) {
        *ret_left = LEFT_EXISTS;
        return ANSWER_LEFT;
    }
    return ANSWER_WANTED;
}

enum answer compare_file(const struct wishes *wishes, const struct stat *there, uint64_t size,
                         const struct timespec *mtime, uint32_t *ret_left)
{
    enum answer answer = compare_other(wishes, there, false, ret_left);
    if (size < wishes->size_min ||
        ((wishes->bits & WISH_MAX_SIZE) != 0 && size > wishes->size_max)) {
        *ret_left = LEFT_SIZE;
        return ANSWER_LEFT;
    }
    if (answer != ANSWER_WANTED || there == NULL || !S_ISREG(there->st_mode)) {
        return answer;
    }
    if (compare_is_newer(wishes, there, mtime)) {
        *ret_left = LEFT_NEWER;
        return ANSWER_LEFT;
    }
    if ((uint64_t)there->st_size != size) {
        return ANSWER_WANTED;
    }
    if ((wishes->bits & WISH_CHECKSUM) != 0) {
        return ANSWER_DIGEST;
    }
    if ((wishes->bits & WISH_SIZE_ONLY) != 0) {
        return ANSWER_SAME;
    }
    bool same_time = compare_times(wishes, mtime, &there->st_mtim);
    return (wishes->bits & WISH_IGNORE_TIMES) == 0 && same_time ? ANSWER_SAME : ANSWER_WANTED;
}
