#include "tools/transfer/disk/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tools/transfer/disk/clear.h"
#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/half_mark.h"

#define BLOCK_LENGTH 4096u       /* what file systems keep or leave out */
#define LARGE_BEGIN  (64u << 20) /* a shorter file is over before finding out pays */
bool place_without_tmpfile;

static int open_nameless(struct place *place, mode_t mode)
{
    if (place_without_tmpfile) {
        return -EOPNOTSUPP;
    }
    return confine_open(place->directory, ".", O_TMPFILE | O_RDWR, mode, CONFINE_NO_SYMLINKS);
}

/* The lock tells place_sweep that the writer lives. Between creating and locking a sweep may come
 * in, take the lock and remove the name: then there is no link left, and we begin again. */
static int open_named(struct place *place)
{
    for (;;) {
        place_random_name(place->temporary);
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

/* 0 or EISDIR; or what keeps us from looking, for want of descriptors or memory. */
static int check_empty(int directory, const char *name)
{
    int fd = confine_open(directory, name, O_RDONLY | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    unsigned count = 0;
    if (stream == NULL) {
        int error = fd >= 0 ? errno : -fd;
        if (fd >= 0) {
            close(fd);
        }
        return error == EMFILE || error == ENFILE || error == ENOMEM ? error : EISDIR;
    }
    while (count < 3 && readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    return count < 3 ? 0 : EISDIR; /* "." and ".." */
}

int place_check_target(int directory, const char *name, enum replacing replacing)
{
    struct stat status;
    if (place_is_temporary(name)) { /* a sweep would take it away */
        return EILSEQ;
    }
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? 0 : errno;
    }
    if (replacing == REPLACE_NOTHING) {
        return EEXIST;
    }
    bool matters = S_ISDIR(status.st_mode) && replacing == REPLACE_FILES;
    return matters ? check_empty(directory, name) : 0;
}

/* 0, or why nothing can have that name. */
static int set_name(struct place *place, const char *name)
{
    if (strlen(name) >= sizeof(place->name)) {
        return ENAMETOOLONG;
    }
    if (place_is_temporary(name)) { /* a sweep would take it away */
        return EILSEQ;
    }
    strcpy(place->name, name);
    return 0;
}

int place_begin(struct place *place, int directory, const char *name, enum replacing replacing)
{
    int error = place_check_target(directory, name, replacing);
    *place = (struct place){.fd = -1};
    return error != 0 ? error : place_begin_absent(place, directory, name, replacing, 0600);
}

int place_begin_absent(struct place *place, int directory, const char *name,
                       enum replacing replacing, mode_t mode)
{
    *place = (struct place){.directory = directory, .fd = -1, .replacing = replacing};
    int error = set_name(place, name);
    if (error != 0) {
        return error;
    }
    int fd = open_nameless(place, mode);
    if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL) { /* what old and odd ones answer */
        fd = open_named(place);
    }
    if (fd < 0) {
        return -fd;
    }
    place->fd = fd;
    return 0;
}

/* To open a file of one's own for writing; it has its mode back at once, for who has it open may
 * write all the same. */
static int open_with_lent_permission(int directory, const char *name, int flags)
{
    struct stat status;
    int held = confine_open(directory, name, O_PATH | O_NOFOLLOW, 0, CONFINE_NO_SYMLINKS);
    if (held < 0) {
        return held;
    }
    int fd = -EACCES;
    if (fstat(held, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        attributes_set_mode(held, (status.st_mode & 07777) | 0600) == 0) {
        fd = confine_open(directory, name, flags, 0, CONFINE_NO_SYMLINKS);
        attributes_set_mode(held, status.st_mode & 07777);
    }
    close(held);
    return fd;
}

/* From its first change on the file is not what it was. */
static void begin_half(struct place *place)
{
    if (place->inplace && !place->is_half) {
        half_mark_set(place->fd);
        place->is_half = true;
    }
}

int place_begin_inplace(struct place *place, int directory, const char *name,
                        enum replacing replacing, time_t mtime_s)
{
    const time_t day = 86400;
    struct stat status;
    *place = (struct place){.directory = directory, .fd = -1, .inplace = true};
    int error = set_name(place, name);
    if (error != 0) {
        return error;
    }
    bool exists = fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && (replacing == REPLACE_NOTHING || !S_ISREG(status.st_mode))) {
        return place_begin(place, directory, name, replacing);
    }
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | (exists ? 0 : O_CREAT | O_EXCL);
    int fd = confine_open(directory, name, flags, 0600, CONFINE_NO_SYMLINKS);
    if (fd == -EACCES && exists) {
        fd = open_with_lent_permission(directory, name, flags);
    }
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
        close(fd);
        return ESTALE;
    }
    place->fd = fd < 0 ? -1 : fd;
    place->half_time_s = mtime_s > 0 ? 0 : mtime_s >= INT64_MIN + day ? mtime_s - day : mtime_s;
    if (fd >= 0 && !exists) {
        begin_half(place);
    }
    return fd < 0 ? -fd : 0;
}

static int write_all(int fd, const char *at, size_t length, uint64_t offset)
{
    while (length > 0) {
        ssize_t written = pwrite(fd, at, length, (off_t)offset);
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

static bool is_zeros(const char *bytes, size_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* The file is new: what is not written reads as zeros. */
static int write_sparse(int fd, const char *at, size_t length, uint64_t offset)
{
    size_t pending = 0; /* before `at`, and not all zeros */
    int error = 0;
    while (length > 0 && error == 0) {
        size_t part = BLOCK_LENGTH - (size_t)(offset % BLOCK_LENGTH);
        part = part < length ? part : length;
        bool zeros = is_zeros(at, part);
        if (zeros) {
            error = write_all(fd, at - pending, pending, offset - pending);
            pending = 0;
        } else {
            pending += part;
        }
        at += part;
        offset += part;
        length -= part;
    }
    return error != 0 ? error : write_all(fd, at - pending, pending, offset - pending);
}

int place_hole(struct place *place, uint64_t offset, uint64_t length)
{
    /* what is not written of a new file reads as zeros */
    return place->inplace || offset < place->made ? place_clear(place, offset, length) : 0;
}

int place_clear(struct place *place, uint64_t offset, uint64_t length)
{
    static const char zeros[64 << 10];
    struct stat status;
    if (fstat(place->fd, &status) != 0) {
        return errno;
    }
    uint64_t size = (uint64_t)status.st_size;
    uint64_t end = offset + length < size ? offset + length : size;
    begin_half(place);
    if (offset >= end || fallocate(place->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   (off_t)offset, (off_t)(end - offset)) == 0) {
        return 0;
    }
    int error = errno == EOPNOTSUPP ? 0 : errno;
    while (offset < end && error == 0) {
        size_t part = end - offset < sizeof(zeros) ? (size_t)(end - offset) : sizeof(zeros);
        error = write_all(place->fd, zeros, part, offset);
        offset += part;
    }
    return error;
}

/* Where a new file has come so far without a hole, what comes next gets large pages. */
static void make_large(struct place *place, uint64_t offset)
{
    bool wished = place->large != NULL && !place->large->refused && !place->inplace;
    bool is_next = offset == place->filled && offset % LARGE_PAGES_LENGTH == 0;
    if (wished && is_next && offset >= LARGE_BEGIN && offset <= place->size &&
        place->size - offset >= LARGE_PAGES_LENGTH) {
        place->made = offset + LARGE_PAGES_LENGTH;
        large_pages_make(place->large, place->fd, offset);
    }
}

int place_write(struct place *place, const void *bytes, size_t length, uint64_t offset)
{
    if (place->sparse &&
        !place->inplace) { /* its end may be left out, and its length is set in any case */
        return write_sparse(place->fd, bytes, length, offset);
    }
    if (offset + length > place->length) {
        place->length = offset + length;
    }
    begin_half(place);
    make_large(place, offset);
    if (offset == place->filled) {
        place->filled += length;
    }
    return write_all(place->fd, bytes, length, offset);
}

/* While the temporary name is ours: the journal of the next one to have it is not ours to take. */
static void remove_journal(struct place *place)
{
    char journal[PLACE_JOURNAL_LENGTH + 1];
    if (place->kept) {
        place_journal_name(place, journal);
        unlinkat(place->directory, journal, 0);
        place->kept = false;
    }
}

void place_abandon(struct place *place)
{
    if (place->is_half) { /* the mark stays, for who looks at no times */
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = place->half_time_s}};
        futimens(place->fd, times);
        place->is_half = false;
    }
    if (place->named && place_name_is_of(place->directory, place->temporary, place->fd)) {
        remove_journal(place);
        unlinkat(place->directory, place->temporary, 0);
    }
    place->named = place->kept = false;
    if (place->fd >= 0) {
        close(place->fd);
        place->fd = -1;
    }
}

bool place_tells_at_once(int directory)
{
    static const long local[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC};
    struct statfs status;
    if (fstatfs(directory, &status) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        if (status.f_type == local[i]) {
            return true;
        }
    }
    return false;
}

/* Some file systems tell of a full disk or quota only when a descriptor is closed; any one will do,
 * and after that the file may still be thrown away. */
static int flush(const struct place *place)
{
    if (place->tells_at_once) {
        return 0;
    }
    int other = fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
    return other < 0 || close(other) != 0 ? errno : 0;
}

static int set_attributes(const struct place *place, uint64_t length,
                          const struct attributes *attributes)
{
    int fd = place->fd;
    bool as_long = place->length == length && place->made <= length && !place->inplace;
    if (!as_long && ftruncate(fd, (off_t)length) != 0) {
        return errno;
    }
    /* with its attributes it may be somebody else's, and nothing to go on with: what takes long
     * comes before */
    if (place->kept && attributes->fsync && fdatasync(fd) != 0) {
        return errno;
    }
    int error = attributes_apply(fd, attributes);
    return error != 0 ? error : flush(place);
}

/* An empty path is the short way, which takes a privilege with some kernels; the one through /proc
 * works for a symbolic link that is held, too. */
static int link_held(int fd, int directory, const char *name)
{
    char path[40];
    if (linkat(fd, "", directory, name, AT_EMPTY_PATH) == 0) {
        return 0;
    }
    if (errno != ENOENT && errno != EPERM && errno != EINVAL) {
        return errno;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* The same under a temporary name. */
static int link_temporary(int fd, int directory, char ret_temporary[PLACE_TEMPORARY_LENGTH + 1])
{
    int error;
    do {
        place_random_name(ret_temporary);
        error = link_held(fd, directory, ret_temporary);
    } while (error == EEXIST);
    return error;
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

static bool is_directory(int directory, const char *name)
{
    struct stat status;
    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

/* A directory in the way goes first: only what is ready to take its place makes it go. */
static int make_way(int directory, const char *name, enum replacing replacing,
                    const struct clearing *clearing)
{
    if (replacing == REPLACE_NOTHING || !is_directory(directory, name)) {
        return 0;
    }
    return replacing == REPLACE_TREES                     ? clear_away(directory, name, clearing)
           : unlinkat(directory, name, AT_REMOVEDIR) == 0 ? 0
                                                          : EISDIR;
}

static int rename_to(int directory, const char *from, const char *to, enum replacing replacing)
{
    if (replacing == REPLACE_NOTHING) {
        return rename_new(directory, from, to);
    }
    return renameat(directory, from, directory, to) == 0 ? 0 : errno;
}

static int replace(int directory, const char *from, const char *to, enum replacing replacing,
                   const struct clearing *clearing)
{
    int error = make_way(directory, to, replacing, clearing);
    return error != 0 ? error : rename_to(directory, from, to, replacing);
}

/* ESTALE: somebody has taken it away, and another one may have it. */
static int check_temporary(const struct place *place)
{
    bool gone = place->kept && !place_name_is_of(place->directory, place->temporary, place->fd);
    return gone ? ESTALE : 0;
}

static int take_name(struct place *place)
{
    if (!place->named) {
        int error = link_held(place->fd, place->directory, place->name);
        if (error != EEXIST || place->replacing == REPLACE_NOTHING) {
            return error;
        }
        if (flock(place->fd, LOCK_EX) != 0) {
            return errno;
        }
        /* replacing takes a name to rename from */
        error = link_temporary(place->fd, place->directory, place->temporary);
        if (error != 0) {
            return error;
        }
        place->named = true;
    }
    int error = check_temporary(place);
    if (error == 0) { /* which may take long: the journal holds as long as that */
        error = make_way(place->directory, place->name, place->replacing, place->clearing);
    }
    error = error != 0 ? error : check_temporary(place);
    if (error != 0) {
        return error;
    }
    remove_journal(place);
    error = rename_to(place->directory, place->temporary, place->name, place->replacing);
    place->named = error != 0;
    return error;
}

int place_commit(struct place *place, uint64_t length, const struct attributes *attributes)
{
    int error = set_attributes(place, length, attributes);
    if (error == 0 && !place->inplace) {
        error = take_name(place);
    }
    if (error == 0 && place->inplace) {
        half_mark_clear(place->fd);
        place->is_half = false;
        error = place_name_is_of(place->directory, place->name, place->fd) ? 0 : ESTALE;
    }
    if (error == 0 && attributes->fsync && fsync(place->directory) != 0) {
        error = errno;
    }
    place_abandon(place);
    return error;
}

static int make_node(int directory, const char *name, const struct node *node)
{
    int result = S_ISLNK(node->type) ? symlinkat(node->target, directory, name)
                                     : mknodat(directory, name, node->type | 0600, node->device);
    return result == 0 ? 0 : errno;
}

static int give_attributes(int directory, const char *name, const struct attributes *attributes)
{
    int fd = confine_open(directory, name, O_PATH | O_NOFOLLOW, 0, CONFINE_NO_SYMLINKS);
    if (fd < 0) {
        return -fd;
    }
    int error = attributes_apply(fd, attributes);
    close(fd);
    return error;
}

int place_node(int directory, const char *name, const struct node *node,
               const struct attributes *attributes, enum replacing replacing,
               const struct clearing *clearing)
{
    char temporary[PLACE_TEMPORARY_LENGTH + 1];
    int error = place_check_target(directory, name, replacing);
    if (error != 0) {
        return error;
    }
    do {
        place_random_name(temporary);
        error = make_node(directory, temporary, node);
    } while (error == EEXIST);
    if (error != 0) {
        return error;
    }
    error = give_attributes(directory, temporary, attributes);
    if (error == 0) {
        error = replace(directory, temporary, name, replacing, clearing);
    }
    if (error != 0) {
        unlinkat(directory, temporary, 0);
    } else if (attributes->fsync && fsync(directory) != 0) {
        error = errno;
    }
    return error;
}

int place_hard_link(int directory, const char *name, int fd, bool fsync_it,
                    enum replacing replacing, const struct clearing *clearing)
{
    char temporary[PLACE_TEMPORARY_LENGTH + 1];
    int error = place_check_target(directory, name, replacing);
    if (error == 0) {
        error = link_held(fd, directory, name);
    }
    if (error == EEXIST && replacing != REPLACE_NOTHING) {
        error = link_temporary(fd, directory, temporary);
        if (error == 0) {
            error = replace(directory, temporary, name, replacing, clearing);
            unlinkat(directory, temporary, 0); /* still there where both were the same file */
        }
    }
    if (error == 0 && fsync_it && fsync(directory) != 0) {
        error = errno;
    }
    return error;
}

int place_keep(int directory, const char *name, const struct stat *status,
               const struct attributes *attributes, uint32_t *ret_changes)
{
    struct stat held;
    *ret_changes = 0;
    if (attributes_show_in_status(attributes) &&
        attributes_changes(-1, status, attributes) == 0) { /* as nearly always */
        return 0;
    }
    int fd = confine_open(directory, name, O_PATH | O_NOFOLLOW, 0, CONFINE_NO_SYMLINKS);
    if (fd < 0) {
        return -fd;
    }
    int error = fstat(fd, &held) != 0 ? errno : 0;
    if (error == 0 && (held.st_dev != status->st_dev || held.st_ino != status->st_ino)) {
        error = ESTALE;
    }
    *ret_changes = error == 0 ? attributes_changes(fd, &held, attributes) : 0;
    if (*ret_changes != 0 && !attributes->dry) {
        error = attributes_apply(fd, attributes);
        if ((*ret_changes & CHANGE_ACL) != 0) { /* which says the mode as well, as with rsync */
            *ret_changes &= ~(uint32_t)CHANGE_MODE;
        }
    }
    close(fd);
    return error;
}
