/* How numbers are divided among the processes of a host: each holds a slot (registry.h), and a
 * queue pair number, a shared receive queue of XRC and a communication id say by their upper bits
 * whose slot they belong to. They say nothing of the life of who holds it. */
#ifndef WEIR_IO_SLOTS_H
#define WEIR_IO_SLOTS_H

#include <stdint.h>

#include "rnic/wire/ids.h"

#define SLOT_COUNT        1024u
#define SLOT_BITS         10u
#define SLOT_QPNS         16384u /* to each */
#define SLOT_QPN_RESERVED 16u    /* slot 0 begins above these */
#define SLOT_NONE         UINT32_MAX

static inline uint32_t slot_of_qpn(struct qpn qpn)
{
    return qpn.value / SLOT_QPNS;
}

/* Shared receive queues of XRC are numbered as queue pairs are, for themselves. */
static inline uint32_t slot_of_xrc_queue(uint32_t number)
{
    return number / SLOT_QPNS;
}

static inline uint32_t slot_of_communication_id(uint32_t id)
{
    return id >> (32 - SLOT_BITS);
}

#endif
