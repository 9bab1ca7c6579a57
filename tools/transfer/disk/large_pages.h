/* Memory of a file in tmpfs, made in pages of 2 MiB before anything is written there.
 *
 * tmpfs takes a page of 4 KiB for each 4 KiB that are written, which costs more than the copy of
 * the bytes. Here: asking for large ones, where that pays. Not here: where it is right
 * (place.c). It does not pay where the call waits long for busy processors, and while large pages
 * are memory that a virtual machine has to get from its host first: that is found out anew after a
 * pause, which doubles, so what is lost by trying is bounded. */
#ifndef TOOLS_TRANSFER_LARGE_PAGES_H
#define TOOLS_TRANSFER_LARGE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define LARGE_PAGES_LENGTH (4u << 20) /* asked for at a time */

/* Of all files of a copy. Zeros to begin with; one thread at a time uses it. */
struct large_pages {
    uint64_t worked_ns; /* since the last pause, */
    uint64_t waited_ns; /* without a processor, */
    unsigned count;     /* for so many times LARGE_PAGES_LENGTH */
    unsigned pause;     /* so many times more get small pages, */
    unsigned last_pause;
    bool refused; /* there are none to be had */
};

/* From `offset` on, a multiple of LARGE_PAGES_LENGTH, so many bytes. The file, which may be read
 * and written, ends there, or nothing is done; after that it is longer, by zeros that take memory.
 * Errors are nobody's concern: whoever writes there is told of what matters. */
void large_pages_make(struct large_pages *pages, int fd, uint64_t offset);

#endif
