/* Which IPv4 identifications a sender uses, so that a damaged packet does not pass for one with
 * another identification.
 *
 * The ICRC covers the identification, which a UDP socket never tells, so any is taken that fits
 * (rnic/wire/roce.h). Insisting on DF, which Weir, rxe and hardware set, a packet damaged at random
 * passes with probability 2^-16. Weir and hardware number from 0 or not at all, rxe at random:
 * of a sender that was seen to keep below 64 nothing else is taken, which makes it 2^-26.
 *
 * Bounded: senders that share a place forget each other, which costs protection only. */
#ifndef WEIR_IO_SENDERS_H
#define WEIR_IO_SENDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/ids.h"

#define SENDERS_PLACES 256u

struct senders {
    struct {
        struct gid gid;
        uint8_t small; /* low identifications, one after another, up to the point that counts */
        uint8_t large; /* others in a row that were refused since */
    } places[SENDERS_PLACES];
};

/* A packet of this sender fits with this identification: whether to believe it. */
bool senders_believe(struct senders *senders, const struct gid *sender, uint16_t identification);

#endif
