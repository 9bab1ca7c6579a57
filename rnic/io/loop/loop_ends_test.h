/* Ends of connections on the process's engine, for the tests of the loop: a queue pair, a buffer, a
 * completion queue, and the ways in which an application waits. */
#ifndef WEIR_IO_LOOP_ENDS_TEST_H
#define WEIR_IO_LOOP_ENDS_TEST_H

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/heap.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/loop.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/notify.h"
#include "rnic/queue/completion_queue.h"

#define BUFFER_BYTES 131072u
#define PATIENCE_MS  20000

static const struct gid loopback = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};

/* One end: a queue pair over a buffer, whose completions make a descriptor readable when armed. */
struct end {
    struct engine *engine;
    struct domain domain;
    struct memory_key key;
    struct completion_queue_notifier notifier;
    struct notify *notify;
    struct completion_queue *completions;
    struct qp *qp;
    uint8_t *buffer;
};

/* What the other end has to know. */
struct introduction {
    struct qpn qpn;
    struct memory_key key;
    uint64_t address;
};

static inline void completed(struct completion_queue_notifier *notifier,
                             struct completion_queue *queue)
{
    struct end *end = (struct end *)((char *)notifier - offsetof(struct end, notifier));
    notify_post(end->notify, &(struct notify_record){.object = end});
}

static inline void overrun(struct completion_queue_notifier *notifier,
                           struct completion_queue *queue)
{
    abort();
}

static inline void register_buffer(struct end *end)
{
    struct memory *memory = device_memory(end->engine->device);
    assert_int_equal(memory_allocate_domain(memory, &end->domain), STATUS_OK);
    struct region_attributes region = {
        .domain = end->domain,
        .address = (uintptr_t)end->buffer,
        .length = BUFFER_BYTES,
        .bytes = end->buffer,
        .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ,
    };
    assert_int_equal(memory_register(memory, &region, &end->key), STATUS_OK);
}

static inline struct end *create_end(void)
{
    struct end *end = calloc(1, sizeof *end);
    end->buffer = calloc(1, BUFFER_BYTES);
    end->notifier = (struct completion_queue_notifier){.completed = completed, .overrun = overrun};
    assert_int_equal(loop_acquire(&end->engine), STATUS_OK);
    assert_int_equal(notify_create(&end->notify), STATUS_OK);
    assert_int_equal(
        completion_queue_create(heap_allocator(), 256, &end->notifier, &end->completions),
        STATUS_OK);
    engine_lock(end->engine);
    register_buffer(end);
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = end->domain,
        .send_completions = end->completions,
        .receive_completions = end->completions,
        .send = {.capacity = 64, .max_sge = 1, .max_inline = 64},
        .max_receive = 64,
        .max_receive_sge = 1,
    };
    assert_int_equal(device_create_qp(end->engine->device, &init, &end->qp), STATUS_OK);
    engine_unlock(end->engine);
    return end;
}

static inline struct introduction introduce(const struct end *end)
{
    return (struct introduction){qp_number(end->qp), end->key, (uintptr_t)end->buffer};
}

static inline void modify(struct end *end, const struct qp_attributes *attributes, unsigned mask)
{
    engine_lock(end->engine);
    enum status status = device_modify_qp(end->engine->device, engine_now(end->engine), end->qp,
                                          attributes, mask | QP_SET_STATE, NULL);
    engine_unlock(end->engine);
    assert_int_equal(status, STATUS_OK);
}

static inline void connect_end(struct end *end, const struct introduction *peer)
{
    struct qp_attributes attributes = {
        .state = QP_INIT,
        .path = {.local = loopback, .remote = loopback},
        .path_mtu = PATH_MTU_4096,
        .destination = peer->qpn,
        .access = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ,
        .max_reads_out = 4,
        .max_reads_in = 4,
        .min_rnr_timer = 1,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
    };
    modify(end, &attributes, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS);
    attributes.state = QP_RTR;
    modify(end, &attributes,
           QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN |
               QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER);
    attributes.state = QP_RTS;
    modify(end, &attributes,
           QP_SET_SEND_PSN | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |
               QP_SET_MAX_READS_OUT);
}

static inline void connect_both(struct end *a, struct end *b)
{
    struct introduction of_a = introduce(a), of_b = introduce(b);
    connect_end(a, &of_b);
    connect_end(b, &of_a);
}

static inline void destroy_end(struct end *end)
{
    struct memory *memory = device_memory(end->engine->device);
    engine_lock(end->engine);
    device_destroy_qp(end->engine->device, end->qp);
    assert_int_equal(memory_deregister(memory, end->key), STATUS_OK);
    assert_int_equal(memory_free_domain(memory, end->domain), STATUS_OK);
    engine_unlock(end->engine);
    completion_queue_destroy(end->completions);
    notify_destroy(end->notify);
    loop_release(end->engine);
    free(end->buffer);
    free(end);
}

static inline void post(struct end *end, enum work_kind kind, uint32_t length,
                        const struct introduction *peer)
{
    struct sge sge = {(uintptr_t)end->buffer, length, end->key};
    struct send_request request = {
        .id = 1, .kind = kind, .signaled = true, .sges = &sge, .sge_count = 1};
    if (peer != NULL) {
        request.remote_address = peer->address;
        request.remote_key = peer->key;
    }
    assert_int_equal(qp_post_send(end->qp, &request), STATUS_OK);
    engine_kick(end->engine, end->qp);
}

static inline void post_receive(struct end *end)
{
    struct sge sge = {(uintptr_t)end->buffer, BUFFER_BYTES, end->key};
    struct receive_request request = {.id = 2, .sges = &sge, .sge_count = 1};
    assert_int_equal(qp_post_receive(end->qp, &request), STATUS_OK);
}

/* As ibv_poll_cq does in a loop. */
static inline void poll_one(struct end *end)
{
    struct completion completion;
    while (completion_queue_poll(end->completions, 1, &completion) == 0) {
        engine_drive(end->engine);
    }
    assert_int_equal(completion.status, COMPLETION_SUCCESS);
}

/* As an application with a completion channel does: nobody but the thread drives. */
static inline enum completion_status wait_one(struct end *end)
{
    struct completion completion;
    completion_queue_arm(end->completions, false);
    engine_about_to_sleep(end->engine);
    while (completion_queue_poll(end->completions, 1, &completion) == 0) {
        struct notify_record record;
        struct pollfd ready = {.fd = notify_descriptor(end->notify), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        assert_int_equal(notify_wait(end->notify, &record), 0);
        completion_queue_arm(end->completions, false);
    }
    return completion.status;
}

/* Until the thread sleeps, and nothing but a packet or a wake-up ends that. */
static inline void wait_until_thread_sleeps(struct loop *loop)
{
    while (atomic_load(&loop->thread_state) != THREAD_WATCHING ||
           atomic_load(&loop->sleeping_until_ns) != UINT64_MAX) {
        usleep(1000);
    }
}

#endif
