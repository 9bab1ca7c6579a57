/* Memory windows: bound and invalidated by work of the send queue, used and invalidated by the
 * peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/memory/window.h"
#include "sim/scenario.h"

static struct scenario s;
static struct memory_key window; /* B's, as allocated */

static struct memory *memory_of_b(void)
{
    return device_memory(s.b.host->device);
}

static void allocate(enum window_type type)
{
    assert_int_equal(window_allocate(memory_of_b(), s.b.domain, type, &window), STATUS_OK);
}

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    return 0;
}

static int start_unreliable(void **state)
{
    (void)state;
    scenario_start_service(&s, SERVICE_UC);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_int_equal(window_free(memory_of_b(), window), STATUS_OK);
    scenario_stop(&s);
    return 0;
}

static void post(struct party *party, struct work work)
{
    assert_int_equal(scenario_post(party, work), STATUS_OK);
}

/* The `step`th key after the first. */
static struct memory_key key(uint32_t step)
{
    return (struct memory_key){(window.value & ~0xffu) | ((window.value + step) & 0xff)};
}

/* 1000 bytes at 4096 of B's memory. */
static struct window_bind opening(uint32_t step, unsigned access)
{
    return (struct window_bind){
        .window = window,
        .key = key(step),
        .region = s.b.key,
        .address = 4096,
        .length = 1000,
        .access = access,
    };
}

static void bind(uint64_t id, uint32_t step, unsigned access)
{
    struct window_bind bind = opening(step, access);
    post(&s.b, (struct work){.kind = WORK_BIND_WINDOW, .id = id, .bind = &bind});
}

static void write_through(uint64_t id, uint32_t step, uint64_t at, uint32_t length)
{
    post(&s.a,
         (struct work){.kind = WORK_WRITE, .id = id, .at = at, .length = length, .key = key(step)});
}

static void bound_and_written_through(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    bind(1, 1, ACCESS_REMOTE_WRITE);
    scenario_run(&s);
    write_through(2, 1, 4096, 1000);
    write_through(3, 1, 5095, 2);
    scenario_run(&s);
    expect_trace(&s, "0us B send 1 success\n"
                     "0us A>B WRITE_FIRST psn=7 length=1000\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_MIDDLE psn=9\n"
                     "0us A>B WRITE_LAST psn=10\n"
                     "0us A>B WRITE_ONLY psn=11 length=2\n"
                     "1us B event qp_access_error\n"
                     "1us B>A NAK remote_access psn=11\n"
                     "2us A send 2 success\n"
                     "2us A send 3 remote access error\n");
    expect_equal_bytes(&s.a, &s.b, 4096, 1000);
}

/* What comes behind a bind in the queue is not begun before it: a SEND may name the key. */
static void work_behind_a_bind(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    scenario_receive(&s.a, 1, 10);
    post(&s.b, (struct work){.kind = WORK_READ, .id = 1, .length = 10});
    struct window_bind fenced = opening(1, ACCESS_REMOTE_READ);
    post(&s.b, (struct work){.kind = WORK_BIND_WINDOW, .id = 2, .bind = &fenced, .fence = true});
    post(&s.b, (struct work){.kind = WORK_SEND, .id = 3, .length = 10});
    post(&s.b, (struct work){.kind = WORK_LOCAL_INVALIDATE, .id = 4, .key = key(1)});
    bind(5, 2, ACCESS_REMOTE_READ);
    scenario_run(&s);
    expect_trace(&s, "0us B>A READ_REQUEST psn=100 length=10\n"
                     "1us A>B READ_RESPONSE_ONLY psn=100\n"
                     "2us B>A SEND_ONLY psn=101\n"
                     "2us B send 1 success\n"
                     "2us B send 2 success\n"
                     "3us A>B ACK psn=101\n"
                     "3us A receive 1 success length=10\n"
                     "4us B send 3 success\n"
                     "4us B send 4 success\n"
                     "4us B send 5 success\n");
}

static void invalidated_by_the_peer(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 10);
    bind(1, 1, ACCESS_REMOTE_WRITE);
    scenario_run(&s);
    post(&s.a, (struct work){.kind = WORK_SEND_INVALIDATE, .id = 2, .length = 10, .key = key(1)});
    scenario_run(&s);
    assert_int_equal(memory_deregister(memory_of_b(), s.b.key), STATUS_OK); /* free of windows */
    struct region_attributes region = {s.b.domain, 0, SCENARIO_BYTES, s.b.bytes,
                                       ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE};
    assert_int_equal(memory_register(memory_of_b(), &region, &s.b.key), STATUS_OK);
    write_through(3, 1, 4096, 8);
    scenario_run(&s);
    expect_trace(&s, "0us B send 1 success\n"
                     "0us A>B SEND_ONLY_INVALIDATE psn=7\n"
                     "1us B>A ACK psn=7\n"
                     "1us B receive 1 success length=10\n"
                     "2us A send 2 success\n"
                     "A>B WRITE_ONLY psn=8 length=8\n"
                     "B event qp_access_error\n"
                     "B>A NAK remote_access psn=8\n"
                     "A send 3 remote access error\n");
}

/* The acknowledgement is lost; B has bound the window again, under another key, when the request
 * comes once more. It is not executed again, whatever it names. [IBA 9.7.5.1.4] */
static void a_repeated_invalidate_does_nothing(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 0);
    bind(1, 1, ACCESS_REMOTE_WRITE);
    scenario_run(&s);
    scenario_lose(&s, "B>A ACK");
    post(&s.a, (struct work){.kind = WORK_SEND_INVALIDATE, .id = 2, .key = key(1)});
    scenario_run_for(&s, 10);
    bind(3, 1, ACCESS_REMOTE_WRITE); /* the same key, to make it hard */
    scenario_run(&s);
    write_through(4, 1, 4096, 100);
    scenario_run(&s);
    assert_int_equal(qp_current_state(s.a.qp), QP_RTS);
    assert_int_equal(qp_current_state(s.b.qp), QP_RTS);
    expect_equal_bytes(&s.a, &s.b, 4096, 100);
    forget_trace(&s);
}

static void a_stale_key_is_refused(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_1);
    scenario_connect(&s);
    bind(1, 1, ACCESS_REMOTE_WRITE);
    bind(2, 2, ACCESS_REMOTE_WRITE);
    scenario_run(&s);
    write_through(3, 2, 4096, 8);
    write_through(4, 1, 4096, 8);
    scenario_run(&s);
    expect_trace(&s, "0us B send 1 success\n"
                     "0us B send 2 success\n"
                     "0us A>B WRITE_ONLY psn=7 length=8\n"
                     "0us A>B WRITE_ONLY psn=8 length=8\n"
                     "1us B event qp_access_error\n"
                     "1us B>A NAK remote_access psn=8\n"
                     "2us A send 3 success\n"
                     "2us A send 4 remote access error\n");
}

/* Bound through another queue pair of the same domain. */
static void of_another_queue_pair(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    struct window_bind bind = opening(1, ACCESS_REMOTE_WRITE);
    struct qpn other = {qp_number(s.b.qp).value + 1};
    assert_int_equal(window_bind(memory_of_b(), s.b.domain, other, &bind), STATUS_OK);
    write_through(1, 1, 4096, 8);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=8\n"
                     "1us B event qp_access_error\n"
                     "1us B>A NAK remote_access psn=7\n"
                     "2us A send 1 remote access error\n");
}

/* A READ that comes twice is over when the second one comes, and so may be what was opened for it:
 * an echo ends nothing. */
static void an_echo_finds_the_window_shut(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    bind(1, 1, ACCESS_REMOTE_READ);
    scenario_run(&s);
    scenario_rule(&s, "A>B READ_REQUEST", FATE_DUPLICATED, 1);
    post(&s.a, (struct work){.kind = WORK_READ, .id = 2, .at = 4096, .length = 600, .key = key(1)});
    scenario_run_for(&s, 2);
    post(&s.b, (struct work){.kind = WORK_LOCAL_INVALIDATE, .id = 3, .key = key(1)});
    scenario_run(&s);
    post(&s.a, (struct work){.kind = WORK_READ, .id = 4, .at = 4096, .length = 8});
    scenario_run(&s);
    expect_trace(&s, "0us B send 1 success\n"
                     "0us A>B READ_REQUEST psn=7 length=600 duplicated\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "1us B>A READ_RESPONSE_LAST psn=9\n"
                     "2us A send 2 success\n"
                     "2us B send 3 success\n"
                     "A>B READ_REQUEST psn=10 length=8\n"
                     "B>A READ_RESPONSE_ONLY psn=10\n"
                     "A send 4 success\n");
}

/* A READ whose window is shut while a part of its response is asked for again reads no further. It
 * may be an echo, so nobody is told, and who still waits gives up. */
static void shut_under_a_read(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    bind(1, 1, ACCESS_REMOTE_READ);
    scenario_run(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_LAST");
    post(&s.a,
         (struct work){
             .kind = WORK_READ, .id = 2, .at = 4096, .length = 600, .key = key(1), .fence = true});
    scenario_run_for(&s, 10);
    post(&s.b, (struct work){.kind = WORK_LOCAL_INVALIDATE, .id = 3, .key = key(1)});
    scenario_run_for(&s, 10);
    forget_trace(&s);
    scenario_run(&s);
    expect_trace(&s, "1050.576us A>B READ_REQUEST psn=9 length=88\n"
                     "2099.152us A>B READ_REQUEST psn=9 length=88\n"
                     "3147.728us A>B READ_REQUEST psn=9 length=88\n"
                     "A send 2 retry exceeded\n");
    assert_int_equal(qp_current_state(s.b.qp), QP_RTS);
}

/* Nor are its payloads left where they are for the peer to read them when it likes. */
static void read_through_where_links_take_references(void **state)
{
    struct link_config link = {.delay_ns = 1000, .reach = SCENARIO_BYTES};
    (void)state;
    allocate(WINDOW_TYPE_2);
    network_set_links(&s.network, &link);
    scenario_connect(&s);
    bind(1, 1, ACCESS_REMOTE_READ);
    scenario_run(&s);
    post(&s.a, (struct work){.kind = WORK_READ, .id = 2, .at = 4096, .length = 600, .key = key(1)});
    post(&s.a, (struct work){.kind = WORK_READ, .id = 3, .at = 4096, .length = 600});
    scenario_run(&s);
    expect_trace(&s, "0us B send 1 success\n"
                     "0us A>B READ_REQUEST psn=7 length=600\n"
                     "0us A>B READ_REQUEST psn=10 length=600\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "1us B>A READ_RESPONSE_LAST psn=9\n"
                     "1us B>A READ_RESPONSE_ONLY psn=10 referred=600\n"
                     "2us A send 2 success\n"
                     "2us A send 3 success\n");
}

/* Bound already, or not bound: the memory management error, behind what was posted before. */
static void binding_that_fails(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    post(&s.b, (struct work){.kind = WORK_WRITE, .id = 1, .length = 10});
    bind(2, 1, ACCESS_REMOTE_WRITE);
    bind(3, 2, ACCESS_REMOTE_WRITE);
    post(&s.b, (struct work){.kind = WORK_WRITE, .id = 4, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us B>A WRITE_ONLY psn=100 length=10\n"
                     "1us A>B ACK psn=100\n"
                     "2us B send 1 success\n"
                     "2us B send 2 success\n"
                     "2us B send 3 memory management error\n"
                     "2us B send 4 flushed\n");
}

static void invalidating_what_is_not_bound(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    post(&s.b, (struct work){.kind = WORK_LOCAL_INVALIDATE, .id = 1, .key = window});
    scenario_run(&s);
    expect_trace(&s, "0us B send 1 memory management error\n");
    assert_int_equal(qp_current_state(s.b.qp), QP_ERROR);
}

/* An unreliable connection binds too; what fails there stops its sending side only. */
static void on_an_unreliable_connection(void **state)
{
    (void)state;
    allocate(WINDOW_TYPE_2);
    scenario_connect(&s);
    bind(1, 1, ACCESS_REMOTE_WRITE);
    scenario_run(&s);
    write_through(2, 1, 4096, 600);
    write_through(3, 1, 5000, 600); /* too far: dropped, and nobody is told */
    bind(4, 2, ACCESS_REMOTE_WRITE);
    post(&s.b, (struct work){.kind = WORK_WRITE, .id = 5, .length = 10});
    scenario_run(&s);
    assert_int_equal(qp_current_state(s.a.qp), QP_RTS);
    assert_int_equal(qp_current_state(s.b.qp), QP_SQE);
    expect_equal_bytes(&s.a, &s.b, 4096, 600);
    forget_trace(&s);
    write_through(6, 1, 4096, 300);
    scenario_run(&s);
    expect_equal_bytes(&s.a, &s.b, 4096, 300);
    forget_trace(&s);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(bound_and_written_through),
        WITH(work_behind_a_bind),
        WITH(invalidated_by_the_peer),
        WITH(a_repeated_invalidate_does_nothing),
        WITH(a_stale_key_is_refused),
        WITH(of_another_queue_pair),
        WITH(an_echo_finds_the_window_shut),
        WITH(shut_under_a_read),
        WITH(read_through_where_links_take_references),
        WITH(binding_that_fails),
        WITH(invalidating_what_is_not_bound),
        cmocka_unit_test_setup_teardown(on_an_unreliable_connection, start_unreliable, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
