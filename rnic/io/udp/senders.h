/* Which IPv4 identifications a sender uses, so that a damaged packet does not pass for one with
 * another identification.
 *
 * The ICRC covers the identification, which a UDP socket never tells, so any is taken that fits
 * (rnic/wire/roce.h), and of a packet damaged at random one in 2^16 passes with DF known. Fewer do
 * where the sender has shown a habit:
 *
 *     sender                          identification           accepted of 2^32     chance
 *     Weir, hardware                  0, or counts from 0      64                   2^-26
 *     rxe                             counts, with gaps        8193, one more per   2^-19
 *                                     while idle               idle millisecond
 *     not known yet, or any other     any                      2^16                 2^-16
 *     over IPv6                       none                     1                    2^-32
 *
 * These are the chances of damage at random. Of bursts, where those of two bits are as frequent as
 * those of sixty, in packets of up to 600 bytes, more pass with an identification unsolved for, by
 * a factor of 1.6 (derived place by place, and tried, in integrity_test.c); single bits never do.
 *
 * rxe takes its identifications from the kernel's counter for the pair of addresses, which skips at
 * random up to one for each timer tick since it was last used. A packet that breaks the habit is
 * refused, to the transport a loss; a second one that continues it is no damage but a new habit: a
 * host that has restarted, another one at that address, or a long blackout.
 *
 * A habit is learned from packets that a queue pair has found to be its peer's, address and PSN,
 * and from no others: it cannot be forged by who does not see the packets, nor can one that is
 * known be driven out. So senders of datagrams alone stay unknown.
 *
 * Bounded: senders that share a place forget each other, which costs protection only. */
#ifndef WEIR_IO_SENDERS_H
#define WEIR_IO_SENDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/wire/ids.h"

#define SENDERS_PLACES 256u
#define SENDERS_SMALL  64u   /* of identifications: the longest segmented send */
#define SENDERS_NEAR   4096u /* skipped or lost; or, as many back, overtaken */
#define SENDERS_HABIT  16u   /* so many in a row are no chance: for random ones 2^-48 at most */

struct sender {
    struct gid gid;
    uint16_t latest;
    uint16_t furthest;
    struct instant seen;
    uint8_t restarts; /* small ones not above the one before, and none that is not small */
    uint8_t counting; /* in a row; both up to SENDERS_HABIT */
    bool has_stray;   /* one that broke the habit came since */
    uint16_t stray;
};

struct senders {
    struct sender places[SENDERS_PLACES];
};

/* A packet of this sender fits with this identification: whether to believe it. */
bool senders_believe(struct senders *senders, struct instant now, const struct gid *gid,
                     uint16_t identification);
/* It was the sender's indeed. */
void senders_learn(struct senders *senders, struct instant now, const struct gid *gid,
                   uint16_t identification);

#endif
