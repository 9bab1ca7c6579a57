#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rnic/io/registry/registry_private.h"

#define NAMES_MOST 1000u /* looked at: in such a folder anybody makes as many as he likes */

/* Under the file's lock: who has just opened it looks again whether it is still there. */
static void remove_if_left(const char *path, uint32_t age_s)
{
    struct stat facts;
    struct timespec now;
    struct flock lock;
    int descriptor;
    if (lstat(path, &facts) != 0 || facts.st_uid != geteuid() || !S_ISREG(facts.st_mode) ||
        clock_gettime(CLOCK_REALTIME, &now) != 0 ||
        now.tv_sec - facts.st_mtim.tv_sec < (time_t)age_s ||
        registry_open_file(path, 0, &descriptor) != STATUS_OK) {
        return;
    }
    if (registry_lock_bytes(descriptor, F_OFD_SETLK, F_WRLCK, 0, 1, &lock) == 0 &&
        !registry_is_removed(descriptor) && !registry_anybody_lives(descriptor)) {
        unlink(path);
    }
    close(descriptor);
}

void registry_sweep(const char *path, uint32_t age_s)
{
    char folder_path[REGISTRY_NAME], name[REGISTRY_NAME + 256];
    const char *slash = strrchr(path, '/'), *dash = strrchr(path, '-');
    if (slash == NULL || dash == NULL || dash < slash) {
        return;
    }
    snprintf(folder_path, sizeof folder_path, "%.*s", (int)(slash - path), path);
    size_t begin = (size_t)(dash + 1 - (slash + 1));
    DIR *folder = opendir(folder_path);
    const struct dirent *entry;
    uint32_t looked_at = 0;
    while (folder != NULL && looked_at < NAMES_MOST && (entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, slash + 1, begin) == 0) {
            looked_at++;
            snprintf(name, sizeof name, "%s/%s", folder_path, entry->d_name);
            remove_if_left(name, age_s);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}
