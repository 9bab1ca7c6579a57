/* How much of each thing the device has: ours, or in strict mode what an adapter of some family
 * has. The one place for these figures. */
#ifndef WEIR_VERBS_LIMITS_H
#define WEIR_VERBS_LIMITS_H

#include <stdint.h>

struct limits {
    const char *name; /* of the adapter family */
    uint32_t max_qp_wr;
    uint32_t max_sge;
    uint32_t max_inline; /* bytes */
    uint32_t max_cqe;
    uint32_t max_reads; /* READs and atomics outstanding per queue pair, as initiator and target */
    uint32_t max_srq_wr;
    uint32_t max_srq_sge;
};

/* Those in force. */
const struct limits *limits_now(void);
/* Whether `wanted` is within `limit`; says so in strict mode if not. `what` as ibv_query_device
 * names it. */
_Bool limits_allow(uint32_t wanted, uint32_t limit, const char *what);

#endif
