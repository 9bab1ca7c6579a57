/* What librdmacm.so.1 needs from the core and io, both of which live in libibverbs.so.1 only: one
 * exported symbol, weir_seam@WEIR_PRIVATE_1, that gives a table. Nobody else's names can stand in
 * the way of a table, as they could of thirty exported functions with everyday names. */
#ifndef WEIR_VERBS_SEAM_H
#define WEIR_VERBS_SEAM_H

#include <infiniband/verbs.h>

#include "rnic/cm/cm.h"
#include "rnic/device/engine.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/system/notify.h"
#include "rnic/io/udp/address.h"
#include "rnic/verbs/devices.h"

/* Each entry is the function of the same name, whose header says what it does. */
struct weir_seam {
    enum status (*cm_listen)(struct cm *, uint64_t, const struct gid *, uint32_t, void *,
                             struct cm_listener **);
    void (*cm_unlisten)(struct cm_listener *);
    bool (*cm_next_event)(struct cm *, struct cm_event *);
    enum status (*cm_connect)(struct cm *, struct instant, const struct cm_connect_request *,
                              struct cm_connection **);
    enum status (*cm_accept)(struct cm_connection *, struct instant, const struct cm_parameters *);
    enum status (*cm_confirm)(struct cm_connection *, struct instant);
    enum status (*cm_reject)(struct cm_connection *, struct instant, uint16_t, const void *,
                             uint8_t);
    enum status (*cm_resolve)(struct cm *, struct instant, const struct cm_connect_request *,
                              struct cm_connection **);
    enum status (*cm_service_accept)(struct cm_connection *, struct instant,
                                     const struct cm_parameters *);
    enum status (*cm_service_reject)(struct cm_connection *, struct instant, enum cm_sidr_status,
                                     const void *, uint8_t);
    enum status (*cm_disconnect)(struct cm_connection *, struct instant);
    void (*cm_data_arrived)(struct cm_connection *, struct instant);
    enum status (*cm_delay)(struct cm_connection *, struct instant, uint8_t);
    void (*cm_set_backlog)(struct cm_listener *, uint32_t);
    void (*cm_taken)(struct cm_connection *);
    void (*cm_set_context)(struct cm_connection *, void *);
    void (*cm_release)(struct cm_connection *, struct instant);
    enum status (*rdma_cm_header_parse)(const uint8_t *, struct rdma_cm_header *);
    void (*rdma_cm_header_build)(const struct rdma_cm_header *, uint8_t *);

    enum status (*address_route)(const struct gid *, const struct gid *, uint32_t,
                                 struct address_route *);
    enum status (*address_from_socket)(const struct sockaddr *, struct gid *, uint16_t *);
    socklen_t (*address_to_socket)(const struct gid *, uint16_t, uint32_t,
                                   struct sockaddr_storage *);
    bool (*devices_find)(const struct gid *, struct device_place *);

    struct registry *(*loop_registry)(struct engine *);
    void (*loop_set_cm_wake)(struct engine *, void (*)(void *), void *);
    bool (*loop_is_ours)(const struct engine *);
    enum status (*registry_claim)(struct registry *, const struct registry_name *, bool,
                                  uint32_t *);
    enum status (*registry_claim_port)(struct registry *, uint16_t, const struct registry_name *,
                                       bool, bool, uint16_t *, uint32_t *);
    enum status (*registry_listen)(struct registry *, uint32_t);
    void (*registry_unlisten)(struct registry *, uint32_t);
    void (*registry_release)(struct registry *, uint32_t);

    enum status (*notify_create)(struct notify **);
    void (*notify_destroy)(struct notify *);
    int (*notify_descriptor)(const struct notify *);
    void (*notify_post)(struct notify *, const struct notify_record *);
    int (*notify_wait)(struct notify *, struct notify_record *);
    uint32_t (*notify_forget)(struct notify *, const void *);

    bool (*strict_is_on)(void);
    void (*strict_sends_answered)(struct qpn);
    void (*strict_unacknowledged)(uint32_t);

    struct engine *(*context_engine)(struct ibv_context *);
    int (*errno_of)(enum status);
};

const struct weir_seam *weir_seam(void);
/* For people, through libweir: what carries packets to processes of this host, and why. */
const char *weir_same_host(struct ibv_context *context);
/* The same way: packets that this process's device has sent again. */
uint64_t weir_retransmissions(struct ibv_context *context);
/* The same way: what has carried this process's packets, see loop_count_carried. */
void weir_carried(struct ibv_context *context, uint64_t *ret_network, uint64_t *ret_memory);

#endif
