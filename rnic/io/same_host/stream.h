/* Whether packets of this host come in a stream, which nobody answers as it comes.
 *
 * Who looks for each packet of a stream takes from the sender, again and again, the line that it is
 * about to write; both then wait for lines most of their time. So who polls for a stream looks a
 * little more rarely, and finds several. Whoever sends itself, or finds nothing some times in a
 * row, waits for single packets again, and looks all the time. Pure arithmetic: no clock. */
#ifndef WEIR_IO_STREAM_H
#define WEIR_IO_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STREAM_LEAST     64u /* packets in a row */
#define STREAM_MOST      128u
#define STREAM_PAUSE     8u   /* what a look that finds nothing counts against */
#define STREAM_RELIEF_NS 250u /* between two looks; 150 to 500 do */

struct stream {
    _Atomic uint32_t seen; /* any thread; zeroed: none. Who changes it at once with another counts
                              a little wrong, which does no harm */
};

static inline uint32_t stream_seen(const struct stream *stream)
{
    return atomic_load_explicit(&stream->seen, memory_order_relaxed);
}

static inline bool stream_flows(const struct stream *stream)
{
    return stream_seen(stream) >= STREAM_LEAST;
}

/* A packet has come. */
static inline void stream_goes_on(struct stream *stream)
{
    uint32_t seen = stream_seen(stream);
    atomic_store_explicit(&stream->seen, seen + (seen < STREAM_MOST), memory_order_relaxed);
}

/* Somebody looked, and there was nothing. */
static inline void stream_pauses(struct stream *stream)
{
    uint32_t seen = stream_seen(stream);
    uint32_t left = seen < STREAM_PAUSE ? 0 : seen - STREAM_PAUSE;
    atomic_store_explicit(&stream->seen, left, memory_order_relaxed);
}

/* Something was posted here. */
static inline void stream_is_answered(struct stream *stream)
{
    atomic_store_explicit(&stream->seen, 0, memory_order_relaxed);
}

#endif
