/* Scripted runs with the expected trace as text, for cmocka.
 *
 * Two hosts, A and B, one link of 1 us each way that loses only what the script says. Everything
 * that passes the network or completes is a line of the trace:
 *
 *     10us A>B WRITE_FIRST psn=7 length=1024      a frame, with " lost", " duplicated" ...
 *     12us B drops no_qp                          a frame refused by the device
 *     13us B event qp_access_error                an asynchronous event, or one of cm
 *     14us A send 1 success                       a completion, with the id of its request
 *
 * A line of the expectation may leave out the instant where the rule is not about time. */
#ifndef WEIR_SIM_SCENARIO_H
#define WEIR_SIM_SCENARIO_H

#include "sim/host.h"

#define SCENARIO_RULES 8u
#define SCENARIO_BYTES 65536u
#define SCENARIO_PAIRS 3u /* beside the first */
#define SCENARIO_QKEY  ((struct qkey){0x1234})

struct scenario;

/* One side: its queue pair and `bytes`, registered under `key` with all rights at address 0. */
struct party {
    struct scenario *scenario;
    struct host *host;
    struct domain domain;
    struct completion_queue *completions;
    struct qp *qp;
    struct qp *second;                 /* made by scenario_add_second; UD */
    struct qp *others[SCENARIO_PAIRS]; /* made by scenario_add_pair; RC */
    struct receive_queue *receives;    /* XRC: B's, which A's requests name */
    struct xrc_queue shared;
    struct memory_key key;
    uint8_t *bytes;
    struct qp_attributes attributes;
    struct cm_listener *listener;
    struct cm_connection *connection; /* of the latest event */
};

struct rule {
    char text[96]; /* frames whose line begins like this; empty: unused */
    enum fate fate;
    uint32_t times;
};

struct scenario {
    struct simulator simulator;
    struct network network;
    struct host hosts[2];
    struct party a, b;
    struct host_application application;
    struct rule rules[SCENARIO_RULES];
    char *text;
    size_t text_length;
    enum service service;
    bool polls; /* completions are taken as they come */
    /* What the application does with a cm event; NULL: it only watches. */
    void (*on_cm)(struct scenario *scenario, struct party *party, const struct cm_event *event);
};

/* Hosts, regions, queue pairs in INIT with the usual attributes: MTU 256, A's PSNs from 7, B's from
 * 100, 4 READs, timeout code 8 (1048.576 us), 3 retries, 7 (for ever) on RNR with timer code 1
 * (10 us). Change a.attributes and b.attributes before scenario_connect. */
void scenario_start(struct scenario *scenario);
/* With selective repeat at both ends, or at A's only. */
void scenario_start_selective(struct scenario *scenario);
void scenario_start_half_selective(struct scenario *scenario);
void scenario_start_service(struct scenario *scenario, enum service service);
/* XRC: A is the initiator, B the target, with a shared receive queue behind it. */
void scenario_connect(struct scenario *scenario);
/* B remains in RTR. */
void scenario_connect_one_way(struct scenario *scenario);
/* Connects, and has both agree on selective repeat: A's WRITE 1 of 512 bytes loses its first
 * packet, which is go-back-N's, and makes them ask. */
void scenario_agree(struct scenario *scenario);
/* Runs the rest out and takes all down; nothing may be left. */
void scenario_stop(struct scenario *scenario);

/* The next `times` frames whose line begins with `text` meet this fate. */
void scenario_rule(struct scenario *scenario, const char *text, enum fate fate, uint32_t times);
static inline void scenario_lose(struct scenario *scenario, const char *text)
{
    scenario_rule(scenario, text, FATE_LOST, 1);
}

/* Work: bytes from the beginning of our memory to `at` in the peer's. Sent at once. */
struct work {
    enum work_kind kind;
    uint64_t id;
    uint32_t length;
    uint64_t at;
    bool unsignaled, fence, solicited;
    uint32_t immediate;
    uint64_t compare, swap_or_add;
    struct memory_key key;   /* 0: the peer's */
    uint32_t xrc_srq;        /* XRC; 0: the peer's */
    struct qkey qkey;        /* UD */
    const struct gid *group; /* UD: to this multicast group instead of the peer */
    const struct window_bind *bind;
};
enum status scenario_post(struct party *party, struct work work);
/* A second queue pair of the party, with the same completion queue, ready to send. */
void scenario_add_second(struct party *party);
/* Another queue pair of each party, connected to each other and otherwise as the first two are;
 * `index` is below SCENARIO_PAIRS, each once. */
void scenario_add_pair(struct scenario *scenario, unsigned index);
/* Those of the two parties take the places of `qp`, which take theirs. */
void scenario_change_pair(struct scenario *scenario, unsigned index);
/* Posts the next receives to the second one. */
void scenario_receive_second(struct party *party, uint64_t id, uint32_t length);
void scenario_receive(struct party *party, uint64_t id, uint32_t length);
/* Both queue pairs to RTR and RTS; also used one by one when cm connects them. */
void scenario_to_rts(struct party *party, const struct party *peer);

/* Until nothing moves, or for `us`. */
void scenario_run(struct scenario *scenario);
void scenario_run_for(struct scenario *scenario, uint64_t us);

/* The trace since the last look is exactly this; forgets it. */
void expect_trace(struct scenario *scenario, const char *expected);
/* The trace so far is of no interest. */
void forget_trace(struct scenario *scenario);
void expect_equal_bytes(const struct party *left, const struct party *right, uint64_t at,
                        uint32_t length);

#endif
