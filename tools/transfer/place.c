#include "tools/transfer/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/confine.h"

#define TEMPORARY_PREFIX                                                                           \
    "."                                                                                            \
    "weir-"
#define PERMISSION_BITS                                                                            \
    01777 /* set-user-ID and set-group-ID belong to an owner; none is carried                      \
           */

bool place_without_tmpfile;

bool place_is_temporary(const char *name)
{
    size_t prefix = sizeof(TEMPORARY_PREFIX) - 1;
    return strlen(name) == PLACE_TEMPORARY_LENGTH && memcmp(name, TEMPORARY_PREFIX, prefix) == 0 &&
           strspn(name + prefix, "0123456789abcdef") == PLACE_TEMPORARY_LENGTH - prefix;
}

static void temporary_name(char ret_name[PLACE_TEMPORARY_LENGTH + 1])
{
    unsigned long long random = 0;
    while (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
    }
    snprintf(ret_name, PLACE_TEMPORARY_LENGTH + 1, TEMPORARY_PREFIX "%016llx", random);
}

static int open_nameless(struct place *place)
{
    if (place_without_tmpfile) {
        return -EOPNOTSUPP;
    }
    return confine_open(place->directory, ".", O_TMPFILE | O_RDWR, 0600, CONFINE_NO_SYMLINKS);
}

/* The lock tells place_sweep that the writer lives. Between creating and locking a sweep may come
 * in, take the lock and remove the name: then there is no link left, and we begin again. */
static int open_named(struct place *place)
{
    for (;;) {
        temporary_name(place->temporary);
        int fd = confine_open(place->directory, place->temporary, O_CREAT | O_EXCL | O_RDWR, 0600,
                              CONFINE_NO_SYMLINKS);
        if (fd == -EEXIST) {
            continue;
        }
        if (fd < 0) {
            return fd;
        }
        struct stat status;
        if (flock(fd, LOCK_EX) == 0 && fstat(fd, &status) == 0 && status.st_nlink == 0) {
            close(fd);
            continue;
        }
        place->named = true;
        return fd;
    }
}

static int check_target(int directory, const char *name, bool force)
{
    struct stat status;
    if (place_is_temporary(name)) { /* a sweep would take it away */
        return EILSEQ;
    }
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? 0 : errno;
    }
    if (S_ISDIR(status.st_mode)) {
        return EISDIR;
    }
    if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
        return EMEDIUMTYPE;
    }
    return force ? 0 : EEXIST;
}

int place_begin(struct place *place, int directory, const char *name, bool force)
{
    *place = (struct place){.directory = directory, .fd = -1, .force = force};
    if (strlen(name) >= sizeof(place->name)) {
        return ENAMETOOLONG;
    }
    strcpy(place->name, name);
    int error = check_target(directory, name, force);
    if (error != 0) {
        return error;
    }
    int fd = open_nameless(place);
    if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL) { /* what old and odd ones answer */
        fd = open_named(place);
    }
    if (fd < 0) {
        return -fd;
    }
    place->fd = fd;
    return 0;
}

int place_write(struct place *place, const void *bytes, size_t length, uint64_t offset)
{
    const char *at = bytes;
    if (offset + length > place->length) {
        place->length = offset + length;
    }
    while (length > 0) {
        ssize_t written = pwrite(place->fd, at, length, (off_t)offset);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        at += written;
        offset += (size_t)written;
        length -= (size_t)written;
    }
    return 0;
}

void place_abandon(struct place *place)
{
    if (place->named) {
        unlinkat(place->directory, place->temporary, 0);
        place->named = false;
    }
    if (place->fd >= 0) {
        close(place->fd);
        place->fd = -1;
    }
}

/* Some file systems tell of a full disk or quota only when a descriptor is closed; any one will do,
 * and after that the file may still be thrown away. */
static int flush(int fd)
{
    int other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return other < 0 || close(other) != 0 ? errno : 0;
}

static int set_attributes(int fd, uint64_t written, uint64_t length,
                          const struct place_attributes *attributes)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, attributes->mtime};
    if (written != length && ftruncate(fd, (off_t)length) != 0) {
        return errno;
    }
    if (fchmod(fd, attributes->mode & PERMISSION_BITS) != 0 || futimens(fd, times) != 0) {
        return errno;
    }
    if (attributes->fsync && fsync(fd) != 0) {
        return errno;
    }
    return flush(fd);
}

static int link_nameless(const struct place *place, const char *name)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", place->fd);
    if (linkat(AT_FDCWD, path, place->directory, name, AT_SYMLINK_FOLLOW) == 0) {
        return 0;
    }
    if (errno == ENOENT) { /* no /proc here; the kernel may allow it directly */
        return linkat(place->fd, "", place->directory, name, AT_EMPTY_PATH) == 0 ? 0 : errno;
    }
    return errno;
}

/* Gives the temporary name's file its real one where nothing has it yet. */
static int rename_new(int directory, const char *from, const char *to)
{
    if (renameat2(directory, from, directory, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return errno;
    }
    if (linkat(directory, from, directory, to, 0) != 0) {
        return errno;
    }
    unlinkat(directory, from, 0);
    return 0;
}

/* Looks again: something that is not replaced may have come up meanwhile. */
static int replace(int directory, const char *from, const char *to)
{
    int error = check_target(directory, to, true);
    if (error != 0) {
        return error;
    }
    return renameat(directory, from, directory, to) == 0 ? 0 : errno;
}

static int take_name(struct place *place)
{
    if (!place->named) {
        int error = link_nameless(place, place->name);
        if (error != EEXIST || !place->force) {
            return error;
        }
        if (flock(place->fd, LOCK_EX) != 0) {
            return errno;
        }
        do { /* replacing takes a name to rename from */
            temporary_name(place->temporary);
            error = link_nameless(place, place->temporary);
        } while (error == EEXIST);
        if (error != 0) {
            return error;
        }
        place->named = true;
    }
    int error = place->force ? replace(place->directory, place->temporary, place->name)
                             : rename_new(place->directory, place->temporary, place->name);
    place->named = error != 0;
    return error;
}

int place_commit(struct place *place, uint64_t length, const struct place_attributes *attributes)
{
    int error = set_attributes(place->fd, place->length, length, attributes);
    if (error == 0) {
        error = take_name(place);
    }
    if (error == 0 && attributes->fsync && fsync(place->directory) != 0) {
        error = errno;
    }
    place_abandon(place);
    return error;
}

static int make_symlink(int directory, const char *name, const char *target, struct timespec mtime,
                        bool force)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
    int error = check_target(directory, name, force);
    if (error != 0) {
        return error;
    }
    if (symlinkat(target, directory, name) == 0) {
        utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
        return 0;
    }
    if (errno != EEXIST || !force) {
        return errno;
    }
    char temporary[PLACE_TEMPORARY_LENGTH + 1];
    do {
        temporary_name(temporary);
        error = symlinkat(target, directory, temporary) == 0 ? 0 : errno;
    } while (error == EEXIST);
    if (error != 0) {
        return error;
    }
    utimensat(directory, temporary, times, AT_SYMLINK_NOFOLLOW);
    if (renameat(directory, temporary, directory, name) != 0) {
        error = errno;
        unlinkat(directory, temporary, 0);
    }
    return error;
}

int place_symlink(int directory, const char *name, const char *target,
                  const struct place_attributes *attributes, bool force)
{
    int error = make_symlink(directory, name, target, attributes->mtime, force);
    if (error == 0 && attributes->fsync && fsync(directory) != 0) {
        error = errno;
    }
    return error;
}

/* A link cannot be locked, so a temporary one is taken for left over when it is an hour old. */
static void sweep_link(int directory, const char *name)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode) &&
        status.st_uid == geteuid() && status.st_ctime + 3600 < time(NULL)) {
        unlinkat(directory, name, 0);
    }
}

static void sweep_name(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ELOOP) {
            sweep_link(directory, name);
        }
        return;
    }
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0) {
        unlinkat(directory, name, 0); /* under the lock: open_named relies on it */
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
        if (place_is_temporary(entry->d_name)) {
            sweep_name(directory, entry->d_name);
        }
    }
    closedir(stream);
}
