/* Which run of the kernel, and which network namespace in it, a registry is of. Some containers are
 * not told the one or the other. */
#include <string.h>
#include <sys/socket.h>

#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/raw_socket.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

struct registry_era registry_era_now(void)
{
    struct registry_era era;
    memset(&era, 0, sizeof era);
    int file = raw_open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t length = raw_read(file, era.boot_id, sizeof era.boot_id - 1);
        (void)length;
        raw_close(file);
    }
    int probe = raw_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe >= 0) {
        socklen_t size = sizeof era.namespace_cookie;
        int result = getsockopt(probe, SOL_SOCKET, SO_NETNS_COOKIE, &era.namespace_cookie, &size);
        (void)result;
        raw_close(probe);
    }
    return era;
}

/* Who lives is of this run of the kernel. */
bool registry_era_counts(const struct registry_era *its, const struct registry_era *now, bool lives)
{
    bool same = its->namespace_cookie == now->namespace_cookie;
    if (lives) {
        return same || its->namespace_cookie == 0 || now->namespace_cookie == 0;
    }
    return same && memcmp(its->boot_id, now->boot_id, sizeof its->boot_id) == 0;
}
