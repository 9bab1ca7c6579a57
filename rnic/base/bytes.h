/* Big-endian numbers in byte strings: loads and stores at a known place, and bounds-checked
 * cursors. A cursor that met its end stays failed: gets give 0, puts write nothing; so a whole
 * message is read or written first and `failed` is looked at once. */
#ifndef WEIR_BASE_BYTES_H
#define WEIR_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One load or store each: compilers make several, byte by byte, of shifts, and who reads in one
 * piece what was just written in several waits for it. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BYTES_SWAP(bits, value) __builtin_bswap##bits(value)
#else
#define BYTES_SWAP(bits, value) (value)
#endif

static inline uint16_t bytes_load_u16(const uint8_t *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return BYTES_SWAP(16, value);
}

static inline uint32_t bytes_load_u24(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
}

static inline uint32_t bytes_load_u32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return BYTES_SWAP(32, value);
}

static inline uint64_t bytes_load_u64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return BYTES_SWAP(64, value);
}

static inline void bytes_store_u16(uint8_t *bytes, uint16_t value)
{
    value = BYTES_SWAP(16, value);
    memcpy(bytes, &value, sizeof value);
}

static inline void bytes_store_u24(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)(value >> 16);
    bytes[1] = (uint8_t)(value >> 8);
    bytes[2] = (uint8_t)value;
}

static inline void bytes_store_u32(uint8_t *bytes, uint32_t value)
{
    value = BYTES_SWAP(32, value);
    memcpy(bytes, &value, sizeof value);
}

static inline void bytes_store_u64(uint8_t *bytes, uint64_t value)
{
    value = BYTES_SWAP(64, value);
    memcpy(bytes, &value, sizeof value);
}

/* memcpy for what is short as a rule, without a call: two copies of a fixed length that meet or
 * overlap. `from` may be NULL where `length` is 0. */
static inline void bytes_copy_short(void *to, const void *from, size_t length)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if (length > 32) {
        memcpy(out, in, length);
    } else if (length >= 16) {
        uint8_t first[16], last[16];
        memcpy(first, in, 16);
        memcpy(last, in + length - 16, 16);
        memcpy(out, first, 16);
        memcpy(out + length - 16, last, 16);
    } else if (length >= 8) {
        uint64_t first, last;
        memcpy(&first, in, 8);
        memcpy(&last, in + length - 8, 8);
        memcpy(out, &first, 8);
        memcpy(out + length - 8, &last, 8);
    } else if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, in, 4);
        memcpy(&last, in + length - 4, 4);
        memcpy(out, &first, 4);
        memcpy(out + length - 4, &last, 4);
    } else {
        for (size_t i = 0; i < length; i++) {
            out[i] = in[i];
        }
    }
}

struct bytes_reader {
    const uint8_t *position;
    const uint8_t *end;
    bool failed;
};

static inline struct bytes_reader bytes_reader(const uint8_t *bytes, size_t length)
{
    return (struct bytes_reader){bytes, bytes + length, false};
}

static inline size_t bytes_left(const struct bytes_reader *reader)
{
    return (size_t)(reader->end - reader->position);
}

/* The next `length` bytes, borrowed, or NULL. */
static inline const uint8_t *bytes_get(struct bytes_reader *reader, size_t length)
{
    if (reader->failed || bytes_left(reader) < length) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *bytes = reader->position;
    reader->position += length;
    return bytes;
}

static inline void bytes_skip(struct bytes_reader *reader, size_t length)
{
    (void)bytes_get(reader, length);
}

/* Copies; zeroes where there is not enough. */
static inline void bytes_get_copy(struct bytes_reader *reader, uint8_t *ret_bytes, size_t length)
{
    const uint8_t *bytes = bytes_get(reader, length);
    if (bytes != NULL) {
        memcpy(ret_bytes, bytes, length);
    } else {
        memset(ret_bytes, 0, length);
    }
}

static inline uint8_t bytes_get_u8(struct bytes_reader *reader)
{
    const uint8_t *bytes = bytes_get(reader, 1);
    return bytes == NULL ? 0 : *bytes;
}

static inline uint16_t bytes_get_u16(struct bytes_reader *reader)
{
    const uint8_t *bytes = bytes_get(reader, 2);
    return bytes == NULL ? 0 : bytes_load_u16(bytes);
}

static inline uint32_t bytes_get_u24(struct bytes_reader *reader)
{
    const uint8_t *bytes = bytes_get(reader, 3);
    return bytes == NULL ? 0 : bytes_load_u24(bytes);
}

static inline uint32_t bytes_get_u32(struct bytes_reader *reader)
{
    const uint8_t *bytes = bytes_get(reader, 4);
    return bytes == NULL ? 0 : bytes_load_u32(bytes);
}

static inline uint64_t bytes_get_u64(struct bytes_reader *reader)
{
    const uint8_t *bytes = bytes_get(reader, 8);
    return bytes == NULL ? 0 : bytes_load_u64(bytes);
}

struct bytes_writer {
    uint8_t *position;
    uint8_t *end;
    bool failed;
};

static inline struct bytes_writer bytes_writer(uint8_t *bytes, size_t capacity)
{
    return (struct bytes_writer){bytes, bytes + capacity, false};
}

/* Room for `length` bytes, to be filled by the caller, or NULL. */
static inline uint8_t *bytes_put(struct bytes_writer *writer, size_t length)
{
    if (writer->failed || (size_t)(writer->end - writer->position) < length) {
        writer->failed = true;
        return NULL;
    }
    uint8_t *bytes = writer->position;
    writer->position += length;
    return bytes;
}

static inline void bytes_put_copy(struct bytes_writer *writer, const uint8_t *source, size_t length)
{
    uint8_t *bytes = bytes_put(writer, length);
    if (bytes != NULL && length != 0) {
        memcpy(bytes, source, length);
    }
}

static inline void bytes_put_zeroes(struct bytes_writer *writer, size_t length)
{
    uint8_t *bytes = bytes_put(writer, length);
    if (bytes != NULL) {
        memset(bytes, 0, length);
    }
}

static inline void bytes_put_u8(struct bytes_writer *writer, uint8_t value)
{
    uint8_t *bytes = bytes_put(writer, 1);
    if (bytes != NULL) {
        *bytes = value;
    }
}

static inline void bytes_put_u16(struct bytes_writer *writer, uint16_t value)
{
    uint8_t *bytes = bytes_put(writer, 2);
    if (bytes != NULL) {
        bytes_store_u16(bytes, value);
    }
}

static inline void bytes_put_u24(struct bytes_writer *writer, uint32_t value)
{
    uint8_t *bytes = bytes_put(writer, 3);
    if (bytes != NULL) {
        bytes_store_u24(bytes, value);
    }
}

static inline void bytes_put_u32(struct bytes_writer *writer, uint32_t value)
{
    uint8_t *bytes = bytes_put(writer, 4);
    if (bytes != NULL) {
        bytes_store_u32(bytes, value);
    }
}

static inline void bytes_put_u64(struct bytes_writer *writer, uint64_t value)
{
    uint8_t *bytes = bytes_put(writer, 8);
    if (bytes != NULL) {
        bytes_store_u64(bytes, value);
    }
}

#endif
