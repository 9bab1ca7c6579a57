/* What a stranger, or a peer that lies, says in packets that look right. */
#include "rnic/device/pair_test.h"
#include "rnic/transport/qp_private.h"

#define REMOTE 2097152u

static enum fate lose_all(struct pair *pair, int side, uint32_t number, const struct packet *packet)
{
    return FATE_LOSE;
}

static void deliver_forged(struct pair_side *to, struct packet *packet, int from)
{
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(packet, bytes);
    struct arrival arrival = {.path = pair_path(to->index)};
    arrival.path.remote = pair_gid(from);
    device_receive(to->device, to->pair->now, &arrival, bytes, length);
}

/* Each draws one count and nothing else. */
static void what_does_not_belong_is_refused(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    const uint64_t *refused = device_counters(a->device)->refused;
    struct packet ack = {
        .opcode = OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE),
        .pkey = PKEY_DEFAULT,
        .destination = qp_number(a->qp),
        .psn = psn_make(pair_defaults.first_psn),
    };
    pair->script = lose_all;
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 100);
    pair_advance(pair);

    deliver_forged(a, &ack, 5);
    assert_int_equal(refused[REFUSED_ADDRESS], 1);
    ack.pkey.value = 0x7abc;
    deliver_forged(a, &ack, 1);
    assert_int_equal(refused[REFUSED_PKEY], 1);
    ack.pkey = PKEY_DEFAULT;
    ack.psn = psn_next(ack.psn); /* not sent yet: a ghost */
    deliver_forged(a, &ack, 1);
    ack.psn = psn_add(ack.psn, PSN_MASK - 1);
    deliver_forged(a, &ack, 1);
    assert_int_equal(refused[REFUSED_PSN], 2);
    ack.psn = psn_make(pair_defaults.first_psn);
    ack.opcode = OPCODE(SERVICE_RC, FORM_READ_RESPONSE_ONLY);
    deliver_forged(a, &ack, 1);
    ack.opcode = OPCODE(SERVICE_RC, FORM_ATOMIC_ACKNOWLEDGE);
    deliver_forged(a, &ack, 1);
    assert_int_equal(refused[REFUSED_SEQUENCE], 2);
    ack.opcode = OPCODE(SERVICE_UC, FORM_WRITE_ONLY);
    deliver_forged(a, &ack, 1);
    assert_int_equal(refused[REFUSED_SERVICE], 1);
    ack.destination.value = 0xabcdef;
    deliver_forged(a, &ack, 1);
    assert_int_equal(refused[REFUSED_NO_QP], 1);
    pair_expect_none(a->sends);

    pair->script = NULL;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_int_equal(qp_current_state(b->qp), QP_RTS);
    pair_destroy(pair);
}

/* A NAK during the wait for another is of a copy, and no retry; of copies that never were there are
 * no more than some. */
static void rnr_naks_without_end_come_to_an_end(void **state)
{
    (void)state;
    struct pair_options options = pair_defaults;
    options.rnr_retry_count = 1;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0];
    struct packet nak = {
        .opcode = OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE),
        .pkey = PKEY_DEFAULT,
        .destination = qp_number(a->qp),
        .psn = psn_make(pair_defaults.first_psn),
        .aeth = {.kind = AETH_RNR_NAK, .value = 1},
    };
    pair->script = lose_all;
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 100);
    pair_advance(pair);
    for (uint32_t i = 0; i < 100 && qp_current_state(a->qp) == QP_RTS; i++) {
        deliver_forged(a, &nak, 1);
        pair->now.ns += 5000;
        (void)device_advance(a->device, pair->now, 64);
    }
    (void)pair_expect(a->sends, 1, COMPLETION_RNR_RETRY_EXCEEDED);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_belong_is_refused),
        cmocka_unit_test(rnr_naks_without_end_come_to_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
