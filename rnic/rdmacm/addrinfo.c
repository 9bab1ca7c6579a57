/* Names to addresses: the host's resolver, in the structs of rdma_cm. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

static struct sockaddr *copy_address(const struct sockaddr *address, socklen_t length)
{
    struct sockaddr *copy = malloc(length);
    if (copy != NULL) {
        memcpy(copy, address, length);
    }
    return copy;
}

/* What the host's resolver is to look for. */
static struct addrinfo hints_for_host(const struct rdma_addrinfo *hints)
{
    struct addrinfo host = {0};
    if ((hints->ai_flags & RAI_PASSIVE) != 0) {
        host.ai_flags |= AI_PASSIVE;
    }
    if ((hints->ai_flags & RAI_NUMERICHOST) != 0) {
        host.ai_flags |= AI_NUMERICHOST;
    }
    if (hints->ai_family != AF_IB) {
        host.ai_family = hints->ai_family;
    }
    switch ((int)hints->ai_qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        host.ai_socktype = SOCK_STREAM;
        break;
    case IBV_QPT_UD:
        host.ai_socktype = SOCK_DGRAM;
        break;
    default:
        break;
    }
    switch (hints->ai_port_space) {
    case RDMA_PS_TCP:
        host.ai_protocol = IPPROTO_TCP;
        break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
        host.ai_protocol = IPPROTO_UDP;
        break;
    default:
        break;
    }
    return host;
}

/* Port space and type of queue pair follow from what was found where they were not given. */
static void complete_kind(const struct addrinfo *found, const struct rdma_addrinfo *hints,
                          struct rdma_addrinfo *info)
{
    bool datagrams = found->ai_socktype == SOCK_DGRAM;
    info->ai_qp_type = datagrams ? IBV_QPT_UD : IBV_QPT_RC;
    info->ai_port_space = found->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
    if (hints != NULL && hints->ai_qp_type != 0) {
        info->ai_qp_type = hints->ai_qp_type;
    }
    if (hints != NULL && hints->ai_port_space != 0) {
        info->ai_port_space = hints->ai_port_space;
    }
}

static int resolve_names(const char *node, const char *service, const struct rdma_addrinfo *hints,
                         struct rdma_addrinfo *info)
{
    const int native = RAI_FAMILY | RAI_NUMERICHOST;
    if (hints != NULL && hints->ai_family == AF_IB && (hints->ai_flags & native) == native) {
        return EAI_FAMILY; /* a GID as a name, on a port that has no InfiniBand addresses */
    }
    struct addrinfo *found, host = {0};
    if (hints != NULL) {
        host = hints_for_host(hints);
    }
    int error = getaddrinfo(node, service, hints != NULL ? &host : NULL, &found);
    if (error != 0) {
        return error;
    }
    complete_kind(found, hints, info);
    info->ai_family = found->ai_family;
    struct sockaddr *address = copy_address(found->ai_addr, found->ai_addrlen);
    if ((host.ai_flags & AI_PASSIVE) != 0) {
        info->ai_flags = RAI_PASSIVE;
        info->ai_src_addr = address;
        info->ai_src_len = found->ai_addrlen;
    } else {
        info->ai_dst_addr = address;
        info->ai_dst_len = found->ai_addrlen;
    }
    freeaddrinfo(found);
    return address == NULL ? EAI_MEMORY : 0;
}

static int copy_given(const struct sockaddr *address, socklen_t length, struct sockaddr **ret_copy,
                      socklen_t *ret_length)
{
    if (length == 0 || address == NULL) {
        return 0;
    }
    struct sockaddr *copy = copy_address(address, length);
    if (copy == NULL) {
        return cma_error(ENOMEM);
    }
    *ret_copy = copy;
    *ret_length = length;
    return 0;
}

static int take_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo *info)
{
    info->ai_flags = hints->ai_flags;
    info->ai_family = hints->ai_family;
    info->ai_qp_type = hints->ai_qp_type;
    info->ai_port_space = hints->ai_port_space;
    return copy_given(hints->ai_dst_addr, hints->ai_dst_len, &info->ai_dst_addr, &info->ai_dst_len);
}

PUBLIC int rdma_getaddrinfo(const char *node, const char *service,
                            const struct rdma_addrinfo *hints, struct rdma_addrinfo **ret_info)
{
    if (node == NULL && service == NULL && hints == NULL) {
        return cma_error(EINVAL);
    }
    struct rdma_addrinfo *info = calloc(1, sizeof *info);
    if (info == NULL) {
        return cma_error(ENOMEM);
    }
    bool by_name = node != NULL || service != NULL;
    int error = by_name ? resolve_names(node, service, hints, info) : take_hints(hints, info);
    if (error == 0 && hints != NULL && info->ai_src_len == 0) {
        error = copy_given(hints->ai_src_addr, hints->ai_src_len, &info->ai_src_addr,
                           &info->ai_src_len);
    }
    if (error != 0) {
        int number = errno;
        rdma_freeaddrinfo(info);
        errno = number;
        return error;
    }
    *ret_info = info;
    return 0;
}

PUBLIC void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
    while (info != NULL) {
        struct rdma_addrinfo *next = info->ai_next;
        free(info->ai_src_addr);
        free(info->ai_dst_addr);
        free(info->ai_src_canonname);
        free(info->ai_dst_canonname);
        free(info->ai_route);
        free(info->ai_connect);
        free(info);
        info = next;
    }
}
