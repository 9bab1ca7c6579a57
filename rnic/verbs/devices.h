/* Which devices there are, and which ports with which addresses each has: WEIR_DEVICES, read once.
 *
 *     unset                            weir0 with one port that has all addresses of the host
 *     2                                weir0 and weir1, each with all of them
 *     a=eth0,b=10.0.0.1+fd00::1        devices by name, each with the addresses of an interface, or
 *                                      with those that are named; without "=" with all
 *     weir0:1=eth0,weir0:2=eth1        one device with two ports
 *
 * All devices of a process share one engine: they are views of the host's addresses. */
#ifndef WEIR_VERBS_DEVICES_H
#define WEIR_VERBS_DEVICES_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/verbs/devices_text.h"
#include "rnic/wire/ids.h"

struct gid_table;
struct soft_device;

/* 0 where WEIR_DEVICES does not read as above, which is said once, on stderr: then a program that
 * got another set of devices than it asked for would be worse. */
uint32_t devices_count(void);
struct soft_device *devices_get(uint32_t index);
/* Reads the addresses of all ports of a device again. */
void devices_refresh(struct ibv_device *device);

/* NULL: the device has no such port. */
struct gid_table *devices_gids(struct ibv_device *device, uint32_t port);
/* What programs are told of every port: WEIR_LINK_LAYER is "infiniband" or, if unset, "ethernet".
 * Packets are RoCEv2 in both cases. */
bool devices_are_infiniband(void);

/* Where a GID belongs: the first device and port that have it. */
struct device_place {
    uint32_t device; /* index */
    uint8_t port;
    uint32_t gid_index;
};
bool devices_find(const struct gid *gid, struct device_place *ret_place);

#endif
