/* Whether a packet is as its sender sent it: its ICRC fits, for an IPv4 identification and DF that
 * this sender may have used. A UDP socket tells neither, so the ICRC is solved for them
 * (rnic/wire/roce.h), and what comes out is held against the sender's habit (senders.h, with the
 * chances of damage to pass). */
#ifndef WEIR_IO_INTEGRITY_H
#define WEIR_IO_INTEGRITY_H

#include <stdint.h>

#include "rnic/io/udp/senders.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

/* Zeroed to begin with. */
struct integrity {
    struct senders senders;
    struct roce_series series; /* of what comes */
    uint16_t likely;           /* identification of the next packet that comes alone */
};

/* `sender` is the packet's path as its sender sees it, `bytes` the packet from the BTH, at least
 * that, `body` its length up to the ICRC behind it, `place` its place in the read that the kernel
 * joined. REFUSED_NOT: it is sound; *ret_ip says what integrity_learn wants. Else REFUSED_ICRC or
 * REFUSED_IDENTIFICATION. */
enum packet_refusal integrity_check(struct integrity *integrity, struct instant now,
                                    const struct path *sender, const uint8_t *bytes, uint32_t body,
                                    uint32_t place, struct roce_ip *ret_ip);
/* What the packet last checked has in common with those that follow it in its read (follow.h);
 * NULL: nothing yet. Good until another one is checked. */
const struct roce_likeness *integrity_likeness(const struct integrity *integrity,
                                               const struct path *sender, const uint8_t *bytes,
                                               uint32_t body);
/* Such a packet, with its ICRC behind it, is sound. False: ask integrity_check. */
bool integrity_is_alike(const struct roce_likeness *like, const uint8_t *bytes, uint32_t place);
/* A sound packet that a queue pair has found to be its peer's. */
void integrity_learn(struct integrity *integrity, struct instant now, const struct path *sender,
                     const struct roce_ip *ip);
/* As integrity_check, whatever the sender's habit: its ICRC fits in some way. */
bool integrity_fits(struct integrity *integrity, const struct path *sender, const uint8_t *bytes,
                    uint32_t body, uint32_t place, struct roce_ip *ret_ip);

#endif
