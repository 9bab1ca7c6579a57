/* Links within a host: a request brings the acknowledgement that is owed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

static int start(void **state)
{
    const bool *carries = *state;
    struct link_config link = {.delay_ns = 1000, .carries = *carries};
    scenario_start(&s);
    network_set_links(&s.network, &link);
    scenario_connect(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

/* A's request is there, and B's answer posted, before B's engine runs again. */
static void ask_and_answer(void)
{
    scenario_receive(&s.a, 11, 64);
    scenario_receive(&s.b, 12, 64);
    scenario_post(&s.a, (struct work){.kind = WORK_SEND, .id = 1, .length = 64});
    scenario_run_for(&s, 1);
    scenario_post(&s.b, (struct work){.kind = WORK_SEND, .id = 2, .length = 64});
    scenario_run(&s);
}

static void an_answer_brings_the_acknowledgement(void **state)
{
    (void)state;
    ask_and_answer();
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "B>A SEND_ONLY psn=100 acknowledges=7\n"
                     "B receive 12 success length=64\n"
                     "A>B ACK psn=100\n"
                     "A send 1 success\n"
                     "A receive 11 success length=64\n"
                     "B send 2 success\n");
}

static void by_other_links_it_goes_alone(void **state)
{
    (void)state;
    ask_and_answer();
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "B receive 12 success length=64\n"
                     "B>A SEND_ONLY psn=100\n"
                     "A>B ACK psn=100\n"
                     "A send 1 success\n"
                     "A receive 11 success length=64\n"
                     "B send 2 success\n");
}

/* What is lost is lost with what it brought; each repeats its own. */
static void it_may_be_lost(void **state)
{
    (void)state;
    scenario_lose(&s, "B>A SEND_ONLY");
    ask_and_answer();
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "B>A SEND_ONLY psn=100 acknowledges=7 lost\n"
                     "B receive 12 success length=64\n"
                     "A>B SEND_ONLY psn=7\n"
                     "B>A SEND_ONLY psn=100\n"
                     "B>A ACK psn=7\n"
                     "A>B ACK psn=100\n"
                     "A receive 11 success length=64\n"
                     "A send 1 success\n"
                     "B send 2 success\n");
}

/* B's answer waits for a receive of A's, which has none; what B owes then does not. */
static void who_must_wait_acknowledges_alone(void **state)
{
    (void)state;
    scenario_receive(&s.b, 12, 64);
    scenario_post(&s.b, (struct work){.kind = WORK_SEND, .id = 2, .length = 64});
    scenario_run_for(&s, 5);
    scenario_post(&s.a, (struct work){.kind = WORK_SEND, .id = 1, .length = 64});
    scenario_run_for(&s, 10);
    scenario_receive(&s.a, 11, 64);
    scenario_run(&s);
    expect_trace(&s, "B>A SEND_ONLY psn=100\n"
                     "A>B RNR_NAK psn=100\n"
                     "A>B SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "B receive 12 success length=64\n"
                     "B>A SEND_ONLY psn=100\n"
                     "A>B RNR_NAK psn=100\n"
                     "A send 1 success\n"
                     "B>A SEND_ONLY psn=100\n"
                     "A>B ACK psn=100\n"
                     "A receive 11 success length=64\n"
                     "B send 2 success\n");
}

int main(void)
{
    static bool near = true, far = false;
#define NEAR(test) cmocka_unit_test_prestate_setup_teardown(test, start, stop, &near)
    const struct CMUnitTest tests[] = {
        NEAR(an_answer_brings_the_acknowledgement),
        NEAR(it_may_be_lost),
        NEAR(who_must_wait_acknowledges_alone),
        cmocka_unit_test_prestate_setup_teardown(by_other_links_it_goes_alone, start, stop, &far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
