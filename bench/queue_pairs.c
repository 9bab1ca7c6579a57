/* Many connected queue pairs in one process: what each costs while it idles, and what all cost
 * those that are at work. Two processes, through rdma_cm and whatever librdmacm.so.1 is loaded.
 *
 *   queue_pairs ADDRESS COUNT    a line each, name and value: connect_s, idle_bytes (resident, per
 * queue pair), idle_cpu_percent, latency_same_us, latency_us, rate_same_mps, rate_mps
 *
 * Latency: 8 B SEND and its echo, one way. Rate: 8 B WRITEs, UNDER_WAY at a time. Each by one queue
 * pair ("same"), then by another each time. */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdarg.h>
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
#define SHARED    64  /* receives of the shared queue */
#define UNDER_WAY 64  /* WRITEs */
#define STORM     512 /* connections that are made at once */
#define SECONDS   0.5
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

static void create_qp(struct end *end, struct rdma_cm_id *id, uint32_t depth)
{
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .srq = end->srq,
        .cap = {.max_send_wr = depth, .max_send_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    must(rdma_create_qp(id, end->pd, &init), "rdma_create_qp");
}

static struct rdma_cm_event *next_event(struct end *end)
{
    struct rdma_cm_event *event;
    must(rdma_get_cm_event(end->events, &event), "rdma_get_cm_event");
    return event;
}

/* The server: accepts, and echoes what comes. */
static struct rdma_cm_id **by_number; /* a queue pair's number -> its id */

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
        by_number[id->qp->qp_num & 0xffffff] = id;
        target = (struct target){(uintptr_t)end->words, end->mr->rkey};
        must(rdma_accept(id, &param), "rdma_accept");
    }
    *established += event->event == RDMA_CM_EVENT_ESTABLISHED;
    rdma_ack_cm_event(event);
}

static void echo(struct end *end)
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
        must(ibv_post_send(by_number[done.qp_num]->qp, &wr, &bad), "ibv_post_send");
        post_receive(end, done.wr_id);
    }
}

static uint64_t resident_bytes(void)
{
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &pages, &resident) != 2) {
        fail("/proc/self/statm");
    }
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Answers a command of the client's with a line each. */
static void serve(const struct sockaddr_in *address, uint32_t count, int commands, int answers)
{
    struct end end = {.events = rdma_create_event_channel()};
    struct rdma_cm_id *listener;
    uint32_t established = 0;
    by_number = calloc(1u << 24, sizeof(struct rdma_cm_id *));
    must(end.events == NULL || by_number == NULL, "rdma_create_event_channel");
    must(rdma_create_id(end.events, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(rdma_bind_addr(listener, (struct sockaddr *)(uintptr_t)address), "rdma_bind_addr");
    must(rdma_listen(listener, (int)count), "rdma_listen");
    must(write(answers, "l", 1) != 1, "write");
    while (established < count) {
        take_event(&end, &established);
    }
    for (char command = 0;;) {
        struct pollfd waiting = {.fd = commands, .events = POLLIN};
        if (poll(&waiting, 1, command == 'e' ? 0 : -1) > 0 && read(commands, &command, 1) != 1) {
            exit(0);
        }
        for (int i = 0; command == 'e' && i < 10000; i++) {
            echo(&end);
        }
    }
}

/* The client. */
static struct rdma_cm_id **ids;
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
        must(ibv_post_send(ids[choose(rounds, count)]->qp, &wr, &bad), "ibv_post_send");
        wait_one(end);
        wait_one(end);
    }
    return (now_s() - began) / (double)rounds / 2 * 1e6;
}

static double measure_rate_mps(struct end *end, uint32_t count)
{
    double began = now_s();
    uint64_t posted = 0, done = 0;
    while (now_s() - began < SECONDS) {
        struct ibv_sge sge = {(uintptr_t)&end->words[1], 8, end->mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {target.address, target.key}},
                           *bad;
        while (posted - done < UNDER_WAY) {
            must(ibv_post_send(ids[choose(posted, count)]->qp, &wr, &bad), "ibv_post_send");
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

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    uint32_t count = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    int commands[2], answers[2];
    if (count == 0 || (count > 1 && count <= UNDER_WAY) ||
        inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: queue_pairs ADDRESS COUNT (1, or more than 64)\n");
        return 2;
    }
    must(pipe(commands) != 0 || pipe(answers) != 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(&address, count, commands[0], answers[1]);
    }
    char ready;
    must(child < 0 || read(answers[0], &ready, 1) != 1, "the server");

    struct end end = {.events = rdma_create_event_channel()};
    ids = calloc(count, sizeof(struct rdma_cm_id *));
    must(end.events == NULL || ids == NULL, "rdma_create_event_channel");
    connect_up_to(&end, &address, 1);
    uint64_t before = resident_bytes();
    double began = now_s();
    connect_up_to(&end, &address, count);
    printf("connect_s %.3f\n", now_s() - began);
    printf("idle_bytes %.0f\n",
           ((double)resident_bytes() - (double)before) / (count > 1 ? count - 1 : 1));
    printf("idle_cpu_percent %.3f\n", idle_cpu_percent());
    must(write(commands[1], "e", 1) != 1, "write");
    (void)measure_latency_us(&end, count); /* warms up */
    printf("latency_same_us %.3f\n", measure_latency_us(&end, 1));
    printf("latency_us %.3f\n", measure_latency_us(&end, count));
    printf("rate_same_mps %.4f\n", measure_rate_mps(&end, 1));
    printf("rate_mps %.4f\n", measure_rate_mps(&end, count));
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    _exit(0);
}
