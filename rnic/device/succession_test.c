/* Who is at work is noted, and who was at work next; nobody who is gone is written to. */
#include "rnic/transport/succession.h"

#include "rnic/device/pair_test.h"

#define OTHERS (SUCCESSION_AHEAD + 2)

static struct qp *create_another(struct pair_side *side)
{
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = side->domain,
        .send_completions = side->sends,
        .receive_completions = side->receives,
        .send = {.capacity = 1, .max_sge = 1},
        .max_receive = 1,
        .max_receive_sge = 1,
    };
    struct qp *qp;
    assert_int_equal(device_create_qp(side->device, &init, &qp), STATUS_OK);
    return qp;
}

static void who_comes_soon_is_known_from_the_last_time(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *side = &pair->sides[0];
    struct qp *others[OTHERS];
    for (uint32_t i = 0; i < OTHERS; i++) {
        others[i] = create_another(side);
    }
    for (uint32_t i = 0; i < 2 * OTHERS; i++) {
        succession_goes_on(others[i % OTHERS], SUCCESSION_POSTS);
        succession_goes_on(others[i % OTHERS], SUCCESSION_POSTS);
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        assert_int_equal(others[i]->after[SUCCESSION_POSTS],
                         (uintptr_t)others[(i + SUCCESSION_AHEAD) % OTHERS]);
        assert_int_equal(others[i]->after[SUCCESSION_PACKETS], 0);
    }
    /* The address sanitizer looks on. Of the latest ones the first and the last go. */
    uint32_t gone = OTHERS - SUCCESSION_AHEAD;
    struct qp **latest = others[0]->environment->latest[SUCCESSION_POSTS];
    device_destroy_qp(side->device, others[OTHERS - 1]);
    device_destroy_qp(side->device, others[gone]);
    assert_null(latest[0]);
    assert_null(latest[SUCCESSION_AHEAD - 1]);
    for (uint32_t i = 0; i < SUCCESSION_AHEAD; i++) {
        succession_goes_on(others[i % 2], SUCCESSION_POSTS); /* some of whose followers are gone */
    }
    assert_int_equal(others[gone + 1]->after[SUCCESSION_POSTS], (uintptr_t)others[1]);
    for (uint32_t i = 0; i < OTHERS - 1; i++) {
        if (i != gone) {
            device_destroy_qp(side->device, others[i]);
        }
    }
    pair_destroy(pair);
}

static void posts_and_packets_are_noted(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge sge = pair_sge(a, 0, 8);
    struct send_request request = pair_request(a, WORK_SEND, 1, &sge, 0);
    pair_post_receive(b, 2, 0, 8);
    assert_int_equal(qp_post_send(a->qp, &request), STATUS_OK);
    (void)device_advance_one(a->device, pair->now, false, a->qp);
    pair_run(pair);
    pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    pair_expect(b->receives, 2, COMPLETION_SUCCESS);
    assert_ptr_equal(a->qp->environment->latest[SUCCESSION_POSTS][0], a->qp);
    assert_ptr_equal(b->qp->environment->latest[SUCCESSION_PACKETS][0], b->qp);
    assert_null(a->qp->environment->latest[SUCCESSION_PACKETS][0]);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_soon_is_known_from_the_last_time),
        cmocka_unit_test(posts_and_packets_are_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
