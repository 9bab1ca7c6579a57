/* What each transfer may have of what the process may. */
#include <string.h>
#include <sys/resource.h>

#include "tools/serve_private.h"
#include "tools/transfer/disk/committer.h"

/* Open files that are divided, at most; what a transfer needs besides its directories; and how deep
 * these may lie in any case. */
#define FILES_MAX    (1u << 20)
#define FILES_BESIDE (64 + COMMITTER_ROOM)
#define DEPTH_MIN    64
/* What the names that are listed may take: those of all transfers of one client, and all. */
#define NAMES_OF_CLIENT_MAX ((size_t)128 << 20)
#define NAMES_MAX           ((size_t)512 << 20)

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

/* Without the port. */
static bool is_same_host(const char *one, const char *other)
{
    const char *colon = strrchr(one, ':');
    size_t length = colon != NULL ? (size_t)(colon - one) + 1 : strlen(one);
    return strncmp(one, other, length) == 0 && strchr(other + length, ':') == NULL;
}

bool serve_is_same_client(const struct served *served, const char *peer, const char *key)
{
    return is_same_host(peer, served->peer) || (key[0] != 0 && strcmp(key, served->key) == 0);
}

unsigned serve_count_strangers(const struct serve *serve, const char *peer)
{
    unsigned count = 0;
    for (const struct served *one = serve->transfers; one != NULL; one = one->next) {
        count += one->standing == STANDING_STRANGER && serve_is_same_client(one, peer, "");
    }
    return count;
}

bool serve_hold(void *user, size_t length)
{
    struct served *served = user;
    size_t of_client = length, of_all = length;
    for (const struct served *one = served->serve->transfers; one != NULL; one = one->next) {
        of_all += one->held;
        of_client += serve_is_same_client(one, served->peer, served->key) ? one->held : 0;
    }
    if (of_client > NAMES_OF_CLIENT_MAX || of_all > NAMES_MAX) {
        return false;
    }
    served->held += length;
    return true;
}
