/* ISA-L behind one call. It picks the processor's carry-less multiplication by itself. */
#include "rnic/base/crc32.h"

#include <isa-l/crc.h>

uint32_t crc32_update(uint32_t state, const uint8_t *bytes, size_t length)
{
    return crc32_gzip_refl(state, bytes, length);
}
