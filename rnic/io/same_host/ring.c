/* A header is eight bytes: SHOWN and the length, or WRAPPED (the next record stands at the
 * beginning), or 0 (nothing yet). Invariant: the line at `produced` is free and its header is 0
 * before anything in front of it is shown, so at least one line is always free. */
#include "rnic/io/same_host/ring.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/prefetch.h"
#include "rnic/base/seldom.h"

#define HEADER_SHOWN   (UINT64_C(1) << 63)
#define HEADER_WRAPPED (UINT64_C(1) << 62)
#define HEADER_LENGTH  UINT64_C(0xffffffff)

/* A short record is put in less time than the line that it goes to takes to come. */
#define AHEAD (4u * RING_LINE)

#define TOUCHED_FIRST 4096u /* bytes: a short talk is to cost no more than a page */

BUILD_CHECK(sizeof(_Atomic uint64_t) == RING_HEADER);
BUILD_CHECK(sizeof(struct ring_memory) == RING_LINE);
BUILD_CHECK(TOUCHED_FIRST <= RING_BYTES_MIN);

static uint32_t lines_of(uint32_t length)
{
    return (RING_HEADER + length + RING_LINE - 1) / RING_LINE * RING_LINE;
}

static _Atomic uint64_t *header_at(struct ring_memory *memory, uint64_t place)
{
    return (_Atomic uint64_t *)(void *)(memory->lines + place);
}

static bool size_is_sound(uint32_t size)
{
    return size >= RING_BYTES_MIN && size <= RING_BYTES_MAX && (size & (size - 1)) == 0;
}

void ring_produce(struct ring_producer *producer, struct ring_memory *memory, uint32_t size)
{
    CHECK(size_is_sound(size));
    *producer =
        (struct ring_producer){.memory = memory, .size = size, .touched = size, .end = size};
}

void ring_touch_by(struct ring_producer *producer, void (*touch)(void *bytes, size_t length))
{
    CHECK(producer->produced == 0);
    producer->touch = touch;
    producer->touched = touch == NULL ? producer->size : TOUCHED_FIRST;
    producer->end = producer->touched;
}

void ring_consume(struct ring_consumer *consumer, struct ring_memory *memory, uint32_t size)
{
    CHECK(size_is_sound(size));
    *consumer = (struct ring_consumer){.memory = memory, .size = size};
}

/* False: no consumer of ours writes that. */
static bool look_up_consumed(struct ring_producer *producer)
{
    uint64_t consumed = atomic_load_explicit(&producer->memory->consumed, memory_order_acquire);
    if (consumed < producer->consumed || consumed > producer->produced) {
        return false;
    }
    producer->consumed = consumed;
    return true;
}

static void touch_more(struct ring_producer *producer, uint64_t end)
{
    while (producer->touched < end && producer->touched < producer->size) {
        producer->touch(producer->memory->lines + producer->touched, producer->touched);
        producer->touched *= 2;
    }
}

static SELDOM bool find_room(struct ring_producer *producer, uint64_t end)
{
    if (!look_up_consumed(producer) || end - producer->consumed > producer->size) {
        return false;
    }
    touch_more(producer, end);
    bool all = producer->touched == producer->size;
    producer->end = all ? producer->consumed + producer->size : producer->touched;
    return true;
}

/* `bytes` and the line behind them are free. */
static bool has_room(struct ring_producer *producer, uint64_t bytes)
{
    uint64_t end = producer->produced + bytes + RING_LINE;
    return end <= producer->end || find_room(producer, end);
}

/* Lines from `produced` to the end that a record of `lines` has to leave out. */
static uint32_t left_out(const struct ring_producer *producer, uint32_t lines)
{
    uint32_t rest = producer->size - (uint32_t)(producer->produced & (producer->size - 1));
    return rest < lines ? rest : 0;
}

uint8_t *ring_reserve(struct ring_producer *producer, uint32_t length)
{
    CHECK(length <= ring_record_max(producer->size));
    uint32_t lines = lines_of(length);
    uint32_t skipped = left_out(producer, lines);
    if (!has_room(producer, (uint64_t)skipped + lines)) {
        return NULL;
    }
    producer->reserved = lines;
    if (producer->held == NULL) {
        producer->is_apart = lines == RING_LINE;
        if (producer->is_apart) {
            return producer->apart + RING_HEADER;
        }
    }
    uint64_t place = skipped > 0 ? 0 : producer->produced & (producer->size - 1);
    return producer->memory->lines + place + RING_HEADER;
}

/* The first header since ring_show is kept back, and with it all that stands behind it. `inner`:
 * one before it will be written. */
static void mark(struct ring_producer *producer, _Atomic uint64_t *header, uint64_t value,
                 bool inner)
{
    if (inner || producer->held != NULL) {
        atomic_store_explicit(header, value, memory_order_release);
        return;
    }
    producer->held = header;
    producer->held_value = value;
}

void ring_show(struct ring_producer *producer)
{
    if (producer->held != NULL) {
        if (producer->is_apart) {
            memcpy((uint8_t *)producer->held + RING_HEADER, producer->apart + RING_HEADER,
                   RING_LINE - RING_HEADER);
        }
        atomic_store_explicit(producer->held, producer->held_value, memory_order_release);
        producer->held = NULL;
    }
}

void ring_publish(struct ring_producer *producer, uint32_t length)
{
    uint32_t skipped = left_out(producer, producer->reserved);
    uint32_t lines = lines_of(length);
    CHECK(lines <= producer->reserved);
    uint32_t mask = producer->size - 1;
    uint64_t first = producer->produced + skipped;
    _Atomic uint64_t *behind = header_at(producer->memory, (first + lines) & mask);
    atomic_store_explicit(behind, 0, memory_order_relaxed);
    mark(producer, header_at(producer->memory, first & mask), HEADER_SHOWN | length, skipped > 0);
    if (skipped > 0) {
        mark(producer, header_at(producer->memory, producer->produced & mask), HEADER_WRAPPED,
             false);
    }
    producer->produced = first + lines;
    producer->reserved = 0;
    if (lines == RING_LINE) {
        prefetch_to_write(producer->memory->lines + ((producer->produced + AHEAD) & mask));
    }
}

/* What ends the ring comes first, so that the line itself is written in one go. */
uint8_t *ring_open_line(struct ring_producer *producer)
{
    if (producer->held != NULL || !has_room(producer, RING_LINE)) {
        return NULL;
    }
    uint32_t mask = producer->size - 1;
    _Atomic uint64_t *behind = header_at(producer->memory, (producer->produced + RING_LINE) & mask);
    atomic_store_explicit(behind, 0, memory_order_relaxed);
    return producer->memory->lines + (producer->produced & mask) + RING_HEADER;
}

void ring_show_line(struct ring_producer *producer, uint32_t length)
{
    CHECK(length <= RING_LINE_MAX);
    uint32_t mask = producer->size - 1;
    _Atomic uint64_t *header = header_at(producer->memory, producer->produced & mask);
    atomic_store_explicit(header, HEADER_SHOWN | length, memory_order_release);
    producer->produced += RING_LINE;
    prefetch_to_write(producer->memory->lines + ((producer->produced + AHEAD) & mask));
}

bool ring_has_room(struct ring_producer *producer, uint32_t length)
{
    uint32_t lines = lines_of(length);
    return has_room(producer, (uint64_t)left_out(producer, lines) + lines);
}

bool ring_is_consumed(struct ring_producer *producer, uint64_t produced)
{
    return producer->consumed >= produced ||
           (look_up_consumed(producer) && producer->consumed >= produced);
}

static enum status malformed(struct ring_consumer *consumer)
{
    consumer->corrupt = true;
    return STATUS_MALFORMED;
}

enum status ring_peek(struct ring_consumer *consumer, const uint8_t **ret_bytes,
                      uint32_t *ret_length)
{
    uint32_t place = (uint32_t)(consumer->consumed & (consumer->size - 1));
    uint64_t header =
        atomic_load_explicit(header_at(consumer->memory, place), memory_order_acquire);
    if (consumer->corrupt) {
        return STATUS_MALFORMED;
    }
    if (header == HEADER_WRAPPED && place != 0) {
        consumer->consumed += consumer->size - place;
        place = 0;
        header = atomic_load_explicit(header_at(consumer->memory, 0), memory_order_acquire);
        if (header == 0) {
            return malformed(consumer); /* it is shown before the marker is */
        }
    }
    if (header == 0) {
        return STATUS_EMPTY;
    }
    uint64_t length = header & HEADER_LENGTH;
    if ((header & ~HEADER_LENGTH) != HEADER_SHOWN || length > ring_record_max(consumer->size) ||
        lines_of((uint32_t)length) > consumer->size - place) {
        return malformed(consumer);
    }
    consumer->taken = lines_of((uint32_t)length);
    *ret_bytes = consumer->memory->lines + place + RING_HEADER;
    *ret_length = (uint32_t)length;
    return STATUS_OK;
}

const uint8_t *ring_guess(const struct ring_consumer *consumer, uint32_t ahead)
{
    uint64_t place =
        (consumer->consumed & (consumer->size - 1)) + (uint64_t)ahead * consumer->taken;
    if (place + consumer->taken > consumer->size) {
        return NULL;
    }
    uint64_t header =
        atomic_load_explicit(header_at(consumer->memory, (uint32_t)place), memory_order_acquire);
    return (header & ~HEADER_LENGTH) == HEADER_SHOWN ? consumer->memory->lines + place + RING_HEADER
                                                     : NULL;
}

void ring_settle(struct ring_consumer *consumer)
{
    if (consumer->published != consumer->consumed) {
        consumer->published = consumer->consumed;
        atomic_store_explicit(&consumer->memory->consumed, consumer->consumed,
                              memory_order_release);
    }
}

bool ring_settle_part(struct ring_consumer *consumer)
{
    bool worth = consumer->consumed - consumer->published >= consumer->size / 8;
    if (worth) {
        ring_settle(consumer);
    }
    return worth;
}

void ring_release(struct ring_consumer *consumer)
{
    consumer->consumed += consumer->taken;
    consumer->taken = 0;
    if (consumer->consumed - consumer->published >= consumer->size / 4) {
        ring_settle(consumer);
    }
}
