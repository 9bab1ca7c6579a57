/* The way between two ports: what the IP and UDP headers of a RoCEv2 packet are made from. */
#ifndef WEIR_WIRE_PATH_H
#define WEIR_WIRE_PATH_H

#include "rnic/wire/ids.h"
#include "rnic/wire/psn.h"

struct path {
    struct gid local; /* both ends of one family */
    struct gid remote;
    uint16_t source_port;  /* UDP; entropy for the fabric, of a queue pair with a flow label */
    uint8_t traffic_class; /* DSCP and ECN bits */
    uint8_t hop_limit;     /* 0 stands for 64; for 1 where `remote` is a multicast group */
    uint32_t flow_label;   /* IPv6, 20 bits */
};

/* How a packet came. `path` is seen from the receiver: `local` is the address it was sent to. */
struct arrival {
    struct path path;
    bool congestion_experienced; /* ECN CE mark */
    bool is_near;                /* by a link that carries acknowledgements with requests: */
    bool acknowledges;           /* this one brings one, */
    struct psn acknowledged;     /* of all that came the other way up to it */
};

/* Path MTU in the encoding of the specification. [IBA 9.2, table of MTU codes] */
enum path_mtu {
    PATH_MTU_256 = 1,
    PATH_MTU_512 = 2,
    PATH_MTU_1024 = 3,
    PATH_MTU_2048 = 4,
    PATH_MTU_4096 = 5,
};

static inline uint32_t path_mtu_bytes(enum path_mtu mtu)
{
    return 128u << mtu;
}

#endif
