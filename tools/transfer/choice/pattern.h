/* One pattern of rsync's language (see filter.h), and what it matches.
 *
 * Here: reading it, and holding it against a path. Each of its tokens is held against all positions
 * of the path at once, 64 to a word, and so no pattern takes longer than its weight times the words
 * of the path, whoever wrote them. Not here: which of several patterns decides (filter.h). */
#ifndef TOOLS_TRANSFER_PATTERN_H
#define TOOLS_TRANSFER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

struct token;
struct byte_set;

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
    struct byte_set *classes; /* of those tokens that are one */
};

/* False: no memory; pattern_clear is to be called even then. */
bool pattern_make(struct span text, struct pattern *ret_pattern);
void pattern_clear(struct pattern *pattern);
/* What it costs to hold it against 64 positions: its length, and for each class, which is held
 * against one position after the other, as much as for 64 bytes. */
#define CLASS_WEIGHT 64
size_t pattern_weight(struct span text);
/* The memory that it takes, at most. */
size_t pattern_cost(struct span text);

/* A path, and one that leads to it. */
#define PATTERN_TEXT_MAX      (2 * PATH_LENGTH_MAX + 4)
#define PATTERN_WORDS_MAX     ((PATTERN_TEXT_MAX + 2) / 64 + 1)
#define PATTERN_WORDS(length) (((length) + 2) / 64 + 1)

/* A path to hold patterns against. Large: what is not needed of it is not touched. */
struct pattern_text {
    size_t length;
    size_t name;  /* where its last component begins in `bytes` */
    bool is_read; /* what is below is made when the first pattern with wildcards comes */
    size_t words;
    uint16_t rows[256];                     /* where each byte has its row; 0: it is not there */
    uint64_t starts[PATTERN_WORDS_MAX];     /* of components */
    uint64_t names[PATTERN_WORDS_MAX];      /* bytes that are no slashes */
    uint64_t bits[256 * PATTERN_WORDS_MAX]; /* the rows: at which positions the byte is */
    char bytes[PATTERN_TEXT_MAX + 3];       /* with a slash before and behind it, and a NUL */
};

/* `above` may be NULL, else a slash stands between the two. False: too long. */
bool pattern_text_make(const char *above, const char *path, struct pattern_text *ret_text);

/* A pattern with a slash at its start begins behind so many components of the path. */
bool pattern_matches(const struct pattern *pattern, unsigned depth, struct pattern_text *text,
                     bool is_directory);

/* The beginnings of a path, each up to one of its slashes, which are directories, and the path. */
struct prefixes {
    unsigned count;
    uint16_t ends[PATH_LENGTH_MAX + 1];
};
void pattern_find_prefixes(const char *path, struct prefixes *ret_prefixes);
/* pattern_matches of each, in the time that one of them takes. */
void pattern_match_prefixes(const struct pattern *pattern, struct pattern_text *text,
                            bool is_directory, const struct prefixes *prefixes, bool *ret_matches);

#endif
