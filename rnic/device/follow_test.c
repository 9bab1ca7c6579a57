/* Packets that are received in a row do what they do one by one. */
#include "rnic/device/pair_test.h"

static enum fate lose_some(struct pair *pair, int side, uint32_t number,
                           const struct packet *packet)
{
    (void)packet;
    uint32_t at = pair->knob == 0 || side != 0 ? 0 : number % pair->knob;
    return pair->knob == 0            ? FATE_DELIVER
           : at == pair->knob - 1     ? FATE_LOSE
           : at == pair->knob / 2     ? FATE_DUPLICATE
           : at == pair->knob / 3 + 1 ? FATE_DELAY
                                      : FATE_DELIVER;
}

/* Two messages, of which one ends in a receive of three pieces. */
static void exchange(struct pair *pair, uint32_t write_length, uint32_t send_length)
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    uint32_t at = 1u << 20;
    struct sge sges[3] = {pair_sge(b, at, 70001), pair_sge(b, at + 70001, 3),
                          pair_sge(b, at + 70004, 100000)};
    struct receive_request receive = {.id = 9, .sges = sges, .sge_count = 3};
    assert_int_equal(qp_post_receive(b->qp, &receive), STATUS_OK);
    pair_fill(a, 0, at + send_length, 7);
    memset(b->buffer, 0, at + send_length);
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, write_length);
    pair_post_simple(a, WORK_SEND, 2, at, 0, send_length);
    pair_run(pair);
}

static struct pair *run(bool apart, uint32_t knob, uint32_t send_length)
{
    struct pair *pair = pair_create(&pair_defaults);
    pair->apart = apart;
    pair->script = lose_some;
    pair->knob = knob;
    exchange(pair, 300000, send_length);
    return pair;
}

static void check_equal(struct pair *one, struct pair *other)
{
    assert_true(one->followed > 0);
    assert_int_equal(other->followed, 0);
    assert_string_equal(one->trace, other->trace);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(device_counters(one->sides[i].device),
                            device_counters(other->sides[i].device), sizeof(struct counters));
        assert_memory_equal(one->sides[i].buffer, other->sides[i].buffer, 2u << 20);
    }
}

static void rows_are_their_packets(void **state)
{
    (void)state;
    for (uint32_t knob = 0; knob < 200; knob += 23) {
        struct pair *pairs[2] = {run(false, knob, 150000), run(true, knob, 150000)};
        check_equal(pairs[0], pairs[1]);
        for (int i = 0; i < 2; i++) {
            struct pair_side *a = &pairs[i]->sides[0], *b = &pairs[i]->sides[1];
            (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
            (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
            (void)pair_expect(b->receives, 9, COMPLETION_SUCCESS);
            assert_memory_equal(a->buffer, b->buffer, 300000);
            assert_memory_equal(a->buffer + (1u << 20), b->buffer + (1u << 20), 150000);
            pair_destroy(pairs[i]);
        }
    }
}

/* The receive is full in the middle of a row. */
static void a_row_ends_with_what_fails(void **state)
{
    (void)state;
    struct pair *pairs[2] = {run(false, 0, 190000), run(true, 0, 190000)};
    check_equal(pairs[0], pairs[1]);
    for (int i = 0; i < 2; i++) {
        (void)pair_expect(pairs[i]->sides[0].sends, 1, COMPLETION_SUCCESS);
        (void)pair_expect(pairs[i]->sides[0].sends, 2, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
        (void)pair_expect(pairs[i]->sides[1].receives, 9, COMPLETION_LOCAL_LENGTH_ERROR);
        pair_destroy(pairs[i]);
    }
}

#define MTU 1024u /* of pair_defaults */

/* The peer sends one packet of a WRITE, in the row that goes on. */
static void arrive(struct pair *pair, struct follow *follow, enum opcode_form form, uint32_t number)
{
    struct pair_side *to = &pair->sides[1];
    struct packet packet = {
        .opcode = OPCODE(SERVICE_RC, form),
        .pkey = PKEY_DEFAULT,
        .destination = qp_number(to->qp),
        .psn = psn_make(pair_defaults.first_psn + number),
        .remote_address = PAIR_BUFFER_ADDRESS,
        .remote_key = to->key,
        .dma_length = 4 * MTU,
        .payload_length = MTU,
    };
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX];
    uint32_t length = packet_build(&packet, bytes);
    memset(bytes + length, (int)number + 1, MTU);
    length += MTU;
    if (follow_fits(follow, bytes, length)) {
        follow_receive(follow, bytes);
        pair->followed++;
    } else {
        struct arrival arrival = {.path = pair_path(1)};
        (void)device_receive_in_row(to->device, pair->now, &arrival, bytes, length, follow);
    }
}

/* Where its key grants more than the message says, too. */
static void a_row_brings_no_more_than_its_message(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *b = &pair->sides[1];
    struct follow follow = {.qp = NULL};
    memset(b->buffer, 0, 8 * MTU);
    arrive(pair, &follow, FORM_WRITE_FIRST, 0);
    for (uint32_t number = 1; number < 7; number++) {
        arrive(pair, &follow, FORM_WRITE_MIDDLE, number);
        assert_int_equal(qp_current_state(b->qp), number < 3 ? QP_RTS : QP_ERROR);
    }
    assert_int_equal(pair->followed, 2);
    for (uint32_t at = 0; at < 8 * MTU; at++) {
        assert_int_equal(b->buffer[at], at < 3 * MTU ? at / MTU + 1 : 0);
    }
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_their_packets),
        cmocka_unit_test(a_row_ends_with_what_fails),
        cmocka_unit_test(a_row_brings_no_more_than_its_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
