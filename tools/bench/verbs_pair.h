/* A queue pair of its own for one case, connected by what the two ends tell each other over TCP,
 * so that it needs no rdma_cm. Posting, and taking of completions; not: what is measured. */
#ifndef TOOLS_BENCH_VERBS_PAIR_H
#define TOOLS_BENCH_VERBS_PAIR_H

#include "tools/bench/carrier.h"
#include "weir/fabric_private.h"

struct verbs_pair {
    struct carrier carrier;
    struct weir_fabric *fabric;
    struct ibv_pd *pd;
    struct ibv_mr *region;
    struct ibv_comp_channel *channel;
    struct ibv_cq *queue;
    struct ibv_qp *pair;
    int gid_index;
    union ibv_gid gid;
    uint32_t psn;
    uint32_t inline_max;
    unsigned capacity, signal_every, receives;
    uint8_t *bytes; /* first what is sent, then what arrives */
    size_t span;
    uint64_t remote_address;
    uint32_t remote_key;
    uint64_t posted, completed, received; /* since the beginning */
};

bool verbs_pair_create(struct verbs_pair *pair, struct weir_error *ret_error);
void verbs_pair_destroy(struct verbs_pair *pair);
json_t *verbs_pair_describe(const struct carrier *carrier);
bool verbs_pair_attach(struct carrier *carrier, const json_t *peer, struct weir_error *ret_error);

/* There is room for one more: posted - completed < capacity. */
bool verbs_pair_post(struct verbs_pair *pair, bool is_signalled, struct weir_error *ret_error);
/* Takes what has completed, without waiting: how many, or -1. */
int verbs_pair_take(struct verbs_pair *pair, struct weir_error *ret_error);
/* Takes at least one; polls or sleeps, as the case says. */
bool verbs_pair_wait(struct verbs_pair *pair, struct weir_error *ret_error);

#endif
