/* The directories that a receiver is in, and the path of what it is at, for people.
 *
 * A directory is made closed to others and gets its mode and time when it is left, after its
 * contents. It is held open, and reached through no symbolic link. */
#ifndef TOOLS_TRANSFER_TREE_H
#define TOOLS_TRANSFER_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "tools/transfer/protocol.h"

struct tree_level;

struct tree {
    int top; /* borrowed */
    struct tree_level *levels;
    unsigned depth, capacity;
    size_t path_length; /* of the directory it is in; path may go on with an entry's name */
    char path[PATH_MAX + NAME_LENGTH_MAX + 2];
};

struct tree_attributes {
    bool force; /* also for a directory that was there, but never for the target itself */
    bool fsync;
    mode_t mode;
    struct timespec mtime;
};

void tree_init(struct tree *tree, int top, const char *display);
void tree_fini(struct tree *tree);
/* The directory that entries are made in now. */
int tree_directory(const struct tree *tree);
/* tree->path names an entry of the directory, until tree_forget. */
void tree_name(struct tree *tree, const char *name);
void tree_forget(struct tree *tree);
/* Makes or finds the directory `name`, which tree_name has just named, and enters it; "" is the
 * directory itself. 0 or an errno. */
int tree_enter(struct tree *tree, const char *name, uint32_t id,
               const struct tree_attributes *attributes);
/* 0 or an errno; left in any case, with the path still naming it until tree_forget. */
int tree_leave(struct tree *tree, uint32_t *ret_id);

#endif
