/* struct device, for the files of this folder. */
#ifndef WEIR_DEVICE_DEVICE_PRIVATE_H
#define WEIR_DEVICE_DEVICE_PRIVATE_H

#include "rnic/base/map.h"
#include "rnic/base/shuffle.h"
#include "rnic/device/deputies.h"
#include "rnic/device/device.h"
#include "rnic/device/management.h"
#include "rnic/device/multicast.h"
#include "rnic/transport/qp_private.h"

/* Places in `order`, one after the other, so that numbers rest before reuse. */
struct fresh_numbers {
    struct shuffle order; /* of offsets from first_qpn */
    uint32_t next;
};

struct device {
    struct environment environment;
    struct doorbell doorbell;
    struct qp **qps; /* qpn_count of them, by number, from first_qpn on; NULL: there is none */
    uint32_t qps_count, max_qps;
    const struct qp *expected; /* by device_expect, last; it may be gone */
    struct deputies deputies;
    struct qpn first_qpn;
    uint32_t qpn_count;
    struct fresh_numbers qpns, xrc_queue_numbers;
    uint64_t xrc_domains;
    struct management management;
    struct multicast multicast;
    struct timers alarms;         /* struct device_alarm */
    const struct qp *interrupted; /* in its turn, by a full sink; it may be gone */
    uint32_t interrupted_after;   /* packets of the turn */
};

/* NULL: there is none. */
static inline struct qp *device_qp(const struct device *device, uint32_t number)
{
    uint32_t index = number - device->first_qpn.value;
    return index < device->qpn_count ? device->qps[index] : NULL;
}

/* Answers every doorbell that was rung. */
void device_answer_doorbells(struct device *device);

#endif
