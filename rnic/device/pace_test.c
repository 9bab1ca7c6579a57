/* READs of requesters that ask for all at once, as ours never does. */
#include "rnic/device/pair_test.h"

#define LENGTH  (1u << 20)
#define PACKETS (LENGTH / 1024)

/* Asks side 1 for all from packet `first` of the buffer on. */
static void ask(struct pair *pair, uint32_t first)
{
    struct pair_side *b = &pair->sides[1];
    struct packet packet = {
        .opcode = OPCODE(SERVICE_RC, FORM_READ_REQUEST),
        .pkey = PKEY_DEFAULT,
        .destination = qp_number(b->qp),
        .psn = psn_make(pair_defaults.first_psn + first),
        .remote_address = PAIR_BUFFER_ADDRESS + first * 1024,
        .remote_key = b->key,
        .dma_length = LENGTH - first * 1024,
    };
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = pair_path(1)};
    device_receive(b->device, pair->now, &arrival, bytes, length);
}

static uint64_t run(struct pair *pair)
{
    struct instant start = pair->now;
    pair_run(pair);
    return instant_elapsed_ns(start, pair->now);
}

static void a_long_read_does_not_flood(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&pair_defaults);
    const struct pair_side *b = &pair->sides[1];
    ask(pair, 0);
    pair_advance(pair);
    assert_in_range(b->sent, 1, PACKETS / 16);
    uint64_t first_ns = run(pair);
    assert_int_equal(b->sent, PACKETS);

    /* Half of it was lost: the repetition is slower. */
    ask(pair, PACKETS / 2);
    uint64_t second_ns = run(pair);
    assert_int_equal(b->sent, PACKETS + PACKETS / 2);
    assert_in_range(first_ns, 1000000, 10000000);
    assert_in_range(second_ns, first_ns * 3 / 4, first_ns * 3 / 2);
    pair_destroy(pair);
}

/* The wait ends with the queue pair that it was for. */
static void in_error_nothing_leaves(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&pair_defaults);
    const struct pair_side *b = &pair->sides[1];
    ask(pair, 0);
    pair_advance(pair);
    uint32_t sent = b->sent;
    struct qp_attributes error = {.state = QP_ERROR};
    assert_int_equal(device_modify_qp(b->device, pair->now, b->qp, &error, QP_SET_STATE, NULL),
                     STATUS_OK);
    pair_run(pair);
    assert_int_equal(b->sent, sent);
    assert_true(instant_is_never(device_next_deadline(b->device)));
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_read_does_not_flood),
        cmocka_unit_test(in_error_nothing_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
