/* crc32_update bit by bit: a tour runs where there is no ISA-L, and judges ours by a second
 * opinion. */
#include "rnic/base/crc32.h"

uint32_t crc32_update(uint32_t state, const uint8_t *bytes, size_t length)
{
    state = ~state;
    for (size_t i = 0; i < length; i++) {
        state ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            state = state >> 1 ^ (0xedb88320u & -(state & 1));
        }
    }
    return ~state;
}
