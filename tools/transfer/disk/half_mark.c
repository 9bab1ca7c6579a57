#include "tools/transfer/disk/half_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"

#define PATH_LENGTH (40 + NAME_MAX + 1)

static bool mark(int fd, bool half)
{
    return (half ? fsetxattr(fd, HALF_MARK, "", 0, 0) : fremovexattr(fd, HALF_MARK)) == 0;
}

/* Its owner, too, needs the permission to write for that, which is lent where it has none. */
static void mark_anyway(int fd, bool half)
{
    struct stat status;
    if (mark(fd, half) || errno != EACCES || fstat(fd, &status) != 0 ||
        fchmod(fd, (status.st_mode & 07777) | 0200) != 0) {
        return;
    }
    mark(fd, half);
    fchmod(fd, status.st_mode & 07777);
}

void half_mark_set(int fd)
{
    mark_anyway(fd, true);
}

void half_mark_clear(int fd)
{
    mark_anyway(fd, false);
}

static bool path_of(int directory, const char *name, char ret_path[PATH_LENGTH])
{
    return snprintf(ret_path, PATH_LENGTH, "/proc/self/fd/%d/%s", directory, name) < PATH_LENGTH;
}

bool half_mark_is_on(int directory, const char *name)
{
    char path[PATH_LENGTH];
    return path_of(directory, name, path) && lgetxattr(path, HALF_MARK, NULL, 0) >= 0;
}

void half_mark_clear_name(int directory, const char *name)
{
    int fd = half_mark_is_on(directory, name)
                 ? confine_open(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0,
                                CONFINE_NO_SYMLINKS)
                 : -1;
    if (fd >= 0) {
        half_mark_clear(fd);
        close(fd);
    }
}

void half_mark_name(int directory, const char *source)
{
    fsetxattr(directory, HALF_MARK_NAMED, source, strlen(source), 0);
}

bool half_mark_is_named(int directory, const char *source)
{
    char name[NAME_MAX + 1];
    ssize_t length = fgetxattr(directory, HALF_MARK_NAMED, name, sizeof(name));
    return length > 0 && (size_t)length == strlen(source) &&
           memcmp(name, source, (size_t)length) == 0;
}

/* By what is held: in the meantime the name may have become another's. */
void half_mark_unname(int parent, const char *name)
{
    char path[PATH_LENGTH];
    struct stat status;
    int fd = confine_open(parent, name, O_PATH | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS);
    if (fd < 0) {
        return;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    /* it has its own permissions by now, without which its owner may not */
    if (removexattr(path, HALF_MARK_NAMED) != 0 && errno == EACCES && fstat(fd, &status) == 0 &&
        chmod(path, (status.st_mode & 07777) | 0200) == 0) {
        removexattr(path, HALF_MARK_NAMED);
        chmod(path, status.st_mode & 07777);
    }
    close(fd);
}
