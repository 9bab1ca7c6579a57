/* Between common.c, which begins, and common_end.c. */
#ifndef WEIR_IO_COMMON_PRIVATE_H
#define WEIR_IO_COMMON_PRIVATE_H

#include "rnic/io/common.h"

#include <stdbool.h>
#include <stdint.h>

#define HUGE_BYTES (UINT64_C(2) << 20)

struct common {
    int file;
    int stretches;         /* see stretch.h */
    int pages;             /* /proc/self/pagemap */
    int hold;              /* see hold.h */
    uint32_t major, minor; /* the file's */
    uint64_t inode;
    uint64_t page_bytes;
    uint64_t next; /* offset that no range has used, nor any behind it */
};

/* The signals that are blocked meanwhile: a handler could touch what is held. All, also those that
 * the C library keeps for itself. */
struct silence {
    uint64_t before;
};
void silence_begin(struct silence *silence);
void silence_end(const struct silence *silence);

/* Makes pages to write to where there are none. False: no memory, which else would be a signal. */
bool common_populate(uint8_t *bytes, uint64_t length);
/* Gives the file's pages back to the kernel. */
void common_forget(int file, uint64_t offset, uint64_t length);

#endif
