/* Short SENDs that go their own way (rnic/transport/short_way.h): what they ask and say all the
 * same, to peers that are near and to others, with selective repeat and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

struct place {
    bool near, selective;
};

static struct scenario s;

static void send(struct party *party, uint64_t id)
{
    struct work work = {.kind = WORK_SEND, .id = id, .length = 20};
    assert_int_equal(scenario_post(party, work), STATUS_OK);
}

/* A's next PSN is 9 then, and B's 100. */
static int start(void **state)
{
    const struct place *place = *state;
    struct link_config link = {.delay_ns = 1000, .carries = place->near};
    if (place->selective) {
        scenario_start_selective(&s);
        scenario_lose(&s, "A>B WRITE_FIRST psn=7"); /* which makes them agree */
    } else {
        scenario_start(&s);
    }
    network_set_links(&s.network, &link);
    scenario_connect(&s);
    struct work work = {.kind = WORK_WRITE, .id = 1, .length = 512};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run(&s);
    forget_trace(&s);
    return 0;
}

static int start_unagreed(void **state)
{
    (void)state;
    scenario_start_selective(&s);
    scenario_connect(&s);
    return 0;
}

static int start_one_way(void **state)
{
    (void)state;
    scenario_start(&s);
    scenario_connect_one_way(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

/* Two silences make the window two packets wide; then five more are posted at once. */
static void post_into_a_small_window(void)
{
    scenario_rule(&s, "A>B SEND_ONLY psn=9", FATE_LOST, 2);
    for (uint64_t id = 1; id <= 6; id++) {
        scenario_receive(&s.b, id, 64);
    }
    send(&s.a, 1);
    scenario_run_for(&s, 1500);
    for (uint64_t id = 2; id <= 6; id++) {
        send(&s.a, id);
    }
    scenario_run_for(&s, 1);
}

static void no_window_is_asked_of_who_is_near(void **state)
{
    (void)state;
    post_into_a_small_window();
    expect_trace(&s, "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=10\n"
                     "A>B SEND_ONLY psn=11\n"
                     "A>B SEND_ONLY psn=12\n"
                     "A>B SEND_ONLY psn=13\n"
                     "A>B SEND_ONLY psn=14\n");
    scenario_run(&s);
    forget_trace(&s);
}

static void a_far_peer_gets_no_more_than_the_window(void **state)
{
    (void)state;
    post_into_a_small_window();
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=10\n"
                     "B>A NAK sequence psn=9\n"
                     "A>B SEND_ONLY psn=9\n"
                     "A>B SEND_ONLY psn=10\n"
                     "B>A ACK psn=10\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=20\n"
                     "A>B SEND_ONLY psn=11\n"
                     "A>B SEND_ONLY psn=12\n"
                     "A>B SEND_ONLY psn=13\n"
                     "A send 1 success\n"
                     "A send 2 success\n"
                     "B>A ACK psn=13\n"
                     "B receive 3 success length=20\n"
                     "B receive 4 success length=20\n"
                     "B receive 5 success length=20\n"
                     "A>B SEND_ONLY psn=14\n"
                     "A send 3 success\n"
                     "A send 4 success\n"
                     "A send 5 success\n"
                     "B>A ACK psn=14\n"
                     "B receive 6 success length=20\n"
                     "A send 6 success\n");
}

static void nor_does_any_where_losses_are_repaired(void **state)
{
    (void)state;
    post_into_a_small_window();
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=10\n"
                     "B>A REPORT psn=8 expected=9 +1\n"
                     "A>B SEND_ONLY psn=9\n"
                     "A>B SEND_ONLY psn=11\n"
                     "B>A ACK psn=11\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=20\n"
                     "B receive 3 success length=20\n"
                     "A>B SEND_ONLY psn=12\n"
                     "A>B SEND_ONLY psn=13\n"
                     "A send 1 success\n"
                     "A send 2 success\n"
                     "A send 3 success\n"
                     "B>A ACK psn=13\n"
                     "B receive 4 success length=20\n"
                     "B receive 5 success length=20\n"
                     "A>B SEND_ONLY psn=14\n"
                     "A send 4 success\n"
                     "A send 5 success\n"
                     "B>A ACK psn=14\n"
                     "B receive 6 success length=20\n"
                     "A send 6 success\n");
}

/* What A sends has just come, and is not acknowledged, when B posts, and its thread goes on at
 * once. */
static void answer_at_once(void)
{
    s.hosts[1].config.joins = true; /* what comes waits for it */
    scenario_receive(&s.a, 11, 64);
    scenario_receive(&s.b, 12, 64);
    send(&s.a, 1);
    scenario_run_for(&s, 1);
    send(&s.b, 2);
    host_kick(s.b.host, s.b.qp);
    scenario_run(&s);
}

static void an_answer_to_who_is_near_brings_the_acknowledgement(void **state)
{
    (void)state;
    answer_at_once();
    expect_trace(&s, "A>B SEND_ONLY psn=9\n"
                     "B>A SEND_ONLY psn=100 acknowledges=9\n"
                     "B receive 12 success length=20\n"
                     "A>B ACK psn=100\n"
                     "A send 1 success\n"
                     "A receive 11 success length=20\n"
                     "B send 2 success\n");
}

static void to_others_it_goes_alone(void **state)
{
    (void)state;
    answer_at_once();
    expect_trace(&s, "A>B SEND_ONLY psn=9\n"
                     "B>A ACK psn=9\n"
                     "B>A SEND_ONLY psn=100\n"
                     "B receive 12 success length=20\n"
                     "A>B ACK psn=100\n"
                     "A send 1 success\n"
                     "A receive 11 success length=20\n"
                     "B send 2 success\n");
}

/* An acknowledgement of what came behind a READ would be one of the READ, too. */
static void it_rides_past_no_response(void **state)
{
    (void)state;
    struct work read = {.kind = WORK_READ, .id = 3, .length = 512};
    s.hosts[1].config.joins = true;
    scenario_receive(&s.a, 11, 64);
    scenario_receive(&s.b, 12, 64);
    assert_int_equal(scenario_post(&s.a, read), STATUS_OK);
    send(&s.a, 1);
    scenario_run_for(&s, 1);
    send(&s.b, 2);
    host_kick(s.b.host, s.b.qp);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=512\n"
                     "A>B SEND_ONLY psn=11\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_LAST psn=10\n"
                     "B>A ACK psn=11\n"
                     "B>A SEND_ONLY psn=100\n"
                     "B receive 12 success length=20\n"
                     "A>B ACK psn=100\n"
                     "A send 3 success\n"
                     "A send 1 success\n"
                     "A receive 11 success length=20\n"
                     "B send 2 success\n");
}

static void by_a_sink_that_carries_none_it_goes_alone(void **state)
{
    network_sink(&s.network, 1)->carries_acknowledgements = false;
    to_others_it_goes_alone(state);
}

/* By its tag A knows that B has heard it: what comes early without is not kept, and what would be
 * missing before it not asked for. */
static void the_tag_says_that_it_was_heard(void **state)
{
    (void)state;
    scenario_receive(&s.a, 1, 64);
    send(&s.b, 2);
    scenario_run(&s);
    forget_trace(&s);
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(s.a.qp),
                            .psn = {102}};
    uint8_t bytes[PACKET_HEADER_MAX];
    struct arrival arrival = {.path = network_path(0, 1, false, 50000)};
    (void)device_receive(s.a.host->device, s.simulator.now, &arrival, bytes,
                         packet_build(&packet, bytes));
    host_wake(s.a.host, 0);
    scenario_run(&s);
    expect_trace(&s, "");
}

/* A has not heard B's tag: what comes early without may be A's, and what is missing before it is
 * asked for. */
static void no_tag_says_nothing(void **state)
{
    (void)state;
    scenario_lose(&s, "B>A WRITE_FIRST");
    scenario_lose(&s, "B>A REPORT");
    struct work work = {.kind = WORK_WRITE, .id = 1, .length = 512};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run(&s);
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    scenario_receive(&s.b, 3, 64);
    send(&s.a, 1);
    scenario_run(&s);
    forget_trace(&s);
    scenario_lose(&s, "A>B SEND_ONLY psn=8");
    send(&s.a, 2);
    send(&s.a, 3);
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=8 lost\n"
                     "A>B SEND_ONLY psn=9\n"
                     "B drops psn\n"
                     "B>A NAK sequence psn=8\n"
                     "A>B REPORT psn=101 expected=102 asks\n"
                     "A>B SEND_ONLY psn=8\n"
                     "A>B SEND_ONLY psn=9\n"
                     "B>A REPORT psn=9 expected=10\n"
                     "B>A ACK psn=9\n"
                     "B receive 2 success length=20\n"
                     "B receive 3 success length=20\n"
                     "A drops psn\n"
                     "A send 2 success\n"
                     "A send 3 success\n");
}

/* One that fills B's path MTU and `more` bytes, with nothing in it. */
static void offer(uint32_t more)
{
    enum {
        MTU = 256
    };
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(s.b.qp),
                            .psn = {9}};
    uint8_t bytes[PACKET_HEADER_MAX + MTU + 4] = {0};
    struct arrival arrival = {.path = network_path(1, 0, false, 50000)};
    (void)device_receive(s.b.host->device, s.simulator.now, &arrival, bytes,
                         packet_build(&packet, bytes) + MTU + more);
    host_wake(s.b.host, 0);
    scenario_run(&s);
}

static void a_packet_is_not_longer_than_they_agreed(void **state)
{
    (void)state;
    scenario_receive(&s.b, 1, 512);
    offer(4);
    expect_trace(&s, "B>A NAK invalid_request psn=9\n"
                     "B receive 1 local length error\n"
                     "A drops psn\n");
}

static void one_that_fills_it_is_taken(void **state)
{
    (void)state;
    scenario_receive(&s.b, 1, 512);
    offer(0);
    expect_trace(&s, "B receive 1 success length=256\n");
}

/* A receive into memory whose key does not let it be written, or is of another domain. */
static void expect_denied(struct domain domain, unsigned access)
{
    struct memory *memory = device_memory(s.b.host->device);
    struct region_attributes region = {domain, 0, 64, s.b.bytes, access};
    struct sge sge = {0, 64, {0}};
    assert_int_equal(memory_register(memory, &region, &sge.key), STATUS_OK);
    struct receive_request request = {.id = 1001, .sges = &sge, .sge_count = 1};
    assert_int_equal(qp_post_receive(s.b.qp, &request), STATUS_OK);
    send(&s.a, 1);
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=9\n"
                     "B>A NAK remote_operation psn=9\n"
                     "B receive 1 local protection error\n"
                     "A send 1 remote operation error\n");
    assert_int_equal(memory_deregister(memory, sge.key), STATUS_OK);
}

static void a_receive_is_into_what_may_be_written(void **state)
{
    (void)state;
    expect_denied(s.b.domain, ACCESS_REMOTE_READ);
}

static void a_receive_is_into_what_is_of_its_domain(void **state)
{
    (void)state;
    struct memory *memory = device_memory(s.b.host->device);
    struct domain other;
    assert_int_equal(memory_allocate_domain(memory, &other), STATUS_OK);
    expect_denied(other, ACCESS_LOCAL_WRITE);
    assert_int_equal(memory_free_domain(memory, other), STATUS_OK);
}

/* Of the first packet that comes in RTR an event tells, and of no other. */
static void the_first_packet_tells_that_they_are_connected(void **state)
{
    (void)state;
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    send(&s.a, 1);
    send(&s.a, 2);
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "A>B SEND_ONLY psn=8\n"
                     "B event communication_established\n"
                     "B>A ACK psn=8\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=20\n"
                     "A send 1 success\n"
                     "A send 2 success\n");
}

int main(void)
{
    static struct place far = {false, false}, near = {true, false}, far_selective = {false, true},
                        near_selective = {true, true};
#define AT(place, test) cmocka_unit_test_prestate_setup_teardown(test, start, stop, &place)
    const struct CMUnitTest tests[] = {
        AT(near, no_window_is_asked_of_who_is_near),
        AT(far, a_far_peer_gets_no_more_than_the_window),
        AT(far_selective, nor_does_any_where_losses_are_repaired),
        AT(near_selective, nor_does_any_where_losses_are_repaired),
        AT(near, an_answer_to_who_is_near_brings_the_acknowledgement),
        AT(near, it_rides_past_no_response),
        AT(far, to_others_it_goes_alone),
        AT(far_selective, to_others_it_goes_alone),
        AT(near_selective, to_others_it_goes_alone),
        AT(near, by_a_sink_that_carries_none_it_goes_alone),
        AT(far_selective, the_tag_says_that_it_was_heard),
        cmocka_unit_test_setup_teardown(no_tag_says_nothing, start_unagreed, stop),
        AT(near, a_packet_is_not_longer_than_they_agreed),
        AT(near, one_that_fills_it_is_taken),
        AT(near, a_receive_is_into_what_may_be_written),
        AT(near, a_receive_is_into_what_is_of_its_domain),
        cmocka_unit_test_setup_teardown(the_first_packet_tells_that_they_are_connected,
                                        start_one_way, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
