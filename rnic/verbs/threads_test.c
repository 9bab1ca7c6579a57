/* Many threads on the same objects, as programs have them: what is said here is little (nothing
 * hangs, nothing is lost), the rest says ThreadSanitizer. Uses public calls only. */
#include "rnic/verbs/world_test.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 200
#define LENGTH 512 /* holds all completions: who polls may not get to run */

struct stage {
    struct world *w;
    struct ibv_cq_ex *extended;
    _Atomic bool over;
    _Atomic uint64_t posted, polled, events;
};

static int post_write(struct world *w, unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = flags,
                             .wr.rdma = {(uintptr_t)w->bytes + 2048, w->mr->rkey}};
    struct ibv_send_wr *bad;
    return ibv_post_send(w->qps[0], &wr, &bad);
}

/* Two of them post to one queue pair, and a third who thinks better of it. */
static void *post(void *argument)
{
    struct stage *stage = argument;
    for (int i = 0; i < ROUNDS;) {
        int error = post_write(stage->w, IBV_SEND_SIGNALED);
        assert_true(error == 0 || error == ENOMEM);
        if (error == 0) {
            i++;
            atomic_fetch_add(&stage->posted, 1);
        }
    }
    return NULL;
}

static void *abort_batches(void *argument)
{
    struct stage *stage = argument;
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(stage->w->qps[0]);
    for (int i = 0; i < ROUNDS; i++) {
        ibv_wr_start(qp);
        ibv_wr_send(qp);
        ibv_wr_set_sge(qp, stage->w->mr->lkey, (uintptr_t)stage->w->bytes, 8);
        ibv_wr_abort(qp);
    }
    return NULL;
}

static void *poll_plainly(void *argument)
{
    struct stage *stage = argument;
    struct ibv_wc wc[4];
    while (!atomic_load(&stage->over)) {
        int count = ibv_poll_cq(stage->w->cq, 4, wc);
        assert_true(count >= 0);
        atomic_fetch_add(&stage->polled, (uint64_t)count);
    }
    return NULL;
}

static void *poll_one_by_one(void *argument)
{
    struct stage *stage = argument;
    struct ibv_poll_cq_attr attributes = {0};
    while (!atomic_load(&stage->over)) {
        if (ibv_start_poll(stage->extended, &attributes) != 0) {
            continue;
        }
        do {
            assert_int_equal(stage->extended->status, IBV_WC_SUCCESS);
            assert_int_equal(ibv_wc_read_opcode(stage->extended), IBV_WC_RDMA_WRITE);
            atomic_fetch_add(&stage->polled, 1);
        } while (ibv_next_poll(stage->extended) == 0);
        ibv_end_poll(stage->extended);
    }
    return NULL;
}

static void *take_events(void *argument)
{
    struct stage *stage = argument;
    struct pollfd ready = {.fd = stage->w->channel->fd, .events = POLLIN};
    while (!atomic_load(&stage->over)) {
        struct ibv_cq *cq;
        void *context;
        assert_int_equal(ibv_req_notify_cq(stage->w->cq, 0), 0);
        if (poll(&ready, 1, 10) == 1 && ibv_get_cq_event(stage->w->channel, &cq, &context) == 0) {
            atomic_fetch_add(&stage->events, 1);
            ibv_ack_cq_events(cq, 1);
        }
    }
    return NULL;
}

static void *change_the_queue(void *argument)
{
    struct stage *stage = argument;
    for (int i = 0; !atomic_load(&stage->over); i++) {
        struct ibv_modify_cq_attr attributes = {
            .attr_mask = IBV_CQ_ATTR_MODERATE,
            .moderate = {.cq_count = (uint16_t)(i % 3), .cq_period = 10}};
        assert_int_equal(ibv_modify_cq(stage->w->cq, &attributes), 0);
        assert_int_equal(ibv_resize_cq(stage->w->cq, i % 2 == 0 ? LENGTH : 2 * LENGTH), 0);
    }
    return NULL;
}

static void *ask(void *argument)
{
    struct stage *stage = argument;
    while (!atomic_load(&stage->over)) {
        struct ibv_qp_attr attributes;
        struct ibv_qp_init_attr init;
        struct ibv_device_attr device;
        struct ibv_port_attr port;
        assert_int_equal(ibv_query_qp(stage->w->qps[0], &attributes, IBV_QP_STATE, &init), 0);
        assert_int_equal(attributes.qp_state, IBV_QPS_RTS);
        assert_int_equal(ibv_query_device(stage->w->context, &device), 0);
        assert_int_equal(ibv_query_port(stage->w->context, 1, &port), 0);
    }
    return NULL;
}

/* Objects come and go beside, on the same queues. */
static void *make_and_unmake(void *argument)
{
    struct stage *stage = argument;
    struct world *w = stage->w;
    while (!atomic_load(&stage->over)) {
        struct ibv_qp_init_attr init = small(w->cq);
        struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
        struct ibv_mr *mr = ibv_reg_mr(w->pd, w->bytes, 64, 0);
        struct ibv_pd *pd = ibv_alloc_pd(w->context);
        assert_true(qp != NULL && mr != NULL && pd != NULL);
        to_init(qp);
        assert_int_equal(ibv_destroy_qp(qp), 0);
        assert_int_equal(ibv_dereg_mr(mr), 0);
        assert_int_equal(ibv_dealloc_pd(pd), 0);
    }
    return NULL;
}

typedef void *part(void *stage);

static void play(struct stage *stage, part *poll)
{
    part *const players[] = {poll, take_events, change_the_queue, ask, make_and_unmake};
    part *const posters[] = {post, post, abort_batches};
    pthread_t playing[5], posting[3];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pthread_create(&playing[i], NULL, players[i], stage), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&posting[i], NULL, posters[i], stage), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(posting[i], NULL);
    }
    time_t end = time(NULL) + 20;
    while (atomic_load(&stage->polled) < atomic_load(&stage->posted)) {
        assert_true(time(NULL) < end);
    }
    atomic_store(&stage->over, true);
    for (int i = 0; i < 5; i++) {
        pthread_join(playing[i], NULL);
    }
    assert_int_equal(atomic_load(&stage->polled), 2 * ROUNDS);
}

static void test_plain_polling(void **state)
{
    struct stage stage = {.w = *state};
    assert_int_equal(ibv_resize_cq(stage.w->cq, LENGTH), 0);
    connect_pair(stage.w);
    play(&stage, poll_plainly);
}

static void test_polling_one_by_one(void **state)
{
    struct world *w = *state;
    struct ibv_cq_init_attr_ex init = {
        .cqe = LENGTH, .channel = w->channel, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct stage stage = {.w = w, .extended = ibv_create_cq_ex(w->context, &init)};
    struct ibv_cq *plain = w->cq;
    assert_non_null(stage.extended);
    w->cq = ibv_cq_ex_to_cq(stage.extended);
    connect_pair(w);
    play(&stage, poll_one_by_one);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    w->cq = plain;
}

static void in_another_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *complete_batch(void *argument)
{
    assert_int_equal(ibv_wr_complete(argument), 0);
    return NULL;
}

static void *abort_batch(void *argument)
{
    ibv_wr_abort(argument);
    return NULL;
}

static void *end_poll(void *argument)
{
    ibv_end_poll(argument);
    return NULL;
}

static void begin_batch(struct stage *stage, struct ibv_qp_ex *qp)
{
    ibv_wr_start(qp);
    qp->wr_id = 7;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, stage->w->mr->rkey, (uintptr_t)stage->w->bytes + 2048);
    ibv_wr_set_sge(qp, stage->w->mr->lkey, (uintptr_t)stage->w->bytes, 8);
}

/* Who begins batches and polls so often in a row is favoured for it. */
#define IN_A_ROW 1200

static void test_what_another_thread_ends(void **state)
{
    struct world *w = *state;
    struct stage stage = {.w = w};
    struct ibv_cq *plain = w->cq;
    struct ibv_poll_cq_attr attributes = {0};
    struct ibv_cq_init_attr_ex init = {.cqe = LENGTH, .wc_flags = IBV_WC_STANDARD_FLAGS};
    stage.extended = ibv_create_cq_ex(w->context, &init);
    w->cq = ibv_cq_ex_to_cq(stage.extended);
    connect_pair(w);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(w->qps[0]);
    alarm(20); /* where it hangs */
    for (int i = 0; i < 2 * IN_A_ROW; i++) {
        begin_batch(&stage, qp);
        if (i % IN_A_ROW > 20) {
            ibv_wr_abort(qp);
            assert_int_equal(ibv_start_poll(stage.extended, &attributes), ENOENT);
            continue;
        }
        in_another_thread(abort_batch, qp);
        begin_batch(&stage, qp);
        in_another_thread(complete_batch, qp);
        while (ibv_start_poll(stage.extended, &attributes) != 0) {
        }
        assert_int_equal(stage.extended->wr_id, 7);
        assert_int_equal(stage.extended->status, IBV_WC_SUCCESS);
        in_another_thread(end_poll, stage.extended);
    }
    alarm(0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    w->cq = plain;
}

struct latecomer {
    struct world *w;
    _Atomic bool has_taken;
};

static void *acknowledge_late(void *argument)
{
    struct ibv_cq *cq;
    void *context;
    struct latecomer *late = argument;
    assert_int_equal(ibv_get_cq_event(late->w->channel, &cq, &context), 0);
    atomic_store(&late->has_taken, true);
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

/* Destroying waits for who has taken an event and is about to acknowledge it. */
static void test_destroy_beside_an_acknowledgement(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 50; i++) {
        struct latecomer late = {.w = w};
        struct ibv_cq *plain = w->cq;
        pthread_t thread;
        w->cq = ibv_create_cq(w->context, 8, NULL, w->channel, 0);
        assert_non_null(w->cq);
        connect_pair(w);
        assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
        assert_int_equal(pthread_create(&thread, NULL, acknowledge_late, &late), 0);
        assert_int_equal(post_write(w, IBV_SEND_SIGNALED), 0);
        assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(ibv_destroy_qp(w->qps[j]), 0);
            w->qps[j] = NULL;
        }
        while (!atomic_load(&late.has_taken)) {
        }
        assert_int_equal(ibv_destroy_cq(w->cq), 0);
        pthread_join(thread, NULL);
        w->cq = plain;
    }
}

/* Posts one receive a round, a little later each time. */
struct receiver {
    struct world *w;
    _Atomic uint32_t round, posted;
};

#define ERRORS 20000u
#define DELAYS 400u
#define LAST   UINT32_MAX
/* Two threads that have one processor between them take a turn of the scheduler for each round. */
#define ENOUGH_S 3

static void *post_receives(void *argument)
{
    struct receiver *receiver = argument;
    for (uint32_t round = 1;; round++) {
        uint32_t wanted;
        while ((wanted = atomic_load(&receiver->round)) < round) {
        }
        if (wanted == LAST) {
            return NULL;
        }
        for (_Atomic uint32_t wait = 0; wait < round % DELAYS; wait++) {
        }
        assert_int_equal(post_receive(receiver->w, receiver->w->qps[0], round, 0, 8), 0);
        atomic_store(&receiver->posted, round);
    }
}

/* It is flushed, whichever of the two comes first. */
static void test_a_receive_beside_an_error(void **state)
{
    struct world *w = *state;
    struct receiver receiver = {.w = w};
    struct ibv_qp_init_attr init = small(w->cq);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR}, reset = {.qp_state = IBV_QPS_RESET};
    pthread_t thread;
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_non_null(w->qps[0]);
    assert_int_equal(pthread_create(&thread, NULL, post_receives, &receiver), 0);
    time_t end = time(NULL) + ENOUGH_S;
    for (uint32_t round = 1; round <= ERRORS && time(NULL) < end; round++) {
        to_init(w->qps[0]);
        atomic_store(&receiver.round, round);
        assert_int_equal(ibv_modify_qp(w->qps[0], &error, IBV_QP_STATE), 0);
        while (atomic_load(&receiver.posted) != round) {
        }
        struct ibv_wc wc = await(w->cq);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(wc.wr_id, round);
        assert_int_equal(ibv_modify_qp(w->qps[0], &reset, IBV_QP_STATE), 0);
    }
    atomic_store(&receiver.round, LAST);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_plain_polling),
        IN_WORLD(test_polling_one_by_one),
        IN_WORLD(test_what_another_thread_ends),
        IN_WORLD(test_destroy_beside_an_acknowledgement),
        IN_WORLD(test_a_receive_beside_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
