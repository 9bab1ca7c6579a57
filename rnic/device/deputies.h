/* The device's deputies (transport/deputy.h): found by their targets' numbers, made when the first
 * request for one comes, the only objects that a message makes. They end with their targets, with
 * their targets' processes, or, long idle, when room is needed. */
#ifndef WEIR_DEVICE_DEPUTIES_H
#define WEIR_DEVICE_DEPUTIES_H

#include "rnic/base/map.h"
#include "rnic/transport/environment.h"

struct deputies {
    struct map by_number; /* struct qp */
};

enum status deputies_init(struct deputies *deputies, struct allocator *allocator) MUST_USE;
void deputies_fini(struct deputies *deputies);
/* A REQUEST. */
void deputies_receive(struct deputies *deputies, struct environment *environment, uint32_t from,
                      const struct relay_message *message, const uint8_t *bytes, uint32_t length);
/* An END. */
void deputies_end(struct deputies *deputies, uint32_t from, const struct relay_message *message);
/* A deputy's timer went off. */
void deputies_expire(struct deputies *deputies, struct qp *qp);

#endif
