#include "tools/transfer/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned long long resolve_of[] = {
    [CONFINE_BENEATH] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    [CONFINE_NO_SYMLINKS] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
};

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
    long fd;
    do { /* EAGAIN: a rename went on meanwhile, and the kernel could not be sure */
        fd = syscall(SYS_openat2, directory, path, &how, sizeof(how));
    } while (fd < 0 && (errno == EAGAIN || errno == EINTR));
    return fd >= 0 ? (int)fd : -errno;
}
