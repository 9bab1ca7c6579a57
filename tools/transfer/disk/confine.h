/* Opening files below a directory and nowhere else, by openat2(2).
 *
 * Functions return a descriptor, or -errno. EXDEV: the path leads out of the directory. */
#ifndef TOOLS_TRANSFER_CONFINE_H
#define TOOLS_TRANSFER_CONFINE_H

#include <sys/types.h>

enum confinement {
    CONFINE_NOT,         /* the user's own path: as open(2) does it */
    CONFINE_BENEATH,     /* links are followed as long as they stay below the directory */
    CONFINE_NO_SYMLINKS, /* below the directory, and through no symbolic link at all */
};

/* `flags` as for openat(2); O_CLOEXEC and O_NOCTTY are added. */
int confine_open(int directory, const char *path, int flags, mode_t mode,
                 enum confinement confinement);
/* For reading what `path`, a descriptor of O_PATH, holds on to, without waiting for it. ENOENT:
 * there is no /proc here. */
int confine_reopen(int path);

#endif
