/* Address handles: where a datagram goes, resolved once; and what needs the kernel's tables, which
 * is refused. */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/sa.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/port.h"
#include "rnic/verbs/refusal.h"

#define HOP_LIMIT_DEFAULT 64u

PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attributes)
{
    HOST_FORWARD(pd->context, ibv_create_ah, pd, attributes);
    struct path path;
    uint32_t entropy = attributes->dlid;
    if (attributes->is_global) {
        memcpy(&entropy, attributes->grh.dgid.raw + 12, sizeof entropy);
    }
    if (!port_path(pd->context, attributes, entropy, &path)) {
        if (strict_is_on()) {
            refusal_of_ah(pd->context, attributes);
        }
        errno = EINVAL;
        return NULL;
    }
    if (!limits_take(COUNT_AH)) {
        return NULL;
    }
    struct soft_ah *ah = calloc(1, sizeof *ah);
    if (ah == NULL) {
        limits_give(COUNT_AH);
        return NULL;
    }
    ah->ibv.context = pd->context;
    ah->ibv.pd = pd;
    ah->path = path;
    /* The domain is not to go before it, as where the kernel knows of it. */
    if (!pd_use_domain(pd)) {
        limits_give(COUNT_AH);
        free(ah);
        return NULL;
    }
    pd_hold(pd);
    return &ah->ibv;
}

PUBLIC int ibv_destroy_ah(struct ibv_ah *ah)
{
    HOST_FORWARD(ah->context, ibv_destroy_ah, ah);
    pd_leave_domain(ah->pd);
    pd_drop(ah->pd);
    limits_give(COUNT_AH);
    free(ah);
    return 0;
}

/* The 40 bytes before a datagram: an IPv6-style header, or 20 bytes of nothing and an IPv4 one
 * [RoCEv2 annex A17.4.5.2]. */
static bool read_grh(const struct ibv_grh *grh, struct gid *ret_source, struct gid *ret_target,
                     uint32_t *ret_class_and_label)
{
    const uint8_t *bytes = (const uint8_t *)grh;
    if (bytes[0] >> 4 == 6) {
        memcpy(ret_source->bytes, grh->sgid.raw, sizeof ret_source->bytes);
        memcpy(ret_target->bytes, grh->dgid.raw, sizeof ret_target->bytes);
        *ret_class_and_label = ntohl(grh->version_tclass_flow);
        return true;
    }
    const uint8_t *ipv4 = bytes + 20;
    if (ipv4[0] >> 4 != 4) {
        return false;
    }
    *ret_source = (struct gid){{[10] = 0xff, [11] = 0xff}};
    *ret_target = *ret_source;
    memcpy(ret_source->bytes + 12, ipv4 + 12, 4);
    memcpy(ret_target->bytes + 12, ipv4 + 16, 4);
    *ret_class_and_label = (uint32_t)ipv4[1] << 20;
    return true;
}

PUBLIC int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
                               struct ibv_grh *grh, struct ibv_ah_attr *ret_attributes)
{
    HOST_FORWARD(context, ibv_init_ah_from_wc, context, port, wc, grh, ret_attributes);
    struct gid source;
    struct gid target;
    uint32_t class_and_label;
    uint32_t index;
    struct gid_table *gids = devices_gids(context->device, port);
    if (gids == NULL || (wc->wc_flags & IBV_WC_GRH) == 0) {
        errno = EINVAL;
        return -1;
    }
    if (!read_grh(grh, &source, &target, &class_and_label) ||
        !gid_table_find(gids, &target, &index)) {
        errno = EINVAL;
        return -1;
    }
    *ret_attributes = (struct ibv_ah_attr){
        .dlid = wc->slid,
        .sl = wc->sl,
        .src_path_bits = wc->dlid_path_bits,
        .is_global = 1,
        .port_num = port,
        .grh = {.sgid_index = (uint8_t)index,
                .hop_limit = HOP_LIMIT_DEFAULT,
                .flow_label = class_and_label & IB_GRH_FLOWLABEL_MASK,
                .traffic_class = (uint8_t)(class_and_label >> 20)},
    };
    memcpy(ret_attributes->grh.dgid.raw, source.bytes, sizeof source.bytes);
    return 0;
}

PUBLIC struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                            struct ibv_grh *grh, uint8_t port)
{
    HOST_FORWARD(pd->context, ibv_create_ah_from_wc, pd, wc, grh, port);
    struct ibv_ah_attr attributes;
    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attributes) != 0
               ? NULL
               : ibv_create_ah(pd, &attributes);
}

/* Destination MAC addresses are the kernel's business where packets leave through a socket. */
PUBLIC int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attributes,
                                       uint8_t ret_mac[ETHERNET_LL_SIZE], uint16_t *ret_vlan)
{
    HOST_FORWARD(context, ibv_resolve_eth_l2_from_gid, context, attributes, ret_mac, ret_vlan);
    return EOPNOTSUPP;
}
