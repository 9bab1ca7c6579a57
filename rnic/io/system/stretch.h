/* What the kernel says of this process's address space: of one stretch, a line of /proc/self/maps,
 * at a time. Allocates nothing, takes no lock, touches nothing but what it is given. */
#ifndef WEIR_IO_STRETCH_H
#define WEIR_IO_STRETCH_H

#include <stdbool.h>
#include <stdint.h>

struct stretch {
    uintptr_t start, end;
    int protection;        /* PROT_ */
    bool plain;            /* private memory of no file: malloc's, mmap's, none of a stack's */
    uint64_t inode;        /* of the file, or 0 */
    uint64_t offset;       /* of `start` in it */
    uint32_t major, minor; /* the file's device */
};

/* For stretch_at; -1: cannot be had here (before Linux 6.11, without /proc). A forked child needs
 * its own. */
int stretch_open(void);
/* The stretch at an address, or else the next one. False: there is none. */
bool stretch_at(int stretches, uintptr_t address, struct stretch *ret_stretch);

#endif
