/* Which state of a queue pair may follow which, and with which attributes, as one table.
 * [IBA 10.3.1, 11.2.4.2 table 91; ibv_modify_qp(3)] */
#ifndef WEIR_TRANSPORT_QP_STATE_H
#define WEIR_TRANSPORT_QP_STATE_H

#include "rnic/base/status.h"
#include "rnic/transport/qp.h"

/* STATE: no such transition. INVALID: attributes in `mask` that are not allowed, or required ones
 * that are not in it; these bits in *ret_offending. */
/* `is_target` tells the two kinds of XRC queue pairs apart. */
enum status qp_state_check(enum service service, bool is_target, enum qp_state from,
                           enum qp_state to, unsigned mask, unsigned *ret_offending) MUST_USE;

/* Whether posted sends may become packets. */
static inline bool qp_state_sends(enum qp_state state)
{
    return state == QP_RTS || state == QP_SQD;
}

/* Whether requests of the peer are executed. */
static inline bool qp_state_receives(enum qp_state state)
{
    return state >= QP_RTR && state <= QP_SQE;
}

#endif
