/* Two connected queue pairs in one process, for programs that make one mistake each. */
#ifndef WEIR_TEST_STRICT_PAIR_H
#define WEIR_TEST_STRICT_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair_options {
    int cqe;                          /* of each completion queue; 0: 64 */
    unsigned max_send;                /* 0: 16 */
    unsigned access;                  /* qp_access_flags of both; 0: everything remote */
    bool no_access;                   /* really none */
    uint8_t rnr_retry;                /* 0: 7, for ever */
    bool never_retries;               /* really 0 */
    uint8_t rnr_timer;                /* 0: 12, 640 us */
    bool datagram;                    /* UD instead of RC; buffers begin with 40 bytes of GRH */
    struct ibv_comp_channel *channel; /* of b's completions */
    bool has_channel;
};

struct end {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_ah *ah; /* UD: the peer's */
    uint32_t peer;     /* likewise its queue pair */
};

struct pair {
    struct ibv_context *context;
    struct ibv_comp_channel *channel; /* of b, with has_channel */
    struct ibv_pd *pd;
    struct end a, b;
};

/* Each call ends the program with a message where it fails. */
struct pair pair_open(const struct pair_options *options);
void pair_close(struct pair *pair);
struct ibv_mr *pair_register(struct pair *pair, void *bytes, size_t length, int access);
void *pair_pages(size_t length);

void pair_post_receive(struct end *end, struct ibv_mr *mr, uint32_t length);
/* 0 or an errno value. `remote` NULL for a SEND. */
int pair_post(struct end *end, enum ibv_wr_opcode opcode, unsigned flags, struct ibv_mr *local,
              uint32_t length, uint64_t remote_address, uint32_t remote_key);
/* Waits for one completion; its status. */
enum ibv_wc_status pair_poll(struct end *end);
/* Asks again and again, so that what is under way comes; there must be no completion. */
void pair_look(struct end *end);
void expect(bool truth, const char *what);

#endif
