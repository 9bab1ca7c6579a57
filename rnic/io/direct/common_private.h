/* Between common.c, which begins, and common_end.c. */
#ifndef WEIR_IO_COMMON_PRIVATE_H
#define WEIR_IO_COMMON_PRIVATE_H

#include "rnic/io/direct/common.h"

#include <stdbool.h>
#include <stdint.h>

#include "rnic/io/system/own_file.h"

struct stretch;

#define HUGE_BYTES (UINT64_C(2) << 20)

#define COMMON_DESCRIPTORS 4u
#define COMMON_FILE        0u /* of them */

struct common {
    int file;
    int stretches;                                  /* see stretch.h */
    int pages;                                      /* /proc/self/pagemap */
    int hold;                                       /* see hold.h */
    struct own_file identities[COMMON_DESCRIPTORS]; /* the program may close them */
    uint64_t page_bytes;
    uint64_t next; /* offset that no range has used, nor any behind it */
};

/* How many forks have begun. */
uint32_t common_forks(void);
/* Whether it shows some of the file. */
bool common_is_file(const struct common *common, const struct stretch *stretch);
/* False: the program has closed descriptors that are not its own, and ours may be others by now. */
bool common_is_whole(const struct common *common);

/* Whether a range has some of this thread's stack or of its control block, in which errno, its
 * canary and what the kernel writes are. */
bool common_is_own(const struct common_range *range);

/* The signals that are blocked meanwhile: a handler could touch what is held. All, also those that
 * the C library keeps for itself. */
struct silence {
    uint64_t before;
};
void silence_begin(struct silence *silence);
void silence_end(const struct silence *silence);

/* Addresses for as much memory, where tables and huge pages can be taken over whole. NULL: none. */
uint8_t *common_reserve(const uint8_t *like, uint64_t length, int protection);
/* NULL is allowed. */
void common_give_up(uint8_t *bytes, uint64_t length);
/* Moves private memory to what was reserved for it, to be read and written, and leaves memory of
 * its kind, and empty. */
bool common_move_out(uint8_t *from, uint64_t length, uint8_t *to);
/* Moves a mapping over all that is mapped at `to`; nobody finds nothing there. */
bool common_move_over(uint8_t *from, uint64_t length, uint8_t *to);
/* After that has failed: maps the file there if nothing is left. False: what was there still is. */
bool common_mend(uint8_t *bytes, uint64_t length, int protection, int file, uint64_t offset);

/* Makes pages to write to where there are none. False: no memory, which else would be a signal. */
bool common_populate(uint8_t *bytes, uint64_t length);
/* Gives the file's pages back to the kernel. */
void common_forget(int file, uint64_t offset, uint64_t length);

#endif
