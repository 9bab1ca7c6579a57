/* A message's place in memory, walked packet by packet: where the next bytes are to be read from
 * or put to.
 *
 * A cursor over a list of SGEs, or over inline bytes. It can be set to any offset, so a
 * retransmission begins anywhere: moving on from where it stands costs the SGEs in between, moving
 * back those before the place. The key of an SGE is checked at each use and never remembered, so a
 * region that was deregistered in the middle of a message is touched no more. [IBA 10.6.3] */
#ifndef WEIR_MEMORY_SCATTER_H
#define WEIR_MEMORY_SCATTER_H

#include "rnic/memory/memory.h"
#include "rnic/queue/work.h"
#include "rnic/wire/fragment.h"
#include "rnic/wire/packet.h"

/* Plain data: it may be copied and simply forgotten. Fields are for scatter.c, but for reading
 * `offset` and `length`. */
struct scatter {
    const struct memory *memory;
    struct domain domain;
    uint32_t sge_count;
    const struct sge *sges; /* borrowed; NULL with inline_bytes */
    const uint8_t *inline_bytes;
    uint32_t index;  /* SGE that the next byte lies in; its zero-length predecessors are passed */
    uint32_t within; /* bytes of that SGE already passed */
    uint64_t offset; /* bytes passed */
    uint64_t length; /* bytes in all */
};

/* At offset 0. The SGEs are borrowed for the cursor's life. */
void scatter_init(struct scatter *ret_scatter, const struct memory *memory, struct domain domain,
                  const struct sge *sges, uint32_t sge_count);
/* Over bytes that need no key: inline data, for gathering only. */
void scatter_init_inline(struct scatter *ret_scatter, const uint8_t *bytes, uint32_t length);

/* `offset` is at most `length`. */
void scatter_seek(struct scatter *scatter, uint64_t offset);

static inline uint64_t scatter_left(const struct scatter *scatter)
{
    return scatter->length - scatter->offset;
}

/* A place for pieces: `count` of at most `capacity` are filled. */
struct fragment_list {
    struct fragment *fragments;
    uint32_t capacity;
    uint32_t count;
};

/* Appends the next `length` bytes to `list` as pieces and passes them; a piece for each SGE that
 * they touch. Not granted: neither the cursor nor the list has changed. OUT_OF_RANGE also where
 * fewer bytes are left, or the list has no room. */
enum memory_verdict scatter_gather(struct scatter *scatter, uint32_t length,
                                   struct fragment_list *list) MUST_USE;

/* Where the next `length` bytes lie, without passing them: a place for each SGE that they touch, at
 * most `capacity`; `rights` as of memory_check, none with inline bytes. NOT_MAPPED: memory that is
 * no one's. OUT_OF_RANGE as scatter_gather. */
enum memory_verdict scatter_find(const struct scatter *scatter, uint32_t length, unsigned rights,
                                 struct payload_place *ret_places, uint32_t capacity,
                                 uint32_t *ret_count) MUST_USE;

/* Copies bytes to where the cursor stands (local write is needed) and passes them. Not granted:
 * the cursor has not moved, and a part of the bytes may have been written. OUT_OF_RANGE also where
 * fewer bytes are left: then nothing is written. */
enum memory_verdict scatter_copy_in(struct scatter *scatter, const uint8_t *bytes,
                                    uint32_t length) MUST_USE;
/* The same, from a payload by reference; where that cannot be read nothing has been passed, and the
 * verdict is NOT_MAPPED. So it is where memory that is no one's is to be written to. */
enum memory_verdict scatter_read_in(struct scatter *scatter, struct payload_reader *reader,
                                    uint32_t length) MUST_USE;
/* The other direction: the next `length` bytes into `ret_bytes`, all but that alike. */
enum memory_verdict scatter_copy_out(struct scatter *scatter, uint8_t *ret_bytes,
                                     uint32_t length) MUST_USE;

#endif
