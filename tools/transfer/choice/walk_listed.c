#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/walk_private.h"
#include "tools/transfer/disk/confine.h"

const char *walk_next_listed(struct walk *walk)
{
    struct walk_folder *folder = walk->folder;
    bool more = !walk_is_cut_off(folder) &&
                listing_next(walk->options.listing, &folder->way.listed, walk->listed_name,
                             &walk->listed_below, &walk->itself);
    return more ? walk->listed_name : NULL;
}

void walk_look_up(struct walk *walk, const char *name)
{
    const struct listing *listing = walk->options.listing;
    walk->itself = true;
    if (listing != NULL) {
        walk->listed_below = listing_find(listing, &walk->folder->way.listed, name);
    }
}

bool walk_leads_on(const struct walk *walk, const struct walk_step *step)
{
    const struct listing *listing = walk->options.listing;
    return listing != NULL && step->folder != NULL && listing_goes_on(listing, &walk->listed_below);
}

bool walk_find_way(const struct walk *walk, const struct walk_step *step, bool excluded,
                   struct walk_way *ret_way)
{
    const struct walk_options *options = &walk->options;
    const struct listing *listing = options->listing;
    *ret_way = (struct walk_way){.is_listed = false};
    if (listing == NULL) {
        return options->recursive;
    }
    bool is_source = step->folder == NULL;
    ret_way->listed = is_source ? listing_all(listing) : walk->listed_below;
    bool itself = is_source ? listing_holds(listing, "", false) : walk->itself && !excluded;
    bool whole = itself && (options->recursive || listing_opens(listing, &ret_way->listed));
    ret_way->is_listed = !whole;
    bool refused = itself && !options->recursive && options->no_folders;
    ret_way->waits = !is_source && (!itself || refused);
    ret_way->is_checked =
        !is_source && (step->folder->way.is_checked || !step->folder->way.is_listed);
    if (whole && !ret_way->is_checked) {
        ret_way->unchecked = ret_way->listed;
    }
    return !refused || listing_goes_on(listing, &ret_way->listed);
}

void walk_expect_nothing_below(struct walk *walk, const struct walk_step *step)
{
    struct walk_way *way = &walk->folder->way;
    if (way->is_listed && !way->is_checked && !S_ISDIR(step->status.st_mode) &&
        walk_leads_on(walk, step)) {
        way->unchecked = walk->listed_below;
        way->unchecked.depth = way->listed.depth;
    }
}

/* What the path that the list has is below the folder, or "." */
static const char *path_in(const struct listing_part *part, const char *path)
{
    bool below = strlen(path) > part->depth && path[part->depth] != '/';
    return below ? path + part->depth : ".";
}

bool walk_check_listed(struct walk *walk, struct walk_step *step)
{
    struct walk_folder *folder = walk->folder;
    struct listing_part *part = &folder->way.unchecked;
    if (part->first == part->end || walk_is_cut_off(folder)) {
        return false;
    }
    const char *path = path_in(part, walk->options.listing->paths[part->first++]);
    step->kind = WALK_EXCLUDED;
    step->folder = folder;
    int fd =
        confine_open(walk_folder_fd(folder), path, O_PATH | O_NOFOLLOW, 0, CONFINE_NO_SYMLINKS);
    if (fd >= 0) {
        close(fd);
    } else if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP) { /* all else the walk meets */
        char *end = walk->path + folder->path_length;
        *end = '/';
        strcpy(end + (end[-1] != '/'), path);
        step->name = "";
        walk_tell_paths(walk, step);
        walk_fail(step, -fd);
    }
    return true;
}

static bool is_told(const struct walk_step *step)
{
    return step->kind == WALK_FAILED && step->folder != NULL && step->folder->way.is_listed &&
           step->folder->way.is_checked && (step->error == ENOENT || step->error == ENOTDIR);
}

static bool comes(enum walk_kind kind)
{
    return kind == WALK_FILE || kind == WALK_DIRECTORY || kind == WALK_SYMLINK ||
           kind == WALK_SPECIAL;
}

void walk_tell_in_turn(struct walk *walk, struct walk_step *step)
{
    bool is_folder = step->kind == WALK_DIRECTORY || step->kind == WALK_LEAVE;
    if ((is_folder && step->inside->way.waits) || is_told(step)) {
        step->kind = WALK_EXCLUDED;
    } else if (comes(step->kind) && step->folder != NULL && step->folder->way.waits) {
        walk->held = *step;
        walk_tell_next(walk, step);
    }
}

/* The step has been held back, so its path stands there, but for the end that was cut off. */
void walk_tell_next(struct walk *walk, struct walk_step *step)
{
    struct walk_folder *next = walk->held.folder;
    if (next != NULL && !next->way.waits) {
        next = NULL;
    }
    while (next != NULL && next->parent != NULL && next->parent->way.waits) {
        next = next->parent;
    }
    if (walk->held_at > 0) {
        walk->path[walk->held_at] = '/';
        walk->held_at = 0;
    }
    if (next == NULL) {
        *step = walk->held;
        walk->held.kind = WALK_END;
        return;
    }
    walk->held_at = next->path_length;
    walk->path[walk->held_at] = 0;
    next->way.waits = false;
    *step = (struct walk_step){.kind = WALK_DIRECTORY,
                               .source = walk->held.source,
                               .name = strrchr(walk->path, '/') + 1,
                               .folder = next->parent,
                               .inside = next,
                               .status = next->status};
    walk_tell_paths(walk, step);
}
