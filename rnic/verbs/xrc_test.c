/* An XRC domain of two processes: a target in this one, the shared receive queue in another, which
 * does what it is told by pipe. */
#include "rnic/verbs/world_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define AT 2048 /* in the owner's bytes: where receives lie; what comes before is for WRITEs */

/* What the owner says. */
struct report {
    int error;
    uint32_t number; /* of its queue, or of its target */
    uint32_t key;
    uint64_t address;
    struct ibv_wc completion;
    uint8_t bytes[64];
};

struct both {
    struct world *w;
    int file;
    int orders[2], reports[2];
    pid_t owner;
    struct report queue;
    struct ibv_xrcd *domain;
    struct ibv_qp *initiator, *target;
};

static struct ibv_xrcd *open_domain(struct ibv_context *context, int file, int flags)
{
    struct ibv_xrcd_init_attr init = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = file,
                                      .oflags = flags};
    return ibv_open_xrcd(context, &init);
}

static struct ibv_qp *create_target(struct world *w, struct ibv_xrcd *domain)
{
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain};
    return ibv_create_qp_ex(w->context, &init);
}

static struct ibv_srq *create_queue(struct world *w, struct ibv_xrcd *domain)
{
    struct ibv_srq_init_attr_ex init = {
        .attr = {.max_wr = DEPTH, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = w->pd,
        .xrcd = domain,
        .cq = w->cq,
    };
    return ibv_create_srq_ex(w->context, &init);
}

/* The owner's side. p: posts a receive. c: a completion. l: looks at its bytes. d: destroys the
 * queue. t: makes a target. */
static void obey(struct both *both)
{
    void *state;
    char order;
    open_world(&state);
    struct world *w = state;
    struct ibv_xrcd *domain = open_domain(w->context, both->file, O_CREAT);
    struct ibv_srq *queue = domain == NULL ? NULL : create_queue(w, domain);
    struct report report = {
        .error = queue == NULL ? errno : 0, .key = w->mr->rkey, .address = (uintptr_t)w->bytes};
    if (queue != NULL) {
        report.error = ibv_get_srq_num(queue, &report.number);
    }
    while (write(both->reports[1], &report, sizeof report) == (ssize_t)sizeof report &&
           read(both->orders[0], &order, 1) == 1) {
        struct ibv_sge sge = {(uintptr_t)w->bytes + AT, 64, w->mr->lkey};
        struct ibv_recv_wr request = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
        report = (struct report){.error = 0};
        if (order == 'p') {
            report.error = ibv_post_srq_recv(queue, &request, &bad);
        } else if (order == 'c') {
            report.completion = await(w->cq);
            memcpy(report.bytes, w->bytes + AT, sizeof report.bytes);
        } else if (order == 'l') {
            memcpy(report.bytes, w->bytes, sizeof report.bytes);
        } else if (order == 'd') {
            report.error = ibv_destroy_srq(queue);
        } else if (order == 't') {
            report.number = create_target(w, domain)->qp_num;
        }
    }
    _exit(1);
}

static struct report hear(struct both *both)
{
    struct report report;
    struct pollfd ready = {.fd = both->reports[0], .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
    assert_int_equal(read(both->reports[0], &report, sizeof report), sizeof report);
    assert_int_equal(report.error, 0);
    return report;
}

static struct report order(struct both *both, char what)
{
    assert_int_equal(write(both->orders[1], &what, 1), 1);
    return hear(both);
}

static void modify(struct ibv_qp *qp, uint32_t peer, bool is_target)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_256,
        .dest_qp_num = peer,
        .rq_psn = 100,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
    };
    to_init(qp);
    assert_int_equal(ibv_query_gid(qp->context, 1, 0, &attributes.ah_attr.grh.dgid), 0);
    assert_int_equal(
        ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          (is_target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
        0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 100;
    attributes.timeout = 17;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    assert_int_equal(
        ibv_modify_qp(
            qp, &attributes,
            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                (is_target ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)),
        0);
}

/* The owner is forked before anything of ours is open. */
static int start(void **state)
{
    struct both *both = calloc(1, sizeof *both);
    char path[] = "/tmp/weir-xrc-test-XXXXXX";
    both->file = mkstemp(path);
    assert_true(both->file >= 0 && unlink(path) == 0 && pipe(both->orders) == 0 &&
                pipe(both->reports) == 0);
    both->owner = fork();
    if (both->owner == 0) {
        close(both->orders[1]);
        obey(both);
    }
    both->queue = hear(both);
    void *world;
    open_world(&world);
    both->w = world;
    both->domain = open_domain(both->w->context, both->file, 0); /* the owner has made it */
    assert_non_null(both->domain);
    both->target = create_target(both->w, both->domain);
    struct ibv_qp_init_attr_ex init = {.send_cq = both->w->cq,
                                       .cap = {DEPTH, 0, 2, 0, 0},
                                       .qp_type = IBV_QPT_XRC_SEND,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD,
                                       .pd = both->w->pd};
    both->initiator = ibv_create_qp_ex(both->w->context, &init);
    assert_true(both->target != NULL && both->initiator != NULL);
    modify(both->target, both->initiator->qp_num, true);
    modify(both->initiator, both->target->qp_num, false);
    *state = both;
    return 0;
}

static void kill_owner(struct both *both)
{
    if (both->owner != 0) {
        kill(both->owner, SIGKILL);
        waitpid(both->owner, NULL, 0);
        both->owner = 0;
    }
}

static int stop(void **state)
{
    struct both *both = *state;
    kill_owner(both);
    assert_int_equal(ibv_destroy_qp(both->initiator), 0);
    assert_int_equal(ibv_destroy_qp(both->target), 0);
    assert_int_equal(ibv_close_xrcd(both->domain), 0);
    void *world = both->w;
    close_world(&world);
    close(both->file);
    for (int i = 0; i < 2; i++) {
        close(both->orders[i]);
        close(both->reports[i]);
    }
    free(both);
    return 0;
}

static void post(struct both *both, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)both->w->bytes, length, both->w->mr->lkey};
    struct ibv_send_wr request = {.wr_id = 9,
                                  .opcode = opcode,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .imm_data = 0x1234,
                                  .qp_type.xrc.remote_srqn = both->queue.number},
                       *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.remote_addr = both->queue.address;
        request.wr.atomic.rkey = both->queue.key;
        request.wr.atomic.compare_add = 1;
    } else {
        request.wr.rdma.remote_addr = both->queue.address;
        request.wr.rdma.rkey = both->queue.key;
    }
    assert_int_equal(ibv_post_send(both->initiator, &request, &bad), 0);
}

static enum ibv_wc_status outcome(struct both *both)
{
    return await(both->w->cq).status;
}

static void test_message_reaches_the_owner(void **state)
{
    struct both *both = *state;
    memcpy(both->w->bytes, "the queue is yours", 19);
    post(both, IBV_WR_SEND_WITH_IMM, 19);
    order(both, 'p'); /* late: it is not ready until then */
    struct report report = order(both, 'c');
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    assert_int_equal(report.completion.status, IBV_WC_SUCCESS);
    assert_int_equal(report.completion.wr_id, 5);
    assert_int_equal(report.completion.byte_len, 19);
    assert_int_equal(report.completion.imm_data, 0x1234);
    assert_int_equal(report.completion.qp_num, both->target->qp_num);
    assert_string_equal((char *)report.bytes, "the queue is yours");
}

/* It has no queue of its own. */
static void test_nothing_is_posted_to_a_target(void **state)
{
    struct both *both = *state;
    struct ibv_sge sge = {(uintptr_t)both->w->bytes, 8, both->w->mr->lkey};
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
    assert_int_equal(ibv_post_send(both->target, &send, &bad_send), EINVAL);
    assert_ptr_equal(bad_send, &send);
    assert_int_equal(ibv_post_recv(both->target, &receive, &bad_receive), EINVAL);
    assert_ptr_equal(bad_receive, &receive);
}

/* What peers name by number serves no queue pair of its own. */
static void test_a_queue_of_a_domain_is_no_shared_queue(void **state)
{
    struct both *both = *state;
    struct ibv_qp_init_attr init = small(both->w->cq);
    init.srq = create_queue(both->w, both->domain);
    assert_non_null(init.srq);
    errno = 0;
    assert_null(ibv_create_qp(both->w->pd, &init));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ibv_destroy_srq(init.srq), 0);
}

static void test_memory_of_the_owner(void **state)
{
    struct both *both = *state;
    memset(both->w->bytes, 7, 8);
    post(both, IBV_WR_RDMA_WRITE, 8);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    post(both, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    assert_int_equal(both->w->bytes[0], 7); /* what was there */
    struct report report = order(both, 'l');
    assert_int_equal(report.bytes[0], 8);
    post(both, IBV_WR_RDMA_READ, 1000);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    assert_memory_equal(both->w->bytes, report.bytes, sizeof report.bytes);
    order(both, 'p');
    post(both, IBV_WR_RDMA_WRITE_WITH_IMM, 1000);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    report = order(both, 'c');
    assert_int_equal(report.completion.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(report.completion.byte_len, 1000);
}

static struct ibv_qp *open_target_again(struct both *both)
{
    struct ibv_qp_open_attr attributes = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = both->target->qp_num,
        .xrcd = both->domain,
        .qp_type = IBV_QPT_XRC_RECV,
    };
    return ibv_open_qp(both->w->context, &attributes);
}

static void hear_of_bad_request(struct both *both, const struct ibv_qp *handle)
{
    struct ibv_async_event event;
    struct pollfd ready = {.fd = both->w->context->async_fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
    assert_int_equal(ibv_get_async_event(both->w->context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_QP_REQ_ERR);
    assert_ptr_equal(event.element.qp, handle);
    ibv_ack_async_event(&event);
}

/* Each handle of the target hears of it. */
static void test_destroyed_queue(void **state)
{
    struct both *both = *state;
    struct ibv_qp *again = open_target_again(both);
    assert_non_null(again);
    order(both, 'd');
    post(both, IBV_WR_SEND, 8);
    assert_int_equal(outcome(both), IBV_WC_REM_INV_REQ_ERR);
    hear_of_bad_request(both, both->target);
    hear_of_bad_request(both, again);
    assert_int_equal(ibv_destroy_qp(again), 0);
}

/* The owner knows the target; the child, which is another process, has nothing to say to it. */
static void test_a_forked_child_lets_go_of_a_target(void **state)
{
    struct both *both = *state;
    int status;
    order(both, 'p');
    post(both, IBV_WR_SEND, 8);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    pid_t child = fork();
    if (child == 0) {
        (void)ibv_destroy_qp(both->target);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    order(both, 'p');
    post(both, IBV_WR_SEND, 8);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
}

/* Before its death was noticed, or after. */
static void test_dead_owner(void **state)
{
    struct both *both = *state;
    order(both, 'p');
    post(both, IBV_WR_SEND, 8);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    kill_owner(both);
    post(both, IBV_WR_SEND, 8);
    enum ibv_wc_status status = outcome(both);
    assert_true(status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR);
}

static void test_life_of_a_domain(void **state)
{
    struct both *both = *state;
    struct ibv_context *context = both->w->context;
    assert_null(open_domain(context, both->file, O_CREAT | O_EXCL));
    assert_int_equal(errno, EINVAL);
    struct ibv_xrcd *again = open_domain(context, both->file, O_CREAT);
    assert_non_null(again);
    assert_int_equal(ibv_close_xrcd(again), 0);
    assert_int_equal(ibv_destroy_qp(both->target), 0);
    assert_int_equal(ibv_close_xrcd(both->domain), 0);
    /* The other process has it open still. */
    assert_null(open_domain(context, both->file, O_CREAT | O_EXCL));
    assert_int_equal(errno, EINVAL);
    assert_null(open_domain(context, both->file, O_EXCL));
    assert_int_equal(errno, EINVAL);
    both->domain = open_domain(context, both->file, 0);
    assert_non_null(both->domain);
    assert_int_equal(ibv_close_xrcd(both->domain), 0);
    kill_owner(both);
    assert_null(open_domain(context, both->file, 0));
    assert_int_equal(errno, EAGAIN);
    both->domain = open_domain(context, both->file, O_CREAT | O_EXCL);
    assert_non_null(both->domain);
    both->target = create_target(both->w, both->domain);
}

/* Else what the program prints would be written into the file. */
static void test_a_domain_stands_in_for_no_stream(void **state)
{
    struct both *both = *state;
    int file = memfd_create("domain", MFD_CLOEXEC), input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    struct ibv_xrcd *domain = open_domain(both->w->context, file, O_CREAT);
    bool stands_in = fcntl(STDIN_FILENO, F_GETFD) != -1;
    if (input >= 0) {
        dup2(input, STDIN_FILENO);
        close(input);
    }
    assert_non_null(domain);
    assert_false(stands_in);
    assert_int_equal(ibv_close_xrcd(domain), 0);
    close(file);
}

static void test_open_target(void **state)
{
    struct both *both = *state;
    struct ibv_qp_open_attr attributes = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = both->target->qp_num,
        .xrcd = both->domain,
        .qp_type = IBV_QPT_XRC_RECV,
    };
    struct ibv_qp *again = ibv_open_qp(both->w->context, &attributes);
    assert_non_null(again);
    assert_int_equal(again->qp_num, both->target->qp_num);
    assert_int_equal(ibv_destroy_qp(both->target), 0);
    both->target = again; /* it lives with its last handle */
    order(both, 'p');
    post(both, IBV_WR_SEND, 8);
    assert_int_equal(outcome(both), IBV_WC_SUCCESS);
    attributes.qp_num = both->initiator->qp_num;
    assert_null(ibv_open_qp(both->w->context, &attributes));
    assert_int_equal(errno, EINVAL);
    attributes.qp_num = order(both, 't').number;
    assert_null(ibv_open_qp(both->w->context, &attributes));
    assert_int_equal(errno, EOPNOTSUPP);
}

/* A thread that opens a domain. */
struct opener {
    struct ibv_context *context;
    int file;
    pthread_t thread;
    atomic_int id; /* the kernel's */
    atomic_bool has_ended;
    struct ibv_xrcd *domain;
};

static void *open_in_thread(void *argument)
{
    struct opener *opener = argument;
    atomic_store(&opener->id, (int)syscall(SYS_gettid));
    opener->domain = open_domain(opener->context, opener->file, O_CREAT);
    atomic_store(&opener->has_ended, true);
    return NULL;
}

static char state_of_thread(int id)
{
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    const char *name_end = length > 0 ? strrchr(text, ')') : NULL;
    return name_end != NULL ? name_end[2] : '?';
}

/* The registry's lock, as another process would have it; the file is closed to give it back. */
static int lock_registry(void)
{
    char link[64], path[256];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    for (int i = 3; i < 256; i++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        if (strncmp(path, "/dev/shm/weir-", 14) == 0) {
            int file = open(path, O_RDWR | O_CLOEXEC);
            assert_true(file >= 0);
            assert_int_equal(fcntl(file, F_OFD_SETLKW, &lock), 0);
            return file;
        }
    }
    return -1;
}

/* Somebody who is stopped and holds the registry's lock keeps who opens a domain waiting, and
 * nobody else. */
static void test_waiting_for_the_registry(void **state)
{
    struct both *both = *state;
    struct opener opener = {.context = both->w->context,
                            .file = memfd_create("domain", MFD_CLOEXEC)};
    int lock = lock_registry();
    if (lock < 0) {
        skip(); /* it lies elsewhere */
    }
    assert_int_equal(pthread_create(&opener.thread, NULL, open_in_thread, &opener), 0);
    while (atomic_load(&opener.id) == 0 || state_of_thread(opener.id) != 'S') {
        sched_yield();
    }
    struct ibv_pd *pd = ibv_alloc_pd(opener.context);
    bool waited = atomic_load(&opener.has_ended);
    close(lock);
    assert_int_equal(pthread_join(opener.thread, NULL), 0);
    assert_false(waited);
    assert_non_null(opener.domain);
    assert_int_equal(ibv_close_xrcd(opener.domain), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    close(opener.file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_message_reaches_the_owner),
        TEST(test_memory_of_the_owner),
        TEST(test_destroyed_queue),
        TEST(test_a_forked_child_lets_go_of_a_target),
        TEST(test_dead_owner),
        TEST(test_life_of_a_domain),
        TEST(test_a_domain_stands_in_for_no_stream),
        TEST(test_open_target),
        TEST(test_waiting_for_the_registry),
        TEST(test_nothing_is_posted_to_a_target),
        TEST(test_a_queue_of_a_domain_is_no_shared_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
