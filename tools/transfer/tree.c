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
    bool set_attributes;
    struct tree_attributes attributes;
};

void tree_init(struct tree *tree, int top, const char *display)
{
    *tree = (struct tree){.top = top, .path_length = strlen(display)};
    memcpy(tree->path, display, tree->path_length + 1);
}

void tree_fini(struct tree *tree)
{
    while (tree->depth > 0) {
        close(tree->levels[--tree->depth].fd);
    }
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

int tree_enter(struct tree *tree, const char *name, uint32_t id,
               const struct tree_attributes *attributes)
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
        .set_attributes = !existed || (attributes->force && name[0] != 0),
        .attributes = *attributes,
    };
    tree->path_length = strlen(tree->path);
    return 0;
}

/* The set-group-ID bit, which says whose group new files have, is inherited here and stays. */
static int set_mode(const struct tree_level *level)
{
    struct stat status;
    if (fstat(level->fd, &status) != 0) {
        return errno;
    }
    mode_t mode = (level->attributes.mode & 01777) | (status.st_mode & S_ISGID);
    return fchmod(level->fd, mode) == 0 ? 0 : errno;
}

int tree_leave(struct tree *tree, uint32_t *ret_id)
{
    const struct tree_level *level = &tree->levels[--tree->depth];
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, level->attributes.mtime};
    int error = level->set_attributes ? set_mode(level) : 0;
    if (error == 0 && level->set_attributes && futimens(level->fd, times) != 0) {
        error = errno;
    }
    if (error == 0 && level->attributes.fsync && fsync(level->fd) != 0) {
        error = errno;
    }
    /* A directory's own name is in the one above, which is left later; but the top is not left. */
    if (error == 0 && level->attributes.fsync && tree->depth == 0 && fsync(tree->top) != 0) {
        error = errno;
    }
    close(level->fd);
    tree->path_length = level->parent_length;
    *ret_id = level->id;
    return error;
}
