/* Which names are names of one file: a sender knows a file that it has sent by device, inode and
 * birth, a receiver finds one that it has placed by the number of its entry.
 *
 * Bounded: both keep HARD_LINKS_MAX files whose names have not all come, and of their paths
 * HARD_LINKS_LENGTH_MAX bytes, and forget a file with its last name. A sender counts what the
 * receiver keeps, so that it says no name to be another one's that the receiver has not. */
#ifndef TOOLS_TRANSFER_HARD_LINKS_H
#define TOOLS_TRANSFER_HARD_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tools/transfer/disk/birth.h"

#define HARD_LINKS_MAX        (1u << 18)
#define HARD_LINKS_LENGTH_MAX (32u << 20)

struct hard_links {
    void *tree;
    unsigned count;
    size_t length; /* of the paths, without the source's own name, which may be another there */
};

void hard_links_clear(struct hard_links *links);

/* Sender: the entry that was the file's first name, or 0; one name less is left then. */
uint32_t hard_links_first(struct hard_links *links, const struct stat *status,
                          const struct birth *birth);
/* Sender: entry `id` is the file's first name, at `path`, which begins with the source's. */
void hard_links_sent(struct hard_links *links, const struct stat *status, const struct birth *birth,
                     uint32_t id, const char *path);
/* Sender: that entry was thrown away. */
void hard_links_withdraw(struct hard_links *links, const struct stat *status,
                         const struct birth *birth);
/* Sender: entry `id`, whatever it is, was not placed: it is no file's first name. */
void hard_links_refused(struct hard_links *links, uint32_t id);

/* Receiver: entry `id`, of `names` names, is the file at `path` below `top`. */
void hard_links_placed(struct hard_links *links, uint32_t id, uint32_t names, int top,
                       const char *path);
/* Receiver: a descriptor of O_PATH of that very file, or -errno; one name less is left then. */
int hard_links_open(struct hard_links *links, uint32_t id, int top);
/* Receiver: one name less is left of that file, which nothing is to be made of. */
void hard_links_pass(struct hard_links *links, uint32_t id);

#endif
