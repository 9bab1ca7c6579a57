#include "tools/transfer/disk/half_mark.h"

#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>

void half_mark_set(int fd)
{
    fsetxattr(fd, HALF_MARK, "", 0, 0);
}

void half_mark_clear(int fd)
{
    fremovexattr(fd, HALF_MARK);
}

bool half_mark_is_on(int directory, const char *name)
{
    char path[40 + NAME_MAX + 1];
    int length = snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, name);
    return (size_t)length < sizeof(path) && lgetxattr(path, HALF_MARK, NULL, 0) >= 0;
}
