/* The table, and the look-up. Any state may go to RESET and ERROR, with no attributes. */
#include "rnic/transport/qp_state.h"

#include <stddef.h>

struct attribute_set {
    unsigned required;
    unsigned optional;
};

struct transition {
    enum qp_state from, to;
    struct attribute_set rc, uc, ud, initiator, target;
};

#define CONNECTED_INIT (QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS)
#define DATAGRAM_INIT  (QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_QKEY)
#define CONNECTED_RTR  (QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN)
#define RELIABLE_RTR   (CONNECTED_RTR | QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER)
#define RELIABLE_RTS                                                                               \
    (QP_SET_SEND_PSN | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |              \
     QP_SET_MAX_READS_OUT)
#define CONNECTED_ON (QP_SET_ACCESS | QP_SET_MIGRATION)
#define RELIABLE_SQD                                                                               \
    (QP_SET_PORT | QP_SET_PATH | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |    \
     QP_SET_MAX_READS_OUT | QP_SET_MAX_READS_IN | CONNECTED_ON | QP_SET_PKEY_INDEX |               \
     QP_SET_MIN_RNR_TIMER)
#define INITIATOR_SQD                                                                              \
    (QP_SET_PORT | QP_SET_PATH | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |    \
     QP_SET_MAX_READS_OUT | CONNECTED_ON | QP_SET_PKEY_INDEX)
#define TARGET_SQD                                                                                 \
    (QP_SET_PORT | QP_SET_PATH | QP_SET_TIMEOUT | QP_SET_MAX_READS_IN | CONNECTED_ON |             \
     QP_SET_PKEY_INDEX | QP_SET_MIN_RNR_TIMER)

static const struct transition transitions[] = {
    {QP_RESET,
     QP_INIT,
     {CONNECTED_INIT, 0},
     {CONNECTED_INIT, 0},
     {DATAGRAM_INIT, 0},
     {CONNECTED_INIT, 0},
     {CONNECTED_INIT, 0}},
    {QP_INIT,
     QP_INIT,
     {0, CONNECTED_INIT},
     {0, CONNECTED_INIT},
     {0, DATAGRAM_INIT},
     {0, CONNECTED_INIT},
     {0, CONNECTED_INIT}},
    {QP_INIT,
     QP_RTR,
     {RELIABLE_RTR, QP_SET_ACCESS | QP_SET_PKEY_INDEX},
     {CONNECTED_RTR, QP_SET_ACCESS | QP_SET_PKEY_INDEX},
     {0, QP_SET_PKEY_INDEX | QP_SET_QKEY},
     {CONNECTED_RTR, QP_SET_ACCESS | QP_SET_PKEY_INDEX},
     {RELIABLE_RTR, QP_SET_ACCESS | QP_SET_PKEY_INDEX}},
    {QP_RTR,
     QP_RTS,
     {RELIABLE_RTS, CONNECTED_ON | QP_SET_MIN_RNR_TIMER},
     {QP_SET_SEND_PSN, CONNECTED_ON},
     {QP_SET_SEND_PSN, QP_SET_QKEY},
     {RELIABLE_RTS, CONNECTED_ON},
     {QP_SET_SEND_PSN | QP_SET_TIMEOUT, CONNECTED_ON | QP_SET_MIN_RNR_TIMER}},
    {QP_RTS,
     QP_RTS,
     {0, CONNECTED_ON | QP_SET_MIN_RNR_TIMER},
     {0, CONNECTED_ON},
     {0, QP_SET_QKEY},
     {0, CONNECTED_ON},
     {0, CONNECTED_ON | QP_SET_MIN_RNR_TIMER}},
    {QP_RTS, QP_SQD, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}},
    {QP_SQD,
     QP_RTS,
     {0, CONNECTED_ON | QP_SET_MIN_RNR_TIMER},
     {0, CONNECTED_ON},
     {0, QP_SET_QKEY},
     {0, CONNECTED_ON},
     {0, CONNECTED_ON | QP_SET_MIN_RNR_TIMER}},
    {QP_SQD,
     QP_SQD,
     {0, RELIABLE_SQD},
     {0, QP_SET_PATH | CONNECTED_ON | QP_SET_PKEY_INDEX},
     {0, QP_SET_PKEY_INDEX | QP_SET_QKEY},
     {0, INITIATOR_SQD},
     {0, TARGET_SQD}},
    {QP_SQE, QP_RTS, {0, 0}, {0, QP_SET_ACCESS}, {0, QP_SET_QKEY}, {0, 0}, {0, 0}},
};

static const struct attribute_set *set_for(const struct transition *transition,
                                           enum service service, bool is_target)
{
    switch (service) {
    case SERVICE_RC:
        return &transition->rc;
    case SERVICE_UC:
        return &transition->uc;
    case SERVICE_XRC:
        return is_target ? &transition->target : &transition->initiator;
    default:
        return &transition->ud;
    }
}

/* What state the caller believes it to be in may be said on the way to RTS only. */
static enum status check_set(const struct attribute_set *set, enum qp_state to, unsigned mask,
                             unsigned *ret_offending)
{
    unsigned missing = set->required & ~mask;
    unsigned allowed = set->required | set->optional | QP_SET_STATE |
                       (to == QP_RTS ? (unsigned)QP_SET_CURRENT_STATE : 0);
    unsigned offending = missing | (mask & ~allowed);
    if (offending == 0) {
        return STATUS_OK;
    }
    if (ret_offending != NULL) {
        *ret_offending = offending;
    }
    return STATUS_INVALID;
}

enum status qp_state_check(enum service service, bool is_target, enum qp_state from,
                           enum qp_state to, unsigned mask, unsigned *ret_offending)
{
    static const struct attribute_set none;
    if (to == QP_RESET || to == QP_ERROR) {
        return check_set(&none, to, mask, ret_offending);
    }
    if (from == QP_SQE && service_is_reliable(service)) {
        return STATUS_STATE;
    }
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++) {
        if (transitions[i].from == from && transitions[i].to == to) {
            return check_set(set_for(&transitions[i], service, is_target), to, mask, ret_offending);
        }
    }
    return STATUS_STATE;
}

const char *qp_state_name(enum qp_state state)
{
    static const char *const names[QP_STATE_COUNT] = {
        "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR",
    };
    return (unsigned)state < QP_STATE_COUNT ? names[state] : "?";
}
