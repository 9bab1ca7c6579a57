/* ISA-L behind one call. It picks the processor's carry-less multiplication by itself. */
#include "rnic/base/crc32.h"

#include <isa-l/crc.h>

#if defined(__x86_64__)
/* From 256 bytes on ISA-L works in registers of 512 bits, where the processor has them, and leaves
 * their upper parts in use. The next instruction of 128 bits without VEX, such as one that clears a
 * structure, then waits some 155 ns: three times what the CRC of 4 KiB takes. */
__attribute__((target("avx"))) static void put_upper_parts_out_of_use(void)
{
    __builtin_ia32_vzeroupper();
}

uint32_t crc32_update(uint32_t state, const uint8_t *bytes, size_t length)
{
    state = crc32_gzip_refl(state, bytes, length);
    if (__builtin_cpu_supports("avx")) {
        put_upper_parts_out_of_use();
    }
    return state;
}
#else
uint32_t crc32_update(uint32_t state, const uint8_t *bytes, size_t length)
{
    return crc32_gzip_refl(state, bytes, length);
}
#endif
