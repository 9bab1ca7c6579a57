#include "rnic/queue/send_queue.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"

static struct send_queue *create(uint32_t capacity, uint32_t max_sge, uint32_t max_inline)
{
    struct send_queue_limits limits = {
        .capacity = capacity, .max_sge = max_sge, .max_inline = max_inline};
    struct send_queue *queue;
    assert_int_equal(send_queue_create(heap_allocator(), &limits, &queue), STATUS_OK);
    return queue;
}

static void exact_capacity_and_order(void **state)
{
    struct send_queue *queue = create(3, 0, 0);
    uint64_t next_in = 0;
    uint64_t next_out = 0;
    for (int round = 0; round < 10; round++) {
        while (send_queue_tail(queue) - send_queue_head(queue) < 3) {
            struct send_request request = {.id = next_in++};
            assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
        }
        struct send_request extra = {.id = 99};
        assert_int_equal(send_queue_post(queue, &extra), STATUS_FULL);
        for (int i = 0; i <= round % 3; i++) {
            struct send_slot *slot = send_queue_slot(queue, send_queue_head(queue));
            assert_int_equal(slot->id, next_out++);
            send_queue_retire(queue, send_queue_oldest(queue));
        }
    }
    send_queue_destroy(queue);

    queue = create(0, 1, 0);
    struct send_request request = {.id = 1};
    assert_int_equal(send_queue_post(queue, &request), STATUS_FULL);
    send_queue_destroy(queue);
    send_queue_destroy(NULL);
}

/* The engine sees none of what is built in its place before it is posted. */
static void requests_are_built_in_their_places(void **state)
{
    struct send_queue *queue = create(3, 2, 16);
    for (int round = 0; round < 5; round++) {
        uint64_t tail = send_queue_tail(queue);
        for (uint32_t ahead = 0; ahead < 3; ahead++) {
            struct send_slot *slot = send_queue_open(queue, ahead);
            assert_non_null(slot);
            assert_false(slot->started || slot->finished || slot->by_packets);
            assert_int_equal(slot->packet_count, 0);
            slot->id = tail + ahead;
            slot->length = 1;
            *(uint8_t *)send_slot_room(slot) = (uint8_t)(tail + ahead);
        }
        assert_null(send_queue_open(queue, 3));
        assert_int_equal(send_queue_tail(queue), tail);
        send_queue_post_opened(queue, 2); /* the third is given up */
        assert_int_equal(send_queue_tail(queue), tail + 2);
        assert_non_null(send_queue_open(queue, 0));
        assert_null(send_queue_open(queue, 1));
        for (uint64_t position = tail; position < tail + 2; position++) {
            struct send_slot *slot = send_queue_slot(queue, position);
            assert_int_equal(slot->id, position);
            assert_int_equal(*send_slot_inline(slot), (uint8_t)position);
            slot->packet_count = 1;
            slot->started = true;
            send_queue_retire(queue, send_queue_oldest(queue));
        }
    }
    send_queue_destroy(queue);
}

static void check_copies(uint32_t capacity)
{
    struct send_queue_limits limits = {.capacity = capacity, .max_sge = 2, .takes_datagrams = true};
    struct send_queue *queue;
    assert_int_equal(send_queue_create(heap_allocator(), &limits, &queue), STATUS_OK);
    struct sge sges[3] = {{100, 10, {7}}, {200, 20, {8}}, {300, 30, {9}}};
    struct datagram_target target = {.qpn = {0x123}, .qkey = {0x456}};
    target.path.hop_limit = 9;
    struct send_request request = {.id = 5,
                                   .kind = WORK_WRITE_IMMEDIATE,
                                   .signaled = true,
                                   .solicited = true,
                                   .fence = true,
                                   .sges = sges,
                                   .sge_count = 2,
                                   .immediate = 0xabcd,
                                   .invalidate = {3},
                                   .remote_address = 0x1000,
                                   .remote_key = {4},
                                   .target = &target};
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    struct sge posted[2] = {sges[0], sges[1]};
    memset(sges, 0xff, sizeof sges);
    memset(&target, 0xff, sizeof target);

    struct send_slot *slot = send_queue_slot(queue, 0);
    assert_int_equal(slot->id, 5);
    assert_int_equal(slot->kind, WORK_WRITE_IMMEDIATE);
    assert_true(slot->signaled && slot->solicited && slot->fence && !slot->inline_data);
    assert_int_equal(slot->length, 30);
    assert_int_equal(slot->sge_count, 2);
    assert_memory_equal(send_slot_sges(slot), posted, sizeof posted);
    assert_int_equal(slot->immediate, 0xabcd);
    assert_int_equal(slot->invalidate.value, 3);
    assert_int_equal(slot->remote_address, 0x1000);
    assert_int_equal(slot->remote_key.value, 4);
    assert_int_equal(send_slot_target(slot)->qpn.value, 0x123);
    assert_int_equal(send_slot_target(slot)->qkey.value, 0x456);
    assert_int_equal(send_slot_target(slot)->path.hop_limit, 9);

    send_queue_retire(queue, send_queue_oldest(queue));
    request.sges = sges;
    request.sge_count = 3;
    assert_int_equal(send_queue_post(queue, &request), STATUS_INVALID);
    request.sge_count = 0;
    request.kind = WORK_KIND_COUNT;
    assert_int_equal(send_queue_post(queue, &request), STATUS_INVALID);
    request.kind = WORK_SEND;
    request.target = NULL;
    assert_int_equal(send_queue_post(queue, &request), STATUS_INVALID);
    send_queue_destroy(queue);
}

/* A queue of one slot is laid out in its own way. */
static void everything_is_copied(void **state)
{
    check_copies(1);
    check_copies(2);
}

/* Behind as many SGEs as there can be. */
static void operands_are_copied(void **state)
{
    struct send_queue *queue = create(1, 3, 0);
    struct sge sges[3] = {{100, 4, {7}}, {200, 4, {8}}, {300, 0, {9}}};
    struct send_request request = {
        .kind = WORK_COMPARE_SWAP, .sges = sges, .sge_count = 3, .compare = 11, .swap_or_add = 12};
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    struct send_slot *slot = send_queue_slot(queue, 0);
    assert_memory_equal(send_slot_sges(slot), sges, sizeof sges);
    assert_int_equal(send_slot_operands(slot)->compare, 11);
    assert_int_equal(send_slot_operands(slot)->swap_or_add, 12);
    send_queue_retire(queue, send_queue_oldest(queue));
    request.kind = WORK_ATOMIC_WRITE;
    request.sge_count = 0;
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    assert_int_equal(send_slot_operands(send_queue_slot(queue, 1))->swap_or_add, 12);
    send_queue_destroy(queue);
}

/* Where there is room for no SGE, and whatever is said of them. */
static void binds_are_copied(void **state)
{
    struct send_queue *queue = create(1, 1, 0);
    struct window_bind bind = {.window = {1}, .key = {2}, .region = {3}, .address = 4, .length = 5};
    struct sge sge = {0};
    struct send_request request = {
        .kind = WORK_BIND_WINDOW, .bind = &bind, .sges = &sge, .sge_count = 1};
    struct window_bind posted = bind;
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    memset(&bind, 0xff, sizeof bind);
    struct send_slot *slot = send_queue_slot(queue, 0);
    assert_int_equal(slot->sge_count, 0);
    assert_memory_equal(send_slot_bind(slot), &posted, sizeof posted);
    send_queue_destroy(queue);
}

static void notes_of_the_transport_are_cleared(void **state)
{
    struct send_queue *queue = create(1, 0, 0);
    struct send_request request = {.id = 1};
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    struct send_slot *slot = send_queue_slot(queue, 0);
    slot->started = slot->finished = true;
    slot->first_psn = (struct psn){5};
    slot->packet_count = 6;
    slot->received = 7;
    slot->status = COMPLETION_FLUSHED;
    send_queue_retire(queue, send_queue_oldest(queue));
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    slot = send_queue_slot(queue, 1);
    assert_false(slot->started || slot->finished);
    assert_int_equal(slot->first_psn.value, 0);
    assert_int_equal(slot->packet_count, 0);
    assert_int_equal(slot->received, 0);
    assert_int_equal(slot->status, COMPLETION_SUCCESS);
    send_queue_destroy(queue);
}

static void inline_bytes_are_taken_at_once(void **state)
{
    struct send_queue *queue = create(2, 3, 100);
    uint8_t a[60];
    uint8_t b[41];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    struct sge sges[3] = {{(uintptr_t)a, 60, {0}}, {0, 0, {0}}, {(uintptr_t)b, 40, {0}}};
    struct send_request request = {
        .kind = WORK_SEND, .inline_data = true, .sges = sges, .sge_count = 3};
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    memset(a, 0, sizeof a);
    struct send_slot *slot = send_queue_slot(queue, 0);
    assert_int_equal(slot->length, 100);
    assert_int_equal(slot->sge_count, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(send_slot_inline(slot)[i], i < 60 ? 'a' : 'b');
    }
    sges[2].length = 41;
    assert_int_equal(send_queue_post(queue, &request), STATUS_TOO_LONG);
    sges[2].length = 1;
    request.kind = WORK_READ;
    assert_int_equal(send_queue_post(queue, &request), STATUS_INVALID);
    send_queue_destroy(queue);
}

static void the_longest_message(void **state)
{
    struct send_queue *queue = create(2, 2, 0);
    struct sge sges[2] = {{0, UINT32_C(1) << 31, {0}}, {0, 0, {0}}};
    struct send_request request = {.kind = WORK_WRITE, .sges = sges, .sge_count = 2};
    assert_int_equal(send_queue_post(queue, &request), STATUS_OK);
    assert_int_equal(send_queue_slot(queue, 0)->length, UINT32_C(1) << 31);
    sges[1].length = 1;
    assert_int_equal(send_queue_post(queue, &request), STATUS_TOO_LONG);
    sges[0].length = sges[1].length = UINT32_C(1) << 31; /* 2^32 does not look like 0 */
    assert_int_equal(send_queue_post(queue, &request), STATUS_TOO_LONG);
    send_queue_destroy(queue);
}

static void limits_are_limited(void **state)
{
    const struct send_queue_limits wrong[] = {{.capacity = QUEUE_CAPACITY_MAX + 1},
                                              {.max_sge = QUEUE_SGE_MAX + 1},
                                              {.max_inline = QUEUE_INLINE_MAX + 1}};
    struct send_queue *queue = NULL;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(send_queue_create(heap_allocator(), &wrong[i], &queue), STATUS_INVALID);
    }
    assert_null(queue);
    queue = create(5, 4, 77);
    assert_int_equal(send_queue_capacity(queue), 5);
    send_queue_destroy(queue);
}

#define CROSSINGS 100000

static void *post_all(void *argument)
{
    struct send_queue *queue = argument;
    for (uint64_t i = 0; i < CROSSINGS; i++) {
        struct sge sges[2] = {{i, 1, {(uint32_t)i}}, {~i, 2, {0}}};
        struct send_request request = {.id = i, .sges = sges, .sge_count = 2};
        while (send_queue_post(queue, &request) == STATUS_FULL) {
            sched_yield();
        }
    }
    return NULL;
}

static void two_threads(void **state)
{
    struct send_queue *queue = create(7, 2, 0);
    pthread_t poster;
    assert_int_equal(pthread_create(&poster, NULL, post_all, queue), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < CROSSINGS; i++) {
        while (send_queue_tail(queue) == i) {
            sched_yield();
        }
        const struct send_slot *slot = send_queue_slot(queue, i);
        wrong += slot->id != i || send_slot_sges(slot)[0].address != i ||
                 send_slot_sges(slot)[1].address != ~i || slot->length != 3;
        send_queue_retire(queue, send_queue_oldest(queue));
    }
    pthread_join(poster, NULL);
    assert_int_equal(wrong, 0);
    send_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_capacity_and_order),
        cmocka_unit_test(requests_are_built_in_their_places),
        cmocka_unit_test(everything_is_copied),
        cmocka_unit_test(operands_are_copied),
        cmocka_unit_test(binds_are_copied),
        cmocka_unit_test(notes_of_the_transport_are_cleared),
        cmocka_unit_test(inline_bytes_are_taken_at_once),
        cmocka_unit_test(the_longest_message),
        cmocka_unit_test(limits_are_limited),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
