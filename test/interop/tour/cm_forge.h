/* REQs that no communication manager sends: rdma_cm's header in their private data is broken. */
#ifndef WEIR_TOUR_CM_FORGE_H
#define WEIR_TOUR_CM_FORGE_H

#include <stddef.h>
#include <stdint.h>

#include "test/interop/tour/link.h"

enum forgery {
    FORGED_NOT,
    FORGED_RIGHT, /* as a manager sends it */
    FORGED_MAJOR_VERSION,
    FORGED_MINOR_VERSION,
    FORGED_IP_VERSION_0,
    FORGED_IP_VERSION_5,
    FORGED_OTHER_FAMILY,  /* 6 between IPv4 addresses, 4 between IPv6 ones */
    FORGED_OTHER_ADDRESS, /* to an address that the peer does not have */
    FORGED_ZEROS,
    FORGED_CUT, /* the datagram ends within the header */
};

/* Sends one to rdma_cm's `port` of the peer, and writes down its answers: "REJ(28)", "REP", "-" for
 * none within `patience_ms`. An MRA asks for time and is none. */
void cm_forge(const struct link *link, enum forgery forgery, uint16_t port, int patience_ms,
              char *ret_text, size_t size);

#endif
