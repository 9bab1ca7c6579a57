/* Patterns in a list become the names that are there, as a shell would have it.
 *
 * Here: glob(3), by a side whose client may see all files. Not here: rules about what is left out
 * (filter.h). */
#ifndef TOOLS_TRANSFER_EXPAND_H
#define TOOLS_TRANSFER_EXPAND_H

#include <stdbool.h>

#include "tools/transfer/wire/listing.h"

/* The path has "*", "?" or "[" in its last component; in the others they stand for themselves. */
bool expand_is_pattern(const char *path);

/* Each pattern of the list is one of names in `base`, a path that ends with a slash. One that is a
 * name itself, or that nothing matches, stays. `directories`: also these, else
 * neither they nor links to them. False: no memory, or more
 * than a list takes. */
bool expand(struct listing *listing, const char *base, bool directories);
/* The path is a name that a pattern of the list may stand for or, with `recursive`, below one. */
bool expand_may_give(const struct listing *listing, const char *path, bool recursive);

#endif
