/* CRC-32 of Ethernet (reflected polynomial 0xedb88320), the one under the ICRC. */
#ifndef WEIR_BASE_CRC32_H
#define WEIR_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues with `length` more bytes. Begin with state 0; the state is the CRC of all bytes so
 * far, finished: nothing remains to be inverted. */
uint32_t crc32_update(uint32_t state, const uint8_t *bytes, size_t length);

#endif
