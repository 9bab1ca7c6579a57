/* Who is at work is noted, and who was at work next; nobody who is gone is written to. */
#include "rnic/transport/succession.h"

#include "rnic/device/pair_test.h"

#define OTHERS 3

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

static void who_follows_is_known_from_the_last_time(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *side = &pair->sides[0];
    struct qp *others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = create_another(side);
    }
    for (int i = 0; i < 2 * OTHERS; i++) {
        succession_goes_on(others[i % OTHERS], SUCCESSION_POSTS);
        succession_goes_on(others[i % OTHERS], SUCCESSION_POSTS);
    }
    for (int i = 0; i < OTHERS; i++) {
        assert_int_equal(others[i]->after[SUCCESSION_POSTS], (uintptr_t)others[(i + 1) % OTHERS]);
        assert_int_equal(others[i]->after[SUCCESSION_PACKETS], 0);
    }
    /* The address sanitizer looks on. */
    device_destroy_qp(side->device, others[OTHERS - 1]);
    assert_null(others[0]->environment->latest[SUCCESSION_POSTS]);
    succession_goes_on(others[OTHERS - 2], SUCCESSION_POSTS); /* whose follower is gone */
    succession_goes_on(others[0], SUCCESSION_POSTS);
    assert_int_equal(others[OTHERS - 2]->after[SUCCESSION_POSTS], (uintptr_t)others[0]);
    for (int i = 0; i < OTHERS - 1; i++) {
        device_destroy_qp(side->device, others[i]);
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
    assert_ptr_equal(a->qp->environment->latest[SUCCESSION_POSTS], a->qp);
    assert_ptr_equal(b->qp->environment->latest[SUCCESSION_PACKETS], b->qp);
    assert_null(a->qp->environment->latest[SUCCESSION_PACKETS]);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_follows_is_known_from_the_last_time),
        cmocka_unit_test(posts_and_packets_are_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
