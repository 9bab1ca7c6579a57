#include "tools/transfer/disk/clear.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"

struct clear {
    const struct clearing *clearing;
    size_t length; /* of the path to the directory at hand, with the slash behind it */
    char path[PATH_MAX];
};

static int clear_directory(struct clear *clear, int parent, const char *name);

static int remove_one(struct clear *clear, int directory, const char *name, mode_t mode)
{
    const struct clearing *clearing = clear->clearing;
    if (!clearing->may_go(clearing->user)) {
        return ENOTEMPTY;
    }
    if (!clearing->dry && unlinkat(directory, name, S_ISDIR(mode) ? AT_REMOVEDIR : 0) != 0) {
        return errno;
    }
    clearing->is_gone(clearing->user, clear->path, mode);
    return 0;
}

static int clear_entry(struct clear *clear, int directory, const char *name)
{
    struct stat status;
    size_t length = clear->length, name_length = strlen(name);
    if (length + name_length + 1 >= sizeof(clear->path)) {
        return ENAMETOOLONG;
    }
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? 0 : errno;
    }
    int error = 0;
    if (S_ISDIR(status.st_mode)) {
        snprintf(clear->path + length, sizeof(clear->path) - length, "%s/", name);
        clear->length = length + name_length + 1;
        error = clear_directory(clear, directory, name);
        clear->length = length;
    }
    memcpy(clear->path + length, name, name_length + 1);
    return error == 0 ? remove_one(clear, directory, name, status.st_mode) : error;
}

static int clear_directory(struct clear *clear, int parent, const char *name)
{
    int fd =
        confine_open(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, CONFINE_NO_SYMLINKS);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        int error = fd < 0 ? -fd : errno;
        if (fd >= 0) {
            close(fd);
        }
        return error;
    }
    const struct dirent *entry;
    int error = 0, kept = 0;
    errno = 0;
    while (error == 0 && (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            error = clear_entry(clear, fd, entry->d_name);
        }
        kept = error == ENOTEMPTY ? ENOTEMPTY : kept; /* the others may go */
        error = error == ENOTEMPTY ? 0 : error;
        errno = 0;
    }
    error = error != 0 ? error : errno;
    closedir(stream);
    return error != 0 ? error : kept;
}

static bool may_always(void *user)
{
    return true;
}

static void say_nothing(void *user, const char *path, mode_t mode)
{
}

int clear_below(int directory, const char *name, const struct clearing *clearing)
{
    static const struct clearing silent = {.may_go = may_always, .is_gone = say_nothing};
    struct clear clear = {.clearing = clearing != NULL ? clearing : &silent};
    return clear_directory(&clear, directory, name);
}

int clear_away(int directory, const char *name, const struct clearing *clearing)
{
    int error = clear_below(directory, name, clearing);
    return error == 0 && unlinkat(directory, name, AT_REMOVEDIR) != 0 ? errno : error;
}
