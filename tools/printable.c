#include "tools/printable.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Controls, and characters that reorder or break the line they stand in. */
static bool is_treacherous(uint32_t value)
{
    return value < 0x20 || (value >= 0x7f && value < 0xa0) || value == 0x61c || value == 0x200e ||
           value == 0x200f || (value >= 0x2028 && value <= 0x202e) ||
           (value >= 0x2066 && value <= 0x2069);
}

/* Length of the well-formed UTF-8 character at `bytes`, 0 if there is none. */
static size_t character_length(const uint8_t *bytes, size_t length)
{
    static const struct {
        uint8_t mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t i = 0; i < 4; i++) {
        if ((bytes[0] & forms[i].mask) != forms[i].lead) {
            continue;
        }
        if (length < i + 1) {
            return 0;
        }
        uint32_t value = bytes[0] & (uint8_t)~forms[i].mask;
        for (size_t k = 1; k <= i; k++) {
            if ((bytes[k] & 0xc0) != 0x80) {
                return 0;
            }
            value = value << 6 | (bytes[k] & 0x3f);
        }
        bool good = value >= forms[i].least && value <= 0x10ffff &&
                    !(value >= 0xd800 && value <= 0xdfff) && !is_treacherous(value) &&
                    value != '\\';
        return good ? i + 1 : 0;
    }
    return 0;
}

bool printable(const void *bytes, size_t length, char *ret_text, size_t capacity)
{
    const uint8_t *at = bytes;
    bool same = true;
    size_t used = 0;
    while (length > 0) {
        size_t count = character_length(at, length);
        size_t needed = count > 0 ? count : 4;
        if (used + needed >= capacity) {
            same = false;
            break;
        }
        if (count > 0) {
            memcpy(ret_text + used, at, count);
        } else {
            snprintf(ret_text + used, 5, "\\x%02x", at[0]);
            same = false;
            count = 1;
        }
        used += needed;
        at += count;
        length -= count;
    }
    ret_text[used] = 0;
    return same;
}
