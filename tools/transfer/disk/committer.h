/* Gives files that are not large their attributes and names, by two: its owner's thread, which
 * writes the next ones meanwhile and helps where it would wait, and one of its own.
 *
 * Here: the thread, and who takes which file. Not here: what becomes of a file (place.h), nor what
 * is said of it.
 * Bounded: COMMITTER_ROOM files, each with a descriptor. They may get their names in any order, and
 * are taken back in the order they were given. One thread uses a committer. */
#ifndef TOOLS_TRANSFER_COMMITTER_H
#define TOOLS_TRANSFER_COMMITTER_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/transfer/disk/attributes.h"
#include "tools/transfer/disk/place.h"

#define COMMITTER_ROOM 64

struct committer;

/* A file that is written and proven. */
struct commit {
    struct place place;
    uint64_t length;
    struct attributes attributes; /* but for its xattrs: */
    struct xattrs xattrs;         /* to be cleared by who takes it back */
    uint32_t id;                  /* these are their owner's */
    uint32_t names;
    uint32_t changes;
    int error; /* result, as place_commit's */
};

/* NULL: no memory. Where there is no thread to be had, the owner does everything. */
struct committer *committer_create(void);
/* Everything must have been taken back. NULL is fine. */
void committer_destroy(struct committer *committer);
bool committer_is_full(const struct committer *committer);
/* Nothing is to be taken back. */
bool committer_is_empty(const struct committer *committer);
/* There must be room; what is given is the committer's until it is taken back. */
void committer_give(struct committer *committer, const struct commit *commit);
/* The oldest one, if it is done. */
bool committer_take(struct committer *committer, struct commit *ret_commit);
/* The owner goes elsewhere: what was given does not wait for more. */
void committer_urge(struct committer *committer);
/* The owner does the oldest one that nobody has begun, or waits until one is done where all are
 * begun. There must be one that is not done, or not taken back. */
void committer_help(struct committer *committer);

#endif
