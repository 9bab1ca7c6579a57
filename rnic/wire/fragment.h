/* A piece of a payload where it lies: what gathering yields and a link sends; and a piece of where
 * one is to go. */
#ifndef WEIR_WIRE_FRAGMENT_H
#define WEIR_WIRE_FRAGMENT_H

#include <stdint.h>

struct fragment {
    const uint8_t *bytes; /* borrowed */
    uint32_t length;
};

struct payload_place {
    uint8_t *bytes;
    uint32_t length;
};

#endif
