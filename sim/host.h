/* A simulated host: a device and its connection manager on one port of the network, driven by the
 * simulator. It can die, with everything it had in memory, and start again with a new life.
 *
 * Here: what io/loop is in the real world. Not here: what its applications do (workload.h). */
#ifndef WEIR_SIM_HOST_H
#define WEIR_SIM_HOST_H

#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "sim/direct.h"
#include "sim/network.h"
#include "sim/storage.h"

struct host;

/* The applications of a host. All may be NULL. */
struct host_application {
    /* The engine has run: completions may have come. */
    void (*ran)(struct host_application *application, struct host *host);
    void (*event)(struct host_application *application, struct host *host,
                  const struct event *event);
    void (*cm_event)(struct host_application *application, struct host *host,
                     const struct cm_event *event);
    /* `by` touches the owner's memory, and has come to that step; nothing else runs meanwhile. */
    void (*touched)(struct host_application *application, struct host *owner, const struct host *by,
                    const struct direct_access *access, enum direct_step step);
    /* The host has done all of a message so. */
    void (*moved)(struct host_application *application, struct host *host,
                  const struct direct_access *access);
};

struct host_config {
    uint32_t qpn_count;
    uint32_t max_regions;
    uint32_t max_reads_in;
    uint32_t budget;   /* packets per advance */
    uint32_t again_ns; /* until the next, where more is to be sent; 0: a default */
    bool with_cm;
    uint32_t max_connections;
    uint32_t window_max;                       /* 0: the device's own */
    uint32_t selective_qps, selective_packets; /* as of the device */
    bool joins; /* packets that come close behind each other are received in a row */
};

#define HOST_ROW 8u

struct host_packet {
    struct arrival arrival;
    uint32_t length;
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 4];
};

/* Numbers of a host's queue pairs begin at a multiple of this, that of its index and one. */
#define HOST_NUMBERS 0x1000u

struct host {
    struct network_end end;   /* first */
    struct event_sink events; /* of the device */
    struct simulator *simulator;
    struct network *network;
    unsigned index;
    char name; /* 'A' + index */
    struct host_config config;
    struct host_application *application;
    struct relay_link *relay_link; /* may be NULL */
    struct direct_end direct;

    struct storage storage;
    struct device *device; /* NULL: dead */
    struct cm *cm;         /* may be NULL */
    uint32_t life;         /* counts starts; stale events know theirs */
    struct instant wake_at;
    struct instant told;              /* the latest time that the device was told as one of now */
    struct host_packet row[HOST_ROW]; /* what has come and is to be received in a row */
    uint32_t row_count;
};

void host_init(struct host *host, struct simulator *simulator, struct network *network,
               unsigned index, const struct host_config *config);
/* Creates device and cm. Every life has queue pair numbers of its own, so that what is still on
 * its way to the last one meets nobody. */
void host_start(struct host *host);
/* Everything vanishes: no completion, no goodbye. */
void host_die(struct host *host);
/* The orderly end: destroys cm and device, violates "leak" if something is left. The application
 * has destroyed its objects. */
void host_stop(struct host *host);

static inline bool host_is_alive(const struct host *host)
{
    return host->device != NULL;
}

/* A reliable connection's queue pair, from RESET to RTS by the attributes given. */
void host_connect(struct host *host, struct qp *qp, struct qp_attributes attributes);
/* The engine runs `delay_ns` from now at the latest: a doorbell was rung, a call was made. */
void host_wake(struct host *host, uint64_t delay_ns);
/* The queue pair was posted to by who has the engine: it has its turn at once. host_wake comes
 * next. */
void host_kick(struct host *host, struct qp *qp);

#endif
