#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/walk_private.h"
#include "tools/transfer/disk/confine.h"

/* The path as the filter knows it: NULL where that is too long. */
static const char *filter_path(const struct walk *walk, const struct walk_step *step,
                               char buffer[2 * PATH_MAX])
{
    if (walk->options.filter_names == NULL) {
        return step->relative;
    }
    const char *name = walk->options.filter_names[step->source];
    name = name != NULL ? name : "";
    bool slash = name[0] != 0 && step->below[0] != 0;
    int length =
        snprintf(buffer, (size_t)2 * PATH_MAX, "%s%s%s", name, slash ? "/" : "", step->below);
    return length < 2 * PATH_MAX ? buffer : NULL;
}

static void count_work(struct walk *walk, const struct filter_scope *scope, const char *path)
{
    size_t weight = filter_weight(walk->options.filter) + (scope != NULL ? scope->weight : 0);
    walk->work += filter_work(weight, strlen(path));
}

static int open_parent(const struct walk *walk, unsigned source)
{
    const char *path = walk_source_path(walk, source), *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char parent[PATH_MAX] = ".";
    if (length > 0) { /* it is shorter than a path may be */
        memcpy(parent, path, length);
        parent[length] = 0;
    }
    return confine_open(walk->options.root, parent, O_PATH | O_DIRECTORY, 0,
                        walk->options.confined ? CONFINE_BENEATH : CONFINE_NOT);
}

/* A source itself, which is in no directory of the walk. */
static bool excludes_source(struct walk *walk, const struct walk_step *step, bool is_directory)
{
    const struct filter *filter = walk->options.filter;
    struct filter_scope *scope = NULL;
    int parent = open_parent(walk, step->source);
    int error = parent < 0 ? -parent
                           : filter_scope_place(filter, walk->options.rules_root, parent, false,
                                                &scope, walk->why);
    if (parent >= 0) {
        close(parent);
    }
    /* where it is not known where it is, it is left out like a directory whose rules are not */
    bool out = error != 0 || filter_excludes(filter, scope, step->relative, is_directory);
    filter_scope_free(scope);
    return out;
}

/* As with rsync, no rule is for a directory that is only on the way to what a list names. */
static bool is_on_the_way(const struct walk *walk, const struct walk_step *step)
{
    return step->folder != NULL && step->folder->way.is_listed && !walk->itself &&
           S_ISDIR(step->status.st_mode);
}

bool walk_excludes(struct walk *walk, const struct walk_step *step)
{
    const struct filter *filter = walk->options.filter;
    bool is_directory = S_ISDIR(step->status.st_mode);
    if (filter == NULL || walk->options.sees_all || step->relative[0] == 0 ||
        is_on_the_way(walk, step)) {
        return false;
    }
    if (step->folder == NULL && filter_is_absolute(filter)) {
        return excludes_source(walk, step, is_directory);
    }
    const struct filter_scope *scope = step->folder != NULL ? step->folder->scope : NULL;
    count_work(walk, scope, step->relative);
    return filter_excludes(filter, scope, step->relative, is_directory);
}

bool walk_protects(struct walk *walk, const struct walk_step *step, const struct filter_loss *loss)
{
    char buffer[2 * PATH_MAX];
    const char *path = filter_path(walk, step, buffer);
    const struct walk_folder *folder = step->kind == WALK_LEAVE ? NULL : step->folder;
    if (folder == NULL || walk->options.filter == NULL || path == NULL) {
        return folder != NULL && walk->options.filter != NULL;
    }
    count_work(walk, folder->scope, path);
    return filter_protects(walk->options.filter, folder->scope, path, S_ISDIR(step->status.st_mode),
                           *loss);
}

int walk_read_rules(struct walk *walk, struct walk_folder *folder, const struct walk_step *step)
{
    const struct filter *filter = walk->options.filter;
    const struct filter_scope *above = folder->parent != NULL ? folder->parent->scope : NULL;
    char buffer[2 * PATH_MAX];
    const char *path = filter_path(walk, step, buffer);
    unsigned depth = 0;
    int error = 0;
    if (filter == NULL || !filter_is_of_place(filter) || path == NULL) {
        return 0;
    }
    if (folder->parent == NULL) {
        error = filter_scope_read_outside(filter, walk->options.rules_root, dirfd(folder->stream),
                                          path[0] != 0, &folder->outside, walk->why);
        above = folder->outside;
        depth = path[0] != 0;
    } else {
        depth = above->depth + 1;
    }
    if (error == 0) {
        error = filter_scope_read(filter, above, dirfd(folder->stream), depth, &folder->scope,
                                  walk->why);
    }
    return error != 0 ? WALK_ERROR_RULES : 0;
}
