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
    dev_t device;  /* of the directory that it is all below */
    size_t length; /* of the path to the directory at hand, with the slash behind it */
    char path[PATH_MAX];
};

static int clear_directory(struct clear *clear, int parent, const char *name);

static bool lend(int directory, mode_t *lent)
{
    struct stat status;
    if (*lent != 0 || fstat(directory, &status) != 0 || (status.st_mode & 0700) == 0700 ||
        fchmod(directory, (status.st_mode & 07777) | 0700) != 0) {
        return false;
    }
    *lent = status.st_mode; /* with its type, so not 0 */
    return true;
}

int clear_unlink(int directory, const char *name, int flags, mode_t *lent)
{
    int error = unlinkat(directory, name, flags) != 0 ? errno : 0;
    if (error == EACCES && lend(directory, lent)) {
        error = unlinkat(directory, name, flags) != 0 ? errno : 0;
    }
    return error;
}

void clear_give_back(int directory, mode_t *lent)
{
    if (*lent != 0) {
        fchmod(directory, *lent & 07777);
        *lent = 0;
    }
}

static int remove_one(struct clear *clear, int directory, const char *name, mode_t mode,
                      mode_t *lent)
{
    const struct clearing *clearing = clear->clearing;
    if (!clearing->may_go(clearing->user)) {
        return ENOTEMPTY;
    }
    int error =
        clearing->dry ? 0 : clear_unlink(directory, name, S_ISDIR(mode) ? AT_REMOVEDIR : 0, lent);
    if (error != 0) {
        return error;
    }
    clearing->is_gone(clearing->user, clear->path, mode);
    return 0;
}

static int clear_entry(struct clear *clear, int directory, const char *name, mode_t *lent)
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
    return error == 0 ? remove_one(clear, directory, name, status.st_mode, lent) : error;
}

static bool is_mounted(const struct clear *clear, int directory)
{
    struct stat status;
    return clear->clearing->one_file_system &&
           (fstat(directory, &status) != 0 || status.st_dev != clear->device);
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
    if (is_mounted(clear, fd)) {
        closedir(stream);
        return ENOTEMPTY;
    }
    const struct dirent *entry;
    int error = 0, kept = 0;
    mode_t lent = 0;
    errno = 0;
    while (error == 0 && (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            error = clear_entry(clear, fd, entry->d_name, &lent);
        }
        kept = error == ENOTEMPTY ? ENOTEMPTY : kept; /* the others may go */
        error = error == ENOTEMPTY ? 0 : error;
        errno = 0;
    }
    error = error != 0 ? error : errno;
    clear_give_back(fd, &lent);
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
    struct stat status;
    if (fstat(directory, &status) != 0) {
        return errno;
    }
    clear.device = status.st_dev;
    return clear_directory(&clear, directory, name);
}

int clear_away(int directory, const char *name, const struct clearing *clearing)
{
    int error = clear_below(directory, name, clearing);
    return error == 0 && unlinkat(directory, name, AT_REMOVEDIR) != 0 ? errno : error;
}
