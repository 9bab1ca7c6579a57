#include "tools/transfer/choice/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/choice/walk.h"
#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/half_mark.h"

static bool wishes(const struct target_request *request, enum wish wish)
{
    return (request->wishes & wish) != 0;
}

static int open_directory(const struct target_request *request, const char *path)
{
    if (request->confined) {
        size_t length = strlen(path);
        path += request->root_name < length ? request->root_name : length;
        path += strspn(path, "/");
        return confine_open(request->root, *path != 0 ? path : ".", O_RDONLY | O_DIRECTORY, 0,
                            CONFINE_BENEATH);
    }
    return confine_open(request->root, *path != 0 ? path : ".", O_RDONLY | O_DIRECTORY, 0,
                        CONFINE_NOT);
}

static enum problem_code refuse(int error, const char *path, const char *why,
                                char ret_text[TEXT_LENGTH_MAX])
{
    snprintf(ret_text, TEXT_LENGTH_MAX, "%.380s: %s", path,
             why != NULL ? why : walk_error_text(error));
    return problem_code_of_errno(error);
}

/* What a directory that is not there needs; NULL: the error says it. */
static const char *missing(const struct target_request *request, int error)
{
    return error != ENOENT                   ? NULL
           : wishes(request, WISH_MAKE_PATH) ? "no such directory"
                                             : "no such directory (--mkpath makes it)";
}

static bool has_parent(const char *path)
{
    size_t length = strlen(path);
    return strcmp(path, "..") == 0 || strncmp(path, "../", 3) == 0 ||
           strstr(path, "/../") != NULL || (length >= 3 && strcmp(path + length - 3, "/..") == 0);
}

/* Leaves everything before the last component; "" for the directory one is in. */
static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    path[slash == NULL ? 0 : slash == path ? 1 : slash - path] = 0;
}

static void parent_path(const char *path, char ret_parent[PATH_MAX])
{
    strcpy(ret_parent, path);
    cut_last(ret_parent);
}

/* 0 or an errno. */
static int make_one(const struct target_request *request, int directory, const char *name)
{
    if (mkdirat(directory, name, 0777) != 0) {
        return errno;
    }
    return wishes(request, WISH_FSYNC) && fsync(directory) != 0 ? errno : 0;
}

/* Below the directory, which it closes, one by one. 0 or an errno. */
static int make_directories(const struct target_request *request, int directory, const char *path)
{
    int fd = directory, error = 0;
    for (size_t length; *path != 0 && error == 0; path += length) {
        char name[NAME_LENGTH_MAX + 1];
        length = strcspn(path, "/");
        if (length == 0) {
            length = strspn(path, "/");
            continue;
        }
        if (length > NAME_LENGTH_MAX) {
            error = ENAMETOOLONG;
            continue;
        }
        memcpy(name, path, length);
        name[length] = 0;
        error = make_one(request, fd, name);
        error = error == EEXIST ? 0 : error;
        int next = error == 0
                       ? confine_open(fd, name, O_RDONLY | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS)
                       : -error;
        error = next < 0 ? -next : 0;
        if (next >= 0) {
            close(fd);
            fd = next;
        }
    }
    close(fd);
    return error;
}

/* The directories that lead to the last component, as far as they are not there. 0 or an errno. */
static int make_path(const struct target_request *request, const char *path)
{
    char parent[PATH_MAX], there[PATH_MAX];
    parent_path(path, parent);
    strcpy(there, parent);
    int fd = open_directory(request, there);
    while (fd == -ENOENT && there[0] != 0) {
        cut_last(there);
        fd = open_directory(request, there);
    }
    return fd < 0 ? -fd : make_directories(request, fd, parent + strlen(there));
}

/* What is in the way of that, `path` without slashes at its end. */
static int prepare_path(const struct target_request *request, const char *path)
{
    return wishes(request, WISH_MAKE_PATH) && !wishes(request, WISH_DRY_RUN)
               ? make_path(request, path)
               : 0;
}

/* The directory that several sources, or a path with a slash at its end, go into. 0 or an errno. */
static int make_directory(const struct target_request *request, struct target *target)
{
    char path[PATH_MAX], parent[PATH_MAX], name[256];
    size_t length = strlen(request->path);
    memcpy(path, request->path, length + 1);
    while (length > 1 && path[length - 1] == '/') {
        path[--length] = 0;
    }
    if (!walk_base_name(path, name) || name[0] == 0) {
        return ENOENT;
    }
    int error = prepare_path(request, path);
    parent_path(path, parent);
    int fd = error == 0 ? open_directory(request, parent) : -error;
    bool would_be =
        fd == -ENOENT && wishes(request, WISH_MAKE_PATH) && wishes(request, WISH_DRY_RUN);
    if (fd < 0 && !would_be) {
        return -fd;
    }
    if (!wishes(request, WISH_DRY_RUN)) {
        error = make_one(request, fd, name);
        target->directory =
            error == 0 ? confine_open(fd, name, O_RDONLY | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS)
                       : -1;
        error = error == 0 && target->directory < 0 ? -target->directory : error;
    }
    if (fd >= 0) {
        close(fd);
    }
    target->directory = target->directory < 0 ? -1 : target->directory;
    target->created = error == 0;
    strcpy(target->display, request->path);
    return error;
}

/* The directory is what an interrupted copy made of the same source, under that name. */
static bool is_gone_on_with(const struct target_request *request, int directory)
{
    size_t length = strlen(request->path);
    bool by_name = request->source_count == 1 && !wishes(request, WISH_LISTED) && length > 0 &&
                   request->path[length - 1] != '/';
    return wishes(request, WISH_RESUME) && request->known == TARGET_UNKNOWN && directory >= 0 &&
           by_name && request->named[0] != 0 && half_mark_is_named(directory, request->named);
}

enum problem_code target_open(const struct target_request *request, struct target *ret_target,
                              char ret_text[TEXT_LENGTH_MAX])
{
    struct target target = {.into = true};
    const char *path = request->path;
    size_t length = strlen(path);
    if (length >= PATH_MAX) {
        return refuse(ENAMETOOLONG, path, NULL, ret_text);
    }
    if (request->confined && has_parent(path)) {
        return refuse(EXDEV, path, walk_error_text(WALK_ERROR_PARENT), ret_text);
    }
    snprintf(target.named, sizeof(target.named), "%s", request->named);
    target.directory = request->known == TARGET_NAME ? -ENOENT : open_directory(request, path);
    bool under_name = request->known == TARGET_NAME || is_gone_on_with(request, target.directory);
    if (under_name && target.directory >= 0) {
        close(target.directory);
        target.directory = -ENOENT;
    }
    if (target.directory >= 0) {
        strcpy(target.display, path);
        target.created = request->known == TARGET_MADE;
        *ret_target = target;
        return PROBLEM_NONE;
    }
    int error = -target.directory;
    if (error != ENOENT && error != ENOTDIR) {
        return refuse(error, path, NULL, ret_text);
    }
    bool directory = !under_name && (request->source_count > 1 || wishes(request, WISH_LISTED) ||
                                     (length > 0 && path[length - 1] == '/'));
    if (directory && error == ENOENT && make_directory(request, &target) == 0) {
        *ret_target = target;
        return PROBLEM_NONE;
    }
    if (directory) {
        return refuse(error, path, missing(request, error), ret_text);
    }
    target.into = false;
    if (!walk_base_name(path, target.name)) {
        return refuse(ENAMETOOLONG, path, NULL, ret_text);
    }
    if (target.name[0] == 0) { /* "new/.": a directory, or nothing */
        return refuse(error, path, missing(request, error), ret_text);
    }
    error = prepare_path(request, path);
    parent_path(path, target.display);
    target.directory = error == 0 ? open_directory(request, target.display) : -error;
    if (target.directory < 0) {
        return refuse(-target.directory, target.display, missing(request, -target.directory),
                      ret_text);
    }
    *ret_target = target;
    return PROBLEM_NONE;
}

enum target_is target_is(const struct target *target)
{
    return !target->into ? TARGET_NAME : target->created ? TARGET_MADE : TARGET_DIRECTORY;
}

void target_close(struct target *target)
{
    if (target->directory >= 0) {
        close(target->directory);
        target->directory = -1;
    }
}
