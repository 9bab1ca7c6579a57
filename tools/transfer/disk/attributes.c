#include "tools/transfer/disk/attributes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/transfer/disk/compare.h"
#include "tools/transfer/disk/half_mark.h"

#define ACL_PREFIX    "system.posix_acl_"
#define NAMES_MAX     65536 /* what the kernel lists at most; a value is no longer either */
#define HANDLE_LENGTH 40

/* Works for a descriptor of O_PATH, which the calls for descriptors refuse, and ends at what it
 * holds, even a symbolic link. */
static const char *handle_of(int fd, char ret_handle[HANDLE_LENGTH])
{
    snprintf(ret_handle, HANDLE_LENGTH, "/proc/self/fd/%d", fd);
    return ret_handle;
}

enum entry_kind entry_kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return ENTRY_DIRECTORY;
    case S_IFLNK:
        return ENTRY_SYMLINK;
    case S_IFIFO:
        return ENTRY_FIFO;
    case S_IFSOCK:
        return ENTRY_SOCKET;
    case S_IFCHR:
        return ENTRY_CHARACTER_DEVICE;
    case S_IFBLK:
        return ENTRY_BLOCK_DEVICE;
    default:
        return ENTRY_FILE;
    }
}

void xattrs_clear(struct xattrs *xattrs)
{
    for (unsigned i = 0; i < xattrs->count; i++) {
        free(xattrs->list[i].value);
    }
    free(xattrs->list);
    *xattrs = (struct xattrs){0};
}

static const struct xattr *find(const struct xattrs *xattrs, const char *name)
{
    for (unsigned i = 0; xattrs != NULL && i < xattrs->count; i++) {
        if (strcmp(xattrs->list[i].name, name) == 0) {
            return &xattrs->list[i];
        }
    }
    return NULL;
}

static int begin_xattr(struct xattrs *xattrs, struct span name)
{
    if (xattrs->count == XATTRS_COUNT_MAX || xattrs->length + name.length > XATTRS_LENGTH_MAX) {
        return E2BIG;
    }
    if ((xattrs->count & (xattrs->count - 1)) == 0) { /* full: room for twice as many */
        size_t capacity = xattrs->count > 0 ? 2 * (size_t)xattrs->count : 1;
        struct xattr *list = realloc(xattrs->list, capacity * sizeof(*list));
        if (list == NULL) {
            return ENOMEM;
        }
        xattrs->list = list;
    }
    struct xattr *xattr = &xattrs->list[xattrs->count++];
    *xattr = (struct xattr){0};
    memcpy(xattr->name, name.bytes, name.length);
    xattrs->length += name.length;
    return 0;
}

int xattrs_add(struct xattrs *xattrs, struct span name, struct span value, bool more)
{
    if (!xattrs->open) {
        int error = begin_xattr(xattrs, name);
        if (error != 0) {
            return error;
        }
    }
    struct xattr *xattr = &xattrs->list[xattrs->count - 1];
    if (strlen(xattr->name) != name.length || memcmp(xattr->name, name.bytes, name.length) != 0) {
        return EINVAL;
    }
    if (xattr->length + value.length > NAMES_MAX ||
        xattrs->length + value.length > XATTRS_LENGTH_MAX) {
        return E2BIG;
    }
    uint8_t *grown = realloc(xattr->value, xattr->length + value.length + 1);
    if (grown == NULL) {
        return ENOMEM;
    }
    memcpy(grown + xattr->length, value.bytes, value.length);
    xattr->value = grown;
    xattr->length += value.length;
    xattrs->length += value.length;
    xattrs->open = more;
    return 0;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* rsync's rule: the system's are none of its, and only root has others than the user's. */
static bool is_kept(const char *name, unsigned preserve, bool super)
{
    if (has_prefix(name, HALF_MARK_PREFIX)) {
        return false;
    }
    if (has_prefix(name, "system.")) {
        return (preserve & PRESERVE_ACLS) != 0 && has_prefix(name, ACL_PREFIX);
    }
    return (preserve & PRESERVE_XATTRS) != 0 && (super || has_prefix(name, "user."));
}

bool attributes_are_rsyncs(const char *name)
{
    return has_prefix(name, "user.rsync.%");
}

/* The list of names, each with its NUL; the caller frees it. */
static ssize_t list_names(const char *handle, char **ret_names)
{
    char *names = malloc(NAMES_MAX);
    ssize_t length = names != NULL ? listxattr(handle, names, NAMES_MAX) : -1;
    if (length < 0) {
        int error = names == NULL ? ENOMEM : errno;
        free(names);
        *ret_names = NULL;
        return error == EOPNOTSUPP || error == ENOSYS ? 0 : -error;
    }
    *ret_names = names;
    return length;
}

static int read_one(const char *handle, const char *name, uint8_t *buffer, struct xattrs *xattrs)
{
    ssize_t length = getxattr(handle, name, buffer, NAMES_MAX);
    if (length < 0) { /* removed meanwhile; or it is listed, and not for us */
        return errno == ENODATA || errno == EOPNOTSUPP ? 0 : errno;
    }
    return xattrs_add(xattrs, (struct span){name, strlen(name)},
                      (struct span){buffer, (size_t)length}, false);
}

int xattrs_read(int fd, unsigned preserve, bool super, struct xattrs *ret_xattrs)
{
    char handle[HANDLE_LENGTH], *names;
    *ret_xattrs = (struct xattrs){0};
    if ((preserve & (PRESERVE_ACLS | PRESERVE_XATTRS)) == 0) {
        return 0;
    }
    ssize_t length = list_names(handle_of(fd, handle), &names);
    uint8_t *buffer = length > 0 ? malloc(NAMES_MAX) : NULL;
    int error = length < 0 ? (int)-length : length > 0 && buffer == NULL ? ENOMEM : 0;
    for (ssize_t at = 0; at < length && error == 0; at += (ssize_t)strlen(names + at) + 1) {
        if (is_kept(names + at, preserve, super)) {
            error = read_one(handle, names + at, buffer, ret_xattrs);
        }
    }
    free(buffer);
    free(names);
    if (error != 0) {
        xattrs_clear(ret_xattrs);
    }
    return error;
}

static int failure_of(const char *name, int error)
{
    return error | (has_prefix(name, ACL_PREFIX) ? FAILURE_ACL : FAILURE_XATTR);
}

/* What the file has and the source has not: from a directory's default ACL, or from before. */
static int remove_others(const char *handle, const struct attributes *attributes)
{
    char *names;
    ssize_t length = list_names(handle, &names);
    int error = length < 0 ? (int)-length | FAILURE_XATTR : 0;
    for (ssize_t at = 0; at < length && error == 0; at += (ssize_t)strlen(names + at) + 1) {
        const char *name = names + at;
        if (is_kept(name, attributes->preserve, attributes->super) &&
            find(attributes->xattrs, name) == NULL && removexattr(handle, name) != 0 &&
            errno != ENODATA) {
            error = failure_of(name, errno);
        }
    }
    free(names);
    return error;
}

static int set_xattrs(int fd, const struct attributes *attributes)
{
    char path[HANDLE_LENGTH];
    const char *handle = handle_of(fd, path);
    int error = remove_others(handle, attributes);
    const struct xattrs *xattrs = attributes->xattrs;
    for (unsigned i = 0; xattrs != NULL && i < xattrs->count && error == 0; i++) {
        const struct xattr *xattr = &xattrs->list[i];
        if (is_kept(xattr->name, attributes->preserve, attributes->super) &&
            setxattr(handle, xattr->name, xattr->value, xattr->length, 0) != 0) {
            error = failure_of(xattr->name, errno);
        }
    }
    return error;
}

static bool is_our_group(gid_t gid)
{
    gid_t groups[NGROUPS_MAX < 1024 ? NGROUPS_MAX : 1024];
    int count = getgroups((int)(sizeof(groups) / sizeof(groups[0])), groups);
    for (int i = 0; i < count; i++) {
        if (groups[i] == gid) {
            return true;
        }
    }
    return gid == getegid();
}

static bool keeps_user(const struct attributes *attributes)
{
    return (attributes->preserve & PRESERVE_OWNER) != 0 && attributes->super;
}

static bool keeps_group(const struct attributes *attributes)
{
    return (attributes->preserve & PRESERVE_GROUP) != 0 &&
           (attributes->super || is_our_group(attributes->gid));
}

static int set_owner(int fd, const struct stat *status, const struct attributes *attributes)
{
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    bool user = keeps_user(attributes);
    bool group = attributes->gid != status->st_gid && keeps_group(attributes);
    if ((user && attributes->uid == ID_UNKNOWN) || (group && attributes->gid == ID_UNKNOWN)) {
        return EINVAL | FAILURE_UNKNOWN;
    }
    uid = user && attributes->uid != status->st_uid ? attributes->uid : uid;
    gid = group ? attributes->gid : gid;
    if (uid == (uid_t)-1 && gid == (gid_t)-1) {
        return 0;
    }
    return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : errno | FAILURE_OWNER;
}

int attributes_set_mode(int fd, mode_t mode)
{
    char handle[HANDLE_LENGTH];
    return chmod(handle_of(fd, handle), mode) == 0 ? 0 : errno;
}

/* Set-ID bits mean nothing without their owner, unless they are asked for. */
static mode_t mode_of(const struct attributes *attributes, const struct stat *status)
{
    if ((attributes->preserve & PRESERVE_SET_IDS) != 0) {
        return attributes->mode & 07777;
    }
    mode_t inherited = S_ISDIR(status->st_mode) ? status->st_mode & S_ISGID : 0;
    return (attributes->mode & 01777) | inherited; /* whose group new files have stays */
}

/* And has it still after set_owner and set_xattrs, of which the first takes set-ID bits away. */
static bool has_mode(const struct stat *status, const struct attributes *attributes)
{
    mode_t mode = mode_of(attributes, status);
    bool stays = attributes_show_in_status(attributes) && (mode & (S_ISUID | S_ISGID)) == 0;
    return S_ISLNK(status->st_mode) || (stays && (status->st_mode & 07777) == mode);
}

/* EBADF is what a descriptor of O_PATH gets, here and below. */
static int set_mode(int fd, mode_t mode)
{
    if (fchmod(fd, mode) == 0) {
        return 0;
    }
    return errno == EBADF ? attributes_set_mode(fd, mode) : errno;
}

static int set_time(int fd, const struct timespec *mtime)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};
    char handle[HANDLE_LENGTH];
    if (futimens(fd, times) == 0) {
        return 0;
    }
    bool held = errno == EBADF;
    return held && utimensat(AT_FDCWD, handle_of(fd, handle), times, 0) == 0 ? 0 : errno;
}

/* Others than root need its permission to write for that, which is lent until set_mode. */
static int set_xattrs_anyway(int fd, const struct stat *status, const struct attributes *attributes)
{
    mode_t mode = status->st_mode & 07777;
    int error = set_xattrs(fd, attributes);
    bool lent = (error & FAILURE_ERRNO) == EACCES && !S_ISLNK(status->st_mode) &&
                (mode & 0200) == 0 && set_mode(fd, mode | 0200) == 0;
    if (!lent) {
        return error;
    }
    error = set_xattrs(fd, attributes);
    if (error != 0) {
        set_mode(fd, mode);
    }
    return error;
}

/* The owner first, which takes set-ID bits and capabilities away; the time last. */
int attributes_apply(int fd, const struct attributes *attributes)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return errno;
    }
    int error = set_owner(fd, &status, attributes);
    if (error == 0 && !attributes_show_in_status(attributes)) {
        error = set_xattrs_anyway(fd, &status, attributes);
    }
    if (error == 0 && !has_mode(&status, attributes)) {
        error = set_mode(fd, mode_of(attributes, &status));
    }
    if (error == 0) {
        error = set_time(fd, &attributes->mtime);
    }
    if (error != 0) {
        return error;
    }
    return attributes->fsync && fsync(fd) != 0 && errno != EBADF ? errno : 0;
}

/* CHANGE_ACL or CHANGE_XATTR, once for each that the first has and the second has not, or other. */
static uint32_t xattrs_missing(const struct xattrs *these, const struct xattrs *those,
                               const struct attributes *attributes)
{
    uint32_t changes = 0;
    for (unsigned i = 0; these != NULL && i < these->count; i++) {
        const struct xattr *one = &these->list[i];
        const struct xattr *other = find(those, one->name);
        bool same = other != NULL && one->length == other->length &&
                    (one->length == 0 || memcmp(one->value, other->value, one->length) == 0);
        if (!same && is_kept(one->name, attributes->preserve, attributes->super)) {
            changes |= has_prefix(one->name, ACL_PREFIX) ? CHANGE_ACL : CHANGE_XATTR;
        }
    }
    return changes;
}

static uint32_t xattrs_changes(int fd, const struct attributes *attributes)
{
    struct xattrs there;
    if (xattrs_read(fd, attributes->preserve, attributes->super, &there) != 0) {
        return CHANGE_XATTR;
    }
    uint32_t changes = xattrs_missing(&there, attributes->xattrs, attributes) |
                       xattrs_missing(attributes->xattrs, &there, attributes);
    xattrs_clear(&there);
    return changes;
}

uint32_t attributes_of_new(const struct attributes *attributes)
{
    return xattrs_missing(attributes->xattrs, NULL, attributes);
}

bool attributes_show_in_status(const struct attributes *attributes)
{
    return (attributes->preserve & (PRESERVE_ACLS | PRESERVE_XATTRS)) == 0;
}

uint32_t attributes_changes(int fd, const struct stat *status, const struct attributes *attributes)
{
    uint32_t changes = 0;
    if (!compare_times(attributes->wishes, &status->st_mtim, &attributes->mtime)) {
        changes |= CHANGE_TIME;
    }
    if (!S_ISLNK(status->st_mode) && mode_of(attributes, status) != (status->st_mode & 07777)) {
        changes |= CHANGE_MODE;
    }
    if (keeps_user(attributes) && attributes->uid != status->st_uid) {
        changes |= CHANGE_OWNER;
    }
    if (attributes->gid != status->st_gid && keeps_group(attributes)) {
        changes |= CHANGE_GROUP;
    }
    if (!attributes_show_in_status(attributes)) {
        changes |= xattrs_changes(fd, attributes);
    }
    return changes;
}
