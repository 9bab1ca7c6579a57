/* Big-endian numbers in byte strings, as all of libweir's messages have them. */
#ifndef WEIR_BYTES_H
#define WEIR_BYTES_H

#include <stdint.h>

static inline void put_u16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static inline void put_u32(uint8_t *bytes, uint32_t value)
{
    put_u16(bytes, (uint16_t)(value >> 16));
    put_u16(bytes + 2, (uint16_t)value);
}

static inline void put_u64(uint8_t *bytes, uint64_t value)
{
    put_u32(bytes, (uint32_t)(value >> 32));
    put_u32(bytes + 4, (uint32_t)value);
}

static inline uint16_t get_u16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static inline uint32_t get_u32(const uint8_t *bytes)
{
    return (uint32_t)get_u16(bytes) << 16 | get_u16(bytes + 2);
}

static inline uint64_t get_u64(const uint8_t *bytes)
{
    return (uint64_t)get_u32(bytes) << 32 | get_u32(bytes + 4);
}

#endif
