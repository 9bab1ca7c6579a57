/* Messages of up to 2^31 bytes. Each side's memory is one small file, mapped again and again, so
 * that the test takes time but no memory. */
#include <sys/mman.h>
#include <unistd.h>

#include "rnic/device/pair_test.h"

#define FILE_LENGTH  (1u << 20)
#define LARGE_START  UINT64_C(0x100000000000)
#define LARGE_LENGTH ((uint64_t)MESSAGE_LENGTH_MAX + FILE_LENGTH)

struct large {
    uint8_t *bytes;
    struct memory_key key;
};

static struct large large_create(struct pair_side *side)
{
    struct large large = {.bytes = mmap(NULL, LARGE_LENGTH, PROT_NONE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)};
    assert_ptr_not_equal(large.bytes, MAP_FAILED);
    int file = memfd_create("large", 0);
    assert_int_equal(ftruncate(file, FILE_LENGTH), 0);
    for (uint64_t at = 0; at < LARGE_LENGTH; at += FILE_LENGTH) {
        assert_ptr_equal(mmap(large.bytes + at, FILE_LENGTH, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, file, 0),
                         large.bytes + at);
    }
    (void)close(file);
    struct region_attributes region = {
        .domain = side->domain,
        .address = LARGE_START,
        .length = LARGE_LENGTH,
        .bytes = large.bytes,
        .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
    };
    assert_int_equal(memory_register(device_memory(side->device), &region, &large.key), STATUS_OK);
    return large;
}

static void large_destroy(struct pair_side *side, struct large *large)
{
    assert_int_equal(memory_deregister(device_memory(side->device), large->key), STATUS_OK);
    assert_int_equal(munmap(large->bytes, LARGE_LENGTH), 0);
}

static void move(enum work_kind kind, uint32_t length, enum completion_status status)
{
    struct pair_options options = pair_defaults;
    options.mtu = PATH_MTU_4096;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct large here = large_create(a), there = large_create(b);
    struct large *from = kind == WORK_READ ? &there : &here;
    struct large *to = kind == WORK_READ ? &here : &there;
    for (uint32_t i = 0; i < FILE_LENGTH; i++) {
        from->bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    }
    struct sge sges[] = {{LARGE_START, 1u << 30, here.key},
                         {LARGE_START + (1u << 30), length - (1u << 30), here.key}};
    struct send_request request = {
        .id = 1,
        .kind = kind,
        .signaled = true,
        .sges = sges,
        .sge_count = 2,
        .remote_address = LARGE_START,
        .remote_key = there.key,
    };
    if (status == COMPLETION_SUCCESS) {
        pair_post(a, &request);
        pair_run(pair);
        (void)pair_expect(a->sends, 1, status);
        assert_memory_equal(from->bytes, to->bytes, FILE_LENGTH);
    } else {
        assert_int_equal(qp_post_send(a->qp, &request), STATUS_TOO_LONG);
    }
    large_destroy(a, &here);
    large_destroy(b, &there);
    pair_destroy(pair);
}

static void two_gibibytes_are_written(void **state)
{
    move(WORK_WRITE, MESSAGE_LENGTH_MAX, COMPLETION_SUCCESS);
}

static void more_than_a_gibibyte_is_read(void **state)
{
    move(WORK_READ, (1u << 30) + 12345, COMPLETION_SUCCESS);
}

static void one_byte_more_is_refused(void **state)
{
    move(WORK_WRITE, MESSAGE_LENGTH_MAX + 1, COMPLETION_LOCAL_LENGTH_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_gibibytes_are_written),
        cmocka_unit_test(more_than_a_gibibyte_is_read),
        cmocka_unit_test(one_byte_more_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
