#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/transfer/disk/clear.h"
#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/place.h"
#include "tools/transfer/wire/digest.h"

#define TEMPORARY_PREFIX                                                                           \
    "."                                                                                            \
    "weir-"

bool place_is_temporary(const char *name)
{
    size_t prefix = sizeof(TEMPORARY_PREFIX) - 1, length = strlen(name);
    bool journal = length == PLACE_JOURNAL_LENGTH &&
                   memcmp(name + PLACE_TEMPORARY_LENGTH, PLACE_JOURNAL_SUFFIX,
                          sizeof(PLACE_JOURNAL_SUFFIX)) == 0;
    return (length == PLACE_TEMPORARY_LENGTH || journal) &&
           memcmp(name, TEMPORARY_PREFIX, prefix) == 0 &&
           strspn(name + prefix, "0123456789abcdef") == PLACE_TEMPORARY_LENGTH - prefix;
}

void place_random_name(char ret_name[PLACE_TEMPORARY_LENGTH + 1])
{
    unsigned long long random = 0;
    while (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
    }
    snprintf(ret_name, PLACE_TEMPORARY_LENGTH + 1, TEMPORARY_PREFIX "%016llx", random);
}

void place_kept_name(const char *name, char ret_name[PLACE_TEMPORARY_LENGTH + 1])
{
    uint8_t digest[DIGEST_LENGTH];
    unsigned long long number = 0;
    digest_of(name, strlen(name), digest);
    for (unsigned i = 0; i < 8; i++) {
        number = number << 8 | digest[i];
    }
    snprintf(ret_name, PLACE_TEMPORARY_LENGTH + 1, TEMPORARY_PREFIX "%016llx", number);
}

bool place_name_is_of(int directory, const char *name, int fd)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/* Whose a file is to be it is before it has its name, so root's may be anybody's. */
static bool is_ours(const struct stat *status)
{
    return status->st_uid == geteuid() || geteuid() == 0;
}

/* A link or device cannot be locked, and a directory is not, so a temporary one is taken for left
 * over when it is an hour old. Opening a device would do something. */
static bool is_old(const struct stat *status)
{
    return status->st_ctime + 3600 < time(NULL);
}

static void sweep_node(int directory, const char *name, const struct stat *status)
{
    if (is_ours(status) && is_old(status)) {
        unlinkat(directory, name, S_ISDIR(status->st_mode) ? AT_REMOVEDIR : 0);
    }
}

/* It has a journal of ours or its owner's, which is not old. */
static bool is_kept(int directory, const char *journal, uid_t owner)
{
    struct stat status;
    return fstatat(directory, journal, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == owner) &&
           status.st_mtime + PLACE_KEPT_S > time(NULL);
}

static void remove_own(int directory, const char *name)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
        is_ours(&status)) {
        unlinkat(directory, name, 0);
    }
}

/* Goes when what it is about has gone. */
static void sweep_journal(int directory, const char *name)
{
    char about[PLACE_TEMPORARY_LENGTH + 1];
    struct stat status;
    snprintf(about, sizeof(about), "%.*s", PLACE_TEMPORARY_LENGTH, name);
    if (fstatat(directory, about, &status, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) {
        remove_own(directory, name);
    }
}

static void sweep_file(int directory, const char *name, uid_t owner)
{
    char journal[PLACE_JOURNAL_LENGTH + 1];
    snprintf(journal, sizeof(journal), "%.*s" PLACE_JOURNAL_SUFFIX, PLACE_TEMPORARY_LENGTH, name);
    if (!is_kept(directory, journal, owner)) {
        remove_own(directory, journal); /* before another one can begin under this name */
        unlinkat(directory, name, 0);
    }
}

static void sweep_name(int directory, const char *name)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return;
    }
    if (!S_ISREG(status.st_mode)) {
        sweep_node(directory, name, &status);
        return;
    }
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_ours(&status) &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && place_name_is_of(directory, name, fd)) {
        sweep_file(directory, name, status.st_uid); /* under the lock: open_named relies on it */
    }
    close(fd);
}

void place_sweep(int directory)
{
    int fd = confine_open(directory, ".", O_RDONLY | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (!place_is_temporary(entry->d_name)) {
            continue;
        }
        if (entry->d_name[PLACE_TEMPORARY_LENGTH] != 0) {
            sweep_journal(directory, entry->d_name);
        } else {
            sweep_name(directory, entry->d_name);
        }
    }
    closedir(stream);
}

/* The file is locked; or it cannot be said. */
static bool is_written(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return errno != ENOENT;
    }
    bool is_written = flock(fd, LOCK_EX | LOCK_NB) != 0;
    close(fd);
    return is_written;
}

bool place_sweep_gone(int directory, const char *name, bool dry, mode_t *lent)
{
    char about[PLACE_TEMPORARY_LENGTH + 1]; /* where it is a journal */
    struct stat status;
    snprintf(about, sizeof(about), "%.*s", PLACE_TEMPORARY_LENGTH, name);
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT;
    }
    if (S_ISREG(status.st_mode) ? is_written(directory, about) : !is_old(&status)) {
        return false;
    }
    int flags = S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0;
    int error = dry ? 0 : clear_unlink(directory, name, flags, lent);
    return error == 0 || error == ENOENT;
}
