/* Many connected queue pairs in one process: what each costs while it idles, and what all cost
 * those that are at work. Two processes, on whatever libibverbs.so.1 and librdmacm.so.1 are loaded.
 *
 *   queue_pairs ADDRESS COUNT [verbs]
 *
 * Connects by rdma_cm; with "verbs" by ibv_modify_qp alone. A line each, name and value:
 *
 *   connect_s
 *   idle_bytes, server_idle_bytes    resident, per queue pair beyond the first
 *   heap_bytes                       of these, what malloc has given out in small blocks
 *   idle_cpu_percent
 *   latency_same_us, latency_us      8 B SEND and its echo, one way
 *   rate_same_mps, rate_mps          8 B WRITEs, UNDER_WAY at a time
 *   sends_same_mps, sends_mps        8 B SENDs, as many
 *   latency_ratio, rate_ratio, sends_ratio
 *
 * "same": by one queue pair; else by another each time. The two take turns; medians of ROUNDS. */
#include <arpa/inet.h>
#include <malloc.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT      18517
#define SHARED    256 /* receives of the shared queue */
#define UNDER_WAY 64  /* WRITEs or SENDs */
#define SOON      1   /* a sender that is too early: 10 us */
#define STORM     512 /* connections that are made at once */
#define ROUNDS    5
#define SECONDS   0.2
#define IDLE_S    2

struct end {
    struct rdma_event_channel *events;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    uint64_t words[SHARED];
};

struct target { /* where a client may write: private data of the acceptance */
    uint64_t address;
    uint32_t key;
};

struct memory {
    double resident, heap; /* bytes */
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void must(int failed, const char *what)
{
    if (failed != 0) {
        fail(what);
    }
}

static void prepare(struct end *end, struct ibv_context *verbs)
{
    end->pd = ibv_alloc_pd(verbs);
    end->cq = ibv_create_cq(verbs, 4 * SHARED, NULL, NULL, 0);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = SHARED, .max_sge = 1}};
    end->srq = end->pd != NULL ? ibv_create_srq(end->pd, &srq) : NULL;
    end->mr = end->pd != NULL ? ibv_reg_mr(end->pd, end->words, sizeof end->words,
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
                              : NULL;
    must(end->cq == NULL || end->srq == NULL || end->mr == NULL, "verbs objects");
}

static void post_receive(struct end *end, uint64_t slot)
{
    struct ibv_sge sge = {(uintptr_t)&end->words[slot], 8, end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_srq_recv(end->srq, &wr, &bad), "ibv_post_srq_recv");
}

static struct ibv_qp_init_attr wanted(const struct end *end, uint32_t depth)
{
    return (struct ibv_qp_init_attr){
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .srq = end->srq,
        .cap = {.max_send_wr = depth, .max_send_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
}

static void create_qp(struct end *end, struct rdma_cm_id *id, uint32_t depth)
{
    struct ibv_qp_init_attr init = wanted(end, depth);
    must(rdma_create_qp(id, end->pd, &init), "rdma_create_qp");
}

static struct rdma_cm_event *next_event(struct end *end)
{
    struct rdma_cm_event *event;
    must(rdma_get_cm_event(end->events, &event), "rdma_get_cm_event");
    return event;
}

/* The server: accepts, and echoes what comes. */
static struct ibv_qp **by_number;

static void take_event(struct end *end, uint32_t *established)
{
    struct rdma_cm_event *event = next_event(end);
    struct rdma_cm_id *id = event->id;
    struct target target;
    struct rdma_conn_param param = {
        .private_data = &target, .private_data_len = sizeof target, .rnr_retry_count = 7};
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        if (end->pd == NULL) {
            prepare(end, id->verbs);
            for (uint64_t i = 0; i < SHARED; i++) {
                post_receive(end, i);
            }
        }
        create_qp(end, id, 1);
        by_number[id->qp->qp_num & 0xffffff] = id->qp;
        target = (struct target){(uintptr_t)end->words, end->mr->rkey};
        must(rdma_accept(id, &param), "rdma_accept");
    }
    if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
        struct ibv_qp_attr soon = {.min_rnr_timer = SOON}; /* rdma_cm's is 0.66 s */
        must(ibv_modify_qp(id->qp, &soon, IBV_QP_MIN_RNR_TIMER), "ibv_modify_qp");
        ++*established;
    }
    rdma_ack_cm_event(event);
}

static void take_message(struct end *end, bool answers)
{
    struct ibv_wc done;
    int count = ibv_poll_cq(end->cq, 1, &done);
    if (count > 0 && done.status != IBV_WC_SUCCESS) {
        exit(0); /* the client has gone */
    }
    if (count > 0 && done.opcode == IBV_WC_RECV) {
        struct ibv_sge sge = {(uintptr_t)&end->words[done.wr_id], 8, end->mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        if (answers) {
            must(ibv_post_send(by_number[done.qp_num], &wr, &bad), "ibv_post_send");
        }
        post_receive(end, done.wr_id);
    }
}

static struct memory measure_memory(void)
{
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &pages, &resident) != 2) {
        fail("/proc/self/statm");
    }
    fclose(file);
    return (struct memory){.resident = (double)resident * (double)sysconf(_SC_PAGESIZE),
                           .heap = (double)mallinfo2().uordblks};
}

static struct memory per_pair(struct memory before, uint32_t count)
{
    struct memory now = measure_memory();
    double others = count > 1 ? count - 1 : 1;
    return (struct memory){(now.resident - before.resident) / others,
                           (now.heap - before.heap) / others};
}

static void tell(int to, const void *bytes, size_t size)
{
    must(write(to, bytes, size) != (ssize_t)size, "write");
}

static void hear(int from, void *bytes, size_t size)
{
    if (read(from, bytes, size) != (ssize_t)size) {
        exit(1); /* the other end has said why */
    }
}

/* Without rdma_cm: each end tells the other its numbers. */
static struct ibv_context *open_at(const struct sockaddr_in *address, union ibv_gid *ret_gid,
                                   uint8_t *ret_index)
{
    struct ibv_context *verbs = NULL;
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; i < count && verbs == NULL; i++) {
        verbs = ibv_open_device(devices[i]);
        must(verbs == NULL, "ibv_open_device");
        for (uint8_t index = 0; ibv_query_gid(verbs, 1, index, ret_gid) == 0; index++) {
            if (memcmp(&ret_gid->raw[12], &address->sin_addr, 4) == 0) {
                *ret_index = index;
                ibv_free_device_list(devices);
                return verbs;
            }
        }
        ibv_close_device(verbs);
        verbs = NULL;
    }
    fprintf(stderr, "queue_pairs: no device has this address\n");
    exit(1);
}

static struct ibv_qp *create_plain(struct end *end, uint32_t depth)
{
    struct ibv_qp_init_attr init = wanted(end, depth);
    struct ibv_qp *qp = ibv_create_qp(end->pd, &init);
    must(qp == NULL, "ibv_create_qp");
    return qp;
}

static void connect_plain(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid, uint8_t index)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .sgid_index = index}},
        .min_rnr_timer = SOON,
        .timeout = 17,
        .retry_cnt = 7,
        .rnr_retry = 7,
    };
    must(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "to INIT");
    attributes.qp_state = IBV_QPS_RTR;
    must(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "to RTR");
    attributes.qp_state = IBV_QPS_RTS;
    must(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
         "to RTS");
}

/* Up to `count` queue pairs, one exchange for each, in step. */
static void connect_numbers(struct end *end, const struct sockaddr_in *address, struct ibv_qp **qps,
                            uint32_t from, uint32_t count, int to_peer, int from_peer)
{
    static union ibv_gid gid;
    static uint8_t index;
    if (end->pd == NULL) {
        prepare(end, open_at(address, &gid, &index));
    }
    for (uint32_t i = from; i < count; i++) {
        uint32_t peer;
        qps[i] = create_plain(end, i == 0 ? UNDER_WAY : 1);
        tell(to_peer, &qps[i]->qp_num, sizeof peer);
        hear(from_peer, &peer, sizeof peer);
        connect_plain(qps[i], peer, &gid, index);
    }
}

static void serve_numbers(struct end *end, const struct sockaddr_in *address, struct memory *before,
                          uint32_t count, int commands, int answers)
{
    struct ibv_qp **qps = calloc(count, sizeof(struct ibv_qp *));
    must(qps == NULL, "calloc");
    connect_numbers(end, address, qps, 0, 1, answers, commands);
    *before = measure_memory();
    connect_numbers(end, address, qps, 1, count, answers, commands);
    for (uint32_t i = 0; i < count; i++) {
        by_number[qps[i]->qp_num & 0xffffff] = qps[i];
    }
    for (uint64_t i = 0; i < SHARED; i++) {
        post_receive(end, i);
    }
    struct target target = {(uintptr_t)end->words, end->mr->rkey};
    tell(answers, &target, sizeof target);
}

static void serve_requests(struct end *end, const struct sockaddr_in *address,
                           struct memory *before, uint32_t count, int answers)
{
    struct rdma_cm_id *listener;
    uint32_t established = 0;
    must(rdma_create_id(end->events, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(rdma_bind_addr(listener, (struct sockaddr *)(uintptr_t)address), "rdma_bind_addr");
    must(rdma_listen(listener, (int)count), "rdma_listen");
    tell(answers, "l", 1);
    while (established < count) {
        take_event(end, &established);
        if (before->resident == 0 && established == 1) {
            *before = measure_memory();
        }
    }
}

/* Commands of the client's: 'm' asks for the memory, 'e' has all echoed from then on, 's' taken and
 * not answered. */
static void serve(const struct sockaddr_in *address, uint32_t count, bool plain, int commands,
                  int answers)
{
    struct end end = {.events = rdma_create_event_channel()};
    struct memory before = {0};
    bool silent = false;
    by_number = calloc(1u << 24, sizeof(struct ibv_qp *));
    must(end.events == NULL || by_number == NULL, "rdma_create_event_channel");
    if (plain) {
        serve_numbers(&end, address, &before, count, commands, answers);
    } else {
        serve_requests(&end, address, &before, count, answers);
    }
    for (char command = 0;;) {
        struct pollfd waiting = {.fd = commands, .events = POLLIN};
        if (poll(&waiting, 1, command == 0 ? -1 : 0) > 0 && read(commands, &command, 1) != 1) {
            exit(0);
        }
        if (command == 'm') {
            struct memory each = per_pair(before, count);
            tell(answers, &each, sizeof each);
            command = 0;
        }
        if (command == 's' && !silent) {
            silent = true;
            tell(answers, "s", 1);
        }
        for (int i = 0; command != 0 && i < 10000; i++) {
            take_message(&end, !silent);
        }
    }
}

/* The client. */
static struct rdma_cm_id **ids;
static struct ibv_qp **qps;
static struct target target;
static uint32_t asked, connected;

static void begin_one(struct end *end, const struct sockaddr_in *address, uint32_t count)
{
    if (asked < count) {
        struct rdma_cm_id *id;
        must(rdma_create_id(end->events, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
        must(rdma_resolve_addr(id, NULL, (struct sockaddr *)(uintptr_t)address, 20000),
             "rdma_resolve_addr");
        ids[asked++] = id;
    }
}

static void go_on(struct end *end, const struct sockaddr_in *address, uint32_t count)
{
    struct rdma_cm_event *event = next_event(end);
    struct rdma_cm_id *id = event->id;
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        must(rdma_resolve_route(id, 20000), "rdma_resolve_route");
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (end->pd == NULL) {
            prepare(end, id->verbs);
        }
        create_qp(end, id, id == ids[0] ? UNDER_WAY : 1);
        must(rdma_connect(id, &param), "rdma_connect");
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        memcpy(&target, event->param.conn.private_data, sizeof target);
        connected++;
        begin_one(end, address, count);
        break;
    default:
        fprintf(stderr, "queue_pairs: %s, status %d\n", rdma_event_str(event->event),
                event->status);
        exit(1);
    }
    rdma_ack_cm_event(event);
}

static void connect_up_to(struct end *end, const struct sockaddr_in *address, uint32_t count)
{
    for (uint32_t i = 0; i < STORM; i++) {
        begin_one(end, address, count);
    }
    while (connected < count) {
        go_on(end, address, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        qps[i] = ids[i]->qp;
    }
}

static struct ibv_wc wait_one(struct end *end)
{
    struct ibv_wc done;
    while (ibv_poll_cq(end->cq, 1, &done) == 0) {
    }
    must(done.status != IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
    return done;
}

/* Another each time, far from the last. */
static uint32_t choose(uint64_t step, uint32_t count)
{
    return (uint32_t)(step * 7919 % count);
}

static double measure_latency_us(struct end *end, uint32_t count)
{
    double began = now_s();
    uint64_t rounds = 0;
    for (; now_s() - began < SECONDS; rounds++) {
        struct ibv_sge sge = {(uintptr_t)&end->words[1], 8, end->mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        post_receive(end, 0);
        must(ibv_post_send(qps[choose(rounds, count)], &wr, &bad), "ibv_post_send");
        wait_one(end);
        wait_one(end);
    }
    return (now_s() - began) / (double)rounds / 2 * 1e6;
}

static double measure_mps(struct end *end, uint32_t count, enum ibv_wr_opcode operation)
{
    double began = now_s();
    uint64_t posted = 0, done = 0;
    while (now_s() - began < SECONDS) {
        struct ibv_sge sge = {(uintptr_t)&end->words[1], 8, end->mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = operation,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {target.address, target.key}},
                           *bad;
        while (posted - done < UNDER_WAY) {
            must(ibv_post_send(qps[choose(posted, count)], &wr, &bad), "ibv_post_send");
            posted++;
        }
        struct ibv_wc batch[16];
        int got = ibv_poll_cq(end->cq, 16, batch);
        done += (uint64_t)(got > 0 ? got : 0);
    }
    double rate = (double)done / (now_s() - began) * 1e-6;
    while (done < posted) {
        wait_one(end);
        done++;
    }
    return rate;
}

static double measure_rate_mps(struct end *end, uint32_t count)
{
    return measure_mps(end, count, IBV_WR_RDMA_WRITE);
}

static double measure_sends_mps(struct end *end, uint32_t count)
{
    return measure_mps(end, count, IBV_WR_SEND);
}

static double idle_cpu_percent(void)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    sleep(IDLE_S);
    getrusage(RUSAGE_SELF, &after);
    double us = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
                         before.ru_stime.tv_sec) *
                    1e6 +
                (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
                         before.ru_stime.tv_usec);
    return us / (IDLE_S * 1e6) * 100;
}

static int compare(const void *one, const void *other)
{
    const double *a = one, *b = other;
    return (*a > *b) - (*a < *b);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static void compare_same_and_all(const char *name, const char *unit, uint32_t count,
                                 double (*measure)(struct end *end, uint32_t count),
                                 struct end *end)
{
    double same[ROUNDS], all[ROUNDS], ratio[ROUNDS];
    (void)measure(end, count); /* warms up */
    for (int i = 0; i < ROUNDS; i++) {
        same[i] = measure(end, 1);
        all[i] = measure(end, count);
        ratio[i] = all[i] / same[i];
    }
    printf("%s_same_%s %.4f\n", name, unit, median(same));
    printf("%s_%s %.4f\n", name, unit, median(all));
    printf("%s_ratio %.3f\n", name, median(ratio));
}

static void connect_all(struct end *end, const struct sockaddr_in *address, bool plain,
                        uint32_t from, uint32_t count, int to_server, int from_server)
{
    if (plain) {
        connect_numbers(end, address, qps, from, count, to_server, from_server);
    } else {
        connect_up_to(end, address, count);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    uint32_t count = argc >= 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    bool plain = argc == 4 && strcmp(argv[3], "verbs") == 0;
    int commands[2], answers[2];
    if (argc != (plain ? 4 : 3) || count == 0 || (count > 1 && count <= UNDER_WAY) ||
        inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: queue_pairs ADDRESS COUNT [verbs] (COUNT: 1, or more than 64)\n");
        return 2;
    }
    must(pipe(commands) != 0 || pipe(answers) != 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(commands[1]);
        close(answers[0]);
        serve(&address, count, plain, commands[0], answers[1]);
    }
    close(commands[0]);
    close(answers[1]);
    must(child < 0, "fork");
    char heard;
    if (!plain) {
        hear(answers[0], &heard, 1);
    }

    struct end end = {.events = rdma_create_event_channel()};
    ids = calloc(count, sizeof(struct rdma_cm_id *));
    qps = calloc(count, sizeof(struct ibv_qp *));
    must(end.events == NULL || ids == NULL || qps == NULL, "rdma_create_event_channel");
    connect_all(&end, &address, plain, 0, 1, commands[1], answers[0]);
    struct memory before = measure_memory(), servers;
    double began = now_s();
    connect_all(&end, &address, plain, 1, count, commands[1], answers[0]);
    printf("connect_s %.3f\n", now_s() - began);
    if (plain) {
        hear(answers[0], &target, sizeof target);
    }
    struct memory each = per_pair(before, count);
    tell(commands[1], "m", 1);
    hear(answers[0], &servers, sizeof servers);
    printf("idle_bytes %.0f\nserver_idle_bytes %.0f\nheap_bytes %.0f\n", each.resident,
           servers.resident, each.heap);
    printf("idle_cpu_percent %.3f\n", idle_cpu_percent());
    tell(commands[1], "e", 1);
    compare_same_and_all("latency", "us", count, measure_latency_us, &end);
    compare_same_and_all("rate", "mps", count, measure_rate_mps, &end);
    tell(commands[1], "s", 1);
    hear(answers[0], &heard, 1);
    compare_same_and_all("sends", "mps", count, measure_sends_mps, &end);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    _exit(0);
}
