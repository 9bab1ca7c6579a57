/* Which pages of private memory have a content: were touched ever, be they in memory or swapped. */
#ifndef WEIR_IO_PRESENT_H
#define WEIR_IO_PRESENT_H

#include <stdbool.h>
#include <stdint.h>

struct present_run {
    uint8_t *bytes;
    uint64_t length;
};

/* For present_next; -1: cannot be had here (before Linux 6.7, without /proc). A forked child needs
 * its own. */
int present_open(void);
/* The first run of such pages in a range. False: there is none. Where nobody can tell, all are. */
bool present_next(int pages, uint8_t *bytes, uint64_t length, struct present_run *ret_run);

#endif
