/* Sources whose paths are kept (--relative), or that a file lists (--files-from): what the transfer
 * has is the directory where these paths begin, as its one source, and a list. */
#ifndef TOOLS_CP_LIST_H
#define TOOLS_CP_LIST_H

#include "tools/cp_options.h"
#include "tools/transfer/wire/listing.h"

/* Puts the one source into the place of the first, where the options ask for it, and counts 1 then.
 * The exit status; with EXIT_DONE, cp_list_free frees both. */
int cp_list_take(const struct command *command, struct cp_options *options, char **sources,
                 unsigned *count, struct listing *listing);
/* A source at another host whose last component is a pattern, as a shell there would take it: the
 * directory, as the one source, and a list that has the pattern. False: it is none, or there is no
 * memory. */
struct location;
struct cp_patterns {
    char *base;
    struct listing listing;
};
bool cp_is_pattern(const struct location *where);
bool cp_patterns_take(const struct location *where, struct cp_patterns *ret_patterns);
void cp_patterns_free(struct cp_patterns *patterns);

void cp_list_free(const struct cp_options *options, char **sources, struct listing *listing);

#endif
