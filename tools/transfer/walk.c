#include "tools/transfer/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/confine.h"
#include "tools/transfer/place.h"

struct level {
    DIR *stream;
    size_t path_length; /* of the directory itself */
    bool pruned;
};

struct walk {
    struct walk_options options;
    const char *const *sources;
    unsigned source_count, source; /* the next one */
    struct level *levels;
    unsigned depth, capacity;
    char base[256];
    char target[PATH_MAX];
    char path[2 * PATH_MAX];
};

struct walk *walk_create(const struct walk_options *options, const char *const *sources,
                         unsigned count)
{
    struct walk *walk = calloc(1, sizeof(*walk));
    if (walk != NULL) {
        walk->options = *options;
        walk->sources = sources;
        walk->source_count = count;
    }
    return walk;
}

void walk_destroy(struct walk *walk)
{
    if (walk == NULL) {
        return;
    }
    while (walk->depth > 0) {
        closedir(walk->levels[--walk->depth].stream);
    }
    free(walk->levels);
    free(walk);
}

unsigned walk_depth(const struct walk *walk)
{
    return walk->depth;
}

void walk_prune(struct walk *walk, unsigned depth)
{
    for (unsigned i = depth; i < walk->depth; i++) {
        walk->levels[i].pruned = true;
    }
}

void walk_leave_out(struct walk *walk)
{
    closedir(walk->levels[--walk->depth].stream);
}

bool walk_base_name(const char *path, char ret_name[256])
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    size_t length = end - start;
    if (length > 255) {
        return false;
    }
    bool nameless = (length == 1 && path[start] == '.') ||
                    (length == 2 && path[start] == '.' && path[start + 1] == '.');
    memcpy(ret_name, path + start, nameless ? 0 : length);
    ret_name[nameless ? 0 : length] = 0;
    return true;
}

static bool has_parent_component(const char *path)
{
    for (const char *at = path; *at != 0;) {
        size_t length = strcspn(at, "/");
        if (length == 2 && at[0] == '.' && at[1] == '.') {
            return true;
        }
        at += length;
        at += strspn(at, "/");
    }
    return false;
}

/* Below a server's root every path is relative to the root. */
static const char *source_path(const struct walk *walk, unsigned source)
{
    const char *path = walk->sources[source];
    if (!walk->options.confined) {
        return path;
    }
    path += strspn(path, "/");
    return *path != 0 ? path : ".";
}

/* A source is followed where it is a link and single files are asked for; a tree's is copied. */
static int open_source(const struct walk *walk, unsigned source, int flags)
{
    flags |= walk->options.recursive ? O_NOFOLLOW : 0;
    return confine_open(walk->options.root, source_path(walk, source), flags, 0,
                        walk->options.confined ? CONFINE_BENEATH : CONFINE_NOT);
}

/* The directory that is being listed, for relative opens; -1: the step is a source. */
static int open_of_step(const struct walk *walk, const struct walk_step *step, int flags)
{
    if (walk->depth == 0) {
        return open_source(walk, step->source, flags);
    }
    return confine_open(dirfd(walk->levels[walk->depth - 1].stream), step->name, flags | O_NOFOLLOW,
                        0, CONFINE_NO_SYMLINKS);
}

static void fail(struct walk_step *step, int error)
{
    step->kind = WALK_FAILED;
    step->error = error;
}

static int push_level(struct walk *walk, int fd)
{
    if (walk->depth == walk->capacity) {
        unsigned capacity = walk->capacity > 0 ? 2 * walk->capacity : 16;
        struct level *levels = realloc(walk->levels, capacity * sizeof(*levels));
        if (levels == NULL) {
            return ENOMEM;
        }
        walk->levels = levels;
        walk->capacity = capacity;
    }
    DIR *stream = fdopendir(fd);
    if (stream == NULL) {
        return errno;
    }
    walk->levels[walk->depth++] =
        (struct level){.stream = stream, .path_length = strlen(walk->path)};
    return 0;
}

static void enter_directory(struct walk *walk, struct walk_step *step)
{
    if (!walk->options.recursive) {
        fail(step, WALK_ERROR_NOT_RECURSIVE);
        return;
    }
    int fd = open_of_step(walk, step, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        fail(step, -fd);
        return;
    }
    int error = fstat(fd, &step->status) == 0 ? push_level(walk, fd) : errno;
    if (error != 0) {
        close(fd);
        fail(step, error);
        return;
    }
    step->kind = WALK_DIRECTORY;
}

static void read_link(struct walk *walk, struct walk_step *step, int directory, const char *name)
{
    ssize_t length = readlinkat(directory, name, walk->target, sizeof(walk->target) - 1);
    if (length <= 0) {
        fail(step, length < 0 ? errno : ENOENT);
        return;
    }
    walk->target[length] = 0;
    step->target = walk->target;
    step->kind = WALK_SYMLINK;
}

static bool is_wanted(const struct walk *walk, mode_t mode)
{
    bool device = S_ISCHR(mode) || S_ISBLK(mode);
    return device ? walk->options.devices : walk->options.specials;
}

static void look_at_source(struct walk *walk, struct walk_step *step)
{
    int fd = open_source(walk, step->source, O_PATH);
    if (fd < 0) {
        fail(step, -fd);
        return;
    }
    if (fstat(fd, &step->status) != 0) {
        fail(step, errno);
    } else if (S_ISLNK(step->status.st_mode)) {
        read_link(walk, step, fd, "");
    } else if (S_ISDIR(step->status.st_mode)) {
        enter_directory(walk, step);
    } else if (S_ISREG(step->status.st_mode)) {
        step->kind = WALK_FILE;
    } else if (is_wanted(walk, step->status.st_mode)) {
        step->kind = WALK_SPECIAL;
    } else {
        fail(step, WALK_ERROR_SPECIAL_SOURCE);
    }
    close(fd);
}

static void look_at_entry(struct walk *walk, struct walk_step *step)
{
    int directory = dirfd(walk->levels[walk->depth - 1].stream);
    if (place_is_temporary(step->name)) { /* no receiver would take it */
        fail(step, WALK_ERROR_TEMPORARY);
    } else if (fstatat(directory, step->name, &step->status, AT_SYMLINK_NOFOLLOW) != 0) {
        fail(step, errno);
    } else if (S_ISLNK(step->status.st_mode)) {
        read_link(walk, step, directory, step->name);
    } else if (S_ISDIR(step->status.st_mode)) {
        enter_directory(walk, step);
    } else if (S_ISREG(step->status.st_mode)) {
        step->kind = WALK_FILE;
    } else if (is_wanted(walk, step->status.st_mode)) {
        step->kind = WALK_SPECIAL;
    } else {
        fail(step, WALK_ERROR_SPECIAL);
    }
}

static void next_source(struct walk *walk, struct walk_step *step)
{
    if (walk->source == walk->source_count) {
        step->kind = WALK_END;
        return;
    }
    step->source = walk->source++;
    const char *path = walk->sources[step->source];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    step->path = walk->path;
    step->name = walk->base;
    if (length >= PATH_MAX || !walk_base_name(path, walk->base)) {
        walk->path[0] = 0;
        step->path = path;
        fail(step, ENAMETOOLONG);
        return;
    }
    memcpy(walk->path, path, length);
    walk->path[length] = 0;
    if (walk->options.confined && has_parent_component(path)) {
        fail(step, WALK_ERROR_PARENT);
        return;
    }
    look_at_source(walk, step);
}

static bool is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static void leave(struct walk *walk, struct walk_step *step)
{
    struct level *level = &walk->levels[--walk->depth];
    closedir(level->stream);
    walk->path[level->path_length] = 0;
    step->kind = WALK_LEAVE;
    step->path = walk->path;
}

void walk_next(struct walk *walk, struct walk_step *ret_step)
{
    *ret_step = (struct walk_step){.source = walk->source > 0 ? walk->source - 1 : 0};
    if (walk->depth == 0) {
        next_source(walk, ret_step);
        return;
    }
    struct level *level = &walk->levels[walk->depth - 1];
    const struct dirent *entry = NULL;
    errno = 0;
    while (!level->pruned && (entry = readdir(level->stream)) != NULL && !is_entry(entry)) {
    }
    if (entry == NULL) {
        if (errno != 0 && !level->pruned) { /* the list broke off: say it, then leave */
            level->pruned = true;
            walk->path[level->path_length] = 0;
            ret_step->path = walk->path;
            ret_step->name = "";
            fail(ret_step, errno);
            return;
        }
        leave(walk, ret_step);
        return;
    }
    size_t length = strlen(entry->d_name);
    size_t start = level->path_length;
    if (start == 0 || walk->path[start - 1] != '/') {
        walk->path[start++] = '/';
    }
    if (start + length > PATH_MAX - 1) {
        memcpy(walk->path + start, entry->d_name, length + 1); /* there is room, to say its name */
        ret_step->path = walk->path;
        ret_step->name = walk->path + start;
        fail(ret_step, ENAMETOOLONG);
        return;
    }
    memcpy(walk->path + start, entry->d_name, length + 1);
    ret_step->path = walk->path;
    ret_step->name = walk->path + start;
    look_at_entry(walk, ret_step);
}

/* Opens for reading what `path` holds on to. */
static int reopen(int path)
{
    char name[40];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", path);
    int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/* Looks before it opens: opening a device or a FIFO that took the file's place does something. */
int walk_open_file(struct walk *walk, const struct walk_step *step, struct stat *ret_status)
{
    int path = open_of_step(walk, step, O_PATH);
    if (path < 0) {
        return path;
    }
    struct stat status;
    int error = fstat(path, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : ESTALE;
    int fd = error == 0 ? reopen(path) : -error;
    close(path);
    if (fd == -ENOENT) { /* there is no /proc here */
        fd = open_of_step(walk, step, O_RDONLY | O_NONBLOCK);
    }
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
        close(fd);
        return -ESTALE;
    }
    if (fd >= 0) {
        *ret_status = status;
    }
    return fd;
}

int walk_hold(struct walk *walk, const struct walk_step *step)
{
    if (step->kind == WALK_DIRECTORY) { /* the walk is in it */
        int fd = fcntl(dirfd(walk->levels[walk->depth - 1].stream), F_DUPFD_CLOEXEC, 0);
        return fd >= 0 ? fd : -errno;
    }
    return open_of_step(walk, step, O_PATH | O_NOFOLLOW);
}

const char *walk_error_text(int error)
{
    switch (error) {
    case WALK_ERROR_SPECIAL:
        return "left out: a device, FIFO or socket (-D copies them)";
    case WALK_ERROR_SPECIAL_SOURCE:
        return "is a device, FIFO or socket (-D copies them)";
    case WALK_ERROR_TEMPORARY:
        return "left out: its name stands for a file under way";
    case WALK_ERROR_NOT_RECURSIVE:
        return "is a directory (-r copies directories)";
    case WALK_ERROR_PARENT:
        return "a path with \"..\" is not taken from a server";
    case ESTALE:
        return "became something else than a file";
    case EXDEV:
        return "leads out of the served folder";
    case ELOOP:
        return "a symbolic link where none is followed";
    default:
        return strerror(error);
    }
}
