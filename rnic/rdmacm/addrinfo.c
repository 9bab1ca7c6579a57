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

/* Port space and type of queue pair follow from each other where only one is given. */
static void complete_kind(struct rdma_addrinfo *info)
{
    if (info->ai_port_space == 0) {
        info->ai_port_space = info->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
    }
    if (info->ai_qp_type == 0) {
        info->ai_qp_type = info->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
    }
}

static int resolve_names(const char *node, const char *service, struct rdma_addrinfo *info)
{
    bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
    struct addrinfo hints = {
        .ai_flags = (passive ? AI_PASSIVE : 0) |
                    ((info->ai_flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0),
        .ai_family = (info->ai_flags & RAI_FAMILY) != 0 || info->ai_family == AF_INET ||
                             info->ai_family == AF_INET6
                         ? info->ai_family
                         : AF_UNSPEC,
        .ai_socktype = info->ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM,
    };
    struct addrinfo *found;
    int error = getaddrinfo(node, service, &hints, &found);
    if (error != 0) {
        return error;
    }
    info->ai_family = found->ai_family;
    struct sockaddr *address = copy_address(found->ai_addr, found->ai_addrlen);
    if (passive) {
        info->ai_src_addr = address;
        info->ai_src_len = found->ai_addrlen;
    } else {
        info->ai_dst_addr = address;
        info->ai_dst_len = found->ai_addrlen;
    }
    freeaddrinfo(found);
    return address == NULL ? EAI_MEMORY : 0;
}

static int copy_given(const struct rdma_addrinfo *hints, bool both, struct rdma_addrinfo *info)
{
    if (both && hints->ai_dst_len != 0 && hints->ai_dst_addr != NULL) {
        info->ai_dst_addr = copy_address(hints->ai_dst_addr, hints->ai_dst_len);
        info->ai_dst_len = hints->ai_dst_len;
        if (info->ai_dst_addr == NULL) {
            return EAI_MEMORY;
        }
    }
    if (info->ai_src_addr == NULL && hints->ai_src_len != 0 && hints->ai_src_addr != NULL) {
        info->ai_src_addr = copy_address(hints->ai_src_addr, hints->ai_src_len);
        info->ai_src_len = hints->ai_src_len;
        if (info->ai_src_addr == NULL) {
            return EAI_MEMORY;
        }
    }
    return 0;
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
    if (hints != NULL) {
        info->ai_flags = hints->ai_flags;
        info->ai_family = hints->ai_family;
        info->ai_qp_type = hints->ai_qp_type;
        info->ai_port_space = hints->ai_port_space;
    }
    complete_kind(info);
    bool by_name = node != NULL || service != NULL;
    int error = by_name ? resolve_names(node, service, info) : 0;
    if (error == 0 && hints != NULL) {
        error = copy_given(hints, !by_name, info);
    }
    if (error != 0) {
        rdma_freeaddrinfo(info);
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
