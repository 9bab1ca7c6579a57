/* Files of rules in directories: what they say of what is in a directory and below it.
 *
 * Here: reading and keeping them. Not here: which rule decides (filter.h). Whoever made the tree
 * wrote them and is not trusted: no symbolic link is followed, nothing but a plain file is read,
 * and on a way from the top to a directory there are at most FILTER_RULES_MAX rules, of no more
 * than FILTER_WEIGHT_MAX, in files of SCOPE_LENGTH_MAX bytes together. Who cannot have all of a
 * directory's rules has none of it: what they were to keep back is not known. */
#ifndef TOOLS_TRANSFER_FILTER_SCOPE_H
#define TOOLS_TRANSFER_FILTER_SCOPE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/choice/filter_rule.h"

#define SCOPE_LENGTH_MAX (256u << 10)
#define SCOPE_WHY_LENGTH (FILTER_WHY_LENGTH + 300)

/* Of one file of rules. */
struct scope_list {
    struct filter *rules; /* NULL: none */
    bool cleared;         /* those of the directories above do not count */
};

/* Of one directory. */
struct filter_scope {
    const struct filter_scope *above; /* borrowed */
    unsigned depth; /* components of the directory's path; a pattern from the root begins behind */
    const char *place; /* that the transfer's paths begin in, from the root on; NULL: not known */
    char *own_place;   /* the same, of the outermost one, from which it is borrowed */
    char *outside;     /* or, above the transfer: what leads from here to where its paths begin */
    /* With those above: */
    unsigned rules;
    size_t weight; /* of these */
    size_t length; /* of the files */
    unsigned count;
    struct scope_list lists[]; /* by the filter's files of rules */
};

/* Reads the files that `filter` names in `directory`, which may be one of O_PATH. 0, or an errno
 * and why. */
int filter_scope_read(const struct filter *filter, const struct filter_scope *above, int directory,
                      unsigned depth, struct filter_scope **ret_scope,
                      char ret_why[SCOPE_WHY_LENGTH]);
/* What is outermost of a source: where its paths begin, below `root` or, where that is AT_FDCWD, in
 * the system's; they begin in `directory`, or at its name (`named`). NULL where the filter does not
 * ask for it. */
int filter_scope_place(const struct filter *filter, int root, int directory, bool named,
                       struct filter_scope **ret_scope, char ret_why[SCOPE_WHY_LENGTH]);
/* That which has been made so, above this one. */
const struct filter_scope *filter_scope_outermost(const struct filter_scope *scope);
/* The same, and the files of the directories above `directory`, from the root on, for those files
 * whose name begins with a slash; the transfer's paths begin in `directory`, or at its name
 * (`named`). */
int filter_scope_read_outside(const struct filter *filter, int root, int directory, bool named,
                              struct filter_scope **ret_scope, char ret_why[SCOPE_WHY_LENGTH]);
void filter_scope_free(struct filter_scope *scope);
/* And those above it, up to but without `end`. */
void filter_scope_free_up(struct filter_scope *scope, const struct filter_scope *end);

#endif
