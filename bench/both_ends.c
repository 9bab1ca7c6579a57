/* What a message costs where one thread plays both ends: a ping-pong of 8 B SENDs between two queue
 * pairs of a process, through libibverbs and the memory link, as ib_send_lat does it.
 *
 * No line moves between processors and nobody waits for anybody, so the times are those of the code
 * alone: of posting, of the poll that finds the message, of the one that finds the acknowledgement,
 * of the next receive. A time stamp takes as long as a step: `both_ends N whole` has none, and
 * tells what a message takes in all, in the least and the tenth of ROUNDS rounds of N messages,
 * which repeat within 1 % on a machine in use. `both_ends N quiet` prints nothing, for callgrind.
 */
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT_DEFAULT 100000u
#define RECEIVES      256u
#define SENDS         128u
#define LENGTH        8u
#define INLINE        236u
#define PSN           5u
#define ROUNDS        1000u

enum act {
    ACT_POST,
    ACT_MESSAGE,
    ACT_ACKNOWLEDGEMENT,
    ACT_RECEIVE,
    ACT_COUNT,
};

struct end {
    struct ibv_cq *sends, *receives;
    struct ibv_qp *qp;
};

struct both {
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct end ends[2];
    uint32_t *times[ACT_COUNT]; /* ticks of each, where it is timed */
    uint32_t count;             /* messages so far */
    bool timed;
};

static uint8_t buffer[4096];

static void must(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "both_ends: %s failed\n", what);
        exit(1);
    }
}

static uint64_t ticks_now(void)
{
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static void create(struct both *both, struct end *end)
{
    end->sends = ibv_create_cq(both->pd->context, SENDS, NULL, NULL, 0);
    end->receives = ibv_create_cq(both->pd->context, RECEIVES, NULL, NULL, 0);
    must(end->sends != NULL && end->receives != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr_ex init = {
        .send_cq = end->sends,
        .recv_cq = end->receives,
        .cap = {SENDS, RECEIVES, 1, 1, INLINE},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = both->pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND,
    };
    end->qp = ibv_create_qp_ex(both->pd->context, &init);
    must(end->qp != NULL, "ibv_create_qp_ex");
}

static void post_receive(const struct both *both, struct end *end)
{
    struct ibv_sge sge = {(uintptr_t)buffer, LENGTH, both->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(end->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void connect_to(struct end *end, uint32_t peer)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = peer,
        .rq_psn = PSN,
        .sq_psn = PSN,
        .max_dest_rd_atomic = 1,
        .max_rd_atomic = 1,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
    };
    must(ibv_query_gid(end->qp->context, 1, 0, &attributes.ah_attr.grh.dgid) == 0, "ibv_query_gid");
    int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    int ready = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    int sending = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    must(ibv_modify_qp(end->qp, &attributes, init) == 0, "to INIT");
    attributes.qp_state = IBV_QPS_RTR;
    must(ibv_modify_qp(end->qp, &attributes, ready) == 0, "to RTR");
    attributes.qp_state = IBV_QPS_RTS;
    must(ibv_modify_qp(end->qp, &attributes, sending) == 0, "to RTS");
}

static void open_both(struct both *both)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    must(devices != NULL && devices[0] != NULL, "ibv_get_device_list");
    struct ibv_context *context = ibv_open_device(devices[0]);
    must(context != NULL, "ibv_open_device");
    both->pd = ibv_alloc_pd(context);
    must(both->pd != NULL, "ibv_alloc_pd");
    both->mr = ibv_reg_mr(both->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    must(both->mr != NULL, "ibv_reg_mr");
    create(both, &both->ends[0]);
    create(both, &both->ends[1]);
    connect_to(&both->ends[0], both->ends[1].qp->qp_num);
    connect_to(&both->ends[1], both->ends[0].qp->qp_num);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        post_receive(both, &both->ends[i % 2]);
    }
    ibv_free_device_list(devices);
}

static void post(struct end *end, uint64_t id)
{
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(end->qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_inline_data(qp, buffer, LENGTH);
    must(ibv_wr_complete(qp) == 0, "ibv_wr_complete");
}

static uint64_t stamp(const struct both *both)
{
    return both->timed ? ticks_now() : 0;
}

static void note(struct both *both, enum act act, uint64_t ticks)
{
    if (both->timed) {
        both->times[act][both->count] = (uint32_t)ticks;
    }
}

/* Ticks of the poll that found one. */
static uint64_t poll_one(const struct both *both, struct ibv_cq *cq)
{
    struct ibv_wc completion;
    uint64_t before;
    int count;
    do {
        before = stamp(both);
        count = ibv_poll_cq(cq, 1, &completion);
    } while (count == 0);
    uint64_t after = stamp(both);
    must(count == 1 && completion.status == IBV_WC_SUCCESS, "a message");
    return after - before;
}

/* From one end to the other; the acknowledgement of the one before comes along. */
static void send_one(struct both *both)
{
    uint32_t i = both->count;
    struct end *from = &both->ends[i % 2], *to = &both->ends[1 - i % 2];
    uint64_t before = stamp(both);
    post(from, i);
    note(both, ACT_POST, stamp(both) - before);
    note(both, ACT_MESSAGE, poll_one(both, to->receives));
    before = stamp(both);
    post_receive(both, to);
    note(both, ACT_RECEIVE, stamp(both) - before);
    note(both, ACT_ACKNOWLEDGEMENT, i == 0 ? 0 : poll_one(both, to->sends));
    both->count++;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t elapsed_ns(const struct timespec *from)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec - from->tv_sec) * 1000000000u + (uint64_t)now.tv_nsec -
           (uint64_t)from->tv_nsec;
}

static void print(struct both *both, double tick_ns)
{
    static const char *const names[] = {"post", "poll, a message", "poll, an acknowledgement",
                                        "post a receive"};
    for (int act = 0; act < ACT_COUNT; act++) {
        uint32_t *times = both->times[act];
        qsort(times, both->count, sizeof *times, compare);
        printf("%-24s %7.1f ns, of the fastest twentieth %7.1f\n", names[act],
               times[both->count / 2] * tick_ns, times[both->count / 20] * tick_ns);
    }
}

static int compare_ns(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void tell_whole(struct both *both, uint32_t count)
{
    static double rounds[ROUNDS]; /* ns of a message */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct timespec began;
        clock_gettime(CLOCK_MONOTONIC, &began);
        for (uint32_t i = 0; i < count; i++) {
            send_one(both);
        }
        rounds[round] = (double)elapsed_ns(&began) / count;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, compare_ns);
    printf("a message %7.1f ns, least; %.1f, tenth; %.1f, median\n", rounds[0], rounds[ROUNDS / 10],
           rounds[ROUNDS / 2]);
}

static void tell_steps(struct both *both, uint32_t count, bool quiet)
{
    both->timed = true;
    for (int act = 0; act < ACT_COUNT; act++) {
        both->times[act] = calloc(count, sizeof(uint32_t));
        must(both->times[act] != NULL, "calloc");
    }
    struct timespec began;
    clock_gettime(CLOCK_MONOTONIC, &began);
    uint64_t first = ticks_now();
    while (both->count < count) {
        send_one(both);
    }
    double tick_ns = (double)elapsed_ns(&began) / (double)(ticks_now() - first);
    if (!quiet) { /* sorting costs instructions, too */
        print(both, tick_ns);
    }
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : COUNT_DEFAULT;
    const char *how = argc > 2 ? argv[2] : "";
    must(count > 0, "a number of messages");
    struct both both = {0};
    open_both(&both);
    if (strcmp(how, "whole") == 0) {
        tell_whole(&both, count);
    } else {
        tell_steps(&both, count, strcmp(how, "quiet") == 0);
    }
    return 0;
}
