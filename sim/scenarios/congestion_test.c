/* Marks of a congested network: how they are answered, whom the answers slow down, and what eight
 * queue pairs make of one narrow link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/scenario.h"

#define ECT0 2u

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    s.a.attributes.path.traffic_class = s.b.attributes.path.traffic_class = 104 | ECT0;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void write_from(struct party *party, uint64_t id, uint32_t length)
{
    struct work work = {.kind = WORK_WRITE, .id = id, .length = length};
    assert_int_equal(scenario_post(party, work), STATUS_OK);
}

static uint64_t count(const struct party *party, enum counter counter)
{
    return device_counters(party->host->device)->values[counter];
}

static void a_mark_is_answered(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY psn=7", FATE_MARKED, 1);
    write_from(&s.a, 1, 64);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64 marked\n"
                     "1us B>A CNP\n"
                     "1us B>A ACK psn=7\n"
                     "2us A send 1 success\n");
    assert_int_equal(count(&s.b, COUNTER_CONGESTION_MARKS), 1);
    assert_int_equal(count(&s.b, COUNTER_CNP_SENT), 1);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 1);
}

/* However many come marked. */
static void one_answer_in_a_while(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_FIRST psn=7", FATE_MARKED, 1);
    scenario_rule(&s, "A>B WRITE_LAST psn=8", FATE_MARKED, 1);
    write_from(&s.a, 1, 300);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=300 marked\n"
                     "0us A>B WRITE_LAST psn=8 marked\n"
                     "1us B>A CNP\n"
                     "1us B>A ACK psn=8\n"
                     "2us A send 1 success\n");
    scenario_rule(&s, "A>B WRITE_ONLY psn=9", FATE_MARKED, 1);
    scenario_run_for(&s, 1000);
    write_from(&s.a, 2, 64);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_ONLY psn=9 length=64 marked\n"
                     "B>A CNP\n"
                     "B>A ACK psn=9\n"
                     "A send 2 success\n");
}

/* Data of READs flow the other way, and so do their marks and answers. */
static void marked_responses_are_answered_too(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY psn=7", FATE_MARKED, 1);
    struct work work = {.kind = WORK_READ, .id = 1, .length = 64};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=64\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7 marked\n"
                     "2us A>B CNP\n"
                     "2us A send 1 success\n");
    assert_int_equal(count(&s.b, COUNTER_CNP_HANDLED), 1);
}

/* From an address that is not the peer's: nobody is slowed down. */
static void a_stranger_is_not_heard(void **state)
{
    (void)state;
    scenario_connect(&s);
    struct packet packet = {
        .opcode = OPCODE_CNP, .pkey = PKEY_DEFAULT, .destination = qp_number(s.a.qp)};
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = network_path(0, 2, false, 50000)};
    device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, length);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 0);
    assert_int_equal(device_counters(s.a.host->device)->refused[REFUSED_ADDRESS], 1);
    arrival.path = network_path(0, 1, false, 50000);
    device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, length);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 1);
}

/* While long responses leave at a limited rate, our own messages get their half of it, and are
 * answered before anybody takes them for lost. */
static void responses_do_not_starve_messages(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_MARKED, 1);
    write_from(&s.a, 1, 64); /* to the floor of the rate: a packet in 62 us */
    scenario_run_for(&s, 20);
    struct work work = {.kind = WORK_READ, .id = 1, .length = 16384};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, 20);
    forget_trace(&s);
    write_from(&s.a, 2, 2000);
    scenario_run_for(&s, 2500);
    assert_non_null(strstr(s.text, "A send 2 success\n"));
    assert_null(strstr(s.text, "B send 1 success\n"));
    scenario_run(&s);
    assert_non_null(strstr(s.text, "B send 1 success\n"));
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), 0);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
}

/* What left unmarkable was not marked: who says so lies. */
static void a_notice_of_what_cannot_be_marked_is_forged(void **state)
{
    (void)state;
    s.a.attributes.path.traffic_class = 104;
    scenario_connect(&s);
    struct packet packet = {
        .opcode = OPCODE_CNP, .pkey = PKEY_DEFAULT, .destination = qp_number(s.a.qp)};
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = network_path(0, 1, false, 50000)};
    device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, length);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 0);
    assert_int_equal(device_counters(s.a.host->device)->refused[REFUSED_SEQUENCE], 1);
}

/* From the peer's address, but not with its PSN: the peer is not slowed down. */
static void a_forged_mark_is_not_answered(void **state)
{
    (void)state;
    scenario_connect(&s);
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(s.b.qp),
                            .psn = {4711}};
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = network_path(1, 0, false, 50000),
                              .congestion_experienced = true};
    bool of_peer = device_receive(s.b.host->device, s.simulator.now, &arrival, bytes, length);
    scenario_run(&s);
    assert_false(of_peer);
    assert_int_equal(count(&s.b, COUNTER_CNP_SENT), 0);
}

/* Eight writers that never stop, over one link of 1 Gbit/s that marks above MARK_ABOVE frames. */
#define FLOWS      8u
#define MESSAGE    65536u
#define DEPTH      8u
#define MARK_ABOVE 16u
#define LINE       125000u /* bytes per millisecond */
#define MS         UINT64_C(1000000)

struct crowd {
    struct simulator simulator;
    struct network network;
    struct host hosts[2];
    struct host_application application;
    struct domain domains[2];
    struct memory_key keys[2];
    struct completion_queue *completions[2];
    struct qp *qps[2][FLOWS];
    uint64_t done[FLOWS]; /* bytes */
    uint32_t active;      /* flows that still post */
    uint32_t queued_most;
    uint8_t bytes[2][MESSAGE];
};

static void post(struct crowd *crowd, uint32_t flow)
{
    struct sge sge = {0, MESSAGE, crowd->keys[0]};
    struct send_request request = {.id = flow,
                                   .kind = WORK_WRITE,
                                   .signaled = true,
                                   .sges = &sge,
                                   .sge_count = 1,
                                   .remote_key = crowd->keys[1]};
    assert_int_equal(qp_post_send(crowd->qps[0][flow], &request), STATUS_OK);
    (void)device_ring(crowd->hosts[0].device, crowd->qps[0][flow]);
    host_wake(&crowd->hosts[0], 0);
}

static void crowd_ran(struct host_application *application, struct host *host)
{
    struct crowd *crowd =
        (struct crowd *)((uint8_t *)application - offsetof(struct crowd, application));
    uint32_t queued = crowd->network.links[0][1].queued;
    crowd->queued_most = queued > crowd->queued_most ? queued : crowd->queued_most;
    struct completion completion;
    while (completion_queue_poll(crowd->completions[host->index], 1, &completion) == 1) {
        assert_int_equal(completion.status, COMPLETION_SUCCESS);
        crowd->done[completion.id] += MESSAGE;
        if (completion.id < crowd->active) {
            post(crowd, (uint32_t)completion.id);
        }
    }
}

static void make_side(struct crowd *crowd, unsigned i)
{
    struct host *host = &crowd->hosts[i];
    struct host_config config = {
        .qpn_count = FLOWS, .max_regions = 4, .max_reads_in = 4, .budget = 64};
    host_init(host, &crowd->simulator, &crowd->network, i, &config);
    host->application = &crowd->application;
    host_start(host);
    struct memory *memory = device_memory(host->device);
    assert_int_equal(memory_allocate_domain(memory, &crowd->domains[i]), STATUS_OK);
    struct region_attributes region = {.domain = crowd->domains[i],
                                       .length = MESSAGE,
                                       .bytes = crowd->bytes[i],
                                       .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE};
    assert_int_equal(memory_register(memory, &region, &crowd->keys[i]), STATUS_OK);
    assert_int_equal(completion_queue_create(&host->storage.allocator, FLOWS * DEPTH, NULL,
                                             &crowd->completions[i]),
                     STATUS_OK);
    for (uint32_t flow = 0; flow < FLOWS; flow++) {
        struct qp_init init = {.service = SERVICE_RC,
                               .domain = crowd->domains[i],
                               .send_completions = crowd->completions[i],
                               .receive_completions = crowd->completions[i],
                               .send = {.capacity = DEPTH, .max_sge = 1},
                               .max_receive = 1,
                               .max_receive_sge = 1};
        assert_int_equal(device_create_qp(host->device, &init, &crowd->qps[i][flow]), STATUS_OK);
    }
}

static void connect_side(struct crowd *crowd, unsigned i, uint8_t traffic_class)
{
    static const unsigned masks[] = {
        QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS,
        QP_SET_STATE | QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN |
            QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER,
        QP_SET_STATE | QP_SET_SEND_PSN | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT |
            QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT,
    };
    static const enum qp_state states[] = {QP_INIT, QP_RTR, QP_RTS};
    for (uint32_t flow = 0; flow < FLOWS; flow++) {
        struct qp_attributes attributes = {
            .path = network_path(i, 1 - i, false, 50000),
            .path_mtu = PATH_MTU_4096,
            .destination = qp_number(crowd->qps[1 - i][flow]),
            .access = ACCESS_REMOTE_WRITE,
            .timeout = 14,
            .retry_count = 7,
            .port = 1,
        };
        attributes.path.traffic_class = traffic_class;
        for (uint32_t step = 0; step < 3; step++) {
            attributes.state = states[step];
            assert_int_equal(device_modify_qp(crowd->hosts[i].device, crowd->simulator.now,
                                              crowd->qps[i][flow], &attributes, masks[step], NULL),
                             STATUS_OK);
        }
    }
}

static struct crowd *crowd_make(uint8_t traffic_class)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    assert_non_null(crowd);
    crowd->application = (struct host_application){.ran = crowd_ran};
    simulator_init(&crowd->simulator, 1, NULL);
    network_init(&crowd->network, &crowd->simulator, 1);
    struct link_config wide = {.delay_ns = 5000}, narrow = wide;
    narrow.bits_per_second = LINE * UINT64_C(8000);
    narrow.mark_above = MARK_ABOVE;
    network_set_links(&crowd->network, &wide);
    network_set_link(&crowd->network, 0, 1, &narrow);
    for (unsigned i = 0; i < 2; i++) {
        make_side(crowd, i);
    }
    for (unsigned i = 0; i < 2; i++) {
        connect_side(crowd, i, traffic_class);
    }
    crowd->active = FLOWS;
    for (uint32_t flow = 0; flow < FLOWS; flow++) {
        for (uint32_t i = 0; i < DEPTH; i++) {
            post(crowd, flow);
        }
    }
    return crowd;
}

/* Bytes per millisecond of all; what each got stands in `done`. */
static uint64_t crowd_run(struct crowd *crowd, uint64_t ms)
{
    memset(crowd->done, 0, sizeof crowd->done);
    crowd->queued_most = 0;
    struct instant until = instant_after(crowd->simulator.now, ms * MS);
    assert_int_not_equal(simulator_run(&crowd->simulator, until, UINT64_MAX), SIMULATOR_VIOLATION);
    crowd->simulator.now = until;
    uint64_t sum = 0;
    for (uint32_t flow = 0; flow < FLOWS; flow++) {
        sum += crowd->done[flow];
    }
    return sum / ms;
}

static void crowd_end(struct crowd *crowd)
{
    crowd->active = 0;
    (void)crowd_run(crowd, 1000);
    for (unsigned i = 0; i < 2; i++) {
        struct host *host = &crowd->hosts[i];
        for (uint32_t flow = 0; flow < FLOWS; flow++) {
            device_destroy_qp(host->device, crowd->qps[i][flow]);
        }
        completion_queue_destroy(crowd->completions[i]);
        struct memory *memory = device_memory(host->device);
        assert_int_equal(memory_deregister(memory, crowd->keys[i]), STATUS_OK);
        assert_int_equal(memory_free_domain(memory, crowd->domains[i]), STATUS_OK);
        host_stop(host);
    }
    assert_false(simulator_is_violated(&crowd->simulator));
    simulator_fini(&crowd->simulator);
    free(crowd);
}

/* Jain's index of what the flows got, in percent: 100 is equal, 100 / FLOWS is all for one. */
static uint64_t fairness(const struct crowd *crowd)
{
    double sum = 0, squares = 0;
    for (uint32_t flow = 0; flow < FLOWS; flow++) {
        double mega = (double)crowd->done[flow] / 1e6;
        sum += mega;
        squares += mega * mega;
    }
    return (uint64_t)(100 * sum * sum / (FLOWS * squares));
}

static void the_queue_stays_short_where_marks_are_heard(void **state)
{
    (void)state;
    struct crowd *deaf = crowd_make(0);
    (void)crowd_run(deaf, 100);
    uint64_t deaf_rate = crowd_run(deaf, 200);
    uint32_t deaf_queue = deaf->queued_most;
    crowd_end(deaf);

    struct crowd *crowd = crowd_make(ECT0);
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 200);
    printf("8 flows over 1 Gbit/s: queue up to %u frames, %llu%% of the line, fairness %llu%%; "
           "without ECN %u frames, %llu%%\n",
           crowd->queued_most, (unsigned long long)(rate * 100 / LINE),
           (unsigned long long)fairness(crowd), deaf_queue,
           (unsigned long long)(deaf_rate * 100 / LINE));
    assert_true(deaf_queue > 400); /* the windows, no less */
    assert_in_range(crowd->queued_most, MARK_ABOVE, deaf_queue / 6);
    assert_true(rate > LINE * 80 / 100);
    assert_true(fairness(crowd) >= 80);
    crowd_end(crowd);
}

static void one_that_is_left_alone_gets_the_line(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_make(ECT0);
    (void)crowd_run(crowd, 200);
    crowd->active = 1;
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 100);
    printf("the one flow left: %llu%% of the line\n", (unsigned long long)(rate * 100 / LINE));
    assert_true(rate > LINE * 80 / 100);
    crowd_end(crowd);
}

/* The link is wide again: so are they, soon. */
static void rates_recover_when_the_marks_stop(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_make(ECT0);
    (void)crowd_run(crowd, 200);
    crowd->network.links[0][1].config.bits_per_second *= 10;
    crowd->network.links[0][1].config.mark_above = 0;
    (void)crowd_run(crowd, 50);
    uint64_t rate = crowd_run(crowd, 50);
    printf("without marks, on ten times the line: %llu%% of it\n",
           (unsigned long long)(rate * 10 / LINE));
    assert_true(rate > 10 * LINE * 80 / 100);
    crowd_end(crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mark_is_answered, start, stop),
        cmocka_unit_test_setup_teardown(one_answer_in_a_while, start, stop),
        cmocka_unit_test_setup_teardown(marked_responses_are_answered_too, start, stop),
        cmocka_unit_test_setup_teardown(a_stranger_is_not_heard, start, stop),
        cmocka_unit_test_setup_teardown(responses_do_not_starve_messages, start, stop),
        cmocka_unit_test_setup_teardown(a_notice_of_what_cannot_be_marked_is_forged, start, stop),
        cmocka_unit_test_setup_teardown(a_forged_mark_is_not_answered, start, stop),
        cmocka_unit_test(the_queue_stays_short_where_marks_are_heard),
        cmocka_unit_test(one_that_is_left_alone_gets_the_line),
        cmocka_unit_test(rates_recover_when_the_marks_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
