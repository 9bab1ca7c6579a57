/* What sysfs and /dev would show of our devices, written as a folder of plain files and links.
 *
 * Every value is asked of libibverbs, so it is the one that programs get through the API, and no
 * fact has a second home here; only its spelling in sysfs is (rnic/verbs knows none of it). The
 * tree is a picture of the moment: addresses that come later are not in it. Counters are not in it
 * either: a file cannot count. */
#ifndef WEIR_PATHS_TREE_H
#define WEIR_PATHS_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct tree {
    char root[PATH_MAX]; /* "": nothing is written, the digest alone is computed */
    uint64_t digest;     /* of every path and every value: equal pictures, equal digests */
    int error;           /* the first errno; 0 while all is well */
    char culprit[256];   /* what it was about */
};

/* `root` is an empty folder, or "". */
void tree_begin(struct tree *tree, const char *root);
/* All devices of ibv_get_device_list. False: tree->error and tree->culprit say why. */
bool tree_describe(struct tree *tree);

#endif
