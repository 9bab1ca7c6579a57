/* Which names of a tree are left out, and which of these are not deleted: --exclude, --include and
 * --filter with the pattern language of rsync.
 *
 * Rules are tried in order, the first that matches decides, and what none matches is in. A path is
 * relative to the transfer: it begins with the source's name, or behind a source that ends with a
 * slash. A pattern
 *   with a slash at its end is for directories only;
 *   with a slash at its start is for the whole path;
 *   with a slash elsewhere, or with "**", is for the path's last components;
 *   else for the last component.
 * "?" is any byte but a slash, "*" any of these, "**" any bytes at all, "[...]" a class; "dir/ ***"
 * (without the space) is "dir" and all below it. Holding a path against all rules takes the weight
 * of the rules for each 64 bytes of the path, whoever wrote them (pattern.h): a name of 60 bytes at
 * most 1 ms, a path of 4 KiB at most 0.1 s. */
#ifndef TOOLS_TRANSFER_FILTER_H
#define TOOLS_TRANSFER_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/transfer/wire/protocol.h"

/* Of all patterns together: their length, where a class, "[...]", counts as 64 bytes. */
#define FILTER_WEIGHT_MAX (1u << 20)
#define FILTER_BOUNDS                                                                              \
    "at most 32768 rules, of 1 MiB together, where each [class] counts as 64 bytes"
#define FILTER_MERGES_MAX 16 /* files of rules in each directory */

struct filter;
struct filter_scope; /* what the files of rules in directories say; see filter_scope.h */

struct filter *filter_create(void); /* NULL: no memory */
void filter_destroy(struct filter *filter);
/* `bits` are of enum rule_bits. Behind those that are there; a file of rules in each directory that
 * is there already is not named twice. False: no memory, an empty pattern, one with a NUL, bits
 * that do not go together, or too many. */
bool filter_add(struct filter *filter, unsigned bits, struct span pattern);
/* Forgets them all. */
void filter_clear(struct filter *filter);
unsigned filter_count(const struct filter *filter);
/* What FILTER_RULES_MAX and FILTER_WEIGHT_MAX leave room for. */
bool filter_has_room(const struct filter *filter, struct span pattern);
size_t filter_weight(const struct filter *filter);
/* The memory that a rule takes; at most. */
size_t filter_cost(struct span pattern);
/* What it takes to hold a path of `length` bytes against patterns of `weight`, in nanoseconds or
 * so. */
static inline uint64_t filter_work(size_t weight, size_t length)
{
    return (uint64_t)(length / 64 + 1) * (weight + 1);
}
/* Rule number `index`. */
struct span filter_rule(const struct filter *filter, unsigned index, uint16_t *ret_bits);

/* What it says depends on where the tree is, or on what is in it: each side asks its own. */
bool filter_is_of_place(const struct filter *filter);
/* A rule of its own has RULE_ABSOLUTE, or gives it. */
bool filter_is_absolute(const struct filter *filter);
/* Lines of files of rules in directories end with a byte 0. */
void filter_end_with_zeros(struct filter *filter);

/* A file of rules that each directory may have. */
struct filter_merge {
    unsigned index;   /* among these */
    const char *name; /* without a slash */
    unsigned bits;
    bool above; /* the directories above the transfer may have it, too */
};
unsigned filter_merges(const struct filter *filter);
void filter_merge(const struct filter *filter, unsigned index, struct filter_merge *ret_merge);

/* What is sent: `path` is not empty and begins and ends with no slash. `scope` is that of the
 * directory that it is in; NULL: no directory above it has a file of rules. */
bool filter_excludes(const struct filter *filter, const struct filter_scope *scope,
                     const char *path, bool is_directory);
/* The same for the path or a directory that it is in, but for the `spared` outermost of these,
 * where there are no files of rules. */
bool filter_cuts_off(const struct filter *filter, const char *path, bool is_directory,
                     unsigned spared);

/* What of that which is not sent stays where it is; so does what has too long a path to be asked
 * for. */
struct filter_loss {
    bool delete_excluded; /* so it was wished */
    bool inside;          /* the directory that it is in goes, too */
};
bool filter_protects(const struct filter *filter, const struct filter_scope *scope,
                     const char *path, bool is_directory, struct filter_loss loss);
/* There is a rule that may, or a file may have one. */
bool filter_protects_some(const struct filter *filter, bool delete_excluded);

#endif
