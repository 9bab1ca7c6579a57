/* A device opened through the one verbs library in the process, with the domain that all its
 * memory and queue pairs live in. What the public header does not show. */
#ifndef WEIR_FABRIC_PRIVATE_H
#define WEIR_FABRIC_PRIVATE_H

#include <weir/fabric.h>

#include "weir/library.h"

#define FABRIC_GID_ANY (-1)

struct weir_fabric {
    struct library library;
    enum weir_fabric_kind kind;
    char device[64];
    char reason[256];
    struct ibv_context *context;
    struct ibv_context *
        *cm_contexts; /* librdmacm's; NULL: opened by us, rdma_cm is not to be had */
    struct ibv_pd *domain;
    struct ibv_device_attr attributes;
    struct ibv_port_attr port_attributes;
    uint8_t port;
    int gid_index; /* asked for, or FABRIC_GID_ANY */
    bool is_iwarp;
    size_t transfer_max; /* longest single READ or WRITE */
};

/* Registers memory that only this side reads, so that read-only mappings will do. */
enum weir_status memory_register_source(struct weir_fabric *fabric, const void *bytes,
                                        size_t length, unsigned rights,
                                        struct weir_memory **ret_memory,
                                        struct weir_error *ret_error);
uint32_t memory_local_key(const struct weir_memory *memory);

#endif
