/* The directories that a receiver is in, and the path of what it is at, for people.
 *
 * A directory is made closed to others and gets its attributes when it is left, after its
 * contents. It is held open, and reached through no symbolic link. */
#ifndef TOOLS_TRANSFER_TREE_H
#define TOOLS_TRANSFER_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/transfer/disk/attributes.h"

struct tree_level;

struct tree_place {
    dev_t device;
    ino_t inode;
};

/* Directories that were swept of what killed copies left are not swept again, as long as they are
 * among the last so many: a peer may enter one that has a million names as often as it likes. */
#define TREE_SWEPT 256

struct tree {
    int top; /* borrowed; -1: a directory that is not there, see tree_entry.dry */
    struct tree_level *levels;
    unsigned depth, capacity;
    bool tells_at_once;      /* the top, see place_tells_at_once */
    struct tree_mode *modes; /* to be set at the end */
    unsigned mode_count;
    struct tree_place swept[TREE_SWEPT]; /* a ring */
    unsigned swept_count;
    size_t held;           /* of extended attributes that are to be given when it is left */
    size_t display_length; /* of the path of the top */
    size_t path_length;    /* of the directory it is in; path may go on with an entry's name */
    char path[PATH_MAX + NAME_LENGTH_MAX + 2];
};

#define TREE_MODES_MAX 65536
/* Of extended attributes of the directories that it is in; of one alone there may be as many. */
#define TREE_HELD_MAX ((size_t)4 << 20)

/* How a directory is entered. */
struct tree_entry {
    bool keep_target; /* the target itself has its attributes kept as they are */
    bool dry;         /* nothing is made: what is not there is entered all the same, as -1 */
    bool revisited;   /* files in it are looked for again: it stays searchable until tree_finish */
    struct attributes attributes; /* but for its xattrs: */
    struct xattrs xattrs;         /* taken over, whatever comes out */
    uint32_t changes;             /* result: bits of enum change */
};

void tree_init(struct tree *tree, int top, const char *display);
void tree_fini(struct tree *tree);
/* The directory that entries are made in now, or -1. */
int tree_directory(const struct tree *tree);
/* See place_tells_at_once: that of this directory. */
bool tree_tells_at_once(const struct tree *tree);
/* The directory has been made by tree_enter, and is looked into by nobody else yet. */
bool tree_is_new(const struct tree *tree);
/* tree->path names an entry of the directory, until tree_forget. */
void tree_name(struct tree *tree, const char *name);
void tree_forget(struct tree *tree);
/* Makes or finds the directory `name`, which tree_name has just named, and enters it; "" is the
 * directory itself. 0 or an errno; ENOBUFS: see TREE_HELD_MAX. */
int tree_enter(struct tree *tree, const char *name, uint32_t id, struct tree_entry *entry);
/* 0 or an errno; left in any case, with the path still naming it until tree_forget. */
int tree_leave(struct tree *tree, uint32_t *ret_id);
/* The path of what tree->path names, below the top. */
const char *tree_relative(const struct tree *tree);
/* Takes the search permission that was lent to directories. 0 or an errno. */
int tree_finish(struct tree *tree);

#endif
