/* How long the pieces of puts and gets may be.
 *
 * A piece that ends is a sign of life; nothing is heard of a peer in the middle of one. On a fast
 * path long pieces cost less, on a slow one they would look like silence. So the first are short,
 * and the rest follow from how long pieces take: a small part of the silence timeout. */
#ifndef WEIR_CHANNEL_STRIDE_H
#define WEIR_CHANNEL_STRIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRIDE_LEAST ((size_t)32 << 10)
#define STRIDE_MOST  ((size_t)256 << 10)

struct stride {
    size_t length;              /* of the next piece, in bytes */
    uint64_t slow_ns, swift_ns; /* what a piece may take before the next are shorter, longer */
    uint64_t since_ns;          /* the last piece ended, or the first was posted */
    uint32_t flying;
    unsigned swift; /* pieces in a row */
};

void stride_init(struct stride *stride, unsigned silence_timeout_ms);
bool stride_is_full(const struct stride *stride);
/* A piece was posted, a piece ended. */
void stride_posted(struct stride *stride, uint64_t now_ns);
void stride_ended(struct stride *stride, uint64_t now_ns);

#endif
