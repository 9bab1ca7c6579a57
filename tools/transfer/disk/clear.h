/* A directory that makes way for something else: what is in it goes, and somebody hears of it. */
#ifndef TOOLS_TRANSFER_CLEAR_H
#define TOOLS_TRANSFER_CLEAR_H

#include <stdbool.h>
#include <sys/types.h>

struct clearing {
    bool dry;             /* nothing goes */
    bool one_file_system; /* what is mounted there stays */
    void *user;
    /* One more may go; what may not stays, and so do the directories that it is in. */
    bool (*may_go)(void *user);
    /* `path` is below the directory. */
    void (*is_gone)(void *user, const char *path, mode_t mode);
};

/* Removes what is in the directory `name`, and in those in it. 0 or an errno; ENOTEMPTY: something
 * had to stay. */
int clear_below(int directory, const char *name, const struct clearing *clearing);
/* The same, and then the directory itself. `clearing` may be NULL. */
int clear_away(int directory, const char *name, const struct clearing *clearing);

/* As unlinkat, 0 or an errno. A directory of ours that we may not write to is lent the owner's
 * rights first, and `lent`, which is 0 before, its mode until clear_give_back. */
int clear_unlink(int directory, const char *name, int flags, mode_t *lent);
/* Has its old mode again, where it was lent anything. */
void clear_give_back(int directory, mode_t *lent);

#endif
