/* Extended reliable connections: each request names a shared receive queue of the target, which
 * has nothing of its own. [IBA annex A14] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start_service(&s, SERVICE_XRC);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(struct work work)
{
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

/* Each message of one packet, and what answers it. */
static void every_opcode(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 100);
    scenario_receive(&s.b, 2, 100);
    scenario_receive(&s.b, 3, 100);
    static const enum work_kind kinds[] = {
        WORK_SEND, WORK_SEND_IMMEDIATE, WORK_WRITE,        WORK_WRITE_IMMEDIATE,
        WORK_READ, WORK_FETCH_ADD,      WORK_COMPARE_SWAP,
    };
    for (uint64_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        post((struct work){.kind = kinds[i], .id = i + 1, .length = 8});
        scenario_run(&s);
    }
    expect_trace(&s, "A>B XRC_SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "B receive 1 success length=8\n"
                     "A send 1 success\n"
                     "A>B XRC_SEND_ONLY_IMMEDIATE psn=8\n"
                     "B>A ACK psn=8\n"
                     "B receive 2 success length=8\n"
                     "A send 2 success\n"
                     "A>B XRC_WRITE_ONLY psn=9 length=8\n"
                     "B>A ACK psn=9\n"
                     "A send 3 success\n"
                     "A>B XRC_WRITE_ONLY_IMMEDIATE psn=10 length=8\n"
                     "B>A ACK psn=10\n"
                     "B receive 3 success length=8\n"
                     "A send 4 success\n"
                     "A>B XRC_READ_REQUEST psn=11 length=8\n"
                     "B>A XRC_READ_RESPONSE_ONLY psn=11\n"
                     "A send 5 success\n"
                     "A>B XRC_FETCH_ADD psn=12\n"
                     "B>A XRC_ATOMIC_ACKNOWLEDGE psn=12\n"
                     "A send 6 success\n"
                     "A>B XRC_COMPARE_SWAP psn=13\n"
                     "B>A XRC_ATOMIC_ACKNOWLEDGE psn=13\n"
                     "A send 7 success\n");
}

static void messages_of_many_packets(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 600);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 600});
    post((struct work){.kind = WORK_WRITE, .id = 2, .length = 600, .at = 1000});
    post((struct work){.kind = WORK_READ, .id = 3, .length = 600, .at = 1000});
    scenario_run(&s);
    expect_trace(&s, "A>B XRC_SEND_FIRST psn=7\n"
                     "A>B XRC_SEND_MIDDLE psn=8\n"
                     "A>B XRC_SEND_LAST psn=9\n"
                     "A>B XRC_WRITE_FIRST psn=10 length=600\n"
                     "A>B XRC_WRITE_MIDDLE psn=11\n"
                     "A>B XRC_WRITE_LAST psn=12\n"
                     "A>B XRC_READ_REQUEST psn=13 length=600\n"
                     "B>A XRC_READ_RESPONSE_FIRST psn=13\n"
                     "B>A XRC_READ_RESPONSE_MIDDLE psn=14\n"
                     "B>A XRC_READ_RESPONSE_LAST psn=15\n"
                     "B receive 1 success length=600\n"
                     "A send 1 success\n"
                     "A send 2 success\n"
                     "A send 3 success\n");
    expect_equal_bytes(&s.a, &s.b, 1000, 600);
}

static void a_lost_packet_is_asked_for(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 600);
    scenario_lose(&s, "A>B XRC_SEND_MIDDLE");
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 600});
    scenario_run(&s);
    expect_trace(&s, "0us A>B XRC_SEND_FIRST psn=7\n"
                     "0us A>B XRC_SEND_MIDDLE psn=8 lost\n"
                     "0us A>B XRC_SEND_LAST psn=9\n"
                     "1us B>A NAK sequence psn=8\n"
                     "2us A>B XRC_SEND_MIDDLE psn=8\n"
                     "2us A>B XRC_SEND_LAST psn=9\n"
                     "3us B>A ACK psn=9\n"
                     "3us B receive 1 success length=600\n"
                     "4us A send 1 success\n");
}

static void an_empty_queue_is_not_ready(void **state)
{
    (void)state;
    scenario_connect(&s);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 8});
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 8);
    scenario_run(&s);
    expect_trace(&s, "0us A>B XRC_SEND_ONLY psn=7\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "12us A>B XRC_SEND_ONLY psn=7\n"
                     "13us B>A ACK psn=7\n"
                     "13us B receive 1 success length=8\n"
                     "14us A send 1 success\n");
}

static void expect_refused(struct work work)
{
    post(work);
    scenario_run(&s);
    assert_int_equal(qp_current_state(s.a.qp), QP_ERROR);
    assert_int_equal(qp_current_state(s.b.qp), QP_ERROR);
    assert_int_equal(receive_queue_depth(s.b.receives), 1);
}

/* Without its queue even a WRITE has no protection domain. */
static void an_unknown_queue_is_an_invalid_request(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 8);
    expect_refused(
        (struct work){.kind = WORK_WRITE, .id = 1, .length = 8, .xrc_srq = s.b.shared.number + 1});
    expect_trace(&s, "A>B XRC_WRITE_ONLY psn=7 length=8\n"
                     "B event qp_request_error\n"
                     "B>A NAK invalid_request psn=7\n"
                     "A send 1 remote invalid request\n");
}

static void a_queue_of_another_domain_is_an_invalid_request(void **state)
{
    (void)state;
    struct device *device = s.b.host->device;
    struct xrc_queue other = s.b.shared;
    other.domain = device_allocate_xrc_domain(device);
    assert_int_equal(device_add_xrc_queue(device, &other), STATUS_OK);
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 8);
    expect_refused((struct work){.kind = WORK_SEND, .id = 1, .length = 8, .xrc_srq = other.number});
    expect_trace(&s, "A>B XRC_SEND_ONLY psn=7\n"
                     "B event qp_request_error\n"
                     "B>A NAK invalid_request psn=7\n"
                     "A send 1 remote invalid request\n");
    device_remove_xrc_queue(device, &other);
}

/* Two queues behind one target, each with its completion queue; the request chooses. */
static void each_queue_has_its_own_completions(void **state)
{
    (void)state;
    struct device *device = s.b.host->device;
    struct allocator *allocator = &s.b.host->storage.allocator;
    struct xrc_queue other = s.b.shared;
    assert_int_equal(receive_queue_create(allocator, 4, 2, &other.receives), STATUS_OK);
    assert_int_equal(completion_queue_create(allocator, 4, NULL, &other.completions), STATUS_OK);
    assert_int_equal(device_add_xrc_queue(device, &other), STATUS_OK);
    struct receive_request request = {.id = 77};
    assert_int_equal(receive_queue_post(other.receives, &request), STATUS_OK);
    scenario_connect(&s);
    post((struct work){.kind = WORK_SEND, .id = 1, .xrc_srq = other.number});
    scenario_run(&s);
    expect_trace(&s, "A>B XRC_SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "A send 1 success\n");
    struct completion completion;
    assert_int_equal(completion_queue_poll(other.completions, 1, &completion), 1);
    assert_int_equal(completion.id, 77);
    assert_int_equal(completion.qpn.value, qp_number(s.b.qp).value);
    assert_int_equal(completion.source.value, qp_number(s.a.qp).value);
    device_remove_xrc_queue(device, &other);
    completion_queue_destroy(other.completions);
    receive_queue_destroy(other.receives);
}

/* The receive that was under way vanishes with it. */
static void a_queue_that_goes_away_ends_the_message(void **state)
{
    (void)state;
    struct device *device = s.b.host->device;
    struct xrc_queue other = s.b.shared;
    assert_int_equal(device_add_xrc_queue(device, &other), STATUS_OK);
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 600);
    scenario_lose(&s, "A>B XRC_SEND_LAST");
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 600, .xrc_srq = other.number});
    scenario_run_for(&s, 5);
    device_remove_xrc_queue(device, &other);
    scenario_run(&s);
    expect_trace(&s, "A>B XRC_SEND_FIRST psn=7\n"
                     "A>B XRC_SEND_MIDDLE psn=8\n"
                     "A>B XRC_SEND_LAST psn=9 lost\n"
                     "A>B XRC_SEND_FIRST psn=7\n"
                     "A>B XRC_SEND_MIDDLE psn=8\n"
                     "B>A ACK psn=8\n"
                     "A>B XRC_SEND_LAST psn=9\n"
                     "B event qp_request_error\n"
                     "B>A NAK invalid_request psn=9\n"
                     "A send 1 remote invalid request\n");
    assert_int_equal(receive_queue_depth(s.b.receives), 0);
}

static void a_target_takes_no_work(void **state)
{
    (void)state;
    scenario_connect(&s);
    struct send_request request = {.kind = WORK_SEND};
    struct receive_request receive = {.id = 1};
    assert_int_equal(qp_post_send(s.b.qp, &request), STATUS_INVALID);
    assert_int_equal(qp_post_receive(s.b.qp, &receive), STATUS_INVALID);
    assert_int_equal(qp_post_receive(s.a.qp, &receive), STATUS_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_opcode),
        TEST(messages_of_many_packets),
        TEST(a_lost_packet_is_asked_for),
        TEST(an_empty_queue_is_not_ready),
        TEST(an_unknown_queue_is_an_invalid_request),
        TEST(a_queue_of_another_domain_is_an_invalid_request),
        TEST(each_queue_has_its_own_completions),
        TEST(a_queue_that_goes_away_ends_the_message),
        TEST(a_target_takes_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
