/* Records arrive whole, once and in order, whatever their lengths, between threads too; what no
 * producer of ours writes is refused. */
#include "rnic/io/same_host/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/random.h"

#define SIZE 4096u

struct world {
    struct ring_memory *memory;
    struct ring_producer producer;
    struct ring_consumer consumer;
};

static void open_world(struct world *world)
{
    world->memory = aligned_alloc(RING_LINE, ring_memory_bytes(SIZE));
    assert_non_null(world->memory);
    memset(world->memory, 0, ring_memory_bytes(SIZE));
    ring_produce(&world->producer, world->memory, SIZE);
    ring_consume(&world->consumer, world->memory, SIZE);
}

/* Length and content follow from the number. */
static uint32_t length_of(uint32_t number)
{
    return (number * 2654435761u >> 7) % (ring_record_max(SIZE) + 1);
}

static bool put(struct world *world, uint32_t number)
{
    uint32_t length = length_of(number);
    uint8_t *bytes = ring_reserve(&world->producer, length);
    if (bytes == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(number + i);
    }
    ring_publish(&world->producer, length);
    ring_show(&world->producer);
    return true;
}

static bool take(struct world *world, uint32_t number)
{
    const uint8_t *bytes;
    uint32_t length;
    enum status status = ring_peek(&world->consumer, &bytes, &length);
    if (status == STATUS_EMPTY) {
        return false;
    }
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(length, length_of(number));
    for (uint32_t i = 0; i < length; i++) {
        assert_int_equal(bytes[i], (uint8_t)(number + i));
    }
    ring_release(&world->consumer);
    return true;
}

static void records_come_whole_and_in_order(void **state)
{
    struct world world;
    struct random random;
    open_world(&world);
    random_seed(&random, 7);
    uint32_t sent = 0, received = 0;
    while (received < 100000) {
        for (uint64_t i = random_below(&random, 12); i > 0 && put(&world, sent); i--) {
            sent++;
        }
        for (uint64_t i = random_below(&random, 12); i > 0 && take(&world, received); i--) {
            received++;
        }
        assert_int_equal(ring_has_record(&world.consumer), received < sent);
        if (received == sent) {
            ring_settle(&world.consumer);
        }
    }
    free(world.memory);
}

static void put_bytes(struct world *world, uint32_t length, uint8_t value)
{
    uint8_t *bytes = ring_reserve(&world->producer, length);
    assert_non_null(bytes);
    memset(bytes, value, length);
    ring_publish(&world->producer, length);
    ring_show(&world->producer);
}

/* As long as nothing is hidden: until then it would be seen behind a record that is not. */
static void a_line_is_shown_at_once(void **state)
{
    struct world world;
    const uint8_t *got;
    uint32_t length, put = 0, taken = 0;
    open_world(&world);
    while (put < 3 * SIZE / RING_LINE) {
        uint8_t *bytes = ring_open_line(&world.producer);
        if (bytes == NULL) { /* a line is always free */
            assert_int_equal(put - taken, SIZE / RING_LINE - 1);
            for (; taken < put; taken++) {
                assert_int_equal(ring_peek(&world.consumer, &got, &length), STATUS_OK);
                assert_int_equal(length, 1 + taken % RING_LINE_MAX);
                assert_int_equal(*got, taken % 251);
                ring_release(&world.consumer);
            }
            assert_int_equal(ring_peek(&world.consumer, &got, &length), STATUS_EMPTY);
            ring_settle(&world.consumer);
            continue;
        }
        assert_int_equal(ring_has_record(&world.consumer), taken < put);
        memset(bytes, put % 251, RING_LINE_MAX);
        ring_show_line(&world.producer, 1 + put++ % RING_LINE_MAX);
    }
    while (ring_peek(&world.consumer, &got, &length) == STATUS_OK) {
        ring_release(&world.consumer);
    }
    ring_settle(&world.consumer);
    uint8_t *hidden = ring_reserve(&world.producer, 100);
    memset(hidden, 1, 100);
    ring_publish(&world.producer, 100);
    assert_null(ring_open_line(&world.producer));
    assert_false(ring_has_record(&world.consumer));
    ring_show(&world.producer);
    assert_non_null(ring_open_line(&world.producer));
    free(world.memory);
}

/* Where all are of a length the guess is right; else it is NULL, or within the ring. */
static void what_comes_after_the_next_is_guessed(void **state)
{
    struct world world;
    struct random random;
    const uint8_t *bytes;
    uint32_t length;
    open_world(&world);
    for (uint8_t value = 1; value <= 3; value++) {
        put_bytes(&world, 100, value);
    }
    assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_OK);
    assert_int_equal(*ring_guess(&world.consumer, 1), 2);
    assert_int_equal(*ring_guess(&world.consumer, 2), 3);
    assert_null(ring_guess(&world.consumer, 3));
    random_seed(&random, 8);
    for (int i = 0; i < 2000; i++) {
        while (ring_has_room(&world.producer, ring_record_max(SIZE))) {
            put_bytes(&world, (uint32_t)random_below(&random, 900), 0);
        }
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_OK);
        for (uint32_t ahead = 1; ahead < 5; ahead++) {
            const uint8_t *guess = ring_guess(&world.consumer, ahead);
            assert_true(guess == NULL || (guess > world.memory->lines &&
                                          guess + RING_LINE / 2 <= world.memory->lines + SIZE));
        }
        ring_release(&world.consumer);
    }
    free(world.memory);
}

static void a_full_ring_takes_no_more_and_loses_nothing(void **state)
{
    struct world world;
    open_world(&world);
    for (uint32_t start = 0; start < 200; start++) { /* at each place of the ring */
        uint32_t count = 0;
        while (ring_reserve(&world.producer, 8) != NULL) {
            ring_publish(&world.producer, 8);
            ring_show(&world.producer);
            count++;
        }
        assert_true(count >= SIZE / RING_LINE * 3 / 4 - 1);
        assert_true(count < SIZE / RING_LINE);
        assert_false(ring_has_room(&world.producer, ring_record_max(SIZE)));
        const uint8_t *bytes;
        uint32_t length;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_OK);
            assert_int_equal(length, 8);
            ring_release(&world.consumer);
        }
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_EMPTY);
        ring_settle(&world.consumer);
        assert_true(ring_has_room(&world.producer, ring_record_max(SIZE)));
    }
    free(world.memory);
}

static void old_bytes_are_no_headers(void **state)
{
    struct world world;
    struct random random;
    open_world(&world);
    random_seed(&random, 11);
    const uint8_t *bytes;
    uint32_t length;
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t room = (uint32_t)random_below(&random, ring_record_max(SIZE) + 1);
        uint8_t *place = ring_reserve(&world.producer, room);
        assert_non_null(place);
        memset(place, 0x80, room); /* each of its lines looks like a header */
        ring_publish(&world.producer, room);
        ring_show(&world.producer);
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_OK);
        ring_release(&world.consumer);
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_EMPTY);
        ring_settle(&world.consumer);
    }
    free(world.memory);
}

static void a_lying_producer_is_found_out(void **state)
{
    static const uint64_t headers[] = {
        1,                                          /* a length that is not shown */
        UINT64_C(1) << 63 | UINT32_MAX,             /* too long */
        UINT64_C(1) << 63 | SIZE,                   /* ... for the ring */
        UINT64_C(3) << 62,                          /* shown and wrapped */
        UINT64_C(1) << 62,                          /* wrapped at the beginning */
        UINT64_C(1) << 63 | UINT64_C(1) << 40 | 16, /* bits of no meaning */
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct world world;
        const uint8_t *bytes;
        uint32_t length;
        open_world(&world);
        memcpy(world.memory->lines, &headers[i], sizeof headers[i]);
        assert_true(ring_has_record(&world.consumer));
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_MALFORMED);
        memset(world.memory->lines, 0, RING_LINE);
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_MALFORMED);
        free(world.memory);
    }
}

static void a_record_beyond_the_end_is_found_out(void **state)
{
    struct world world;
    const uint8_t *bytes;
    uint32_t length;
    open_world(&world);
    for (uint32_t i = 0; i < SIZE / RING_LINE - 1; i++) {
        assert_non_null(ring_reserve(&world.producer, 8));
        ring_publish(&world.producer, 8);
        ring_show(&world.producer);
        assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_OK);
        ring_release(&world.consumer);
        ring_settle(&world.consumer);
    }
    uint64_t header = UINT64_C(1) << 63 | 100;
    memcpy(world.memory->lines + SIZE - RING_LINE, &header, sizeof header);
    assert_int_equal(ring_peek(&world.consumer, &bytes, &length), STATUS_MALFORMED);
    free(world.memory);
}

static void a_lying_consumer_gains_no_room(void **state)
{
    struct world world;
    open_world(&world);
    while (ring_reserve(&world.producer, 8) != NULL) {
        ring_publish(&world.producer, 8);
        ring_show(&world.producer);
    }
    atomic_store(&world.memory->consumed, UINT64_MAX);
    assert_null(ring_reserve(&world.producer, 8));
    atomic_store(&world.memory->consumed, world.producer.produced + RING_LINE);
    assert_null(ring_reserve(&world.producer, 8));
    free(world.memory);
}

#define THREAD_RECORDS 20000u

static void *produce(void *argument)
{
    struct world *world = argument;
    for (uint32_t sent = 0; sent < THREAD_RECORDS;) {
        if (put(world, sent)) {
            sent++;
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void threads_agree(void **state)
{
    struct world world;
    pthread_t thread;
    open_world(&world);
    assert_int_equal(pthread_create(&thread, NULL, produce, &world), 0);
    for (uint32_t received = 0; received < THREAD_RECORDS;) {
        if (take(&world, received)) {
            received++;
        } else {
            ring_settle(&world.consumer);
            sched_yield();
        }
    }
    pthread_join(thread, NULL);
    free(world.memory);
}

#define LARGE 65536u

static struct {
    uint8_t *end; /* before which all was touched */
    uint32_t times;
} touches;

static void touch(void *bytes, size_t length)
{
    assert_ptr_equal(bytes, touches.end);
    touches.end += length;
    touches.times++;
}

static bool is_zero(const uint8_t *bytes, const uint8_t *end)
{
    while (bytes < end && *bytes == 0) {
        bytes++;
    }
    return bytes == end;
}

/* As much again as has been used, whether records are long or short. */
static void nothing_is_written_before_it_is_touched(void **state)
{
    for (uint32_t length = RING_LINE_MAX; length <= LARGE / 4 - RING_HEADER; length *= 3) {
        struct ring_producer producer;
        struct ring_consumer consumer;
        struct ring_memory *memory = aligned_alloc(RING_LINE, ring_memory_bytes(LARGE));
        assert_non_null(memory);
        memset(memory, 0, ring_memory_bytes(LARGE));
        ring_produce(&producer, memory, LARGE);
        ring_consume(&consumer, memory, LARGE);
        ring_touch_by(&producer, touch);
        touches.end = memory->lines + SIZE;
        touches.times = 0;
        for (uint32_t put = 0; put < 3 * LARGE; put += length) {
            const uint8_t *bytes;
            uint32_t found;
            uint8_t *to = ring_reserve(&producer, length);
            assert_non_null(to);
            memset(to, 7, length);
            ring_publish(&producer, length);
            ring_show(&producer);
            assert_true(is_zero(touches.end, memory->lines + LARGE));
            assert_int_equal(ring_peek(&consumer, &bytes, &found), STATUS_OK);
            assert_int_equal(found, length);
            ring_release(&consumer);
            ring_settle(&consumer);
        }
        assert_ptr_equal(touches.end, memory->lines + LARGE);
        assert_int_equal(touches.times, 4); /* 4, 8, 16 and 32 KiB */
        free(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_whole_and_in_order),
        cmocka_unit_test(a_line_is_shown_at_once),
        cmocka_unit_test(what_comes_after_the_next_is_guessed),
        cmocka_unit_test(a_full_ring_takes_no_more_and_loses_nothing),
        cmocka_unit_test(old_bytes_are_no_headers),
        cmocka_unit_test(a_lying_producer_is_found_out),
        cmocka_unit_test(a_record_beyond_the_end_is_found_out),
        cmocka_unit_test(a_lying_consumer_gains_no_room),
        cmocka_unit_test(nothing_is_written_before_it_is_touched),
        cmocka_unit_test(threads_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
