/* What a reliable responder refuses, what the requester makes of it, and a receiver that is not
 * ready. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
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

static void post_write(uint64_t id, uint32_t length)
{
    post((struct work){.kind = WORK_WRITE, .id = id, .length = length});
}

static void post_send(uint64_t id, uint32_t length)
{
    post((struct work){.kind = WORK_SEND, .id = id, .length = length});
}

static void expect_both_in_error(void)
{
    assert_int_equal(qp_current_state(s.a.qp), QP_ERROR);
    assert_int_equal(qp_current_state(s.b.qp), QP_ERROR);
}

/* The requester waits for the timer in the NAK, then sends again. Code 1: 10 us. [IBA table 45] */
static void receiver_not_ready(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_send(1, 600);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_FIRST psn=7\n"
                     "0us A>B SEND_MIDDLE psn=8\n"
                     "0us A>B SEND_LAST psn=9\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "12us A>B SEND_FIRST psn=7\n"
                     "12us A>B SEND_MIDDLE psn=8\n"
                     "12us A>B SEND_LAST psn=9\n"
                     "13us B>A ACK psn=9\n"
                     "13us B receive 1 success length=600\n"
                     "14us A send 1 success\n");
}

/* The timeout (8 us) repeats what is still on a way of 6 us. The copy's NAK comes during the wait,
 * which begins anew with it; no retry has failed. */
static void each_rnr_nak_is_waited_for(void **state)
{
    (void)state;
    s.a.attributes.timeout = 1;
    s.a.attributes.rnr_retry_count = 1;
    scenario_connect(&s);
    network_set_links(&s.network, &(struct link_config){.delay_ns = 6000});
    post_send(1, 10);
    scenario_run_for(&s, 25);
    scenario_receive(&s.b, 1, 10);
    network_set_links(&s.network, &(struct link_config){.delay_ns = 1000});
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "6us B>A RNR_NAK psn=7\n"
                     "8.192us A>B SEND_ONLY psn=7\n"
                     "14.192us B>A RNR_NAK psn=7\n"
                     "30.192us A>B SEND_ONLY psn=7\n"
                     "31.192us B>A ACK psn=7\n"
                     "31.192us B receive 1 success length=10\n"
                     "32.192us A send 1 success\n");
}

/* As before, but the copy's NAK comes when the wait is over, and the link has no room: the packet
 * has not left again yet, and still no retry has failed. */
static void what_has_not_left_again_has_not_failed(void **state)
{
    (void)state;
    struct link_config slow = {
        .delay_ns = 1000, .bits_per_second = UINT64_C(50000000), .queue_limit = 1};
    s.a.attributes.timeout = 1;
    s.a.attributes.rnr_retry_count = 1;
    scenario_connect(&s);
    s.a.attributes.timeout = 8;
    scenario_add_pair(&s, 0);
    network_set_links(&s.network, &(struct link_config){.delay_ns = 6000});
    post_send(1, 10);
    scenario_run_for(&s, 13);
    network_set_link(&s.network, 1, 0, &(struct link_config){.delay_ns = 10000});
    scenario_run_for(&s, 2);
    network_set_link(&s.network, 0, 1, &slow);
    scenario_change_pair(&s, 0);
    struct work other = {.kind = WORK_WRITE, .id = 2, .length = 10};
    assert_int_equal(scenario_post(&s.a, other), STATUS_OK);
    scenario_change_pair(&s, 0);
    scenario_run_for(&s, 15);
    scenario_receive(&s.b, 1, 10);
    network_set_links(&s.network, &(struct link_config){.delay_ns = 1000});
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "6us B>A RNR_NAK psn=7\n"
                     "8.192us A>B SEND_ONLY psn=7\n"
                     "14.192us B>A RNR_NAK psn=7\n"
                     "15us A>B WRITE_ONLY psn=7 length=10\n"
                     "29.760us B>A ACK psn=7\n"
                     "34.192us A>B SEND_ONLY psn=7\n"
                     "35.192us B>A ACK psn=7\n"
                     "35.192us B receive 1 success length=10\n"
                     "36.192us A send 1 success\n"
                     "39.760us A send 2 success\n");
}

/* ... until another copy of the packet has found a receive: here the wait was for 655 ms. */
static void a_copy_that_finds_a_receive_ends_the_wait(void **state)
{
    (void)state;
    s.a.attributes.timeout = 1;
    s.b.attributes.min_rnr_timer = 0;
    scenario_connect(&s);
    network_set_links(&s.network, &(struct link_config){.delay_ns = 6000});
    post_send(1, 10);
    scenario_run_for(&s, 7);
    scenario_receive(&s.b, 1, 10);
    scenario_receive(&s.b, 2, 10);
    scenario_run_for(&s, 6);
    post_send(2, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "6us B>A RNR_NAK psn=7\n"
                     "8.192us A>B SEND_ONLY psn=7\n"
                     "14.192us B>A ACK psn=7\n"
                     "14.192us B receive 1 success length=10\n"
                     "20.192us A>B SEND_ONLY psn=8\n"
                     "20.192us A send 1 success\n"
                     "26.192us B>A ACK psn=8\n"
                     "26.192us B receive 2 success length=10\n"
                     "28.384us A>B SEND_ONLY psn=8\n"
                     "32.192us A send 2 success\n"
                     "34.384us B>A ACK psn=8\n"
                     "40.384us A drops psn\n");
}

/* rnr_retry_count 2: three NAKs, then the failure, then the flushes. */
static void rnr_retry_exceeded(void **state)
{
    (void)state;
    s.a.attributes.rnr_retry_count = 2;
    scenario_connect(&s);
    post_send(1, 10);
    post_send(2, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "0us A>B SEND_ONLY psn=8\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "12us A>B SEND_ONLY psn=7\n"
                     "12us A>B SEND_ONLY psn=8\n"
                     "13us B>A RNR_NAK psn=7\n"
                     "24us A>B SEND_ONLY psn=7\n"
                     "24us A>B SEND_ONLY psn=8\n"
                     "25us B>A RNR_NAK psn=7\n"
                     "26us A send 1 RNR retry exceeded\n"
                     "26us A send 2 flushed\n");
    assert_int_equal(qp_current_state(s.a.qp), QP_ERROR);
    assert_int_equal(qp_current_state(s.b.qp), QP_RTS);
}

/* The data of a WRITE with immediate is written before its last packet finds no receive. */
static void write_immediate_needs_a_receive(void **state)
{
    (void)state;
    scenario_connect(&s);
    post((struct work){.kind = WORK_WRITE_IMMEDIATE, .id = 1, .length = 300, .immediate = 5});
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 0);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=300\n"
                     "0us A>B WRITE_LAST_IMMEDIATE psn=8\n"
                     "1us B>A RNR_NAK psn=8\n"
                     "12us A>B WRITE_LAST_IMMEDIATE psn=8\n"
                     "13us B>A ACK psn=8\n"
                     "13us B receive 1 success length=300\n"
                     "14us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 300);
}

/* A key that names nothing: both ends go to error; what arrives behind is dropped. */
static void no_such_key(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 10);
    post((struct work){.kind = WORK_WRITE, .id = 1, .length = 600, .key = {0x12345678}});
    post_write(2, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "0us A>B WRITE_ONLY psn=10 length=10\n"
                     "1us B event qp_access_error\n"
                     "1us B drops state\n"
                     "1us B drops state\n"
                     "1us B drops state\n"
                     "1us B>A NAK remote_access psn=7\n"
                     "1us B receive 1 flushed\n"
                     "2us A send 1 remote access error\n"
                     "2us A send 2 flushed\n");
    expect_both_in_error();
}

/* One byte beyond the region: nothing is written, not even by the packets before it. */
static void out_of_range(void **state)
{
    (void)state;
    scenario_connect(&s);
    post((struct work){.kind = WORK_WRITE, .id = 1, .length = 600, .at = SCENARIO_BYTES - 599});
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "1us B event qp_access_error\n"
                     "1us B drops state\n"
                     "1us B drops state\n"
                     "1us B>A NAK remote_access psn=7\n"
                     "2us A send 1 remote access error\n");
    expect_both_in_error();
}

/* The queue pair allows no remote READ. */
static void read_without_right(void **state)
{
    (void)state;
    s.b.attributes.access = ACCESS_REMOTE_WRITE;
    scenario_connect(&s);
    post((struct work){.kind = WORK_READ, .id = 1, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=10\n"
                     "1us B event qp_request_error\n"
                     "1us B>A NAK invalid_request psn=7\n"
                     "2us A send 1 remote invalid request\n");
    expect_both_in_error();
}

/* A SEND longer than its receive is an invalid request, found at the packet that does not fit.
 * The receive tells the responder, so no event does. */
static void send_too_long(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 500);
    scenario_receive(&s.b, 2, 500);
    post_send(1, 600);
    post_send(2, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_FIRST psn=7\n"
                     "0us A>B SEND_MIDDLE psn=8\n"
                     "0us A>B SEND_LAST psn=9\n"
                     "0us A>B SEND_ONLY psn=10\n"
                     "1us B drops state\n"
                     "1us B drops state\n"
                     "1us B>A NAK invalid_request psn=8\n"
                     "1us B receive 1 local length error\n"
                     "1us B receive 2 flushed\n"
                     "2us A send 1 remote invalid request\n"
                     "2us A send 2 flushed\n");
    expect_both_in_error();
}

/* An atomic's address is a multiple of 8. */
static void misaligned_atomic(void **state)
{
    (void)state;
    scenario_connect(&s);
    post((struct work){.kind = WORK_FETCH_ADD, .id = 1, .length = 8, .at = 4});
    scenario_run(&s);
    expect_trace(&s, "0us A>B FETCH_ADD psn=7\n"
                     "1us B event qp_access_error\n"
                     "1us B>A NAK invalid_request psn=7\n"
                     "2us A send 1 remote invalid request\n");
    expect_both_in_error();
}

/* A key of ibv_reg_mr cannot be invalidated by a peer. */
static void invalidate_of_a_region(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 10);
    post((struct work){.kind = WORK_SEND_INVALIDATE, .id = 1, .length = 10, .key = s.b.key});
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY_INVALIDATE psn=7\n"
                     "1us B event qp_access_error\n"
                     "1us B>A NAK remote_access psn=7\n"
                     "1us B receive 1 flushed\n"
                     "2us A send 1 remote access error\n");
}

/* No byte, no key: SEND, WRITE and READ of nothing each take one PSN. */
static void zero_length(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.b, 1, 0);
    post_send(1, 0);
    post((struct work){.kind = WORK_WRITE, .id = 2, .key = {0x12345678}});
    post((struct work){.kind = WORK_READ, .id = 3, .key = {0x12345678}});
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "0us A>B WRITE_ONLY psn=8 length=0\n"
                     "0us A>B READ_REQUEST psn=9 length=0\n"
                     "1us B>A READ_RESPONSE_ONLY psn=9\n"
                     "1us B receive 1 success length=0\n"
                     "2us A send 1 success\n"
                     "2us A send 2 success\n"
                     "2us A send 3 success\n");
}

/* What was executed before the refusal succeeds; what comes behind is flushed. */
static void refused_behind_success(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_write(1, 10);
    post((struct work){.kind = WORK_READ, .id = 2, .length = 10, .key = {0x12345678}});
    post_write(3, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=10\n"
                     "0us A>B READ_REQUEST psn=8 length=10\n"
                     "0us A>B WRITE_ONLY psn=9 length=10\n"
                     "1us B event qp_access_error\n"
                     "1us B drops state\n"
                     "1us B>A NAK remote_access psn=8\n"
                     "2us A send 1 success\n"
                     "2us A send 2 remote access error\n"
                     "2us A send 3 flushed\n");
}

/* The response of a READ is lost, and the peer has failed for what came behind it: it will never
 * answer the READ. Each NAK asks for it again, as often as the retry count allows; then the timeout
 * ends this, not a storm of repetitions, one per round trip. */
static void refused_behind_lost_response(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_write(9, 10); /* it knows the round trip from now on */
    scenario_run(&s);
    forget_trace(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_ONLY psn=8");
    post((struct work){.kind = WORK_READ, .id = 1, .length = 10});
    post((struct work){.kind = WORK_WRITE, .id = 2, .length = 10, .key = {0x12345678}});
    scenario_run(&s);
    expect_trace(&s, "1048.576us A>B READ_REQUEST psn=8 length=10\n"
                     "1048.576us A>B WRITE_ONLY psn=9 length=10\n"
                     "1049.576us B event qp_access_error\n"
                     "1049.576us B>A READ_RESPONSE_ONLY psn=8 lost\n"
                     "1049.576us B>A NAK remote_access psn=9\n"
                     "1050.576us A>B READ_REQUEST psn=8 length=10\n"
                     "1050.576us A>B WRITE_ONLY psn=9 length=10\n"
                     "1051.576us B drops state\n"
                     "1051.576us B drops state\n"
                     "1051.576us B>A NAK remote_access psn=9\n"
                     "1052.576us A>B READ_REQUEST psn=8 length=10\n"
                     "1052.576us A>B WRITE_ONLY psn=9 length=10\n"
                     "1053.576us B drops state\n"
                     "1053.576us B drops state\n"
                     "1053.576us B>A NAK remote_access psn=9\n"
                     "1054.576us A>B READ_REQUEST psn=8 length=10\n"
                     "1054.576us A>B WRITE_ONLY psn=9 length=10\n"
                     "1055.576us B drops state\n"
                     "1055.576us B drops state\n"
                     "1055.576us B>A NAK remote_access psn=9\n"
                     "1056.576us A>B READ_REQUEST psn=8 length=10\n"
                     "1056.576us A>B WRITE_ONLY psn=9 length=10\n"
                     "1057.576us B drops state\n"
                     "1057.576us B drops state\n"
                     "1057.576us B>A NAK remote_access psn=9\n"
                     "2097.152us A>B READ_REQUEST psn=8 length=10\n"
                     "2097.152us A>B WRITE_ONLY psn=9 length=10\n"
                     "2098.152us B drops state\n"
                     "2098.152us B drops state\n"
                     "2098.152us B>A NAK remote_access psn=9\n"
                     "3145.728us A>B READ_REQUEST psn=8 length=10\n"
                     "3145.728us A>B WRITE_ONLY psn=9 length=10\n"
                     "3146.728us B drops state\n"
                     "3146.728us B drops state\n"
                     "3146.728us B>A NAK remote_access psn=9\n"
                     "4194.304us A>B READ_REQUEST psn=8 length=10\n"
                     "4194.304us A>B WRITE_ONLY psn=9 length=10\n"
                     "4195.304us B drops state\n"
                     "4195.304us B drops state\n"
                     "4195.304us B>A NAK remote_access psn=9\n"
                     "5242.880us A send 1 retry exceeded\n"
                     "5242.880us A send 2 flushed\n");
    expect_both_in_error();
}

static struct arrival told_by;
static uint8_t told[PACKET_HEADER_MAX];
static uint32_t told_length;

static void keep_nak(struct network_end *end, const struct arrival *arrival, const uint8_t *bytes,
                     uint32_t length)
{
    (void)end;
    told_by = *arrival;
    told_length = length;
    memcpy(told, bytes, length);
}

static void has_room(struct network_end *end)
{
    (void)end;
    s.hosts[0].end.room(&s.hosts[0].end);
}

/* A peer that has failed says each time that the first packet is missing, long after the last has
 * asked: that puts off no timeout. */
static void who_refuses_each_repetition_is_given_up(void **state)
{
    (void)state;
    struct network_end *honest = &s.hosts[0].end, keeps = *honest;
    struct link_config link = {.delay_ns = 1000, .bits_per_second = 100000000, .queue_limit = 1};
    keeps.deliver = keep_nak;
    keeps.room = has_room;
    scenario_connect(&s);
    network_attach(&s.network, 0, &keeps);
    network_set_link(&s.network, 0, 1, &link);
    scenario_rule(&s, "A>B WRITE_FIRST", FATE_LOST, 100000);
    post_write(1, 5120);
    for (uint32_t i = 0; i < 100; i++) {
        scenario_run_for(&s, 600);
        honest->deliver(honest, &told_by, told, told_length);
    }
    forget_trace(&s);
    assert_int_equal(qp_current_state(s.a.qp), QP_ERROR);
    network_attach(&s.network, 0, honest);
}

/* Everything outstanding is flushed in order, sends and receives, and what is posted later too. */
static void moved_to_error(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_receive(&s.a, 1, 10);
    scenario_receive(&s.a, 2, 10);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_LOST, 100);
    post_write(1, 10);
    post((struct work){.kind = WORK_WRITE, .id = 2, .length = 10, .unsignaled = true});
    scenario_run_for(&s, 5);
    struct qp_attributes error = {.state = QP_ERROR};
    assert_int_equal(
        device_modify_qp(s.a.host->device, s.simulator.now, s.a.qp, &error, QP_SET_STATE, NULL),
        STATUS_OK);
    host_wake(s.a.host, 0);
    scenario_run(&s);
    post_write(3, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=10 lost\n"
                     "0us A>B WRITE_ONLY psn=8 length=10 lost\n"
                     "5us A send 1 flushed\n"
                     "5us A send 2 flushed\n"
                     "5us A receive 1 flushed\n"
                     "5us A receive 2 flushed\n"
                     "1048.576us A send 3 flushed\n");
}

/* Packets to a queue pair that is gone are dropped and counted; the other side gives up. */
static void peer_destroyed(void **state)
{
    (void)state;
    scenario_connect(&s);
    device_destroy_qp(s.b.host->device, s.b.qp);
    s.b.qp = NULL;
    post_write(1, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=10\n"
                     "1us B drops no_qp\n"
                     "1048.576us A>B WRITE_ONLY psn=7 length=10\n"
                     "1049.576us B drops no_qp\n"
                     "2097.152us A>B WRITE_ONLY psn=7 length=10\n"
                     "2098.152us B drops no_qp\n"
                     "3145.728us A>B WRITE_ONLY psn=7 length=10\n"
                     "3146.728us B drops no_qp\n"
                     "4194.304us A send 1 retry exceeded\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(receiver_not_ready, start, stop),
        cmocka_unit_test_setup_teardown(each_rnr_nak_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(what_has_not_left_again_has_not_failed, start, stop),
        cmocka_unit_test_setup_teardown(a_copy_that_finds_a_receive_ends_the_wait, start, stop),
        cmocka_unit_test_setup_teardown(rnr_retry_exceeded, start, stop),
        cmocka_unit_test_setup_teardown(write_immediate_needs_a_receive, start, stop),
        cmocka_unit_test_setup_teardown(no_such_key, start, stop),
        cmocka_unit_test_setup_teardown(out_of_range, start, stop),
        cmocka_unit_test_setup_teardown(read_without_right, start, stop),
        cmocka_unit_test_setup_teardown(send_too_long, start, stop),
        cmocka_unit_test_setup_teardown(misaligned_atomic, start, stop),
        cmocka_unit_test_setup_teardown(invalidate_of_a_region, start, stop),
        cmocka_unit_test_setup_teardown(zero_length, start, stop),
        cmocka_unit_test_setup_teardown(refused_behind_success, start, stop),
        cmocka_unit_test_setup_teardown(refused_behind_lost_response, start, stop),
        cmocka_unit_test_setup_teardown(who_refuses_each_repetition_is_given_up, start, stop),
        cmocka_unit_test_setup_teardown(moved_to_error, start, stop),
        cmocka_unit_test_setup_teardown(peer_destroyed, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
