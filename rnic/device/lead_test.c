/* A report that leads: where the link joins packets, an acknowledgement is made as long as the
 * short request that follows it, once both ends are known to understand that. */
#include "rnic/device/pair_test.h"
#include "rnic/transport/request.h"
#include "rnic/transport/selective.h"

static struct pair *create(bool selective, uint32_t run_packets)
{
    struct pair_options options = pair_defaults;
    options.selective = selective;
    struct pair *pair = pair_create(&options);
    for (int i = 0; i < 2; i++) {
        pair->sides[i].sink.run_packets = run_packets;
        pair->sides[i].sink.run_bytes = 64000;
        pair->sides[i].sink.emit_train = train_emit_singly;
    }
    return pair;
}

static uint32_t reports_before; /* the answer, in this round */

static enum fate watch(struct pair *pair, int side, uint32_t number, const struct packet *packet)
{
    if (side == 1 && packet->info->operation == OPERATION_SEND) {
        pair->knob = pair->sides[1].reports - reports_before;
    }
    return FATE_DELIVER;
}

/* One message each way; the answer is posted, with no doorbell, before the message arrives, so that
 * it leaves with the acknowledgement. Returns how many reports left before the answer. */
static uint32_t play(struct pair *pair, uint32_t length)
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair->script = watch;
    reports_before = b->reports;
    pair_post_receive(a, 1, 0, 4096);
    pair_post_receive(b, 2, 0, 4096);
    pair_post_simple(a, WORK_SEND, 3, 8192, 0, 8);
    struct sge sge = pair_sge(b, 8192, length);
    struct send_request answer = pair_request(b, WORK_SEND, 4, &sge, 0);
    assert_int_equal(qp_post_send(b->qp, &answer), STATUS_OK);
    pair_run(pair);
    (void)pair_expect(b->receives, 2, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 3, COMPLETION_SUCCESS);
    (void)pair_expect(b->sends, 4, COMPLETION_SUCCESS);
    assert_int_equal(pair_expect(a->receives, 1, COMPLETION_SUCCESS).byte_length, length);
    return pair->knob;
}

static void a_report_is_as_long_as_what_it_leads(void **state)
{
    (void)state;
    struct pair *pair = create(true, 64);
    uint32_t first = 0;
    while (first <= SELECTIVE_SMALL_REASONS && play(pair, 8) == 0) {
        first++;
    }
    assert_in_range(first, SELECTIVE_SMALL_REASONS - 1, SELECTIVE_SMALL_REASONS); /* it asks */
    for (uint32_t length = 0; length <= REQUEST_SHORT; length += 5) {
        assert_int_equal(play(pair, length), 1);
        uint32_t request = BTH_LENGTH + length + packet_pad(length);
        assert_int_equal(pair->sides[1].report_length,
                         request < REPORT_LENGTH ? REPORT_LENGTH : request);
    }
    assert_int_equal(play(pair, REQUEST_SHORT + 1), 0); /* an ACK does */
    struct sge sge = pair_sge(&pair->sides[1], 8192, 8);
    struct send_request other = pair_request(&pair->sides[1], WORK_WRITE, 5, &sge, 0);
    other.signaled = false;
    assert_int_equal(qp_post_send(pair->sides[1].qp, &other), STATUS_OK);
    assert_int_equal(play(pair, 8), 0); /* two are joined with each other */
    assert_int_equal(play(pair, 8), 1);
    pair_destroy(pair);
}

static void nobody_asks_where_it_does_not_pay(void **state)
{
    (void)state;
    struct pair *alone = create(true, 0), *plain = create(false, 64);
    for (uint32_t i = 0; i < 3 * SELECTIVE_SMALL_REASONS; i++) {
        assert_int_equal(play(alone, 8), 0);
        assert_int_equal(play(plain, 8), 0);
    }
    pair_destroy(alone);
    pair_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_as_long_as_what_it_leads),
        cmocka_unit_test(nobody_asks_where_it_does_not_pay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
