#include "tools/transfer/disk/birth.h"

#include <fcntl.h>
#include <sys/stat.h>

int birth_compare(const struct birth *one, const struct birth *other)
{
    if (one->s != other->s) {
        return one->s < other->s ? -1 : 1;
    }
    return one->ns < other->ns ? -1 : one->ns > other->ns;
}

struct birth birth_of(int fd)
{
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) != 0 ||
        (status.stx_mask & STATX_BTIME) == 0) {
        return (struct birth){0};
    }
    return (struct birth){.s = status.stx_btime.tv_sec, .ns = status.stx_btime.tv_nsec};
}
