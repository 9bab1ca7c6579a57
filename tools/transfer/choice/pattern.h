/* One pattern of rsync's language (see filter.h), and what it matches.
 *
 * Here: reading it, and holding it against a path in the time of the product of the two lengths,
 * whoever wrote them. Not here: which of several patterns decides (filter.h). */
#ifndef TOOLS_TRANSFER_PATTERN_H
#define TOOLS_TRANSFER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

struct token;

/* Against what it is held. */
enum reach {
    REACH_NAME,  /* the last component */
    REACH_PATH,  /* the whole path */
    REACH_TAIL,  /* as many components as the pattern has */
    REACH_AFTER, /* the path, or what follows any of its slashes */
};

struct pattern {
    bool directories_only, wild;
    bool anchored;                   /* REACH_PATH because of a slash at its start */
    bool slash_before, slash_behind; /* of a path, of a directory: for a leading or trailing "**" */
    enum reach reach;
    unsigned slashes;
    char *text; /* without the slashes at its ends */
    struct token *tokens;
    unsigned count; /* of tokens; of these are slashes: */
    unsigned slash_tokens;
};

/* False: no memory; pattern_clear is to be called even then. */
bool pattern_make(struct span text, struct pattern *ret_pattern);
void pattern_clear(struct pattern *pattern);

/* Where one begins that has a slash at its start: */
struct pattern_root {
    const char *outside; /* so far above the path, or NULL */
    unsigned depth;      /* or behind so many of its components */
};

/* `path` is in a buffer with a slash before it and room for one behind it. `root` may be NULL. */
bool pattern_matches(const struct pattern *pattern, const struct pattern_root *root, char *path,
                     bool is_directory);

/* The beginnings of a path, each up to one of its slashes, which are directories, and the path. */
struct prefixes {
    unsigned count;
    uint16_t ends[PATH_LENGTH_MAX + 1];
};
void pattern_find_prefixes(const char *path, struct prefixes *ret_prefixes);
/* pattern_matches of each, in the time that one of them takes. */
void pattern_match_prefixes(const struct pattern *pattern, char *path, bool is_directory,
                            const struct prefixes *prefixes, bool *ret_matches);

#endif
