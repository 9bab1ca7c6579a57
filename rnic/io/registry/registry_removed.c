/* A registry whose name is gone though processes live in it: somebody has cleaned up /dev/shm, as
 * logind does for a user who has logged out (RemoveIPC). Who comes next finds it through one of
 * them; with a file of its own it would share the port with strangers. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/beyond_streams.h"

#define LINK_MAX (REGISTRY_NAME + 16u)

/* As the kernel names it. */
static bool leads_to_removed(int folder, const char *entry, const char *path)
{
    char wanted[LINK_MAX], link[LINK_MAX];
    int length = snprintf(wanted, sizeof wanted, "%s (deleted)", path);
    return readlinkat(folder, entry, link, sizeof link) == length &&
           memcmp(link, wanted, (size_t)length) == 0;
}

static int open_removed(int folder, const char *entry, const char *path)
{
    int file = leads_to_removed(folder, entry, path)
                   ? beyond_streams(openat(folder, entry, O_RDWR | O_CLOEXEC | O_NONBLOCK))
                   : -1;
    if (file >= 0 && (!registry_is_ours(file) || !registry_is_removed(file))) {
        close(file);
        file = -1;
    }
    return file;
}

static int find_in(const char *process, const char *path)
{
    char name[64];
    int file = -1;
    snprintf(name, sizeof name, "/proc/%.32s/fd", process);
    DIR *folder = opendir(name);
    const struct dirent *entry;
    while (folder != NULL && file < 0 && (entry = readdir(folder)) != NULL) {
        file = open_removed(dirfd(folder), entry->d_name, path);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return file;
}

bool registry_find_removed(const char *path, int *ret_descriptor)
{
    int file = -1;
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    while (folder != NULL && file < 0 && (entry = readdir(folder)) != NULL) {
        if (strtol(entry->d_name, NULL, 10) > 0) {
            file = find_in(entry->d_name, path);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (file >= 0) {
        *ret_descriptor = file;
    }
    return file >= 0;
}
