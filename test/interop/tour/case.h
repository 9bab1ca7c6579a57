/* What one end does wrong and what the specification asks of both: the tables' rows. Zero in a
 * field means the ordinary thing, so a row names its mistake and nothing else. */
#ifndef WEIR_TOUR_CASE_H
#define WEIR_TOUR_CASE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define OUTCOME_TEXT 64
#define STEPS_MAX    6

/* The path MTU of a tour; the lengths that stand in packet_cases.c are for this one. */
#define TOUR_MTU 1024u

enum key {
    KEY_RIGHT,
    KEY_UNKNOWN,
    KEY_OTHER_DOMAIN, /* of a region of the same process under another protection domain */
    KEY_READ_ONLY,    /* local side: of a region without IBV_ACCESS_LOCAL_WRITE */
};

enum aim {
    AIM_INSIDE,
    AIM_PAST_END,
    AIM_BEFORE_START,
    AIM_WRAPS, /* ends behind 2^64 */
    AIM_MISALIGNED,
};

enum receives {
    RECEIVES_READY,
    RECEIVES_NONE,
    RECEIVES_LATE, /* the first is posted when the requester has been told to wait nine times */
    RECEIVES_SHORT,
    RECEIVES_BAD_KEY,
};

enum mtus { /* path MTUs of the two queue pairs: the tour's, or half of it */
    MTU_SAME,
    MTU_HALF_OF_RESPONDER,
    MTU_HALF_OF_REQUESTER,
};

enum readiness { /* in what state the responder's queue pair is when the request comes */
    READY,
    NOT_RESET,
    NOT_INIT,
    NOT_ERROR,
    NOT_THERE,
};

/* A packet of a script. It is right but for what is named here. */
enum flaw {
    FLAW_NONE,
    FLAW_ICRC,
    FLAW_CUT,     /* `value` bytes are missing at its end, the ICRC fits */
    FLAW_LONGER,  /* `value` more bytes than its headers say */
    FLAW_PAD,     /* pad count `value` */
    FLAW_VERSION, /* transport version `value` */
    FLAW_PKEY,    /* partition key `value` */
    FLAW_OPCODE,  /* opcode `value`, whatever the packet was built as */
    FLAW_QPN,     /* to the next queue pair number */
};

struct step {
    uint8_t opcode; /* 0 ends the script unless `used` */
    bool used;
    int32_t psn; /* relative to the expected one */
    uint32_t payload;
    uint32_t dma_length; /* 0: as long as the payload */
    bool silent;         /* does not ask to be acknowledged */
    bool awaited;        /* the next one waits for the answer to this */
    enum flaw flaw;
    uint32_t value;
};

/* Texts; NULL: "SUCCESS" for the requester, "-" (nothing) elsewhere. */
struct outcome {
    const char *requester; /* status of its completion, or what ibv_post_send said */
    const char *responder; /* statuses of its receives */
    const char *event;     /* responder's asynchronous event */
    const char *states;    /* requester's and responder's; NULL: "RTS/RTS" */
    const char *answers;   /* NAKs on the wire; with a script also ACK, READ, ATOMIC */
    const char *memory;    /* NULL: "intact"; "written", "read" */
};

struct tour_case {
    const char *name;
    const char *clause; /* of the InfiniBand specification, volume 1 */
    /* the requester */
    enum ibv_qp_type type;     /* 0: IBV_QPT_RC */
    enum ibv_wr_opcode opcode; /* IBV_WR_RDMA_WRITE is 0: rows without another one write */
    uint32_t length;           /* 0: 64 bytes; EMPTY: none */
    enum key key, local_key, invalidate;
    enum aim aim;
    bool invalidates; /* the request is a SEND with invalidate of `invalidate` */
    bool wrong_qkey;
    bool gives_up; /* short timer, few retries: nobody will answer */
    bool to_itself;
    unsigned rnr_retry; /* one more than the attribute; 0: 7 */
    bool as_receives;   /* as many requests as overrun the responder's completion queue */
    struct step script[STEPS_MAX]; /* instead of a request */
    /* the responder */
    unsigned region_lacks, qp_lacks; /* access flags */
    enum receives receives;
    enum readiness readiness;
    enum mtus mtus;   /* not MTU_SAME: a request is as long as the larger one */
    bool at_each_mtu; /* depends on the path MTU: played in tours of another one, too */
    bool no_read_resources;
    bool shared_queue;
    bool limit; /* of the shared queue, reached by the request */
    struct outcome expected;
};

#define EMPTY 0xffffffffu

extern const struct tour_case verbs_cases[], packet_cases[]; /* end with a row without a name */

#endif
