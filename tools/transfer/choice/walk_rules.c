#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/transfer/choice/walk_private.h"

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

bool walk_excludes(struct walk *walk, const struct walk_step *step)
{
    const struct filter *filter = walk->options.filter;
    const struct filter_scope *scope = step->folder != NULL ? step->folder->scope : NULL;
    if (filter == NULL || walk->options.sees_all || step->relative[0] == 0) {
        return false;
    }
    count_work(walk, scope, step->relative);
    return filter_excludes(filter, scope, step->relative, S_ISDIR(step->status.st_mode));
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
    if (filter == NULL || filter_merges(filter) == 0 || path == NULL) {
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
