/* What each transfer may have of what the process may. */
#include <sys/resource.h>

#include "tools/serve_private.h"

/* Open files that are divided, at most; what a transfer needs besides its directories; and how deep
 * these may lie in any case. */
#define FILES_MAX    (1u << 20)
#define FILES_BESIDE 64
#define DEPTH_MIN    64

unsigned serve_share_files(unsigned transfers)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return DEPTH_MIN;
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    rlim_t share = (limit.rlim_cur < FILES_MAX ? limit.rlim_cur : FILES_MAX) / 4 * 3 / transfers;
    return share > DEPTH_MIN + FILES_BESIDE ? (unsigned)share - FILES_BESIDE : DEPTH_MIN;
}
