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

/* The PSN is one of the peer's, which is that of a request of our own as it happens. */
static void what_is_said_of_a_response_fails_no_request(void **state)
{
    (void)state;
    struct trouble trouble;
    struct pair *pair = start(lose_all, &trouble);
    pair_post_simple(&pair->sides[1], WORK_READ, 2, 0, 0, 3000);
    pair_advance(pair);
    trouble.answers = trouble.certain = true;
    assert_ptr_equal(hear(pair, &trouble), pair->sides[0].qp);
    pair_expect_none(pair->sides[0].sends);
    trouble.certain = false;
    assert_ptr_equal(hear(pair, &trouble), pair->sides[0].qp);
    struct instant begun = pair->now;
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, 1, COMPLETION_RETRY_EXCEEDED);
    assert_int_equal(completion.detail, 0);
    assert_true(instant_elapsed_ns(begun, completion.time) >= 8 * TIMEOUT_NS);
    pair_destroy(pair);
}

static void post_packet(struct pair *pair, uint64_t id)
{
    struct datagram_target target = {
        .path = pair_path(0), .qpn = qp_number(pair->sides[1].qp), .qkey = {0x1234}};
    struct sge sge = pair_sge(&pair->sides[0], 0, 1024);
    struct send_request request = pair_request(&pair->sides[0], WORK_SEND, id, &sge, 0);
    request.target = &target;
    pair_post(&pair->sides[0], &request);
}

/* Of a service that nobody answers, with a packet of 1024 bytes sent: what ICMP says of it. */
static struct pair *start_unanswered(enum service service, struct trouble *ret_trouble)
{
    struct pair_options options = pair_defaults;
    options.service = service;
    struct pair *pair = pair_create(&options);
    pair->script = lose_all;
    post_packet(pair, 1);
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_SUCCESS);
    *ret_trouble = (struct trouble){
        .kind = TROUBLE_TOO_LONG,
        .mtu = 900,
        .remote = pair_gid(1),
        .source = service == SERVICE_UD ? qp_number(pair->sides[0].qp) : (struct qpn){0},
        .destination = qp_number(pair->sides[1].qp),
        .psn = psn_make(options.first_psn),
    };
    return pair;
}

static void check_unanswered(enum service service)
{
    struct trouble trouble;
    struct pair *pair = start_unanswered(service, &trouble);
    struct pair_side *a = &pair->sides[0];
    const uint32_t *events = &a->raised[EVENT_PATH_ERROR];
    struct trouble bad = trouble;
    bad.psn = psn_add(trouble.psn, 1); /* not sent yet */
    assert_null(hear(pair, &bad));
    bad = trouble;
    bad.mtu = 4200;
    assert_null(hear(pair, &bad));
    bad = trouble;
    bad.source.value++;
    assert_null(hear(pair, &bad));
    assert_int_equal(*events, 0);
    for (int i = 0; i < 3; i++) { /* once */
        assert_ptr_equal(hear(pair, &trouble), a->qp);
        assert_int_equal(*events, 1);
    }
    trouble.mtu = 800;
    assert_ptr_equal(hear(pair, &trouble), a->qp);
    assert_int_equal(*events, 2);
    assert_int_equal(qp_current_state(a->qp), QP_RTS); /* it may have been forged */
    trouble.kind = TROUBLE_REFUSED;
    assert_ptr_equal(hear(pair, &trouble), a->qp);
    assert_int_equal(*events, 2);
    pair_destroy(pair);
}

static void nobody_answers_but_the_path_has_an_event(void **state)
{
    (void)state;
    check_unanswered(SERVICE_UC);
    check_unanswered(SERVICE_UD);
}

static bool refuse_all(struct packet_sink *sink, const struct outgoing *outgoing)
{
    (void)sink;
    *outgoing->ret_takes = 900;
    return true;
}

/* The completion says it, and the same complaint of the link's is for the words only. */
static void check_refusal(enum service service)
{
    struct trouble trouble;
    struct pair *pair = start_unanswered(service, &trouble);
    struct pair_side *a = &pair->sides[0];
    a->sink.emit = refuse_all;
    post_packet(pair, 2);
    post_packet(pair, 3);
    pair_run(pair);
    assert_int_equal(pair_expect(a->sends, 2, COMPLETION_LOCAL_LENGTH_ERROR).detail, 900);
    assert_int_equal(pair_expect(a->sends, 3, COMPLETION_FLUSHED).detail, 0);
    assert_int_equal(qp_current_state(a->qp), QP_SQE);
    trouble.certain = true;
    trouble.psn = psn_add(trouble.psn, 1);
    assert_ptr_equal(hear(pair, &trouble), a->qp);
    assert_int_equal(a->raised[EVENT_PATH_ERROR], 0);
    pair_destroy(pair);
}

static void what_the_interface_refuses_fails(void **state)
{
    (void)state;
    check_refusal(SERVICE_UC);
    check_refusal(SERVICE_UD);
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
        cmocka_unit_test(what_is_said_of_a_response_fails_no_request),
        cmocka_unit_test(a_death_ends_what_is_outstanding),
        cmocka_unit_test(what_is_posted_after_a_death_fails),
        cmocka_unit_test(who_awaits_a_goodbye_fails_behind_it),
        cmocka_unit_test(nobody_answers_but_the_path_has_an_event),
        cmocka_unit_test(what_the_interface_refuses_fails),
        cmocka_unit_test(a_goodbye_without_a_death_ends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
