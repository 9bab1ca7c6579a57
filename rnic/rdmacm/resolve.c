/* Addresses: binding to a local one, and finding the way to a remote one. Nothing here waits: the
 * host's routing table answers at once, and the answer becomes an event. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

#define PATH_RATE 16u /* IBV_RATE_100_GBPS, as the port says of itself */

static bool is_any(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY;
    }
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static uint32_t scope_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_scope_id
                                          : 0;
}

size_t cma_address_length(const struct sockaddr *address)
{
    return address == NULL                  ? 0
           : address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
           : address->sa_family == AF_INET  ? sizeof(struct sockaddr_in)
                                            : 0;
}

static void set_port(struct sockaddr *address, uint16_t port)
{
    if (address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)address)->sin_port = htons(port);
    }
}

static uint16_t port_of(const struct sockaddr *address)
{
    return ntohs(address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

/* Names a place among the ports; the registry chooses one for port 0. */
static enum status claim(struct cma_id *id, const struct gid *gid, enum registry_scope scope,
                         bool modest, uint16_t *port)
{
    struct cma_device *device = cma_device();
    struct registry *registry = device->core->loop_registry(device->engine);
    struct registry_name name = {.scope = scope, .address = *gid};
    id->scope = scope;
    if (*port == 0) {
        return device->core->registry_claim_port(registry, (uint16_t)id->ibv.ps, &name,
                                                 id->reuse_address, modest, port, &id->claim);
    }
    name.service_id = rdma_cm_service_id((uint16_t)id->ibv.ps, *port);
    return device->core->registry_claim(registry, &name, id->reuse_address, &id->claim);
}

void cma_unbind(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    if (id->claim != NO_CLAIM && cma_is_ours(id)) {
        device->core->registry_release(device->core->loop_registry(device->engine), id->claim);
        id->claim = NO_CLAIM;
    }
}

/* For who only connects, a port that is chosen is a courtesy to the peer's logs: where the registry
 * has no room, but for those who will listen, one is named without being claimed. */
static int bind_to(struct cma_id *id, const struct sockaddr *address, bool connects)
{
    struct cma_device *device = cma_device();
    struct gid gid;
    uint16_t port;
    struct device_place place;
    if (!cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    if (device->core->address_from_socket(address, &gid, &port) != STATUS_OK) {
        return cma_error(EAFNOSUPPORT);
    }
    bool any = is_any(address);
    if (!any && !device->core->devices_find(&gid, &place)) {
        return cma_error(ENODEV);
    }
    enum registry_scope scope = !any                            ? REGISTRY_EXACT
                                : address->sa_family == AF_INET ? REGISTRY_ANY_IPV4
                                : id->one_family                ? REGISTRY_ANY_IPV6
                                                                : REGISTRY_ANY;
    const bool is_courtesy = connects && port == 0;
    enum status status = claim(id, &gid, scope, is_courtesy, &port);
    if (status == STATUS_FULL && is_courtesy) {
        port = (uint16_t)(REGISTRY_PORT_FIRST + id->terms.local_psn.value % REGISTRY_PORTS);
        status = STATUS_OK;
    }
    if (status != STATUS_OK) {
        return cma_status(status);
    }
    memcpy(&id->ibv.route.addr.src_storage, address, cma_address_length(address));
    set_port(&id->ibv.route.addr.src_addr, port);
    id->interface_index = scope_of(address);
    if (!any) {
        id->path.local = gid;
        memcpy(id->ibv.route.addr.addr.ibaddr.sgid.raw, gid.bytes, sizeof gid.bytes);
        cma_attach(id);
    }
    id->state = CMA_BOUND;
    return 0;
}

int cma_bind(struct cma_id *id, const struct sockaddr *address)
{
    return bind_to(id, address, false);
}

PUBLIC int rdma_bind_addr(struct rdma_cm_id *ibv, struct sockaddr *address)
{
    struct cma_id *id = cma_id(ibv);
    if (cma_address_length(address) == 0 || id->state != CMA_IDLE) {
        return cma_error(EINVAL);
    }
    return cma_bind(id, address);
}

void cma_set_addresses(struct cma_id *id, uint16_t local_port, uint16_t remote_port)
{
    struct cma_device *device = cma_device();
    struct rdma_addr *address = &id->ibv.route.addr;
    device->core->address_to_socket(&id->path.local, local_port, id->interface_index,
                                    &address->src_storage);
    device->core->address_to_socket(&id->path.remote, remote_port, id->interface_index,
                                    &address->dst_storage);
    memcpy(address->addr.ibaddr.sgid.raw, id->path.local.bytes, sizeof id->path.local.bytes);
    memcpy(address->addr.ibaddr.dgid.raw, id->path.remote.bytes, sizeof id->path.remote.bytes);
    address->addr.ibaddr.pkey = PKEY_DEFAULT.value;
}

void cma_fill_path_record(struct cma_id *id)
{
    struct ibv_sa_path_rec *record = &id->path_record;
    *record = (struct ibv_sa_path_rec){
        .flow_label = htonl(id->path.flow_label),
        .hop_limit = id->path.hop_limit,
        .traffic_class = id->path.traffic_class,
        .reversible = 1,
        .numb_path = 1,
        .pkey = PKEY_DEFAULT.value,
        .mtu_selector = 2, /* exactly */
        .mtu = (uint8_t)id->terms.path_mtu,
        .rate_selector = 2,
        .rate = PATH_RATE,
        .packet_life_time_selector = 2,
        .packet_life_time = ACK_TIMEOUT - 1,
    };
    memcpy(record->sgid.raw, id->path.local.bytes, sizeof id->path.local.bytes);
    memcpy(record->dgid.raw, id->path.remote.bytes, sizeof id->path.remote.bytes);
    id->ibv.route.path_rec = record;
    id->ibv.route.num_paths = 1;
}

/* Who connects to "any" means this host. */
static void loopback_for_any(const struct cma_id *id, bool is_ipv6, struct gid *ret_gid)
{
    if (!gid_is_zero(&id->path.local)) {
        *ret_gid = id->path.local;
    } else if (is_ipv6) {
        *ret_gid = (struct gid){{[15] = 1}};
    } else {
        *ret_gid = (struct gid){{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    }
}

/* The way to `target` from where the id is bound, if it is. */
static enum status find_route(struct cma_id *id, const struct sockaddr *target,
                              uint16_t *ret_remote_port)
{
    struct cma_device *device = cma_device();
    struct address_route route;
    struct gid remote;
    uint32_t interface_index = scope_of(target);
    enum status status = device->core->address_from_socket(target, &remote, ret_remote_port);
    if (status != STATUS_OK) {
        return status;
    }
    if (is_any(target)) {
        loopback_for_any(id, target->sa_family == AF_INET6, &remote);
    }
    bool bound = !gid_is_zero(&id->path.local);
    status = device->core->address_route(
        &remote, bound ? &id->path.local : NULL,
        interface_index != 0 ? interface_index : id->interface_index, &route);
    if (status != STATUS_OK) {
        return status;
    }
    id->path.local = route.local;
    id->path.remote = remote;
    id->interface_index = route.interface_index;
    id->terms.path_mtu = route.path_mtu;
    return STATUS_OK;
}

PUBLIC int rdma_resolve_addr(struct rdma_cm_id *ibv, struct sockaddr *source,
                             struct sockaddr *target, int timeout_ms)
{
    struct cma_id *id = cma_id(ibv);
    uint16_t remote_port;
    if (cma_address_length(target) == 0 || (source != NULL && cma_address_length(source) == 0) ||
        (id->state != CMA_IDLE && id->state != CMA_BOUND) || !cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    if (id->state == CMA_IDLE) {
        const struct sockaddr_storage any = {.ss_family = target->sa_family};
        int result = bind_to(id, source != NULL ? source : (const struct sockaddr *)&any, true);
        if (result != 0) {
            return result;
        }
    }
    if (ibv->route.addr.src_addr.sa_family != target->sa_family) {
        return cma_error(EINVAL);
    }
    enum status status = find_route(id, target, &remote_port);
    if (status != STATUS_OK) { /* said at once, as Linux does, and not by an event */
        return status == STATUS_NOT_FOUND ? cma_error(ENETUNREACH) : cma_status(status);
    }
    cma_set_addresses(id, port_of(&ibv->route.addr.src_addr), remote_port);
    cma_attach(id);
    id->state = CMA_ADDRESS_RESOLVED;
    const bool waits = id->is_synchronous;
    int result = cma_event_local(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    return result == 0 && waits ? cma_complete(id) : result;
}

PUBLIC int rdma_resolve_route(struct rdma_cm_id *ibv, int timeout_ms)
{
    struct cma_id *id = cma_id(ibv);
    if (id->state != CMA_ADDRESS_RESOLVED || !cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    id->path.traffic_class = id->traffic_class;
    cma_fill_path_record(id);
    id->state = CMA_ROUTE_RESOLVED;
    const bool waits = id->is_synchronous;
    int result = cma_event_local(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    return result == 0 && waits ? cma_complete(id) : result;
}

PUBLIC __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return htons(port_of(&id->route.addr.src_addr));
}

PUBLIC __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return htons(port_of(&id->route.addr.dst_addr));
}
