/* Records from one process to another through memory they share: one producer, one consumer.
 *
 * A record lies in whole cache lines, without a gap, its header in the first: a short record is one
 * line that moves from one core to the other, and nothing else is touched. What stands in a
 * header says whether the record is there, and the consumer may look at it all the time, so a short
 * record that nothing hides yet is written at once, when it is shown; else its line would be taken
 * away while it is being written. The producer ends the ring behind a record before it shows the
 * record, so bytes of former rounds are never taken for a header.
 *
 * The other side may die at any instant, which leaves a record shown or not shown. What it wrote is
 * not trusted: a header that cannot be is STATUS_MALFORMED, now and for ever. Both ends of a
 * process keep their own positions outside the shared memory. Not here: who sleeps and who wakes
 * (channel.h), where the memory comes from. */
#ifndef WEIR_IO_RING_H
#define WEIR_IO_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/base/status.h"

#define RING_LINE      64u
#define RING_HEADER    8u
#define RING_LINE_MAX  (RING_LINE - RING_HEADER)
#define RING_BYTES_MIN (64u * RING_LINE)
#define RING_BYTES_MAX (1u << 30)

/* What is shared. Zeroed memory is an empty ring. `size` bytes of lines follow, as both sides know
 * from elsewhere: a power of two between RING_BYTES_MIN and RING_BYTES_MAX. */
struct ring_memory {
    _Alignas(RING_LINE) _Atomic uint64_t consumed; /* bytes, written by the consumer */
    _Alignas(RING_LINE) uint8_t lines[];
};

struct ring_producer {
    struct ring_memory *memory;
    uint32_t size;
    uint32_t reserved; /* bytes of lines that the record under way takes */
    uint32_t touched;  /* bytes of lines; those behind them are to be, before they are used */
    void (*touch)(void *bytes, size_t length);
    uint64_t produced;      /* bytes */
    uint64_t consumed;      /* as last looked up */
    uint64_t end;           /* what is before it is known to be free, and touched */
    _Atomic uint64_t *held; /* the header that hides all that was put since ring_show; NULL: none */
    uint64_t held_value;
    bool is_apart; /* the record behind that header, or the one that is reserved, is in `apart` */
    _Alignas(RING_LINE) uint8_t apart[RING_LINE];
};

struct ring_consumer {
    struct ring_memory *memory;
    uint32_t size;
    uint32_t taken;     /* bytes of lines of the record that is looked at */
    uint64_t consumed;  /* bytes */
    uint64_t published; /* of those, what the producer knows */
    bool corrupt;
};

/* Bytes of shared memory for a ring of `size`. */
static inline size_t ring_memory_bytes(uint32_t size)
{
    return sizeof(struct ring_memory) + size;
}
/* The longest record: four of them fit. */
static inline uint32_t ring_record_max(uint32_t size)
{
    return size / 4 - RING_HEADER;
}

void ring_produce(struct ring_producer *producer, struct ring_memory *memory, uint32_t size);
/* Pages of fresh memory cost a fault each, of both sides. From now on `touch` is told of bytes that
 * will be used soon: of as many more as have been. NULL: nobody is. */
void ring_touch_by(struct ring_producer *producer, void (*touch)(void *bytes, size_t length));
void ring_consume(struct ring_consumer *consumer, struct ring_memory *memory, uint32_t size);

/* Room for a record of up to `length` bytes (at most ring_record_max, CHECKed); NULL: not now. */
uint8_t *ring_reserve(struct ring_producer *producer, uint32_t length);
/* Puts the record reserved last, cut to `length` bytes, behind those before it. */
void ring_publish(struct ring_producer *producer, uint32_t length);
/* Shows all that was put since the last time, at once. */
void ring_show(struct ring_producer *producer);
/* A record in one line that nothing hides, put and shown at once: where its bytes go, up to
 * RING_LINE_MAX; NULL: there is no room, or something is hidden. Then its length. */
uint8_t *ring_open_line(struct ring_producer *producer);
void ring_show_line(struct ring_producer *producer, uint32_t length);
/* There would be room for a record of `length` bytes. */
bool ring_has_room(struct ring_producer *producer, uint32_t length);
/* Whether the consumer has given back all that was put when `produced` was so high: he is done with
 * it. */
bool ring_is_consumed(struct ring_producer *producer, uint64_t produced);

/* The next record, borrowed until ring_release. EMPTY: none. MALFORMED: the producer wrote
 * what none of ours writes. */
enum status ring_peek(struct ring_consumer *consumer, const uint8_t **ret_bytes,
                      uint32_t *ret_length) MUST_USE;
/* The record `ahead` places behind the one that was peeked at, if all are as long as that; NULL:
 * there seems to be none. It may be the middle of another, and is good for a guess only. */
const uint8_t *ring_guess(const struct ring_consumer *consumer, uint32_t ahead);
/* Gives its room back, which the producer sees by the quarter of the ring, or by ring_settle. */
void ring_release(struct ring_consumer *consumer);
void ring_settle(struct ring_consumer *consumer);
/* The same of a part worth telling of, an eighth of the ring; false: there is less. */
bool ring_settle_part(struct ring_consumer *consumer);
/* Where the next record will show itself: by another value than 0, then or before. */
static inline const _Atomic uint64_t *ring_next(const struct ring_consumer *consumer)
{
    uint64_t place = consumer->consumed & (consumer->size - 1);
    return (const _Atomic uint64_t *)(const void *)(consumer->memory->lines + place);
}
/* Whether ring_peek would answer something else than EMPTY; touches one line. */
static inline bool ring_has_record(const struct ring_consumer *consumer)
{
    return consumer->corrupt ||
           atomic_load_explicit(ring_next(consumer), memory_order_relaxed) != 0;
}

#endif
