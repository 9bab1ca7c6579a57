/* Options of ids, and enhanced connection establishment. */
#include <errno.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

#define ACK_TIMEOUT_MOST 31u /* five bits */

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

/* A listener's port is nobody else's any more. */
static int set_reuse(struct cma_id *id, const void *value, size_t length)
{
    bool reuse = id->reuse_address;
    if (set_flag(&reuse, value, length) != 0) {
        return -1;
    }
    if (id->state != CMA_IDLE && (!reuse || id->state == CMA_LISTENING)) {
        return cma_error(EINVAL);
    }
    id->reuse_address = reuse;
    return 0;
}

static int set_one_family(struct cma_id *id, const void *value, size_t length)
{
    if (id->state != CMA_IDLE && id->state != CMA_BOUND) {
        return cma_error(EINVAL);
    }
    return set_flag(&id->one_family, value, length);
}

static int set_ack_timeout(struct cma_id *id, const void *value, size_t length)
{
    uint8_t timeout = 0;
    if (set_byte(&timeout, value, length) != 0) {
        return -1;
    }
    enum ibv_qp_type type = id->ibv.qp_type;
    if ((type != IBV_QPT_RC && type != IBV_QPT_XRC_SEND) || timeout > ACK_TIMEOUT_MOST) {
        return cma_error(EINVAL);
    }
    id->terms.ack_timeout = timeout;
    return 0;
}

static int set_option_of_id(struct cma_id *id, int name, const void *value, size_t length)
{
    switch (name) {
    case RDMA_OPTION_ID_TOS:
        return set_byte(&id->traffic_class, value, length);
    case RDMA_OPTION_ID_REUSEADDR:
        return set_reuse(id, value, length);
    case RDMA_OPTION_ID_AFONLY:
        return set_one_family(id, value, length);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        return set_ack_timeout(id, value, length);
    default:
        return cma_error(ENOSYS);
    }
}

PUBLIC int rdma_set_option(struct rdma_cm_id *ibv, int level, int name, void *value, size_t length)
{
    if (value == NULL) {
        return cma_error(EINVAL);
    }
    switch (level) {
    case RDMA_OPTION_ID:
        return set_option_of_id(cma_id(ibv), name, value, length);
    case RDMA_OPTION_IB: /* a path of InfiniBand's, by LIDs: we are on Ethernet */
        return cma_error(name == RDMA_OPTION_IB_PATH ? EOPNOTSUPP : ENOSYS);
    default:
        return cma_error(ENOSYS);
    }
}

/* Enhanced connection establishment is for queue pairs that the application makes itself: of ours
 * there is nothing to agree on. What is set goes out with the next REQ or REP; of a REP the options
 * only, since they are an answer to the vendor that the REQ names. */
PUBLIC int rdma_set_local_ece(struct rdma_cm_id *ibv, struct ibv_ece *ece)
{
    if (ibv == NULL || ibv->qp != NULL || ece == NULL || ece->vendor_id == 0 ||
        ece->comp_mask != 0) {
        return cma_error(EINVAL);
    }
    cma_id(ibv)->local_ece = (struct cm_ece){ece->vendor_id, ece->options};
    return 0;
}

PUBLIC int rdma_get_remote_ece(struct rdma_cm_id *ibv, struct ibv_ece *ret_ece)
{
    if (ibv == NULL || ibv->qp != NULL || ret_ece == NULL) {
        return cma_error(EINVAL);
    }
    const struct cm_ece *ece = &cma_id(ibv)->remote_ece;
    *ret_ece = (struct ibv_ece){.vendor_id = ece->vendor_id, .options = ece->options};
    return 0;
}
