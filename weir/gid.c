/* Which of a port's addresses a queue pair uses that is not connected by rdma_cm. */
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "weir/error_private.h"
#include "weir/fabric_private.h"

#define GIDS_MAX 256

/* The IPv6 or IPv4-mapped form in which a GID carries an address. */
static void gid_of_address(const struct sockaddr *address, uint8_t ret_gid[16])
{
    memset(ret_gid, 0, 16);
    if (address->sa_family == AF_INET6) {
        memcpy(ret_gid, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
    } else {
        ret_gid[10] = ret_gid[11] = 0xff;
        memcpy(ret_gid + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    }
}

static bool is_mapped(const uint8_t gid[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

static bool is_link_local(const uint8_t gid[16])
{
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

static bool is_version2(const struct weir_fabric *fabric, uint32_t index)
{
    struct ibv_gid_entry entry;
    if (fabric->library.verbs.query_gid_entry == NULL) {
        return true;
    }
    return fabric->library.verbs.query_gid_entry(fabric->context, fabric->port, index, &entry, 0,
                                                 sizeof(entry)) == 0 &&
           entry.gid_type == IBV_GID_TYPE_ROCE_V2;
}

/* How well it goes with an address that it is not: as one of its kind (of IPv4, of one link, of
 * IPv6 at large), of its family, or not at all. */
static int likeness(const uint8_t gid[16], const uint8_t wanted[16])
{
    bool is_v4 = is_mapped(gid), is_of_link = is_link_local(gid);
    return is_v4 != is_mapped(wanted) ? 0 : is_of_link != is_link_local(wanted) ? 1 : 2;
}

int fabric_choose_gid(const struct weir_fabric *fabric, const struct sockaddr *local,
                      union ibv_gid *ret_gid)
{
    static const uint8_t nothing[16];
    const struct verbs *verbs = &fabric->library.verbs;
    int chosen = fabric->gid_index;
    if (chosen == FABRIC_GID_ANY && fabric->port_attributes.link_layer == IBV_LINK_LAYER_ETHERNET) {
        uint8_t wanted[16];
        gid_of_address(local, wanted);
        int count = fabric->port_attributes.gid_tbl_len;
        int best = 0;
        for (int i = 0; i < count && i < GIDS_MAX; i++) {
            union ibv_gid gid;
            if (verbs->query_gid(fabric->context, fabric->port, i, &gid) != 0 ||
                memcmp(gid.raw, nothing, 16) == 0 || !is_version2(fabric, (uint32_t)i)) {
                continue;
            }
            if (memcmp(gid.raw, wanted, 16) == 0) {
                chosen = i;
                break;
            }
            if (likeness(gid.raw, wanted) > best) {
                best = likeness(gid.raw, wanted);
                chosen = i;
            }
        }
    }
    chosen = chosen == FABRIC_GID_ANY ? 0 : chosen;
    union ibv_gid gid;
    if (verbs->query_gid(fabric->context, fabric->port, chosen, &gid) != 0 ||
        memcmp(gid.raw, nothing, 16) == 0) {
        return -1;
    }
    *ret_gid = gid;
    return chosen;
}

enum weir_status fabric_say_no_gid(const struct weir_fabric *fabric, struct weir_error *ret_error)
{
    if (fabric->gid_index == FABRIC_GID_ANY) {
        return error_set(ret_error, WEIR_NO_DEVICE, "%s port %u has no GID to use", fabric->device,
                         fabric->port);
    }
    return error_set(ret_error, WEIR_NO_DEVICE, "%s port %u has no GID %d", fabric->device,
                     fabric->port, fabric->gid_index);
}
