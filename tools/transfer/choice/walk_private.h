/* What the parts of a walk share: walk.c (what there is) and walk_rules.c (what of it is left out).
 */
#ifndef TOOLS_TRANSFER_WALK_PRIVATE_H
#define TOOLS_TRANSFER_WALK_PRIVATE_H

#include <dirent.h>
#include <limits.h>

#include "tools/transfer/choice/filter_scope.h"
#include "tools/transfer/choice/walk.h"
#include "tools/transfer/wire/listing.h"

struct walk_folder {
    struct walk *walk;
    struct walk_folder *parent; /* held */
    DIR *stream;
    unsigned references;
    size_t path_length; /* of the directory itself */
    bool pruned, left_out;
    bool ours; /* nobody else puts anything into it */
    struct walk_mark mark;
    struct filter_scope *scope;   /* NULL: the filter names no files of rules */
    struct filter_scope *outside; /* of a source; above its scope */
    bool is_listed;               /* only this of it is to come: */
    struct listing_part listed;
};

struct walk {
    struct walk_options options;
    const char *const *sources;
    unsigned source_count, source; /* the next one */
    struct walk_folder *folder;    /* the one it is in; held */
    struct walk_folder *left;      /* by the last step; held */
    unsigned folders;              /* open */
    size_t relative, below;        /* where in the path a step's begin */
    dev_t device;                  /* of the source */
    uint64_t work;
    /* Of the next name, where its directory is listed: */
    char listed_name[256];
    struct listing_part listed_below;
    bool itself;
    char base[256];
    char target[PATH_MAX];
    char why[SCOPE_WHY_LENGTH];
    char path[2 * PATH_MAX];
};

/* Below a server's root every path is relative to the root. */
const char *walk_source_path(const struct walk *walk, unsigned source);
bool walk_excludes(struct walk *walk, const struct walk_step *step);
/* What the files of rules in the directory say that the walk has entered. 0 or a WALK_ERROR, and
 * why in walk->why. */
int walk_read_rules(struct walk *walk, struct walk_folder *folder, const struct walk_step *step);

#endif
