/* What several queue pairs share: receives, the wire, the event sink. */
#include "rnic/device/extra_test.h"
#include "rnic/transport/qp_private.h"

#define REMOTE   2097152u
#define QP_COUNT 3

static void a_shared_receive_queue_serves_many(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct receive_queue *shared;
    assert_int_equal(receive_queue_create(heap_allocator(), 8, 2, &shared), STATUS_OK);
    struct qp *here[QP_COUNT], *there[QP_COUNT];
    for (int i = 0; i < QP_COUNT; i++) {
        here[i] = create_extra(a, NULL);
        there[i] = create_extra(b, shared);
        connect_extra(pair, here[i], there[i]);
        struct receive_request refused = {.id = 1};
        assert_int_equal(qp_post_receive(there[i], &refused), STATUS_INVALID);
    }
    for (uint64_t id = 0; id < 7; id++) {
        struct sge sge = pair_sge(b, REMOTE + (uint32_t)id * 5000, 5000);
        struct receive_request request = {.id = id, .sges = &sge, .sge_count = 1};
        assert_int_equal(receive_queue_post(shared, &request), STATUS_OK);
    }
    for (uint64_t id = 0; id < 6; id++) {
        post_on(a, here[id % QP_COUNT], WORK_SEND, id, REMOTE, 5000);
    }
    pair_run(pair);
    struct completion completions[8];
    assert_int_equal(completion_queue_poll(b->receives, 8, completions), 6);
    uint32_t per_qp[QP_COUNT] = {0};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(completions[i].status, COMPLETION_SUCCESS);
        for (int k = 0; k < QP_COUNT; k++) {
            per_qp[k] += qpn_equal(completions[i].qpn, qp_number(there[k]));
        }
    }
    for (int k = 0; k < QP_COUNT; k++) {
        assert_int_equal(per_qp[k], 2);
    }
    /* An error takes no receive with it that others may use. */
    struct qp_attributes attributes = {.state = QP_ERROR};
    assert_int_equal(
        device_modify_qp(b->device, pair->now, there[0], &attributes, QP_SET_STATE, NULL),
        STATUS_OK);
    assert_int_equal(b->raised[EVENT_QP_LAST_RECEIVE_REACHED], 1);
    pair_expect_none(b->receives);
    assert_int_equal(receive_queue_depth(shared), 1);
    for (int i = 0; i < QP_COUNT; i++) {
        device_destroy_qp(a->device, here[i]);
        device_destroy_qp(b->device, there[i]);
    }
    receive_queue_destroy(shared);
    pair_destroy(pair);
}

/* A long message does not keep short ones of another queue pair waiting. */
static void turns_are_fair(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct qp *here = create_extra(a, NULL), *there = create_extra(b, NULL);
    connect_extra(pair, here, there);
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 1000000);
    post_on(a, here, WORK_WRITE, 2, REMOTE, 1000);
    pair_run(pair);
    (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    device_destroy_qp(a->device, here);
    device_destroy_qp(b->device, there);
    pair_destroy(pair);
}

/* Answers that never end: the peer reads and reads, and the sink takes few packets at a time. */
static void answers_do_not_starve_requests(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_simple(a, WORK_WRITE, 999, 0, REMOTE, 262144);
    uint64_t posted = 0, done = 0;
    struct completion completion;
    bool written = false;
    for (uint32_t tick = 0; tick < 3000 && !written; tick++) {
        for (; posted - done < 8; posted++) {
            pair_post_simple(b, WORK_READ, posted, 0, 0, 262144);
        }
        pair->now.ns += 10000;
        pair_deliver(a);
        pair_deliver(b);
        a->sink_room = b->sink_room = 1 + tick % 32;
        (void)device_advance(a->device, pair->now, 256);
        (void)device_advance(b->device, pair->now, 256);
        done += completion_queue_poll(b->sends, 1, &completion);
        written = completion_queue_poll(a->sends, 1, &completion) == 1;
    }
    assert_true(written);
    assert_int_equal(completion.status, COMPLETION_SUCCESS);
    assert_true(a->sent > 256 + 128); /* nor did requests starve answers */
    pair_destroy(pair);
}

/* Buffers of a shared queue are in the queue's domain, whatever that of the queue pair is. */
static void shared_receives_have_their_own_domain(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct receive_queue *shared;
    assert_int_equal(receive_queue_create(heap_allocator(), 8, 2, &shared), STATUS_OK);
    struct domain other;
    assert_int_equal(memory_allocate_domain(device_memory(b->device), &other), STATUS_OK);
    for (uint32_t known = 0; known < 2; known++) {
        struct qp_init init = {
            .service = SERVICE_RC,
            .domain = other,
            .send_completions = b->sends,
            .receive_completions = b->receives,
            .shared_receives = shared,
            .shared_domain = {known ? b->domain.value : 0},
        };
        struct qp *there, *here = create_extra(a, NULL);
        assert_int_equal(device_create_qp(b->device, &init, &there), STATUS_OK);
        connect_extra(pair, here, there);
        struct sge sge = pair_sge(b, REMOTE, 100);
        struct receive_request request = {.id = known, .sges = &sge, .sge_count = 1};
        assert_int_equal(receive_queue_post(shared, &request), STATUS_OK);
        post_on(a, here, WORK_SEND, known, REMOTE, 100);
        pair_run(pair);
        (void)pair_expect(b->receives, known,
                          known ? COMPLETION_SUCCESS : COMPLETION_LOCAL_PROTECTION_ERROR);
        device_destroy_qp(a->device, here);
        device_destroy_qp(b->device, there);
    }
    assert_int_equal(memory_free_domain(device_memory(b->device), other), STATUS_OK);
    receive_queue_destroy(shared);
    pair_destroy(pair);
}

static void the_first_request_before_rts_is_told_once(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct qp_attributes attributes = {
        .state = QP_RESET,
        .path = pair_path(1),
        .path_mtu = pair_defaults.mtu,
        .destination = qp_number(a->qp),
        .receive_psn = psn_make(pair_defaults.first_psn),
        .access = pair_defaults.access,
        .max_reads_in = 1,
        .port = 1,
    };
    assert_int_equal(qp_modify(b->qp, &attributes, QP_SET_STATE, NULL), STATUS_OK);
    attributes.state = QP_INIT;
    assert_int_equal(qp_modify(b->qp, &attributes,
                               QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS,
                               NULL),
                     STATUS_OK);
    attributes.state = QP_RTR;
    assert_int_equal(qp_modify(b->qp, &attributes,
                               QP_SET_STATE | QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION |
                                   QP_SET_RECEIVE_PSN | QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER,
                               NULL),
                     STATUS_OK);
    struct send_request early = {.id = 1, .kind = WORK_WRITE};
    assert_int_equal(qp_post_send(b->qp, &early), STATUS_STATE);
    /* A request out of sequence does not prove that the peer is there. */
    struct packet stray = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                           .pkey = PKEY_DEFAULT,
                           .destination = qp_number(b->qp),
                           .psn = psn_add(attributes.receive_psn, 0x200000)};
    uint8_t bytes[PACKET_HEADER_MAX];
    struct arrival arrival = {.path = pair_path(1)};
    device_receive(b->device, pair->now, &arrival, bytes, packet_build(&stray, bytes));
    assert_int_equal(b->raised[EVENT_COMMUNICATION_ESTABLISHED], 0);
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 5000);
    pair_post_simple(a, WORK_READ, 2, 0, REMOTE, 5000);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
    assert_int_equal(b->raised[EVENT_COMMUNICATION_ESTABLISHED], 1);
    pair_destroy(pair);
}

static void values_out_of_range_are_named(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    struct qp *qp = create_extra(a, NULL);
    struct qp_attributes attributes = {.state = QP_INIT, .port = 0};
    unsigned offending = 0;
    unsigned mask = QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS;
    assert_int_equal(qp_modify(qp, &attributes, mask, &offending), STATUS_INVALID);
    assert_int_equal(offending, QP_SET_PORT);
    assert_int_equal(qp_current_state(qp), QP_RESET);
    attributes.port = 1;
    assert_int_equal(qp_modify(qp, &attributes, mask, &offending), STATUS_OK);
    attributes.current_state = QP_RTS;
    assert_int_equal(qp_modify(qp, &attributes, QP_SET_STATE | QP_SET_CURRENT_STATE, &offending),
                     STATUS_INVALID);
    assert_int_equal(offending, QP_SET_STATE | QP_SET_CURRENT_STATE);
    device_destroy_qp(a->device, qp);
    pair_destroy(pair);
}

/* The sending half of an unreliable queue pair fails, the receiving half goes on. */
static void an_unreliable_send_error_can_be_recovered_from(void **state)
{
    struct pair_options options = pair_defaults;
    options.service = SERVICE_UC;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge sge = pair_sge(a, 0, 100);
    sge.key.value ^= 1;
    struct send_request bad = pair_request(a, WORK_SEND, 1, &sge, 0);
    pair_post(a, &bad);
    pair_post_simple(a, WORK_SEND, 2, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_LOCAL_PROTECTION_ERROR);
    (void)pair_expect(a->sends, 2, COMPLETION_FLUSHED);
    assert_int_equal(qp_current_state(a->qp), QP_SQE);
    pair_post_simple(a, WORK_SEND, 3, 0, 0, 100);
    pair_post_receive(a, 1, 0, 100);
    pair_post_simple(b, WORK_SEND, 1, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 3, COMPLETION_FLUSHED);
    (void)pair_expect(a->receives, 1, COMPLETION_SUCCESS);
    struct qp_attributes attributes = {.state = QP_RTS};
    assert_int_equal(qp_modify(a->qp, &attributes, QP_SET_STATE, NULL), STATUS_OK);
    pair_post_receive(b, 5, 0, 100);
    pair_post_simple(a, WORK_SEND, 4, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 4, COMPLETION_SUCCESS);
    (void)pair_expect(b->receives, 5, COMPLETION_SUCCESS);
    pair_destroy(pair);
}

/* Each of many queue pairs has asked for one thing: their timers do not all go off for nothing. */
static void what_is_answered_needs_no_timer(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct qp *here[QP_COUNT], *there[QP_COUNT];
    struct completion completions[QP_COUNT];
    uint32_t done = 0, set = 0;
    for (int i = 0; i < QP_COUNT; i++) {
        here[i] = create_extra(a, NULL);
        there[i] = create_extra(b, NULL);
        connect_extra(pair, here[i], there[i]);
        post_on(a, here[i], WORK_WRITE, (uint64_t)i, REMOTE, 100);
    }
    (void)device_advance(a->device, pair->now, 64);
    for (int i = 0; i < QP_COUNT; i++) {
        assert_true(timer_is_set(&here[i]->timer));
    }
    while (done < QP_COUNT) {
        assert_true(pair_step(pair));
        done += completion_queue_poll(a->sends, QP_COUNT, completions);
    }
    for (int i = 0; i < QP_COUNT; i++) {
        set += timer_is_set(&here[i]->timer);
    }
    assert_in_range(set, 0, 1);
    pair_run(pair);
    for (int i = 0; i < QP_COUNT; i++) {
        device_destroy_qp(a->device, here[i]);
        device_destroy_qp(b->device, there[i]);
    }
    pair_destroy(pair);
}

static enum fate lose_to_first(struct pair *pair, int side, uint32_t number,
                               const struct packet *packet)
{
    bool first = qpn_equal(packet->destination, qp_number(pair->sides[1].qp));
    return side == 0 && first && number < 2 ? FATE_LOSE : FATE_DELIVER;
}

/* Nothing is unanswered, but the timer is for something else: the peer has no receive yet. */
static void a_timer_with_another_use_stays(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct qp *here = create_extra(a, NULL), *there = create_extra(b, NULL);
    connect_extra(pair, here, there);
    pair->script = lose_to_first;
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 100); /* its timer is set, too */
    post_on(a, here, WORK_SEND, 2, REMOTE, 100);
    while (instant_is_never(here->requester.rnr_resume)) {
        assert_true(pair_step(pair));
    }
    assert_true(timer_is_set(&a->qp->timer));
    assert_true(timer_is_set(&here->timer));
    struct sge sge = pair_sge(b, 0, 100);
    struct receive_request receive = {.id = 3, .sges = &sge, .sge_count = 1};
    assert_int_equal(qp_post_receive(there, &receive), STATUS_OK);
    pair_run(pair);
    struct completion completions[3];
    assert_int_equal(completion_queue_poll(a->sends, 3, completions), 2);
    assert_int_equal(completions[0].status, COMPLETION_SUCCESS);
    assert_int_equal(completions[1].status, COMPLETION_SUCCESS);
    device_destroy_qp(a->device, here);
    device_destroy_qp(b->device, there);
    pair_destroy(pair);
}

/* Who posts does not wait for what other queue pairs owe. */
static void a_request_goes_before_others_answers(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct qp *here = create_extra(a, NULL), *there = create_extra(b, NULL);
    connect_extra(pair, here, there);
    pair_post_receive(a, 1, 0, 100);
    pair_post_simple(b, WORK_SEND, 2, 0, 0, 100);
    (void)device_advance(b->device, pair->now, 64);
    pair->now = b->flight[0].due;
    pair_deliver(b);
    (void)pair_expect(a->receives, 1, COMPLETION_SUCCESS);
    assert_int_equal(a->flight_count, 0); /* the acknowledgement has not left */

    here->peer_is_near = true;
    struct sge sge = pair_sge(a, 0, 8);
    struct send_request request = pair_request(a, WORK_SEND, 3, &sge, 0);
    assert_int_equal(qp_post_send(here, &request), STATUS_OK);
    assert_true(device_advance_one(a->device, pair->now, false, here));
    assert_int_equal(a->flight_count, 1);
    assert_int_equal(bytes_load_u24(a->flight[0].bytes + 5), qp_number(there).value);
    struct receive_request receive = {.id = 4};
    assert_int_equal(qp_post_receive(there, &receive), STATUS_OK);
    pair_run(pair);
    (void)pair_expect(b->sends, 2, COMPLETION_SUCCESS);
    device_destroy_qp(a->device, here);
    device_destroy_qp(b->device, there);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_receive_queue_serves_many),
        cmocka_unit_test(turns_are_fair),
        cmocka_unit_test(answers_do_not_starve_requests),
        cmocka_unit_test(shared_receives_have_their_own_domain),
        cmocka_unit_test(the_first_request_before_rts_is_told_once),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(an_unreliable_send_error_can_be_recovered_from),
        cmocka_unit_test(what_is_answered_needs_no_timer),
        cmocka_unit_test(a_timer_with_another_use_stays),
        cmocka_unit_test(a_request_goes_before_others_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
