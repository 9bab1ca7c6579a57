/* Where a transfer writes: an existing directory, or one name that is new in it. */
#ifndef TOOLS_TRANSFER_TARGET_H
#define TOOLS_TRANSFER_TARGET_H

#include <limits.h>
#include <stdbool.h>

#include "tools/transfer/wire/protocol.h"

struct target {
    int directory; /* open; -1: none, or in a dry run one that would be made */
    bool created;  /* there was none before */
    bool into;     /* sources keep their names in it; else the one source is called `name` */
    char name[256];
    char named[256];        /* the one source's own name; "": it has none, or there are more */
    char display[PATH_MAX]; /* the directory, as the user would write it */
};

struct target_request {
    int root; /* borrowed */
    bool confined;
    const char *path;
    size_t root_name; /* octets of the path that have named the root */
    unsigned source_count;
    /* Of enum wish: LISTED (the one source is where a list begins: it goes into a directory),
     * MAKE_PATH (a directory that has to be one is made; those that lead there are), DRY_RUN (but
     * not now), FSYNC (what is made is on stable storage then), RESUME (what an interrupted copy
     * has made under the one name is gone on with). */
    uint32_t wishes;
    const char *named;    /* see target */
    enum target_is known; /* what it was found to be on an earlier connection of this copy */
};

/* PROBLEM_NONE, or why not, with a sentence into `ret_text`, which names the path. */
enum problem_code target_open(const struct target_request *request, struct target *ret_target,
                              char ret_text[TEXT_LENGTH_MAX]);
/* What it was found to be. */
enum target_is target_is(const struct target *target);
void target_close(struct target *target);

#endif
