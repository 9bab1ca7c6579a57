/* WRITEs of several queue pairs that go by one call on the memory of another process: each is asked
 * for by itself whether it may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/direct.h"
#include "sim/scenario.h"

#define LENGTH 64u
#define AT     4096u /* the first one's; the others' are behind it */
#define OTHERS 2u

static struct scenario s;

static int start(void **state)
{
    (void)state;
    struct link_config link = {.delay_ns = 1000, .direct = true};
    scenario_start(&s);
    network_set_links(&s.network, &link);
    scenario_connect(&s);
    for (unsigned i = 0; i < OTHERS; i++) {
        scenario_add_pair(&s, i);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static uint64_t place_of(uint64_t id)
{
    return AT + id * LENGTH;
}

static void write_there(uint64_t id, struct memory_key key)
{
    struct work work = {
        .kind = WORK_WRITE, .id = id, .length = LENGTH, .at = place_of(id), .key = key};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

/* All are posted before A's engine runs again; `key` is what the second one names, 0: the usual. */
static void write_by_all(struct memory_key key)
{
    write_there(0, (struct memory_key){0});
    for (unsigned i = 0; i < OTHERS; i++) {
        scenario_change_pair(&s, i);
        write_there(1 + i, i == 0 ? key : (struct memory_key){0});
        scenario_change_pair(&s, i);
    }
    scenario_run(&s);
}

static void expect_written(uint64_t id)
{
    expect_equal_bytes(&s.a, &s.b, place_of(id), LENGTH);
}

static void those_of_several_queue_pairs_go_together(void **state)
{
    (void)state;
    write_by_all((struct memory_key){0});
    expect_trace(&s, "A writes 64 bytes of B\n"
                     "A writes 64 bytes of B\n"
                     "A writes 64 bytes of B\n"
                     "A send 0 success\n"
                     "A send 1 success\n"
                     "A send 2 success\n");
    assert_int_equal(s.hosts[0].direct.batches, 1);
    for (uint64_t id = 0; id <= OTHERS; id++) {
        expect_written(id);
    }
}

/* Its key is good for its place, but not for writing. */
static void each_of_them_is_asked_for_its_key(void **state)
{
    (void)state;
    struct memory *memory = device_memory(s.hosts[1].device);
    struct region_attributes region = {
        .domain = s.b.domain,
        .length = SCENARIO_BYTES,
        .bytes = s.b.bytes,
        .access = ACCESS_LOCAL_READ | ACCESS_REMOTE_READ,
    };
    struct memory_key key;
    uint8_t before[LENGTH];
    memcpy(before, s.b.bytes + place_of(1), LENGTH);
    assert_int_equal(memory_register(memory, &region, &key), STATUS_OK);
    write_by_all(key);
    assert_int_equal(memory_deregister(memory, key), STATUS_OK);
    expect_trace(&s, "A writes 64 bytes of B\n"
                     "A>B WRITE_ONLY psn=7 length=64\n"
                     "A writes 64 bytes of B\n"
                     "A send 0 success\n"
                     "A send 2 success\n"
                     "B event qp_access_error\n"
                     "B>A NAK remote_access psn=7\n"
                     "A send 1 remote access error\n");
    assert_memory_equal(s.b.bytes + place_of(1), before, LENGTH);
    expect_written(0);
    expect_written(2);
}

/* The peer of the second one lets nobody write. */
static void each_of_them_is_asked_for_its_queue_pair(void **state)
{
    (void)state;
    struct qp_attributes attributes = {.access = 0};
    uint8_t before[LENGTH];
    memcpy(before, s.b.bytes + place_of(1), LENGTH);
    assert_int_equal(device_modify_qp(s.hosts[1].device, s.simulator.now, s.b.others[0],
                                      &attributes, QP_SET_ACCESS, NULL),
                     STATUS_OK);
    write_by_all((struct memory_key){0});
    expect_trace(&s, "A writes 64 bytes of B\n"
                     "A>B WRITE_ONLY psn=7 length=64\n"
                     "A writes 64 bytes of B\n"
                     "A send 0 success\n"
                     "A send 2 success\n"
                     "B event qp_request_error\n"
                     "B>A NAK invalid_request psn=7\n"
                     "A send 1 remote invalid request\n");
    assert_memory_equal(s.b.bytes + place_of(1), before, LENGTH);
    expect_written(0);
    expect_written(2);
}

int main(void)
{
#define DIRECT(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        DIRECT(those_of_several_queue_pairs_go_together),
        DIRECT(each_of_them_is_asked_for_its_key),
        DIRECT(each_of_them_is_asked_for_its_queue_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
