#include "tools/transfer/disk/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/place.h"

struct tree_level {
    int fd;
    uint32_t id;
    size_t parent_length; /* of the path of the directory it is in */
    bool set_attributes, revisited, tells_at_once, is_new;
    bool differs;            /* they are others than they are to be */
    struct timespec entered; /* its time then */
    struct attributes attributes;
    struct xattrs xattrs;
};

struct tree_mode {
    mode_t mode;
    dev_t device;
    ino_t inode;
    char *path; /* below the top */
};

void tree_init(struct tree *tree, int top, const char *display)
{
    *tree = (struct tree){.top = top, .display_length = strlen(display)};
    tree->path_length = tree->display_length;
    memcpy(tree->path, display, tree->path_length + 1);
    tree->tells_at_once = top >= 0 && place_tells_at_once(top);
}

static size_t memory_of(const struct xattrs *xattrs)
{
    return xattrs->length + xattrs->count * sizeof(struct xattr);
}

/* The innermost. */
static void close_level(struct tree *tree)
{
    struct tree_level *level = &tree->levels[--tree->depth];
    if (level->fd >= 0) {
        close(level->fd);
    }
    tree->held -= memory_of(&level->xattrs);
    xattrs_clear(&level->xattrs);
}

void tree_fini(struct tree *tree)
{
    while (tree->depth > 0) {
        close_level(tree);
    }
    tree_finish(tree);
    free(tree->levels);
    tree->levels = NULL;
}

int tree_directory(const struct tree *tree)
{
    return tree->depth > 0 ? tree->levels[tree->depth - 1].fd : tree->top;
}

bool tree_tells_at_once(const struct tree *tree)
{
    return tree->depth > 0 ? tree->levels[tree->depth - 1].tells_at_once : tree->tells_at_once;
}

bool tree_is_new(const struct tree *tree)
{
    return tree->depth > 0 && tree->levels[tree->depth - 1].is_new;
}

void tree_name(struct tree *tree, const char *name)
{
    size_t length = tree->path_length;
    if (name[0] == 0) {
        return;
    }
    if (length > 0 && tree->path[length - 1] != '/') {
        tree->path[length++] = '/';
    }
    strcpy(tree->path + length, name);
}

void tree_forget(struct tree *tree)
{
    tree->path[tree->path_length] = 0;
}

static int open_directory(int parent, const char *name)
{
    return confine_open(parent, name[0] == 0 ? "." : name, O_RDONLY | O_DIRECTORY, 0,
                        CONFINE_NO_SYMLINKS);
}

/* One that is ready takes the place of what is no directory, which goes then: who is killed in
 * between leaves one of the two. EINVAL: they cannot be exchanged here, or there is no room for
 * both. */
static int exchange(int parent, const char *name)
{
    char temporary[PLACE_TEMPORARY_LENGTH + 1];
    int error;
    do {
        place_random_name(temporary);
        error = mkdirat(parent, temporary, 0700) != 0 ? errno : 0;
    } while (error == EEXIST);
    if (error != 0) {
        return error == ENOSPC || error == EDQUOT ? EINVAL : error;
    }
    error = renameat2(parent, temporary, parent, name, RENAME_EXCHANGE) != 0 ? EINVAL : 0;
    if (error == 0 && unlinkat(parent, temporary, 0) != 0 && errno != ENOENT) {
        error = errno; /* it became a directory meanwhile, say */
        renameat2(parent, temporary, parent, name, RENAME_EXCHANGE);
    }
    if (error != 0) {
        unlinkat(parent, temporary, AT_REMOVEDIR);
    }
    return error;
}

/* In the place of whatever else has the name. */
static int replace_by_directory(int parent, const char *name)
{
    struct stat status;
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(status.st_mode)) {
        return EEXIST;
    }
    int error = exchange(parent, name);
    if (error != EINVAL) {
        return error;
    }
    if (unlinkat(parent, name, 0) != 0) {
        return errno;
    }
    return mkdirat(parent, name, 0700) == 0 ? 0 : errno;
}

static void sweep_once(struct tree *tree, int directory)
{
    struct stat status;
    unsigned known = tree->swept_count < TREE_SWEPT ? tree->swept_count : TREE_SWEPT;
    if (fstat(directory, &status) != 0) {
        return;
    }
    for (unsigned i = 0; i < known; i++) {
        if (tree->swept[i].inode == status.st_ino && tree->swept[i].device == status.st_dev) {
            return;
        }
    }
    place_sweep(directory);
    tree->swept[tree->swept_count++ % TREE_SWEPT] =
        (struct tree_place){status.st_dev, status.st_ino};
}

/* Makes or finds it: a descriptor or -errno. */
static int make_directory(struct tree *tree, const char *name, bool *ret_existed)
{
    int parent = tree_directory(tree);
    bool existed = name[0] == 0;
    if (!existed && mkdirat(parent, name, 0700) != 0) {
        int error = errno == EEXIST ? replace_by_directory(parent, name) : errno;
        if (error != 0 && error != EEXIST) {
            return -error;
        }
        existed = error == EEXIST;
    }
    int fd = open_directory(parent, name);
    if (fd >= 0 && existed) {
        sweep_once(tree, fd);
    }
    *ret_existed = existed;
    return fd;
}

/* Finds it: a descriptor, -1 where there is none, or else -errno. */
static int find_directory(const struct tree *tree, const char *name, bool *ret_existed)
{
    int parent = tree_directory(tree);
    int fd = parent >= 0 ? open_directory(parent, name) : -ENOENT;
    *ret_existed = fd >= 0;
    return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EPERM ? -1 : fd;
}

static bool reserve(struct tree *tree)
{
    if (tree->depth < tree->capacity) {
        return true;
    }
    unsigned capacity = tree->capacity > 0 ? 2 * tree->capacity : 16;
    struct tree_level *levels = realloc(tree->levels, capacity * sizeof(*levels));
    if (levels == NULL) {
        return false;
    }
    tree->levels = levels;
    tree->capacity = capacity;
    return true;
}

/* What comes of its attributes when it is left; they are looked at now, before its contents change
 * them. */
static uint32_t changes_of(int fd, bool existed, const struct stat *status,
                           struct tree_entry *entry)
{
    if (!existed) {
        return CHANGE_NEW | CHANGE_MADE;
    }
    entry->attributes.xattrs = &entry->xattrs;
    return attributes_changes(fd, status, &entry->attributes);
}

/* Others than root need its permissions to make its contents; it gets its own when it is left. */
static bool lend_permissions(int fd, const struct stat *status)
{
    return geteuid() != 0 && (status->st_mode & 0700) != 0700 &&
           fchmod(fd, (status->st_mode & 07777) | 0700) == 0;
}

static int enter(struct tree *tree, const char *name, uint32_t id, struct tree_entry *entry)
{
    bool existed = false;
    if (strlen(tree->path) >= PATH_MAX) {
        return ENAMETOOLONG;
    }
    if (place_is_temporary(name)) {
        return EILSEQ;
    }
    if (tree->held + memory_of(&entry->xattrs) > TREE_HELD_MAX) {
        return ENOBUFS;
    }
    if (!reserve(tree)) {
        return ENOMEM;
    }
    int fd =
        entry->dry ? find_directory(tree, name, &existed) : make_directory(tree, name, &existed);
    if (fd < 0 && !(entry->dry && fd == -1)) {
        return -fd;
    }
    bool keeps = existed && name[0] == 0 && entry->keep_target;
    struct stat status = {0};
    if (fd >= 0 && fstat(fd, &status) != 0) {
        close(fd);
        return EIO;
    }
    entry->changes = keeps ? 0 : changes_of(fd, existed, &status, entry);
    bool lent = existed && !keeps && !entry->dry && lend_permissions(fd, &status);
    tree->levels[tree->depth++] = (struct tree_level){
        .fd = fd,
        .id = id,
        .parent_length = tree->path_length,
        .set_attributes = !keeps && !entry->dry,
        .differs = entry->changes != 0 || lent,
        .entered = status.st_mtim,
        .tells_at_once = fd >= 0 && place_tells_at_once(fd),
        .is_new = fd >= 0 && !existed,
        .revisited = entry->revisited,
        .attributes = entry->attributes,
        .xattrs = entry->xattrs,
    };
    tree->path_length = strlen(tree->path);
    tree->held += memory_of(&entry->xattrs);
    return 0;
}

int tree_enter(struct tree *tree, const char *name, uint32_t id, struct tree_entry *entry)
{
    int error = enter(tree, name, id, entry);
    if (error != 0) {
        xattrs_clear(&entry->xattrs);
    }
    return error;
}

const char *tree_relative(const struct tree *tree)
{
    const char *path = tree->path + tree->display_length;
    return path + strspn(path, "/");
}

/* Root searches every directory; others need the permission to find a file again in this one. */
static int lend_search(struct tree *tree, const struct tree_level *level)
{
    struct stat status;
    if (!level->revisited || fstat(level->fd, &status) != 0 || (status.st_mode & S_IXUSR) != 0 ||
        tree->mode_count == TREE_MODES_MAX) {
        return 0;
    }
    if ((tree->mode_count & (tree->mode_count - 1)) == 0) { /* full: room for twice as many */
        size_t capacity = tree->mode_count > 0 ? 2 * (size_t)tree->mode_count : 1;
        struct tree_mode *modes = realloc(tree->modes, capacity * sizeof(*modes));
        if (modes == NULL) {
            return ENOMEM;
        }
        tree->modes = modes;
    }
    char *path = strdup(tree_relative(tree));
    if (path == NULL) {
        return ENOMEM;
    }
    tree->modes[tree->mode_count++] = (struct tree_mode){
        .mode = status.st_mode & 07777, .device = status.st_dev, .inode = status.st_ino, path};
    return fchmod(level->fd, (status.st_mode & 07777) | S_IXUSR) == 0 ? 0 : errno;
}

static int take_search(const struct tree *tree, const struct tree_mode *mode)
{
    struct stat status;
    int error = 0;
    int fd = confine_open(tree->top, mode->path, O_PATH | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS);
    if (fd < 0) {
        return -fd;
    }
    if (fstat(fd, &status) == 0 && status.st_dev == mode->device && status.st_ino == mode->inode) {
        error = attributes_set_mode(fd, mode->mode);
    }
    close(fd);
    return error;
}

/* In the order in which they were left: a directory comes after those below it. */
int tree_finish(struct tree *tree)
{
    int error = 0;
    for (unsigned i = 0; i < tree->mode_count; i++) {
        int one = take_search(tree, &tree->modes[i]);
        error = error != 0 ? error : one;
        free(tree->modes[i].path);
    }
    free(tree->modes);
    tree->modes = NULL;
    tree->mode_count = 0;
    return error;
}

/* Not where it had all of them, and its contents have not changed since. */
static int apply_where_different(const struct tree_level *level)
{
    struct stat status;
    if (fstat(level->fd, &status) != 0) {
        return errno;
    }
    bool touched = status.st_mtim.tv_sec != level->entered.tv_sec ||
                   status.st_mtim.tv_nsec != level->entered.tv_nsec;
    return touched || level->differs || level->attributes.fsync
               ? attributes_apply(level->fd, &level->attributes)
               : 0;
}

int tree_leave(struct tree *tree, uint32_t *ret_id)
{
    struct tree_level *level = &tree->levels[tree->depth - 1];
    int error = 0;
    if (level->set_attributes) {
        level->attributes.xattrs = &level->xattrs;
        error = apply_where_different(level);
        if (error == 0) {
            error = lend_search(tree, level);
        }
    } else if (level->attributes.fsync && level->fd >= 0 && fsync(level->fd) != 0) {
        error = errno;
    }
    /* A directory's own name is in the one above, which is left later; but the top is not left. */
    if (error == 0 && level->attributes.fsync && tree->depth == 1 && tree->top >= 0 &&
        fsync(tree->top) != 0) {
        error = errno;
    }
    tree->path_length = level->parent_length;
    *ret_id = level->id;
    close_level(tree);
    return error;
}
