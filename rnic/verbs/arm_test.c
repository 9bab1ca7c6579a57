/* Arming beside a destroy of the same queue, in an order that is brought about by this program's
 * own functions in front of the C library's. Public calls only. */
#include "rnic/verbs/world_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#define VISIBLE __attribute__((visibility("default")))

static struct {
    struct world *w;
    atomic_bool is_stalled, destroy_waits;
} stage;

static _Thread_local bool stalls, destroys;

static void *find_next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        abort();
    }
    return found;
}

/* Who arms is about to post an event, and does so when the destroy has forgotten all of them. */
VISIBLE int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (next == NULL) {
        *(void **)&next = find_next("pthread_mutex_lock");
    }
    if (stalls) {
        stalls = false;
        atomic_store(&stage.is_stalled, true);
        while (!atomic_load(&stage.destroy_waits)) {
            usleep(1000);
        }
    }
    return next(mutex);
}

VISIBLE int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                   const struct timespec *end)
{
    static int (*_Atomic next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (next == NULL) {
        *(void **)&next = find_next("pthread_cond_timedwait");
    }
    atomic_store(&stage.destroy_waits, destroys);
    return next(condition, mutex, end);
}

/* Takes an event, arms, and acknowledges the event. */
static void *arm(void *argument)
{
    struct ibv_cq *cq;
    void *context;
    assert_int_equal(ibv_get_cq_event(stage.w->channel, &cq, &context), 0);
    stalls = true;
    assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
    stalls = false;
    ibv_ack_cq_events(cq, 1);
    return argument;
}

static void post(struct world *w, enum ibv_wr_opcode opcode, uint32_t from, uint32_t to)
{
    bool reads = opcode == IBV_WR_RDMA_READ;
    struct ibv_sge sge = {(uintptr_t)w->bytes + (reads ? to : from), 1, w->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.sg_list = &sge,
              .num_sge = 1,
              .opcode = opcode,
              .send_flags = reads ? 0 : IBV_SEND_SIGNALED,
              .wr.rdma = {(uintptr_t)w->bytes + (reads ? from : to), w->mr->rkey}};
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
}

static void await_event(struct world *w)
{
    struct pollfd ready = {.fd = w->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
}

/* Completions that nobody polled stand in the queue. */
static void test_no_event_outlives_its_queue(void **state)
{
    struct world *w = *state;
    struct ibv_cq *plain = w->cq;
    struct pollfd ready = {.fd = w->channel->fd, .events = POLLIN};
    pthread_t thread;
    stage.w = w;
    w->bytes[201] = 1;
    w->cq = ibv_create_cq(w->context, 8, NULL, w->channel, 0);
    connect_pair(w);
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    post(w, IBV_WR_RDMA_WRITE, 0, 100);
    await_event(w);
    post(w, IBV_WR_RDMA_WRITE, 0, 100); /* of which no event tells, */
    post(w, IBV_WR_RDMA_READ, 200, 300);
    post(w, IBV_WR_RDMA_READ, 201, 301); /* and which has completed before this is asked for */
    while (((volatile uint8_t *)w->bytes)[301] == 0) {
        usleep(1000);
    }
    assert_int_equal(pthread_create(&thread, NULL, arm, NULL), 0);
    while (!atomic_load(&stage.is_stalled)) {
        usleep(1000);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    destroys = true;
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    destroys = false;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(poll(&ready, 1, 0), 0);
    w->cq = plain;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_no_event_outlives_its_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
