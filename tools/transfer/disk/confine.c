#include "tools/transfer/disk/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* EAGAIN: a rename went on meanwhile, and the kernel could not be sure, which passes; or, without
 * blocking, somebody has a lease on the file (F_SETLEASE), and may take his time to give it back.
 */
#define AGAIN_AT_ONCE 50
#define AGAIN_MAX     100

static const unsigned long long resolve_of[] = {
    [CONFINE_BENEATH] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    [CONFINE_NO_SYMLINKS] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
};

/* Whether what failed with `error` is worth another try, of which there were `again`; waits. */
static bool try_again(int error, unsigned *again)
{
    if (error == EINTR) {
        return true;
    }
    if (error != EAGAIN || (*again)++ == AGAIN_MAX) {
        return false;
    }
    if (*again > AGAIN_AT_ONCE) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return true;
}

int confine_open(int directory, const char *path, int flags, mode_t mode,
                 enum confinement confinement)
{
    flags |= O_CLOEXEC | O_NOCTTY;
    if ((flags & O_PATH) != 0) {
        flags &= ~O_NOCTTY; /* openat2 refuses what open ignores */
    }
    if (confinement == CONFINE_NOT) {
        int fd = openat(directory, path, flags, mode);
        return fd >= 0 ? fd : -errno;
    }
    struct open_how how;
    memset(&how, 0, sizeof(how));
    how.flags = (unsigned)flags;
    how.mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0;
    how.resolve = resolve_of[confinement];
    for (unsigned again = 0;;) {
        long fd = syscall(SYS_openat2, directory, path, &how, sizeof(how));
        if (fd >= 0) {
            return (int)fd;
        }
        if (!try_again(errno, &again)) {
            return -errno;
        }
    }
}

int confine_reopen(int path)
{
    char name[40];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", path);
    for (unsigned again = 0;;) {
        int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (fd >= 0) {
            return fd;
        }
        if (!try_again(errno, &again)) {
            return -errno;
        }
    }
}
