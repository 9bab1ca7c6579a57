/* Service id resolution: SIDR_REQ, SIDR_REP and their loss, repetition and refusal. [IBA 12.11] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;
static struct cm_event latest;

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

#define SERVICE UINT64_C(0x1114242)

static void watch(struct scenario *scenario, struct party *party, const struct cm_event *event)
{
    (void)scenario;
    (void)party;
    latest = *event;
}

static void answer(struct scenario *scenario, struct party *party, const struct cm_event *event)
{
    watch(scenario, party, event);
    if (event->kind == CM_EVENT_SERVICE_REQUEST) {
        struct cm_parameters parameters = {.qpn = {0x112233},
                                           .qkey = {0x1234567},
                                           .private_data = {'y', 'o'},
                                           .private_length = 2};
        assert_memory_equal(event->parameters.private_data, "hi", 3);
        assert_int_equal(event->service_id, SERVICE);
        assert_int_equal(cm_service_accept(event->connection, scenario->simulator.now, &parameters),
                         STATUS_OK);
        assert_int_equal(cm_service_accept(event->connection, scenario->simulator.now, &parameters),
                         STATUS_STATE);
    }
}

static void refuse(struct scenario *scenario, struct party *party, const struct cm_event *event)
{
    watch(scenario, party, event);
    if (event->kind == CM_EVENT_SERVICE_REQUEST) {
        struct instant now = scenario->simulator.now;
        assert_int_equal(cm_service_reject(event->connection, now, CM_SIDR_SUCCESS, NULL, 0),
                         STATUS_INVALID);
        assert_int_equal(cm_service_reject(event->connection, now, CM_SIDR_REJECTED, "no", 2),
                         STATUS_OK);
    }
}

static void listen_at_b(void)
{
    assert_int_equal(cm_listen(s.b.host->cm, SERVICE, NULL, 0, &s.b, &s.b.listener), STATUS_OK);
}

/* A tries three times, 4.194 ms apart. */
static void ask(void)
{
    struct cm_connect_request request = {
        .path = s.a.attributes.path,
        .service_id = SERVICE,
        .parameters = {.private_data = {'h', 'i'}, .private_length = 2},
        .context = &s.a,
        .response_timeout = 10,
        .max_retries = 2,
    };
    assert_int_equal(cm_resolve(s.a.host->cm, s.simulator.now, &request, &s.a.connection),
                     STATUS_OK);
    host_wake(s.a.host, 0);
}

static void release(struct party *party)
{
    if (party->connection != NULL) {
        cm_release(party->connection, s.simulator.now);
        host_wake(party->host, 0);
    }
    party->connection = NULL;
}

/* Nobody looks any more; nothing may be left then, which scenario_stop checks. */
static void release_all(void)
{
    s.on_cm = NULL;
    release(&s.a);
    release(&s.b);
    if (s.b.listener != NULL) {
        cm_unlisten(s.b.listener);
    }
}

static void expect_the_answer(void)
{
    assert_int_equal(latest.kind, CM_EVENT_SERVICE_REPLY);
    assert_int_equal(latest.sidr_status, CM_SIDR_SUCCESS);
    assert_int_equal(latest.parameters.qpn.value, 0x112233);
    assert_int_equal(latest.parameters.qkey.value, 0x1234567);
    assert_int_equal(latest.parameters.private_length, CM_SIDR_REP_PRIVATE_MAX);
    assert_memory_equal(latest.parameters.private_data, "yo", 3);
}

static void question_and_answer(void **state)
{
    (void)state;
    s.on_cm = answer;
    listen_at_b();
    ask();
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=0\n"
                     "A event SERVICE_REPLY\n");
    expect_the_answer();
    release_all();
}

static void question_lost(void **state)
{
    (void)state;
    s.on_cm = answer;
    listen_at_b();
    scenario_lose(&s, "A>B SIDR_REQ");
    ask();
    scenario_run(&s);
    expect_trace(&s, "0us A>B SIDR_REQ lost\n"
                     "4194.304us A>B SIDR_REQ\n"
                     "4195.304us B event SERVICE_REQUEST\n"
                     "4195.304us B>A SIDR_REP status=0\n"
                     "4196.304us A event SERVICE_REPLY\n");
    expect_the_answer();
    release_all();
}

/* The question is repeated, and B's application does not hear of it again. */
static void answer_lost(void **state)
{
    (void)state;
    s.on_cm = answer;
    listen_at_b();
    scenario_lose(&s, "B>A SIDR_REP");
    ask();
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=0 lost\n"
                     "4194.304us A>B SIDR_REQ\n"
                     "B>A SIDR_REP status=0\n"
                     "A event SERVICE_REPLY\n");
    expect_the_answer();
    release_all();
}

/* The same after B's application has let go of it. */
static void answer_lost_and_released(void **state)
{
    (void)state;
    s.on_cm = answer;
    listen_at_b();
    scenario_lose(&s, "B>A SIDR_REP");
    ask();
    scenario_run_for(&s, 100);
    release(&s.b);
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=0 lost\n"
                     "A>B SIDR_REQ\n"
                     "B>A SIDR_REP status=0\n"
                     "A event SERVICE_REPLY\n");
    expect_the_answer();
    release_all();
}

static void duplicated(void **state)
{
    (void)state;
    s.on_cm = answer;
    listen_at_b();
    scenario_rule(&s, "A>B SIDR_REQ", FATE_DUPLICATED, 1);
    ask();
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ duplicated\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=0\n"
                     "A event SERVICE_REPLY\n"
                     "B>A SIDR_REP status=0\n");
    expect_the_answer();
    release_all();
}

static void refused(void **state)
{
    (void)state;
    s.on_cm = refuse;
    listen_at_b();
    ask();
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=2\n"
                     "A event SERVICE_REPLY\n");
    assert_int_equal(latest.sidr_status, CM_SIDR_REJECTED);
    assert_memory_equal(latest.parameters.private_data, "no", 3);
    release_all();
}

/* Who lets go of a question without an answer has refused it. */
static void released_unanswered(void **state)
{
    (void)state;
    s.on_cm = watch;
    listen_at_b();
    ask();
    scenario_run_for(&s, 100);
    release(&s.b);
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=2\n"
                     "A event SERVICE_REPLY\n");
    release_all();
}

static void nobody_listens(void **state)
{
    (void)state;
    s.on_cm = watch;
    ask();
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B>A SIDR_REP status=1\n"
                     "A event SERVICE_REPLY\n");
    release_all();
}

/* B dies with the question in its hands. */
static void unreachable(void **state)
{
    (void)state;
    s.on_cm = watch;
    listen_at_b();
    ask();
    scenario_run_for(&s, 100);
    s.b.listener = NULL;
    s.b.connection = NULL;
    s.b.completions = NULL;
    host_die(s.b.host);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SIDR_REQ\n"
                     "1us B event SERVICE_REQUEST\n"
                     "100us B dies\n"
                     "4194.304us A>B SIDR_REQ\n"
                     "8388.608us A>B SIDR_REQ\n"
                     "12582.912us A event UNREACHABLE\n");
    release_all();
}

/* A is released before the answer comes: nobody is told, and the answer is refused. */
static void asker_lost_interest(void **state)
{
    (void)state;
    s.on_cm = answer;
    listen_at_b();
    ask();
    release(&s.a);
    scenario_run(&s);
    expect_trace(&s, "A>B SIDR_REQ\n"
                     "B event SERVICE_REQUEST\n"
                     "B>A SIDR_REP status=0\n"
                     "A drops management\n");
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(question_and_answer, start, stop),
        cmocka_unit_test_setup_teardown(question_lost, start, stop),
        cmocka_unit_test_setup_teardown(answer_lost, start, stop),
        cmocka_unit_test_setup_teardown(answer_lost_and_released, start, stop),
        cmocka_unit_test_setup_teardown(duplicated, start, stop),
        cmocka_unit_test_setup_teardown(refused, start, stop),
        cmocka_unit_test_setup_teardown(released_unanswered, start, stop),
        cmocka_unit_test_setup_teardown(nobody_listens, start, stop),
        cmocka_unit_test_setup_teardown(unreachable, start, stop),
        cmocka_unit_test_setup_teardown(asker_lost_interest, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
