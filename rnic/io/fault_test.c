/* Faults on purpose: what is asked for is what the link does. */
#include "rnic/io/fault.h"

#include "rnic/io/udp_self_test.h"

#define SENT 400u

static void faults_text_is_checked(void **state)
{
    struct fault fault;
    assert_int_equal(fault_parse("", &fault), STATUS_OK);
    assert_int_equal(fault_parse("loss=0.5,seed=9,corrupt=1", &fault), STATUS_OK);
    assert_int_equal(fault.loss, UINT64_C(1) << 31);
    struct random seeded;
    random_seed(&seeded, 9);
    assert_memory_equal(&fault.random, &seeded, sizeof seeded);
    static const char *const wrong[] = {"loss",    "loss=",  "loss=2",
                                        "loss=-1", "gain=1", "loss=0.1x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(fault_parse(wrong[i], &fault), STATUS_INVALID);
    }
    struct udp *udp;
    const char *message = "";
    struct udp_config config = {.port = 20000, .fault = "nonsense"};
    assert_int_equal(udp_create(&config, &udp, &message), STATUS_INVALID);
    assert_true(strlen(message) > 0);
}

/* Sends packets through a shim, one by one or as trains, and returns what came. */
static struct inbox send_through(const char *fault, uint32_t train, struct udp_counters *ret_sent)
{
    struct udp *udp = create(fault);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    for (uint32_t i = 0; i < SENT; i += train) {
        if (train > 1) {
            emit_train(udp, &path, i, train, 64);
        } else {
            assert_true(emit(udp, &path, i, 64));
        }
        if ((i + train) % 20 == 0) {
            assert_true(udp_flush(udp));
            drain(udp, &inbox);
        }
    }
    while (udp_has_waiting(udp)) {
        assert_true(udp_flush(udp));
    }
    drain(udp, &inbox);
    *ret_sent = *udp_counters(udp);
    udp_destroy(udp);
    return inbox;
}

static uint32_t count_backward_steps(const struct inbox *inbox)
{
    uint32_t steps = 0;
    for (uint32_t i = 1; i < inbox->count; i++) {
        steps += inbox->numbers[i] < inbox->numbers[i - 1];
    }
    return steps;
}

static void check_shim(uint32_t train)
{
    struct udp_counters sent;
    struct inbox inbox = send_through("loss=0.1,seed=3", train, &sent);
    assert_in_range(sent.faults, 10, 99);
    assert_int_equal(inbox.count, SENT - sent.faults);

    inbox = send_through("duplicate=0.1,seed=3", train, &sent);
    assert_in_range(sent.faults, 10, 99);
    assert_int_equal(inbox.count, SENT + sent.faults);

    inbox = send_through("reorder=0.1,seed=3", train, &sent);
    assert_in_range(sent.faults, 10, 99);
    assert_int_equal(inbox.count, SENT);
    assert_true(count_backward_steps(&inbox) > 10);

    inbox = send_through("corrupt=0.1,seed=3", train, &sent);
    assert_in_range(sent.faults, 10, 99);
    /* Some hits change bits that the ICRC leaves out, as a router might. */
    assert_in_range(inbox.bad_icrc, 11, sent.faults);
    assert_int_equal(inbox.count, SENT - inbox.bad_icrc);
    assert_int_equal(inbox.wrong, 0);
}

static void shim_loses_duplicates_reorders_and_corrupts(void **state)
{
    check_shim(1);
}

static void shim_does_so_to_single_packets_of_trains(void **state)
{
    check_shim(10);
}

/* The same packets of a train meet the same faults, and all others still leave in one send. */
static void trains_meet_what_their_packets_would(void **state)
{
    static const char *const faults[] = {
        "loss=0.05,seed=5",
        "loss=0.05,duplicate=0.05,seed=6",
        "reorder=0.05,seed=7",
        "loss=0.03,reorder=0.03,duplicate=0.03,seed=8",
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct udp_counters sent, alone;
        struct inbox singles = send_through(faults[i], 1, &alone);
        struct inbox trains = send_through(faults[i], 20, &sent);
        assert_int_equal(sent.faults, alone.faults);
        assert_int_equal(sent.segmented_sends, alone.segmented_sends);
        assert_int_equal(trains.count, singles.count);
        assert_memory_equal(trains.numbers, singles.numbers,
                            trains.count * sizeof trains.numbers[0]);
        assert_int_equal(trains.wrong + trains.bad_icrc, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_text_is_checked),
        cmocka_unit_test(shim_loses_duplicates_reorders_and_corrupts),
        cmocka_unit_test(shim_does_so_to_single_packets_of_trains),
        cmocka_unit_test(trains_meet_what_their_packets_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
