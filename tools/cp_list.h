/* Sources whose paths are kept (--relative), or that a file lists (--files-from): what the transfer
 * has is the directory where these paths begin, as its one source, and a list. */
#ifndef TOOLS_CP_LIST_H
#define TOOLS_CP_LIST_H

#include "tools/cp_options.h"
#include "tools/transfer/listing.h"

/* Puts the one source into the place of the first, where the options ask for it, and counts 1 then.
 * The exit status; with EXIT_DONE, cp_list_free frees both. */
int cp_list_take(const struct command *command, const struct cp_options *options, char **sources,
                 unsigned *count, struct listing *listing);
void cp_list_free(const struct cp_options *options, char **sources, struct listing *listing);

#endif
