/* A port: its attributes, GIDs, P_Keys. */
#include <errno.h>
#include <string.h>

#include "rnic/verbs/convert.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/port.h"

#undef ibv_query_port

#define LINK_UP            5u /* phys_state [IBA 14.2.5.6] */
#define LINK_POLLING       2u
#define SUBNET_MANAGER_LID 1u /* somebody, as far as programs look */
#define SPEED_25_GBPS      32u
#define WIDTH_4X           2u
#define GRH_REQUIRED       1u
#define COMPAT_LENGTH      48u /* bytes that programs of the first ABI know */
#define SYSFS_GID_ROCE2    1

#define SCOPE_MASK            0x0fu /* of the second byte of an IPv6 multicast address */
#define SCOPE_INTERFACE_LOCAL 1u
#define SCOPE_LINK_LOCAL      2u

struct gid port_group(const union ibv_gid *gid)
{
    struct gid group;
    memcpy(group.bytes, gid->raw, sizeof group.bytes);
    if (group.bytes[0] == 0xff && (group.bytes[1] & SCOPE_MASK) == SCOPE_INTERFACE_LOCAL) {
        group.bytes[1] = (uint8_t)((group.bytes[1] & ~SCOPE_MASK) | SCOPE_LINK_LOCAL);
    }
    return group;
}

/* The port's first address. False: it has none. */
static bool first_address(struct gid_table *gids, struct address *ret_address)
{
    return gid_table_get(gids, 0, ret_address) && !gid_is_zero(&ret_address->gid);
}

static uint16_t port_lid(struct gid_table *gids)
{
    struct address address;
    uint16_t lid = first_address(gids, &address) ? gid_lid(&address.gid) : 0;
    return lid != 0 ? lid : 1;
}

static bool gid_of_lid(struct gid_table *gids, uint16_t lid, struct gid *ret_gid)
{
    struct address address;
    if (lid == 0 || !first_address(gids, &address)) {
        return false;
    }
    if (lid != port_lid(gids)) {
        address.gid.bytes[14] = (uint8_t)(lid >> 8);
        address.gid.bytes[15] = (uint8_t)lid;
    }
    *ret_gid = address.gid;
    return true;
}

/* fe80:: and a locally administered GUID. */
static const uint8_t infiniband_prefix[12] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 'w', 'e', 'i'};

/* What a GID of the table looks like to programs. */
static struct gid public_gid(uint32_t index, const struct address *address)
{
    struct gid gid = address->gid;
    if (index == 0 && devices_are_infiniband() && gid_is_ipv4(&gid)) {
        memcpy(gid.bytes, infiniband_prefix, sizeof infiniband_prefix);
    }
    return gid;
}

static struct gid destination_of(const union ibv_gid *named)
{
    struct gid gid = port_group(named);
    if (devices_are_infiniband() &&
        memcmp(gid.bytes, infiniband_prefix, sizeof infiniband_prefix) == 0) {
        memset(gid.bytes, 0, 10);
        gid.bytes[10] = gid.bytes[11] = 0xff;
    }
    return gid;
}

int port_query(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret_attributes,
               size_t length)
{
    struct gid_table *gids = devices_gids(context->device, port);
    if (gids == NULL) {
        return EINVAL;
    }
    bool up = !gid_table_is_empty(gids);
    bool infiniband = devices_are_infiniband();
    const struct ibv_port_attr attributes = {
        .state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = (enum ibv_mtu)gid_table_mtu(gids),
        .gid_tbl_len = (int)gid_table_length(gids),
        .port_cap_flags = infiniband ? IBV_PORT_CM_SUP : IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = limits_now()->max_message,
        .pkey_tbl_len = 1,
        .lid = port_lid(gids),
        .sm_lid = infiniband ? SUBNET_MANAGER_LID : 0,
        .max_vl_num = 1,
        .active_width = WIDTH_4X,
        .active_speed = SPEED_25_GBPS,
        .phys_state = up ? LINK_UP : LINK_POLLING,
        .link_layer = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
        .flags = infiniband ? 0 : GRH_REQUIRED,
    };
    memset(ret_attributes, 0, length);
    memcpy(ret_attributes, &attributes, length < sizeof attributes ? length : sizeof attributes);
    return 0;
}

PUBLIC int ibv_query_port(struct ibv_context *context, uint8_t port,
                          struct _compat_ibv_port_attr *ret_attributes)
{
    HOST_FORWARD(context, ibv_query_port, context, port, ret_attributes);
    return port_query(context, port, (struct ibv_port_attr *)ret_attributes, COMPAT_LENGTH);
}

PUBLIC int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                         union ibv_gid *ret_gid)
{
    HOST_FORWARD(context, ibv_query_gid, context, port, index, ret_gid);
    struct address address;
    struct gid_table *gids = devices_gids(context->device, port);
    if (gids == NULL || index < 0 || !gid_table_get(gids, (uint32_t)index, &address)) {
        errno = EINVAL;
        return -1;
    }
    struct gid gid = public_gid((uint32_t)index, &address);
    memcpy(ret_gid->raw, gid.bytes, sizeof ret_gid->raw);
    return 0;
}

static void fill_entry(uint32_t port, uint32_t index, const struct address *address,
                       void *ret_entry, size_t size)
{
    struct gid gid = public_gid(index, address);
    struct ibv_gid_entry entry = {
        .gid_index = index,
        .port_num = port,
        .gid_type = devices_are_infiniband() ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2,
        .ndev_ifindex = address->interface_index,
    };
    memcpy(entry.gid.raw, gid.bytes, sizeof entry.gid.raw);
    memset(ret_entry, 0, size);
    memcpy(ret_entry, &entry, size < sizeof entry ? size : sizeof entry);
}

PUBLIC int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *ret_entry, uint32_t flags, size_t size)
{
    HOST_FORWARD(context, _ibv_query_gid_ex, context, port, index, ret_entry, flags, size);
    struct address address;
    if (flags != 0) {
        return EOPNOTSUPP;
    }
    struct gid_table *gids = devices_gids(context->device, port);
    if (gids == NULL || !gid_table_get(gids, index, &address)) {
        return EINVAL;
    }
    if (gid_is_zero(&address.gid)) {
        return ENODATA;
    }
    fill_entry(port, index, &address, ret_entry, size);
    return 0;
}

PUBLIC ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *ret_entries,
                                    size_t room, uint32_t flags, size_t size)
{
    HOST_FORWARD(context, _ibv_query_gid_table, context, ret_entries, room, flags, size);
    struct address address;
    struct gid_table *gids;
    size_t count = 0;
    if (flags != 0) {
        return -EOPNOTSUPP;
    }
    for (uint32_t port = 1; (gids = devices_gids(context->device, port)) != NULL; port++) {
        for (uint32_t i = 0; gid_table_get(gids, i, &address); i++) {
            if (gid_is_zero(&address.gid)) {
                continue;
            }
            if (count == room) {
                return -EINVAL;
            }
            fill_entry(port, i, &address, (char *)ret_entries + count++ * size, size);
        }
    }
    return (ssize_t)count;
}

/* As the kernel's sysfs tells it: 0 for RoCE v1 and InfiniBand, 1 for RoCE v2; 0 where nothing is.
 */
PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
                              int *ret_type)
{
    HOST_FORWARD(context, ibv_query_gid_type, context, port, index, ret_type);
    struct address address;
    struct gid_table *gids = devices_gids(context->device, port);
    if (gids == NULL || !gid_table_get(gids, index, &address)) {
        errno = EINVAL;
        return -1;
    }
    *ret_type = gid_is_zero(&address.gid) || devices_are_infiniband() ? 0 : SYSFS_GID_ROCE2;
    return 0;
}

PUBLIC int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *ret_pkey)
{
    HOST_FORWARD(context, ibv_query_pkey, context, port, index, ret_pkey);
    if (devices_gids(context->device, port) == NULL || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *ret_pkey = PKEY_DEFAULT.value; /* the same in both byte orders */
    return 0;
}

PUBLIC int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    HOST_FORWARD(context, ibv_get_pkey_index, context, port, pkey);
    if (devices_gids(context->device, port) == NULL || pkey != PKEY_DEFAULT.value) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

/* Programs give groups an IPv6 address (perftest's default is one) and take whatever source GID
 * they find. No packet has addresses of two families: then the interface's own IPv6 address is the
 * source. */
static bool source_for_group(struct gid_table *gids, struct address *local)
{
    struct address other;
    for (uint32_t i = 0; gid_table_get(gids, i, &other); i++) {
        if (other.interface_index == local->interface_index && !gid_is_zero(&other.gid) &&
            !gid_is_ipv4(&other.gid)) {
            *local = other;
            return true;
        }
    }
    return false;
}

bool port_path(struct ibv_context *context, const struct ibv_ah_attr *vector, uint32_t entropy,
               struct path *ret_path)
{
    struct gid_table *gids = devices_gids(context->device, vector->port_num);
    struct address local;
    struct gid remote;
    uint32_t index = vector->is_global ? vector->grh.sgid_index : 0;
    if (gids == NULL || !gid_table_get(gids, index, &local) || gid_is_zero(&local.gid)) {
        return false;
    }
    if (vector->is_global) {
        remote = destination_of(&vector->grh.dgid);
    } else if (!gid_of_lid(gids, vector->dlid, &remote)) {
        return false;
    }
    if (remote.bytes[0] == 0xff && gid_is_ipv4(&local.gid) && !source_for_group(gids, &local)) {
        return false;
    }
    if (gid_is_zero(&remote) || gid_is_ipv4(&remote) != gid_is_ipv4(&local.gid)) {
        return false;
    }
    convert_path(vector, &local.gid, &remote, entropy, ret_path);
    return true;
}

bool port_takes(struct ibv_context *context, const struct ibv_ah_attr *vector,
                const struct path *path, enum path_mtu mtu)
{
    struct gid_table *gids = devices_gids(context->device, vector->port_num);
    struct address local;
    struct address_route route;
    uint32_t index = vector->is_global ? vector->grh.sgid_index : 0;
    return gids == NULL || !gid_table_get(gids, index, &local) || mtu <= local.path_mtu ||
           address_route(&path->remote, &path->local, 0, &route) != STATUS_OK ||
           mtu <= route.path_mtu;
}
