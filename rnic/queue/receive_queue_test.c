#include "rnic/queue/receive_queue.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"

static struct receive_queue *create(uint32_t capacity, uint32_t max_sge)
{
    struct receive_queue *queue;
    assert_int_equal(receive_queue_create(heap_allocator(), capacity, max_sge, &queue), STATUS_OK);
    return queue;
}

static void posting_order_and_capacity(void **state)
{
    struct receive_queue *queue = create(5, 1);
    struct receive_slot taken;
    struct sge sge;
    assert_null(receive_queue_peek(queue));
    assert_false(receive_queue_take(queue, &taken, &sge));
    uint64_t next_in = 0;
    uint64_t next_out = 0;
    for (int round = 0; round < 20; round++) {
        while (receive_queue_depth(queue) < 5) {
            struct sge posted = {next_in, 8, {1}};
            struct receive_request request = {next_in++, &posted, 1};
            assert_int_equal(receive_queue_post(queue, &request), STATUS_OK);
        }
        struct receive_request extra = {99, NULL, 0};
        assert_int_equal(receive_queue_post(queue, &extra), STATUS_FULL);
        for (int i = 0; i <= round % 5; i++) {
            assert_int_equal(receive_queue_peek(queue)->id, next_out);
            assert_true(receive_queue_take(queue, &taken, &sge));
            assert_int_equal(taken.id, next_out);
            assert_ptr_equal(taken.sges, &sge);
            assert_int_equal(sge.address, next_out);
            next_out++;
        }
    }
    assert_int_equal(receive_queue_capacity(queue), 5);
    assert_int_equal(receive_queue_max_sge(queue), 1);
    receive_queue_destroy(queue);
}

static void lengths_do_not_wrap(void **state)
{
    struct receive_queue *queue = create(1, 3);
    struct sge sges[4] = {{0, UINT32_MAX, {0}}, {0, UINT32_MAX, {0}}, {0, 2, {0}}};
    struct receive_request request = {1, sges, 4};
    assert_int_equal(receive_queue_post(queue, &request), STATUS_INVALID);
    request.sge_count = 3;
    assert_int_equal(receive_queue_post(queue, &request), STATUS_OK);
    assert_int_equal(receive_queue_peek(queue)->length, UINT64_C(0x200000000));
    assert_int_equal(receive_queue_peek(queue)->sge_count, 3);
    assert_memory_equal(receive_queue_peek(queue)->sges, sges, 3 * sizeof(struct sge));
    receive_queue_destroy(queue);
    receive_queue_destroy(NULL);

    queue = NULL;
    assert_int_equal(receive_queue_create(heap_allocator(), QUEUE_CAPACITY_MAX + 1, 1, &queue),
                     STATUS_INVALID);
    assert_int_equal(receive_queue_create(heap_allocator(), 1, QUEUE_SGE_MAX + 1, &queue),
                     STATUS_INVALID);
    assert_null(queue);
}

#define CROSSINGS 100000

static void *post_all(void *argument)
{
    struct receive_queue *queue = argument;
    for (uint64_t i = 0; i < CROSSINGS; i++) {
        struct sge sge = {~i, (uint32_t)i, {0}};
        struct receive_request request = {i, &sge, 1};
        while (receive_queue_post(queue, &request) == STATUS_FULL) {
            sched_yield();
        }
    }
    return NULL;
}

static void two_threads(void **state)
{
    struct receive_queue *queue = create(6, 1);
    pthread_t poster;
    assert_int_equal(pthread_create(&poster, NULL, post_all, queue), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < CROSSINGS; i++) {
        struct receive_slot slot;
        struct sge sge;
        while (!receive_queue_take(queue, &slot, &sge)) {
            sched_yield();
        }
        wrong += slot.id != i || sge.address != ~i || slot.length != i;
    }
    pthread_join(poster, NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(receive_queue_depth(queue), 0);
    receive_queue_destroy(queue);
}

/* Nobody sees a receive that is built in its place before it is posted. */
static void receives_are_built_in_their_places(void **state)
{
    struct receive_queue *queue;
    assert_int_equal(receive_queue_create(heap_allocator(), 2, 2, &queue), STATUS_OK);
    for (uint64_t id = 0; id < 5; id++) {
        assert_null(receive_queue_open(queue, 3));
        struct sge *sges = receive_queue_open(queue, 2);
        assert_non_null(sges);
        sges[0] = (struct sge){.address = 100 + id, .length = 10};
        sges[1] = (struct sge){.address = 200 + id, .length = 20};
        assert_null(receive_queue_peek(queue));
        receive_queue_post_opened(queue, id, 2);
        assert_non_null(receive_queue_open(queue, 0));
        receive_queue_post_opened(queue, 99, 0);
        assert_null(receive_queue_open(queue, 0)); /* full */
        const struct receive_slot *slot = receive_queue_peek(queue);
        assert_true(slot != NULL && slot->id == id && slot->length == 30 && slot->sge_count == 2);
        assert_int_equal(slot->sges[1].address, 200 + id);
        receive_queue_drop(queue);
        slot = receive_queue_peek(queue);
        assert_true(slot != NULL && slot->id == 99 && slot->length == 0 && slot->sge_count == 0);
        receive_queue_drop(queue);
    }
    receive_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_are_built_in_their_places),
        cmocka_unit_test(posting_order_and_capacity),
        cmocka_unit_test(lengths_do_not_wrap),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
