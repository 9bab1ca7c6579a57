/* struct device, for the files of this folder. */
#ifndef WEIR_DEVICE_DEVICE_PRIVATE_H
#define WEIR_DEVICE_DEVICE_PRIVATE_H

#include "rnic/base/map.h"
#include "rnic/device/deputies.h"
#include "rnic/device/device.h"
#include "rnic/device/management.h"
#include "rnic/device/multicast.h"
#include "rnic/transport/qp_private.h"

struct device {
    struct environment environment;
    struct doorbell doorbell;
    struct map qps; /* number -> struct qp */
    struct deputies deputies;
    struct qpn first_qpn;
    uint32_t qpn_count;
    uint32_t next_qpn; /* offset from first_qpn; counts on, so that numbers rest before reuse */
    uint32_t next_xrc_queue; /* alike */
    uint64_t xrc_domains;
    struct management management;
    struct multicast multicast;
    struct timers alarms; /* struct device_alarm */
};

/* Answers every doorbell that was rung. */
void device_answer_doorbells(struct device *device);

#endif
