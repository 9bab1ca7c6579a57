#include "rnic/io/direct/pins.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "rnic/io/system/entries.h"

#define LINK_BYTES 64

#ifndef AF_XDP
#define AF_XDP 44
#endif

static bool is_harmless_device(dev_t device)
{
    unsigned int kind = major(device), which = minor(device);
    bool memory = kind == 1; /* null, zero, random */
    bool terminal = kind == 4 || kind == 5 || (kind >= 136 && kind <= 143);
    bool tunnel_or_fuse = kind == 10 && (which == 200 || which == 229);
    return memory || terminal || tunnel_or_fuse;
}

static bool is_xdp(int descriptor)
{
    int domain = AF_XDP;
    socklen_t length = sizeof domain;
    (void)getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length);
    return domain == AF_XDP;
}

/* Of what has no place in a file system. */
static bool has_pinning_name(int folder, const char *entry)
{
    char name[LINK_BYTES + 1] = "";
    if (readlinkat(folder, entry, name, LINK_BYTES) < 0) {
        return true;
    }
    return strstr(name, "io_uring") != NULL || strstr(name, "vfio") != NULL;
}

static bool may_pin(int folder, const char *entry, const void *context)
{
    struct stat stat;
    int descriptor = atoi(entry);
    if (fstat(descriptor, &stat) != 0) {
        return false; /* closed by now */
    }
    switch (stat.st_mode & S_IFMT) {
    case S_IFCHR:
        return !is_harmless_device(stat.st_rdev);
    case S_IFSOCK:
        return is_xdp(descriptor);
    case S_IFREG:
    case S_IFBLK: {
        int flags = fcntl(descriptor, F_GETFL);
        return flags >= 0 && (flags & O_DIRECT) != 0;
    }
    case S_IFIFO: /* where O_DIRECT means packets */
    case S_IFDIR:
        return false;
    default:
        return has_pinning_name(folder, entry);
    }
}

bool pins_are_possible(void)
{
    /* The process's own are an empty folder when its first thread has ended. */
    return entries_have("/proc/thread-self/fd", may_pin, NULL);
}
