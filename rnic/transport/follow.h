/* What comes right behind a packet in the middle of a message, and differs from it in PSN, payload
 * and its wish for an acknowledgement alone, passes the checks that the one before has passed: only
 * what it brings is looked at.
 *
 * Good as long as nothing but such packets has touched the device since; so it is kept for one read
 * of a link, on the stack. */
#ifndef WEIR_TRANSPORT_FOLLOW_H
#define WEIR_TRANSPORT_FOLLOW_H

#include <string.h>

#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

struct qp;

#define FOLLOW_COMPARED 8u /* bytes of a BTH, before the wish and the PSN */

struct follow {
    struct qp *qp;                      /* NULL: nothing may follow */
    struct packet packet;               /* the latest */
    uint8_t beginning[FOLLOW_COMPARED]; /* of the next one */
    uint32_t wish_and_psn;              /* without the wish */
    uint32_t length;
    uint8_t *place; /* of the next one's payload, if all that is to come is granted; or NULL */
};

#define FOLLOW_WISH UINT32_C(0x80000000)
#define FOLLOW_TAG  UINT32_C(0x7f000000)

/* `length` bytes from the BTH to before the ICRC. */
static inline bool follow_fits(const struct follow *follow, const uint8_t *bytes, uint32_t length)
{
    return follow->qp != NULL && length == follow->length &&
           memcmp(bytes, follow->beginning, FOLLOW_COMPARED) == 0 &&
           (bytes_load_u32(bytes + FOLLOW_COMPARED) & ~FOLLOW_WISH) == follow->wish_and_psn;
}

/* The queue pair has received that packet, which was the one that it expected. */
void follow_begin(struct follow *follow, struct qp *qp, const struct arrival *arrival,
                  const struct packet *packet, const uint8_t *bytes, uint32_t length);
/* Receives what fits. */
void follow_receive(struct follow *follow, const uint8_t *bytes);

#endif
