/* A device opened through the one verbs library in the process. What the public header does not
 * show. */
#ifndef WEIR_FABRIC_PRIVATE_H
#define WEIR_FABRIC_PRIVATE_H

#include <pthread.h>
#include <sys/socket.h>

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
        *cm_contexts;      /* librdmacm's; NULL: opened by us, rdma_cm is not to be had */
    struct domain *domain; /* of memory that belongs to no connection; no queue pair is in it */
    pthread_mutex_t lock;  /* domain.h */
    struct ibv_device_attr attributes;
    struct ibv_port_attr port_attributes;
    uint8_t port;
    int gid_index; /* asked for, or FABRIC_GID_ANY */
    bool is_iwarp;
    bool is_toward;      /* of several it was chosen for the address that it leads to */
    size_t transfer_max; /* longest single READ or WRITE */
};

/* The index of the GID asked for; else of that which is the address `local`; else of the first
 * RoCEv2 one of its kind (of IPv4, of one link, of IPv6 at large), or of its family; else 0. -1:
 * there is none. */
int fabric_choose_gid(const struct weir_fabric *fabric, const struct sockaddr *local,
                      union ibv_gid *ret_gid);
/* The first of rdma_cm's contexts by which HOST:PORT is reached, or that has this address, and its
 * port. NULL: none, or the name is not known, or stands for every address. */
struct ibv_context *fabric_find_toward(const struct verbs *verbs,
                                       struct ibv_context *const *contexts, int count,
                                       const char *text, unsigned *ret_port);
/* That there is none; returns the status. */
enum weir_status fabric_say_no_gid(const struct weir_fabric *fabric, struct weir_error *ret_error);

#endif
