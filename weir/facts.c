/* What people ask of a device: MTU and addresses. */
#include <arpa/inet.h>
#include <string.h>

#include "weir/fabric_private.h"
#include "weir/sysfs.h"

static unsigned mtu_length(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

void weir_fabric_facts(const struct weir_fabric *fabric, struct weir_fabric_facts *ret_facts)
{
    *ret_facts = (struct weir_fabric_facts){
        .port = fabric->port,
        .mtu_length = mtu_length(fabric->port_attributes.active_mtu),
        .mtu_length_max = mtu_length(fabric->port_attributes.max_mtu),
        .gid_count = (unsigned)fabric->port_attributes.gid_tbl_len,
    };
}

const char *weir_fabric_same_host(const struct weir_fabric *fabric)
{
    return fabric->library.verbs.same_host == NULL
               ? NULL
               : fabric->library.verbs.same_host(fabric->context);
}

bool weir_fabric_retransmissions(const struct weir_fabric *fabric, uint64_t *ret_count)
{
    if (fabric->library.verbs.retransmissions != NULL) {
        *ret_count = fabric->library.verbs.retransmissions(fabric->context);
        return true;
    }
    return sysfs_retransmissions(SYSFS_DEVICES, fabric->device, fabric->port, ret_count);
}

bool weir_fabric_carried(const struct weir_fabric *fabric, struct weir_fabric_carried *ret_carried)
{
    *ret_carried = (struct weir_fabric_carried){0};
    if (fabric->library.verbs.carried == NULL) {
        return false;
    }
    fabric->library.verbs.carried(fabric->context, &ret_carried->network, &ret_carried->memory);
    return true;
}

bool weir_fabric_gid(const struct weir_fabric *fabric, unsigned index,
                     char ret_text[WEIR_GID_LENGTH])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const union ibv_gid none;
    union ibv_gid gid;
    if (index >= (unsigned)fabric->port_attributes.gid_tbl_len ||
        fabric->library.verbs.query_gid(fabric->context, fabric->port, (int)index, &gid) != 0 ||
        memcmp(&gid, &none, sizeof(gid)) == 0) {
        return false;
    }
    if (memcmp(gid.raw, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, gid.raw + sizeof(mapped), ret_text, WEIR_GID_LENGTH);
    } else {
        inet_ntop(AF_INET6, gid.raw, ret_text, WEIR_GID_LENGTH);
    }
    return true;
}
