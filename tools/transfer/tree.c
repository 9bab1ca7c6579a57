#include "tools/transfer/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/confine.h"
#include "tools/transfer/place.h"

struct tree_level {
    int fd;
    uint32_t id;
    size_t parent_length; /* of the path of the directory it is in */
    bool set_attributes, revisited;
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
}

void tree_fini(struct tree *tree)
{
    while (tree->depth > 0) {
        struct tree_level *level = &tree->levels[--tree->depth];
        close(level->fd);
        xattrs_clear(&level->xattrs);
    }
    tree_finish(tree);
    free(tree->levels);
    tree->levels = NULL;
}

int tree_directory(const struct tree *tree)
{
    return tree->depth > 0 ? tree->levels[tree->depth - 1].fd : tree->top;
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

/* Makes or finds it: a descriptor or -errno. */
static int make_directory(const struct tree *tree, const char *name, bool *ret_existed)
{
    int parent = tree_directory(tree);
    bool existed = name[0] == 0;
    if (!existed && mkdirat(parent, name, 0700) != 0) {
        if (errno != EEXIST) {
            return -errno;
        }
        existed = true;
    }
    int fd = confine_open(parent, name[0] == 0 ? "." : name, O_RDONLY | O_DIRECTORY, 0,
                          CONFINE_NO_SYMLINKS);
    if (fd >= 0 && existed) {
        place_sweep(fd);
    }
    *ret_existed = existed;
    return fd;
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

static int enter(struct tree *tree, const char *name, uint32_t id, const struct tree_entry *entry)
{
    bool existed = false;
    if (strlen(tree->path) >= PATH_MAX) {
        return ENAMETOOLONG;
    }
    if (place_is_temporary(name)) {
        return EILSEQ;
    }
    if (!reserve(tree)) {
        return ENOMEM;
    }
    int fd = make_directory(tree, name, &existed);
    if (fd < 0) {
        return -fd;
    }
    tree->levels[tree->depth++] = (struct tree_level){
        .fd = fd,
        .id = id,
        .parent_length = tree->path_length,
        .set_attributes = !existed || (entry->force && name[0] != 0),
        .revisited = entry->revisited,
        .attributes = entry->attributes,
        .xattrs = entry->xattrs,
    };
    tree->path_length = strlen(tree->path);
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

int tree_leave(struct tree *tree, uint32_t *ret_id)
{
    struct tree_level *level = &tree->levels[--tree->depth];
    int error = 0;
    if (level->set_attributes) {
        level->attributes.xattrs = &level->xattrs;
        error = attributes_apply(level->fd, &level->attributes);
        if (error == 0) {
            error = lend_search(tree, level);
        }
    } else if (level->attributes.fsync && fsync(level->fd) != 0) {
        error = errno;
    }
    /* A directory's own name is in the one above, which is left later; but the top is not left. */
    if (error == 0 && level->attributes.fsync && tree->depth == 0 && fsync(tree->top) != 0) {
        error = errno;
    }
    close(level->fd);
    xattrs_clear(&level->xattrs);
    tree->path_length = level->parent_length;
    *ret_id = level->id;
    return error;
}
