/* QP1, the general service interface: MADs in and out, none of the transport's machinery. What a
 * MAD says is the handler's business (cm). [IBA 13.5] */
#ifndef WEIR_DEVICE_MANAGEMENT_H
#define WEIR_DEVICE_MANAGEMENT_H

#include "rnic/transport/environment.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

struct management_handler;

/* MADs that wait for the sink at most. */
#define MANAGEMENT_BACKLOG 64u

struct management_datagram {
    struct path path;
    uint32_t length;
    uint8_t mad[MAD_LENGTH];
};

struct management {
    struct management_handler *handler;
    struct management_datagram *waiting; /* a ring of MANAGEMENT_BACKLOG */
    uint32_t head, tail;                 /* count on; the ring wraps */
    struct psn psn;
};

enum status management_init(struct management *management, struct allocator *allocator) MUST_USE;
void management_fini(struct management *management, struct allocator *allocator);

/* A packet to QP1. */
void management_receive(struct management *management, struct environment *environment,
                        struct instant now, const struct arrival *arrival,
                        const struct packet *packet);
/* FULL; TOO_LONG above MAD_LENGTH. */
enum status management_post(struct management *management, const struct path *path,
                            const uint8_t *mad, uint32_t length) MUST_USE;
/* Sends what waits; adds the packets sent to *sent. False: the sink is full. */
bool management_transmit(struct management *management, struct environment *environment,
                         uint32_t *sent);

#endif
