#include "tools/transfer/choice/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/walk_private.h"
#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/place.h"
#include "tools/transfer/wire/protocol.h"

struct walk *walk_create(const struct walk_options *options, const char *const *sources,
                         unsigned count)
{
    struct walk *walk = calloc(1, sizeof(*walk));
    if (walk != NULL) {
        walk->options = *options;
        walk->held.kind = WALK_END;
        walk->sources = sources;
        walk->source_count = count;
    }
    return walk;
}

static struct walk_folder *hold(struct walk_folder *folder)
{
    if (folder != NULL) {
        folder->references++;
    }
    return folder;
}

static void release(struct walk_folder *folder)
{
    while (folder != NULL && --folder->references == 0) {
        struct walk_folder *parent = folder->parent;
        folder->walk->folders--;
        closedir(folder->stream);
        filter_scope_free(folder->scope);
        filter_scope_free_up(folder->outside, NULL);
        free(folder);
        folder = parent;
    }
}

void walk_destroy(struct walk *walk)
{
    if (walk == NULL) {
        return;
    }
    release(walk->left);
    release(walk->folder);
    free(walk);
}

bool walk_keep(const struct walk_step *step, struct walk_step *ret_kept)
{
    const char *texts[] = {step->path, step->name, step->target};
    struct walk_step kept = *step;
    char *copies[3] = {NULL};
    bool whole = true;
    for (unsigned i = 0; i < 3; i++) {
        copies[i] = texts[i] != NULL ? strdup(texts[i]) : NULL;
        whole &= texts[i] == NULL || copies[i] != NULL;
    }
    if (!whole) {
        free(copies[0]);
        free(copies[1]);
        free(copies[2]);
        return false;
    }
    if (step->path != NULL) {
        kept.relative = copies[0] + (step->relative - step->path);
        kept.below = copies[0] + (step->below - step->path);
    }
    kept.path = copies[0];
    kept.name = copies[1];
    kept.target = copies[2];
    hold(kept.folder);
    hold(kept.inside);
    *ret_kept = kept;
    return true;
}

void walk_drop(struct walk_step *kept)
{
    free((char *)kept->path);
    free((char *)kept->name);
    free((char *)kept->target);
    release(kept->folder);
    release(kept->inside);
    *kept = (struct walk_step){.kind = WALK_END};
}

int walk_folder_fd(const struct walk_folder *folder)
{
    return dirfd(folder->stream);
}

bool walk_folder_is_elsewhere(const struct walk_folder *folder)
{
    return folder->walk->options.one_file_system && folder->device != folder->status.st_dev;
}

struct walk_mark *walk_folder_mark(struct walk_folder *folder)
{
    return &folder->mark;
}

unsigned walk_folders(const struct walk *walk)
{
    return walk->folders;
}

void walk_prune(struct walk_folder *folder)
{
    folder->pruned = true;
}

void walk_leave_out(struct walk_folder *folder)
{
    folder->left_out = true;
}

bool walk_is_cut_off(const struct walk_folder *folder)
{
    while (folder != NULL && !folder->pruned && !folder->left_out) {
        folder = folder->parent;
    }
    return folder != NULL;
}

bool walk_is_unwanted(const struct walk_step *step)
{
    if (step->kind == WALK_LEAVE) {
        return step->inside->left_out;
    }
    bool unwanted = walk_is_cut_off(step->folder);
    if (unwanted && step->kind == WALK_DIRECTORY) {
        step->inside->left_out = true;
    }
    return unwanted;
}

bool walk_base_name(const char *path, char ret_name[256])
{
    size_t end = strlen(path);
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

const char *walk_source_path(const struct walk *walk, unsigned source)
{
    const char *path = walk->sources[source];
    if (!walk->options.confined) {
        return path;
    }
    path += walk->options.root_name;
    path += strspn(path, "/");
    return *path != 0 ? path : ".";
}

/* A source is followed where it is a link and single files are asked for; a tree's is copied. */
static int open_source(const struct walk *walk, unsigned source, int flags)
{
    flags |= walk->options.recursive ? O_NOFOLLOW : 0;
    return confine_open(walk->options.root, walk_source_path(walk, source), flags, 0,
                        walk->options.confined ? CONFINE_BENEATH : CONFINE_NOT);
}

/* It is a source like any other, for all that it is in a list. */
static bool is_matched(const struct walk *walk, const struct walk_folder *folder)
{
    return walk->options.matched && folder != NULL && folder->parent == NULL;
}

static bool is_followed(const struct walk *walk, const struct walk_folder *folder)
{
    return is_matched(walk, folder) && !walk->options.recursive;
}

/* Relative to the directory that is being listed, unless the step is a source. */
static int open_of_step(const struct walk *walk, const struct walk_step *step, int flags)
{
    if (step->folder == NULL) {
        return open_source(walk, step->source, flags);
    }
    bool follows = is_followed(walk, step->folder);
    return confine_open(walk_folder_fd(step->folder), step->name,
                        flags | (follows ? 0 : O_NOFOLLOW), 0,
                        follows ? CONFINE_NOT : CONFINE_NO_SYMLINKS);
}

int walk_open_source(const struct walk *walk, unsigned source)
{
    return open_source(walk, source, O_RDONLY | O_DIRECTORY);
}

void walk_fail(struct walk_step *step, int error)
{
    step->kind = WALK_FAILED;
    step->error = error;
}

/* The walk is in it from here on. */
static int enter_folder(struct walk *walk, int fd, const struct stat *status)
{
    struct walk_folder *folder = calloc(1, sizeof(*folder));
    DIR *stream = folder != NULL ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        int error = folder != NULL ? errno : ENOMEM;
        free(folder);
        return error;
    }
    *folder = (struct walk_folder){.walk = walk,
                                   .parent = walk->folder, /* and what held it */
                                   .stream = stream,
                                   .references = 1,
                                   .ours = status->st_uid == geteuid() &&
                                           (status->st_mode & (S_IWGRP | S_IWOTH)) == 0,
                                   .path_length = strlen(walk->path)};
    walk->folder = folder;
    walk->folders++;
    return 0;
}

static unsigned depth_of(const struct walk_folder *folder)
{
    unsigned depth = 0;
    for (; folder != NULL; folder = folder->parent) {
        depth++;
    }
    return depth;
}

/* What is in it is to be of its own file system where it is a source, or in the list or on the way
 * to what is. */
static dev_t device_for(const struct walk_step *step)
{
    bool begins = step->folder == NULL || step->folder->way.is_listed;
    return begins ? step->status.st_dev : step->folder->device;
}

static void enter_directory(struct walk *walk, struct walk_step *step, bool excluded)
{
    struct walk_way way;
    if (!walk_find_way(walk, step, excluded, &way)) {
        walk_fail(step, WALK_ERROR_NOT_RECURSIVE);
        return;
    }
    if (walk->options.depth_max > 0 && depth_of(walk->folder) >= walk->options.depth_max) {
        walk_fail(step, WALK_ERROR_DEEP);
        return;
    }
    int fd = open_of_step(walk, step, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        walk_fail(step, -fd);
        return;
    }
    int error = fstat(fd, &step->status) == 0 ? enter_folder(walk, fd, &step->status) : errno;
    if (error != 0) {
        close(fd);
        walk_fail(step, error);
        return;
    }
    error = walk_read_rules(walk, walk->folder, step);
    if (error != 0) {
        struct walk_folder *folder = walk->folder;
        walk->folder = hold(folder->parent);
        release(folder);
        walk_fail(step, error);
        step->target = walk->why;
        return;
    }
    step->kind = WALK_DIRECTORY;
    step->inside = walk->folder;
    step->inside->way = way;
    step->inside->status = step->status;
    step->inside->device = device_for(step);
    if (walk_folder_is_elsewhere(step->inside)) {
        walk_prune(step->inside);
    }
}

static void read_link(struct walk *walk, struct walk_step *step, int directory, const char *name)
{
    ssize_t length = readlinkat(directory, name, walk->target, sizeof(walk->target) - 1);
    if (length <= 0) {
        walk_fail(step, length < 0 ? errno : ENOENT);
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

/* Its status is known, and a link is `name` in `directory`. */
static void look_at(struct walk *walk, struct walk_step *step, int directory, const char *name,
                    int special)
{
    mode_t mode = step->status.st_mode;
    bool excluded = walk_excludes(walk, step);
    if (excluded && !(S_ISDIR(mode) && walk_leads_on(walk, step))) {
        step->kind = WALK_EXCLUDED;
    } else if (strlen(step->name) > NAME_LENGTH_MAX) { /* an entry has no room */
        walk_fail(step, ENAMETOOLONG);
    } else if (S_ISLNK(mode)) {
        read_link(walk, step, directory, name);
    } else if (S_ISDIR(mode)) {
        enter_directory(walk, step, excluded);
    } else if (S_ISREG(mode)) {
        step->kind = WALK_FILE;
    } else if (is_wanted(walk, mode)) {
        step->kind = WALK_SPECIAL;
    } else {
        walk_fail(step, special);
    }
}

static void look_at_source(struct walk *walk, struct walk_step *step)
{
    int fd = open_source(walk, step->source, O_PATH);
    if (fd < 0) {
        walk_fail(step, -fd);
        return;
    }
    if (fstat(fd, &step->status) != 0) {
        walk_fail(step, errno);
    } else {
        look_at(walk, step, fd, "", WALK_ERROR_SPECIAL_SOURCE);
    }
    close(fd);
}

static void look_at_entry(struct walk *walk, struct walk_step *step)
{
    int directory = walk_folder_fd(walk->folder);
    int flags = is_followed(walk, walk->folder) ? 0 : AT_SYMLINK_NOFOLLOW;
    if (place_is_temporary(step->name)) { /* no receiver would take it */
        walk_fail(step, WALK_ERROR_TEMPORARY);
    } else if (fstatat(directory, step->name, &step->status, flags) != 0) {
        walk_fail(step, errno);
    } else if (walk->folder->way.is_listed && !walk->itself && !S_ISDIR(step->status.st_mode)) {
        walk_fail(step, S_ISLNK(step->status.st_mode) ? ELOOP : ENOTDIR);
    } else {
        walk_expect_nothing_below(walk, step);
        look_at(walk, step, directory, step->name,
                is_matched(walk, walk->folder) ? WALK_ERROR_SPECIAL_SOURCE : WALK_ERROR_SPECIAL);
    }
}

void walk_tell_paths(const struct walk *walk, struct walk_step *step)
{
    size_t length = strlen(walk->path);
    step->path = walk->path;
    step->relative = walk->path + (walk->relative < length ? walk->relative : length);
    step->below = walk->path + (walk->below < length ? walk->below : length);
}

static void next_source(struct walk *walk, struct walk_step *step)
{
    while (walk->source < walk->source_count && walk->sources[walk->source] == NULL) {
        walk->source++;
    }
    if (walk->source == walk->source_count) {
        step->kind = WALK_END;
        return;
    }
    step->source = walk->source++;
    const char *path = walk->sources[step->source];
    size_t length = strlen(path);
    step->name = walk->base;
    if (length == 0 || length >= PATH_MAX || !walk_base_name(path, walk->base)) {
        step->path = path;
        step->name = step->relative = step->below = path + length;
        walk_fail(step, length == 0 ? ENOENT : ENAMETOOLONG);
        return;
    }
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    memcpy(walk->path, path, length);
    walk->path[length] = 0;
    walk->below = path[length - 1] == '/' ? length : length + 1;
    walk->relative = walk->base[0] != 0 ? length - strlen(walk->base) : walk->below;
    walk_tell_paths(walk, step);
    if (walk->options.confined && has_parent_component(path)) {
        walk_fail(step, WALK_ERROR_PARENT);
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
    struct walk_folder *folder = walk->folder;
    walk->path[folder->path_length] = 0;
    *step = (struct walk_step){.kind = WALK_LEAVE,
                               .source = step->source,
                               .name = "",
                               .folder = folder->parent,
                               .inside = folder};
    walk_tell_paths(walk, step);
    walk->left = folder; /* it must last as long as the step */
    walk->folder = hold(folder->parent);
}

/* The directory's next name; NULL at its end, or with an errno. */
static const char *next_name(struct walk *walk, int *ret_error)
{
    const struct dirent *entry = NULL;
    struct walk_folder *folder = walk->folder;
    *ret_error = 0;
    if (folder->broke_off) {
        return NULL;
    }
    if (folder->way.is_listed) {
        return walk_next_listed(walk);
    }
    errno = 0;
    while (!walk_is_cut_off(walk->folder) && (entry = readdir(walk->folder->stream)) != NULL &&
           !is_entry(entry)) {
        errno = 0;
    }
    *ret_error = entry == NULL && !walk_is_cut_off(walk->folder) ? errno : 0;
    if (entry == NULL) {
        return NULL;
    }
    walk_look_up(walk, entry->d_name);
    return entry->d_name;
}

static void next_entry(struct walk *walk, struct walk_step *step)
{
    int error;
    const char *name = next_name(walk, &error);
    size_t start = walk->folder->path_length;
    step->folder = walk->folder;
    if (name == NULL && error != 0) { /* say it, then leave; what came before it is wanted */
        walk->folder->broke_off = true;
        walk->path[start] = 0;
        step->name = "";
        walk_tell_paths(walk, step);
        walk_fail(step, error);
        return;
    }
    if (name == NULL) {
        leave(walk, step);
        return;
    }
    size_t length = strlen(name);
    if (start == 0 || walk->path[start - 1] != '/') {
        walk->path[start++] = '/';
    }
    memcpy(walk->path + start, name, length + 1); /* there is room, to say a name too long */
    step->name = walk->path + start;
    walk_tell_paths(walk, step);
    if (start + length > PATH_MAX - 1) {
        walk_fail(step, ENAMETOOLONG);
        return;
    }
    look_at_entry(walk, step);
}

void walk_next(struct walk *walk, struct walk_step *ret_step)
{
    release(walk->left);
    walk->left = NULL;
    if (walk->held.kind != WALK_END) {
        walk_tell_next(walk, ret_step);
        return;
    }
    *ret_step = (struct walk_step){.source = walk->source > 0 ? walk->source - 1 : 0};
    if (walk->folder == NULL) {
        next_source(walk, ret_step);
    } else if (!walk_check_listed(walk, ret_step)) {
        next_entry(walk, ret_step);
    }
    walk_tell_in_turn(walk, ret_step);
}

uint64_t walk_work(const struct walk *walk)
{
    return walk->work;
}

int walk_open_at_once(struct walk *walk, const struct walk_step *step)
{
    bool ours = step->folder != NULL && step->folder->ours && !is_followed(walk, step->folder);
    return ours ? open_of_step(walk, step, O_RDONLY | O_NONBLOCK) : -ESTALE;
}

/* Looks before it opens where somebody else can have put a device or a FIFO in the file's place:
 * opening that does something. */
int walk_open_file(struct walk *walk, const struct walk_step *step, struct stat *ret_status)
{
    int ours = walk_open_at_once(walk, step);
    if (ours >= 0 && fstat(ours, ret_status) == 0 && S_ISREG(ret_status->st_mode)) {
        return ours;
    }
    if (ours >= 0) {
        close(ours);
        return -ESTALE;
    }
    int path = open_of_step(walk, step, O_PATH);
    if (path < 0) {
        return path;
    }
    int error = fstat(path, ret_status) != 0 ? errno : S_ISREG(ret_status->st_mode) ? 0 : ESTALE;
    int fd = error == 0 ? confine_reopen(path) : -error;
    close(path);
    if (fd == -ENOENT) { /* there is no /proc here */
        fd = open_of_step(walk, step, O_RDONLY | O_NONBLOCK);
        if (fd >= 0 && (fstat(fd, ret_status) != 0 || !S_ISREG(ret_status->st_mode))) {
            close(fd);
            return -ESTALE;
        }
    }
    return fd;
}

int walk_hold(struct walk *walk, const struct walk_step *step)
{
    if (step->kind == WALK_DIRECTORY) { /* it is open */
        int fd = fcntl(walk_folder_fd(step->inside), F_DUPFD_CLOEXEC, 0);
        return fd >= 0 ? fd : -errno;
    }
    return open_of_step(walk, step, O_PATH);
}
