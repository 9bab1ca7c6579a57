/* Options of ids, and what is refused: multicast, enhanced connection establishment. */
#include <errno.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

/* Option values are bytes or ints. */
static int set_flag(bool *flag, const void *value, size_t length)
{
    int number;
    if (length != sizeof number) {
        return cma_error(EINVAL);
    }
    memcpy(&number, value, sizeof number);
    *flag = number != 0;
    return 0;
}

static int set_byte(uint8_t *byte, const void *value, size_t length)
{
    if (length != sizeof *byte) {
        return cma_error(EINVAL);
    }
    memcpy(byte, value, sizeof *byte);
    return 0;
}

PUBLIC int rdma_set_option(struct rdma_cm_id *ibv, int level, int name, void *value, size_t length)
{
    struct cma_id *id = cma_id(ibv);
    if (level != RDMA_OPTION_ID || value == NULL) {
        return cma_error(level == RDMA_OPTION_IB ? EOPNOTSUPP : EINVAL);
    }
    switch (name) {
    case RDMA_OPTION_ID_TOS:
        return set_byte(&id->traffic_class, value, length);
    case RDMA_OPTION_ID_REUSEADDR:
        return set_flag(&id->reuse_address, value, length);
    case RDMA_OPTION_ID_AFONLY:
        return set_flag(&id->one_family, value, length);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        return length == 1 && *(uint8_t *)value > 31
                   ? cma_error(EINVAL)
                   : set_byte(&id->terms.ack_timeout, value, length);
    default:
        return cma_error(ENOSYS);
    }
}

PUBLIC int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address, void *context)
{
    return cma_error(EOPNOTSUPP);
}

PUBLIC int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attributes,
                                  void *context)
{
    return cma_error(EOPNOTSUPP);
}

PUBLIC int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *address)
{
    return cma_error(EOPNOTSUPP);
}

PUBLIC int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    return ece == NULL || ece->comp_mask != 0 ? cma_error(EINVAL) : cma_error(EOPNOTSUPP);
}

PUBLIC int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ret_ece)
{
    if (ret_ece == NULL || ret_ece->comp_mask != 0) {
        return cma_error(EINVAL);
    }
    *ret_ece = (struct ibv_ece){0};
    return 0;
}
