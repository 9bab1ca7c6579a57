/* What the parts of a walk share: walk.c (what there is), walk_rules.c (what of it is left out) and
 * walk_listed.c (what of it a list wants). */
#ifndef TOOLS_TRANSFER_WALK_PRIVATE_H
#define TOOLS_TRANSFER_WALK_PRIVATE_H

#include <dirent.h>
#include <limits.h>

#include "tools/transfer/choice/filter_scope.h"
#include "tools/transfer/choice/walk.h"
#include "tools/transfer/wire/listing.h"

/* How a directory comes where there is a list. */
struct walk_way {
    bool is_listed;             /* of what is in it only what the list names, */
    bool waits;                 /* and itself only before the first of that: it has not been told */
    struct listing_part listed; /* what the list names in it; where `is_listed`, what is left */
    struct listing_part unchecked; /* of that, where it comes with all that is in it */
    bool is_checked;               /* what of it is not there has been told */
};

struct walk_folder {
    struct walk *walk;
    struct walk_folder *parent; /* held */
    DIR *stream;
    unsigned references;
    size_t path_length; /* of the directory itself */
    bool pruned, left_out;
    bool broke_off; /* its names could not all be had, which is said */
    bool ours;      /* nobody else puts anything into it */
    struct walk_mark mark;
    struct filter_scope *scope;   /* NULL: the filter names no files of rules */
    struct filter_scope *outside; /* of a source; above its scope */
    dev_t device;                 /* of which what is in it is to be */
    struct stat status;
    struct walk_way way;
};

struct walk {
    struct walk_options options;
    const char *const *sources;
    unsigned source_count, source; /* the next one */
    struct walk_folder *folder;    /* the one it is in; held */
    struct walk_folder *left;      /* by the last step; held */
    unsigned folders;              /* open */
    size_t relative, below;        /* where in the path a step's begin */
    uint64_t work;
    /* Of the next name: */
    char listed_name[256];
    struct listing_part listed_below; /* what the list names below it */
    bool itself;                      /* it is in the list, not only that */
    size_t held_at;                   /* where its path was cut off; 0: nowhere */
    struct walk_step held; /* before which directories are to be told that wait; else WALK_END */
    char base[256];
    char target[PATH_MAX];
    char why[SCOPE_WHY_LENGTH];
    char path[2 * PATH_MAX];
};

/* The path as it stands, and its parts. */
void walk_tell_paths(const struct walk *walk, struct walk_step *step);
void walk_fail(struct walk_step *step, int error);
/* Nothing more of the directory is to come. */
bool walk_is_cut_off(const struct walk_folder *folder);
/* Below a server's root every path is relative to the root. */
const char *walk_source_path(const struct walk *walk, unsigned source);
bool walk_excludes(struct walk *walk, const struct walk_step *step);
/* What the files of rules in the directory say that the walk has entered. 0 or a WALK_ERROR, and
 * why in walk->why. */
int walk_read_rules(struct walk *walk, struct walk_folder *folder, const struct walk_step *step);

/* walk_listed.c */
/* The directory's next name in the list; NULL: there is none. */
const char *walk_next_listed(struct walk *walk);
/* One that it has, by whatever way that is known. */
void walk_look_up(struct walk *walk, const char *name);
/* The list has something below the step, which may be left out itself. */
bool walk_leads_on(const struct walk *walk, const struct walk_step *step);
/* Of a directory, which may be left out but for that. False: nothing of it would come. */
bool walk_find_way(const struct walk *walk, const struct walk_step *step, bool excluded,
                   struct walk_way *ret_way);
/* What the list names below what is no directory is not there. */
void walk_expect_nothing_below(struct walk *walk, const struct walk_step *step);
/* That is told, and what is not there of a directory that comes as a whole. True: the step says
 * that, or nothing. */
bool walk_check_listed(struct walk *walk, struct walk_step *step);
/* A directory on the way is told with the first that comes of it: `step` may become another, and
 * come later. */
void walk_tell_in_turn(struct walk *walk, struct walk_step *step);
/* The next of these, or what they were told for. */
void walk_tell_next(struct walk *walk, struct walk_step *step);

#endif
