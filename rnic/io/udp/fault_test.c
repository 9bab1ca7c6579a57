/* Faults on purpose: what is asked for is what the link does. */
#include "rnic/io/udp/fault.h"

#include "rnic/io/udp/udp_self_test.h"

#define SENT 400u

static void faults_text_is_checked(void **state)
{
    struct fault fault;
    assert_int_equal(fault_parse("", &fault), STATUS_OK);
    assert_int_equal(fault_parse("loss=0.5,seed=9,corrupt=1", &fault), STATUS_OK);
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

/* How many of so many packets are lost, and how many of those right behind another. */
static void count_losses(const char *text, uint32_t packets, uint32_t *ret_lost,
                         uint32_t *ret_pairs)
{
    struct fault fault;
    assert_int_equal(fault_parse(text, &fault), STATUS_OK);
    bool lost_before = false;
    *ret_lost = *ret_pairs = 0;
    for (uint32_t i = 0; i < packets; i++) {
        struct fault_verdict verdict = fault_decide(&fault);
        assert_false(verdict.delay || verdict.duplicate || verdict.corrupt);
        *ret_lost += verdict.lose;
        *ret_pairs += verdict.lose && lost_before;
        lost_before = verdict.lose;
    }
}

/* Each packet by itself: within five standard deviations. */
static void packets_are_lost_independently(void **state)
{
    uint32_t lost, pairs;
    count_losses("loss=0.5,seed=9", 100000, &lost, &pairs);
    assert_in_range(lost, 49200, 50800);
    assert_in_range(pairs, 24300, 25700);
    count_losses("seed=9,loss=0.1", 100000, &lost, &pairs);
    assert_in_range(lost, 9525, 10475);
    assert_in_range(pairs, 840, 1160);
    count_losses("loss=0.0001", 1000000, &lost, &pairs);
    assert_in_range(lost, 50, 150);
    count_losses("loss=1", 1000, &lost, &pairs);
    assert_int_equal(lost, 1000);
    count_losses("loss=0", 1000, &lost, &pairs);
    assert_int_equal(lost, 0);
}

/* The seed says which, wherever in the text it stands; and who asks for many at once hears the same
 * as who asks for each. */
static void the_seed_says_which(void **state)
{
    struct fault one, same, other;
    assert_int_equal(fault_parse("loss=0.01,duplicate=0.02,seed=9", &one), STATUS_OK);
    assert_int_equal(fault_parse("seed=9,loss=0.01,duplicate=0.02", &same), STATUS_OK);
    assert_int_equal(fault_parse("loss=0.01,duplicate=0.02,seed=10", &other), STATUS_OK);
    uint32_t differences = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        struct fault_verdict told = {.lose = false};
        uint32_t spared = fault_spares(&same, 7, &told);
        for (uint32_t k = 0; k < 7 && k <= spared; k++) {
            struct fault_verdict verdict = fault_decide(&one), others = fault_decide(&other);
            assert_int_equal(verdict.lose, k == spared && told.lose);
            assert_int_equal(verdict.duplicate, k == spared && told.duplicate);
            differences += verdict.lose != others.lose;
        }
    }
    assert_in_range(differences, 10, 1000);
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
        cmocka_unit_test(packets_are_lost_independently),
        cmocka_unit_test(the_seed_says_which),
        cmocka_unit_test(shim_loses_duplicates_reorders_and_corrupts),
        cmocka_unit_test(shim_does_so_to_single_packets_of_trains),
        cmocka_unit_test(trains_meet_what_their_packets_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
