/* Threads that poll and post are cancelled at any moment, as programs end theirs: none may be lost
 * with a lock of the library's. */
#include "rnic/verbs/world_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define ROUNDS     100
#define OPENINGS   20
#define PATIENCE_S 60

struct stage {
    struct world *w;
    int file;
    _Atomic uint64_t polled;
};

static int post_write(struct world *w, int index)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, 2048, w->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)w->bytes + 2048, w->mr->rkey}};
    struct ibv_send_wr *bad;
    return ibv_post_send(w->qps[index], &wr, &bad);
}

/* Nothing that it calls is a cancellation point but pthread_testcancel. */
static void *poll_and_post(void *argument)
{
    struct stage *stage = argument;
    struct world *w = stage->w;
    struct ibv_wc wc[4];
    for (;;) {
        (void)post_write(w, 0);
        (void)post_write(w, 1);
        (void)ibv_req_notify_cq(w->cq, 0);
        int count = ibv_poll_cq(w->cq, 4, wc);
        assert_true(count >= 0);
        atomic_fetch_add(&stage->polled, (uint64_t)count);
        pthread_testcancel();
    }
    return NULL;
}

/* Control calls, likewise. */
static void *make_and_unmake(void *argument)
{
    struct world *w = ((struct stage *)argument)->w;
    for (;;) {
        struct ibv_qp_init_attr init = small(w->cq);
        struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
        struct ibv_mr *mr = ibv_reg_mr(w->pd, w->bytes, 64, 0);
        struct ibv_port_attr port;
        assert_true(qp != NULL && mr != NULL);
        to_init(qp);
        assert_int_equal(ibv_query_port(w->context, 1, &port), 0);
        assert_int_equal(ibv_dereg_mr(mr), 0);
        assert_int_equal(ibv_destroy_qp(qp), 0);
        pthread_testcancel();
    }
    return NULL;
}

/* Those that ask other processes of the host, or the kernel. */
static void *join_and_leave(void *argument)
{
    const struct stage *stage = argument;
    struct world *w = stage->w;
    struct ibv_xrcd_init_attr init = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = stage->file,
                                      .oflags = O_CREAT};
    for (;;) {
        struct ibv_xrcd *domain = ibv_open_xrcd(w->context, &init);
        struct ibv_comp_channel *channel = ibv_create_comp_channel(w->context);
        assert_true(domain != NULL && channel != NULL);
        assert_int_equal(ibv_destroy_comp_channel(channel), 0);
        assert_int_equal(ibv_close_xrcd(domain), 0);
        pthread_testcancel();
    }
    return NULL;
}

static void *open_and_close(void *argument)
{
    for (;;) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        struct ibv_context *context = ibv_open_device(list[0]);
        assert_non_null(context);
        ibv_free_device_list(list);
        assert_int_equal(ibv_close_device(context), 0);
        pthread_testcancel();
    }
    return NULL;
}

static void late(int signal)
{
    static const char text[] = "cancelled: a thread was lost with a lock\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(1);
}

static void cancel_many(struct stage *stage, void *(*work)(void *), int rounds)
{
    for (int i = 0; i < rounds; i++) {
        pthread_t threads[2];
        void *result;
        for (int j = 0; j < 2; j++) {
            assert_int_equal(pthread_create(&threads[j], NULL, work, stage), 0);
        }
        usleep((useconds_t)(i % 20) * 50);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(pthread_cancel(threads[j]), 0);
            assert_int_equal(pthread_join(threads[j], &result), 0);
            assert_true(result == PTHREAD_CANCELED);
        }
    }
}

/* A queue pair and a region more would be left behind by who is cancelled in between: closing the
 * world would find them. */
static void test_threads_are_cancelled(void **state)
{
    struct stage stage = {.w = *state, .file = memfd_create("domain", MFD_CLOEXEC)};
    connect_pair(stage.w);
    cancel_many(&stage, poll_and_post, ROUNDS);
    assert_true(atomic_load(&stage.polled) > 0);
    cancel_many(&stage, make_and_unmake, ROUNDS);
    cancel_many(&stage, join_and_leave, ROUNDS);
    close(stage.file);
}

/* The engine begins and ends in them. */
static void test_threads_that_open_are_cancelled(void **state)
{
    cancel_many(NULL, open_and_close, OPENINGS);
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    assert_non_null(context);
    ibv_free_device_list(list);
    assert_int_equal(ibv_close_device(context), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {IN_WORLD(test_threads_are_cancelled),
                                       cmocka_unit_test(test_threads_that_open_are_cancelled)};
    signal(SIGALRM, late);
    alarm(PATIENCE_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
