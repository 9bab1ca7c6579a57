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
 * (without the space) is "dir" and all below it. Matching takes time in the product of the
 * lengths, whoever wrote the pattern. */
#ifndef TOOLS_TRANSFER_FILTER_H
#define TOOLS_TRANSFER_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/transfer/protocol.h"

#define FILTER_LENGTH_MAX (64u << 10) /* of all patterns together */

struct filter;

struct filter *filter_create(void); /* NULL: no memory */
void filter_destroy(struct filter *filter);
/* `bits` are of enum rule_bits. Behind those that are there. False: no memory, an empty pattern,
 * one with a NUL, or too many. */
bool filter_add(struct filter *filter, unsigned bits, struct span pattern);
/* Forgets them all. */
void filter_clear(struct filter *filter);
unsigned filter_count(const struct filter *filter);
/* Rule number `index`. */
struct span filter_rule(const struct filter *filter, unsigned index, uint8_t *ret_bits);

/* What is sent: `path` is not empty and begins and ends with no slash. */
bool filter_excludes(const struct filter *filter, const char *path, bool is_directory);
/* The same for the path or a directory that it is in. */
bool filter_cuts_off(const struct filter *filter, const char *path, bool is_directory);

/* What of that which is not sent stays where it is. */
struct filter_loss {
    bool delete_excluded; /* so it was wished */
    bool inside;          /* the directory that it is in goes, too */
};
bool filter_protects(const struct filter *filter, const char *path, bool is_directory,
                     struct filter_loss loss);
/* There is a rule that may. */
bool filter_protects_some(const struct filter *filter, bool delete_excluded);

#endif
