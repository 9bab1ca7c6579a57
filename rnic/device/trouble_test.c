/* Packets that did not get through: what is heard of them, and what is not believed. */
#include "rnic/device/pair_test.h"

#define TIMEOUT_NS (UINT64_C(4096) << 14)

static enum fate lose_all(struct pair *pair, int side, uint32_t number, const struct packet *packet)
{
    (void)pair;
    (void)number;
    (void)packet;
    return side == 0 ? FATE_LOSE : FATE_DELIVER;
}

/* A, whose WRITE of three packets of 1024 bytes is on its way, and an ICMP message that quotes the
 * first of them. */
static struct pair *start(pair_script *script, struct trouble *ret_trouble)
{
    struct pair *pair = pair_create(&pair_defaults);
    pair->script = script;
    pair_post_simple(&pair->sides[0], WORK_WRITE, 1, 0, 0, 3000);
    pair_advance(pair);
    *ret_trouble = (struct trouble){
        .kind = TROUBLE_TOO_LONG,
        .mtu = 576,
        .remote = pair_gid(1),
        .destination = qp_number(pair->sides[1].qp),
        .psn = psn_make(pair_defaults.first_psn),
    };
    return pair;
}

static const struct qp *hear(struct pair *pair, const struct trouble *trouble)
{
    return device_hear(pair->sides[0].device, pair->now, trouble);
}

static void too_long_fails_at_the_first_timeout(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(lose_all, &trouble);
    struct instant begun = pair->now;
    assert_ptr_equal(hear(pair, &trouble), pair->sides[0].qp);
    assert_int_equal(qp_current_state(pair->sides[0].qp), QP_RTS);
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, 1, COMPLETION_RETRY_EXCEEDED);
    assert_int_equal(completion.detail, 576);
    assert_true(instant_elapsed_ns(begun, completion.time) <= TIMEOUT_NS);
    assert_int_equal(pair->sides[0].sent, 3); /* and nothing again */
    pair_destroy(pair);
}

static void our_own_interface_is_believed_at_once(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(lose_all, &trouble);
    trouble.certain = true;
    assert_ptr_equal(hear(pair, &trouble), pair->sides[0].qp);
    assert_int_equal(pair_expect(pair->sides[0].sends, 1, COMPLETION_RETRY_EXCEEDED).detail, 576);
    assert_int_equal(qp_current_state(pair->sides[0].qp), QP_ERROR);
    pair_destroy(pair);
}

/* The answer proves that they fit: a forger knew the PSN. Later losses are ordinary ones. */
static void an_answer_proves_it_wrong(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(NULL, &trouble);
    assert_non_null(hear(pair, &trouble));
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_SUCCESS);
    pair->script = lose_all;
    pair_post_simple(&pair->sides[0], WORK_WRITE, 2, 0, 0, 3000);
    struct instant begun = pair->now;
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, 2, COMPLETION_RETRY_EXCEEDED);
    assert_int_equal(completion.detail, 0);
    assert_true(instant_elapsed_ns(begun, completion.time) >= 8 * TIMEOUT_NS);
    pair_destroy(pair);
}

static void what_cannot_be_is_not_heard(void **state)
{
    (void)state;
    struct trouble good;
    struct pair *pair = start(lose_all, &good);
    struct trouble bad = good;
    bad.remote.bytes[15]++;
    assert_null(hear(pair, &bad));
    bad = good;
    bad.destination.value++;
    assert_null(hear(pair, &bad));
    bad = good;
    bad.psn = psn_add(good.psn, 2000); /* not sent yet */
    assert_null(hear(pair, &bad));
    bad = good;
    bad.mtu = 1500; /* packets of 1024 bytes fit */
    assert_null(hear(pair, &bad));
    struct instant begun = pair->now;
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, 1, COMPLETION_RETRY_EXCEEDED);
    assert_int_equal(completion.detail, 0);
    assert_true(instant_elapsed_ns(begun, completion.time) >= 8 * TIMEOUT_NS);
    pair_destroy(pair);
}

/* Told of an old packet, or that nobody is there: said to whom it belongs, and nothing changes. */
static void old_news_and_refusals_change_nothing(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(NULL, &trouble);
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_SUCCESS);
    assert_ptr_equal(hear(pair, &trouble), pair->sides[0].qp);
    pair_post_simple(&pair->sides[0], WORK_WRITE, 2, 0, 0, 100);
    pair_advance(pair);
    trouble.kind = TROUBLE_REFUSED;
    trouble.psn = psn_add(trouble.psn, 3);
    assert_ptr_equal(hear(pair, &trouble), pair->sides[0].qp);
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 2, COMPLETION_SUCCESS);
    pair_destroy(pair);
}

static bool is_of_everybody(struct device_death *death, const struct path *path,
                            struct qpn destination)
{
    (void)death;
    struct gid dead = pair_gid(1);
    return gid_equal(&path->remote, &dead) && destination.value != 0;
}

static void mourn(struct pair *pair)
{
    struct device_death death = {is_of_everybody};
    device_mourn(pair->sides[0].device, pair->now, &death);
}

static void a_death_ends_what_is_outstanding(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(lose_all, &trouble);
    pair_post_simple(&pair->sides[0], WORK_WRITE, 2, 0, 0, 100);
    mourn(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_RETRY_EXCEEDED);
    (void)pair_expect(pair->sides[0].sends, 2, COMPLETION_FLUSHED);
    assert_int_equal(qp_current_state(pair->sides[0].qp), QP_ERROR);
    assert_int_equal(device_counters(pair->sides[0].device)->values[COUNTER_PEERS_DIED], 1);
    pair_destroy(pair);
}

static void what_is_posted_after_a_death_fails(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(NULL, &trouble);
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_SUCCESS);
    mourn(pair);
    assert_int_equal(qp_current_state(pair->sides[0].qp), QP_RTS);
    uint32_t sent = pair->sides[0].sent;
    struct instant begun = pair->now;
    pair_post_simple(&pair->sides[0], WORK_WRITE, 2, 0, 0, 100);
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, 2, COMPLETION_RETRY_EXCEEDED);
    assert_int_equal(instant_elapsed_ns(begun, completion.time), 0);
    assert_int_equal(pair->sides[0].sent, sent);
    pair_destroy(pair);
}

/* Else the failure would overtake what cm has to say. */
static void who_awaits_a_goodbye_fails_behind_it(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(lose_all, &trouble);
    device_await_goodbye(pair->sides[0].device, qp_number(pair->sides[0].qp));
    mourn(pair);
    pair_advance(pair);
    pair_expect_none(pair->sides[0].sends);
    struct instant begun = pair->now;
    device_say_goodbye(pair->sides[0].device, qp_number(pair->sides[0].qp));
    pair_expect_none(pair->sides[0].sends);
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, 1, COMPLETION_RETRY_EXCEEDED);
    assert_int_equal(instant_elapsed_ns(begun, completion.time), 200000000);
    pair_destroy(pair);
}

static void a_goodbye_without_a_death_ends_nothing(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(NULL, &trouble);
    device_await_goodbye(pair->sides[0].device, qp_number(pair->sides[0].qp));
    device_say_goodbye(pair->sides[0].device, qp_number(pair->sides[0].qp));
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_SUCCESS);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_long_fails_at_the_first_timeout),
        cmocka_unit_test(our_own_interface_is_believed_at_once),
        cmocka_unit_test(an_answer_proves_it_wrong),
        cmocka_unit_test(what_cannot_be_is_not_heard),
        cmocka_unit_test(old_news_and_refusals_change_nothing),
        cmocka_unit_test(a_death_ends_what_is_outstanding),
        cmocka_unit_test(what_is_posted_after_a_death_fails),
        cmocka_unit_test(who_awaits_a_goodbye_fails_behind_it),
        cmocka_unit_test(a_goodbye_without_a_death_ends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
