/* The connection manager: REQ, REP, RTU and their loss, refusals, disconnects. [IBA chapter 12] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

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

#define SERVICE UINT64_C(0x1064242)

static struct cm_parameters parameters_of(const struct party *party)
{
    return (struct cm_parameters){
        .qpn = qp_number(party->qp),
        .starting_psn = party->attributes.send_psn,
        .responder_resources = 4,
        .initiator_depth = 4,
        .retry_count = 3,
        .rnr_retry_count = 7,
        .ack_timeout = 8,
        .path_mtu = PATH_MTU_256,
        .private_data = {'h', 'i'},
        .private_length = 2,
    };
}

/* Both sides say yes. */
static void agree(struct scenario *scenario, struct party *party, const struct cm_event *event)
{
    struct instant now = scenario->simulator.now;
    if (event->kind == CM_EVENT_REQUEST) {
        struct cm_parameters parameters = parameters_of(party);
        assert_int_equal(event->parameters.qpn.value, qp_number(scenario->a.qp).value);
        assert_memory_equal(event->parameters.private_data, "hi", 3);
        scenario_to_rts(party, &scenario->a);
        assert_int_equal(cm_accept(event->connection, now, &parameters), STATUS_OK);
    } else if (event->kind == CM_EVENT_REPLY) {
        scenario_to_rts(party, &scenario->b);
        assert_int_equal(cm_confirm(event->connection, now), STATUS_OK);
    }
}

static void refuse(struct scenario *scenario, struct party *party, const struct cm_event *event)
{
    (void)party;
    if (event->kind == CM_EVENT_REQUEST) {
        assert_int_equal(
            cm_reject(event->connection, scenario->simulator.now, CM_REJECT_CONSUMER, "no", 2),
            STATUS_OK);
    }
}

static void hesitate(struct scenario *scenario, struct party *party, const struct cm_event *event)
{
    if (event->kind == CM_EVENT_REQUEST) {
        assert_int_equal(cm_delay(event->connection, scenario->simulator.now, 18), STATUS_OK);
    } else {
        agree(scenario, party, event);
    }
}

static void hesitate_to_confirm(struct scenario *scenario, struct party *party,
                                const struct cm_event *event)
{
    if (event->kind == CM_EVENT_REPLY) {
        assert_int_equal(cm_delay(event->connection, scenario->simulator.now, 18), STATUS_OK);
    } else {
        agree(scenario, party, event);
    }
}

static void listen_at_b(void)
{
    assert_int_equal(cm_listen(s.b.host->cm, SERVICE, NULL, 0, &s.b, &s.b.listener), STATUS_OK);
}

/* A tries three times, 4.194 ms apart. */
static void connect_a(void)
{
    struct cm_connect_request request = {
        .path = s.a.attributes.path,
        .service_id = SERVICE,
        .parameters = parameters_of(&s.a),
        .context = &s.a,
        .response_timeout = 10,
        .max_retries = 2,
    };
    assert_int_equal(cm_connect(s.a.host->cm, s.simulator.now, &request, &s.a.connection),
                     STATUS_OK);
    host_wake(s.a.host, 0);
}

static void disconnect(struct party *party)
{
    assert_int_equal(cm_disconnect(party->connection, s.simulator.now), STATUS_OK);
    host_wake(party->host, 0);
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

static void connect_both(void)
{
    s.on_cm = agree;
    listen_at_b();
    connect_a();
    scenario_run(&s);
    forget_trace(&s);
}

/* Three messages, then data. */
static void connect_and_write(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    connect_a();
    scenario_run(&s);
    assert_int_equal(scenario_post(&s.a, (struct work){.kind = WORK_WRITE, .id = 1, .length = 10}),
                     STATUS_OK);
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REP\n"
                     "2us A event REPLY\n"
                     "2us A>B RTU\n"
                     "3us B event ESTABLISHED\n"
                     "67109.864us A>B WRITE_ONLY psn=7 length=10\n"
                     "67110.864us B>A ACK psn=7\n"
                     "67111.864us A send 1 success\n");
    release_all();
}

/* It is repeated after the response timeout. */
static void request_lost(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    scenario_lose(&s, "A>B REQ");
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ lost\n"
                     "4194.304us A>B REQ\n"
                     "4195.304us B event REQUEST\n"
                     "4195.304us B>A REP\n"
                     "4196.304us A event REPLY\n"
                     "4196.304us A>B RTU\n"
                     "4197.304us B event ESTABLISHED\n");
    release_all();
}

/* The repeated REQ draws the REP again; the application is not asked twice. */
static void reply_lost(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    scenario_lose(&s, "B>A REP");
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REP lost\n"
                     "4194.304us A>B REQ\n"
                     "4195.304us B>A REP\n"
                     "4196.304us A event REPLY\n"
                     "4196.304us A>B RTU\n"
                     "4197.304us B event ESTABLISHED\n");
    release_all();
}

/* The REP is repeated, and answered with the RTU again. */
static void ready_lost(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    scenario_lose(&s, "A>B RTU");
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REP\n"
                     "2us A event REPLY\n"
                     "2us A>B RTU lost\n"
                     "67109.864us B>A REP\n"
                     "67110.864us A>B RTU\n"
                     "67111.864us B event ESTABLISHED\n");
    release_all();
}

/* Where the RTU is lost the first data says the same. */
static void data_for_ready(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    scenario_lose(&s, "A>B RTU");
    connect_a();
    scenario_run_for(&s, 5);
    assert_int_equal(scenario_post(&s.a, (struct work){.kind = WORK_WRITE, .id = 1, .length = 10}),
                     STATUS_OK);
    scenario_run_for(&s, 5);
    cm_data_arrived(s.b.connection, s.simulator.now);
    host_wake(s.b.host, 0);
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REP\n"
                     "2us A event REPLY\n"
                     "2us A>B RTU lost\n"
                     "5us A>B WRITE_ONLY psn=7 length=10\n"
                     "6us B>A ACK psn=7\n"
                     "7us A send 1 success\n"
                     "10us B event ESTABLISHED\n");
    release_all();
}

/* A REQ that comes twice is one request. */
static void duplicated_request(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    scenario_rule(&s, "A>B REQ", FATE_DUPLICATED, 1);
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ duplicated\n"
                     "1us B event REQUEST\n"
                     "1us B>A REP\n"
                     "2us A event REPLY\n"
                     "2us A>B RTU\n"
                     "2.435us B>A REP\n"
                     "3us B event ESTABLISHED\n"
                     "3.435us A>B RTU\n");
    release_all();
}

/* The consumer says no: reason 28. */
static void rejected(void **state)
{
    (void)state;
    s.on_cm = refuse;
    listen_at_b();
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REJ reason=28\n"
                     "2us A event REJECTED\n");
    release_all();
}

/* The REQ comes again and draws the same REJ; the application is not asked twice. */
static void reject_lost(void **state)
{
    (void)state;
    s.on_cm = refuse;
    listen_at_b();
    scenario_lose(&s, "B>A REJ");
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REJ reason=28 lost\n"
                     "4194.304us A>B REQ\n"
                     "4195.304us B>A REJ reason=28\n"
                     "4196.304us A event REJECTED\n");
    release_all();
}

/* Reason 8: invalid service id. */
static void nobody_listens(void **state)
{
    (void)state;
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B>A REJ reason=8\n"
                     "2us A event REJECTED\n");
    release_all();
}

/* Three tries, then the end. */
static void unreachable(void **state)
{
    (void)state;
    s.on_cm = agree;
    listen_at_b();
    scenario_rule(&s, "A>B REQ", FATE_LOST, 3);
    connect_a();
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ lost\n"
                     "4194.304us A>B REQ lost\n"
                     "8388.608us A>B REQ lost\n"
                     "12582.912us A>B REJ reason=4\n"
                     "12582.912us A event UNREACHABLE\n"
                     "12583.912us B drops management\n");
    release_all();
}

/* An MRA, to who asks again, stretches the patience of the active side beyond its own tries. */
static void told_to_wait(void **state)
{
    (void)state;
    s.on_cm = hesitate;
    listen_at_b();
    connect_a();
    scenario_run_for(&s, 40000);
    assert_non_null(s.b.connection);
    struct cm_parameters parameters = parameters_of(&s.b);
    scenario_to_rts(&s.b, &s.a);
    assert_int_equal(cm_accept(s.b.connection, s.simulator.now, &parameters), STATUS_OK);
    host_wake(s.b.host, 0);
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "4194.304us A>B REQ\n"
                     "4195.304us B>A MRA\n"
                     "40000us B>A REP\n"
                     "40001us A event REPLY\n"
                     "40001us A>B RTU\n"
                     "40002us B event ESTABLISHED\n");
    release_all();
}

/* The passive side's is stretched, too, by an MRA that did not wait to be asked for any longer. */
static void told_to_wait_for_a_confirmation(void **state)
{
    (void)state;
    s.on_cm = hesitate_to_confirm;
    listen_at_b();
    connect_a();
    scenario_run_for(&s, 400000);
    scenario_to_rts(&s.a, &s.b);
    assert_int_equal(cm_confirm(s.a.connection, s.simulator.now), STATUS_OK);
    host_wake(s.a.host, 0);
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "1us B>A REP\n"
                     "2us A event REPLY\n"
                     "6293.456us A>B MRA\n"
                     "400000us A>B RTU\n"
                     "400001us B event ESTABLISHED\n");
    release_all();
}

/* Who was told to wait asks again late; the refusal is remembered for that long. */
static void reject_lost_after_waiting(void **state)
{
    (void)state;
    s.on_cm = hesitate;
    listen_at_b();
    scenario_lose(&s, "B>A REJ");
    connect_a();
    scenario_run_for(&s, 10000);
    assert_int_equal(cm_reject(s.b.connection, s.simulator.now, CM_REJECT_CONSUMER, NULL, 0),
                     STATUS_OK);
    release(&s.b);
    scenario_run(&s);
    expect_trace(&s, "0us A>B REQ\n"
                     "1us B event REQUEST\n"
                     "4194.304us A>B REQ\n"
                     "4195.304us B>A MRA\n"
                     "10000us B>A REJ reason=28 lost\n"
                     "1082132.432us A>B REQ\n"
                     "1082133.432us B>A REJ reason=28\n"
                     "1082134.432us A event REJECTED\n");
    release_all();
}

/* DREQ, DREP; both sides are told, and told again when time-wait is over. */
static void disconnect_by_active(void **state)
{
    (void)state;
    connect_both();
    disconnect(&s.a);
    scenario_run(&s);
    expect_trace(&s, "67109.864us A>B DREQ\n"
                     "67110.864us B>A DREP\n"
                     "67110.864us B event DISCONNECTED\n"
                     "67111.864us A event DISCONNECTED\n"
                     "167110.864us B event TIME_WAIT_OVER\n"
                     "167111.864us A event TIME_WAIT_OVER\n");
    release_all();
}

/* Both ask at once: each DREQ is answered, nobody waits. */
static void crossing_disconnects(void **state)
{
    (void)state;
    connect_both();
    disconnect(&s.a);
    disconnect(&s.b);
    scenario_run(&s);
    expect_trace(&s, "67109.864us A>B DREQ\n"
                     "67109.864us B>A DREQ\n"
                     "67110.864us B>A DREP\n"
                     "67110.864us B event DISCONNECTED\n"
                     "67110.864us A>B DREP\n"
                     "67110.864us A event DISCONNECTED\n"
                     "167110.864us B event TIME_WAIT_OVER\n"
                     "167110.864us A event TIME_WAIT_OVER\n");
    release_all();
}

/* The DREQ is repeated and answered from time-wait. */
static void disconnect_reply_lost(void **state)
{
    (void)state;
    connect_both();
    scenario_lose(&s, "B>A DREP");
    disconnect(&s.a);
    scenario_run(&s);
    expect_trace(&s, "67109.864us A>B DREQ\n"
                     "67110.864us B>A DREP lost\n"
                     "67110.864us B event DISCONNECTED\n"
                     "167110.864us B event TIME_WAIT_OVER\n"
                     "1067109.864us A>B DREQ\n"
                     "1067110.864us B>A DREP\n"
                     "1067111.864us A event DISCONNECTED\n"
                     "1167111.864us A event TIME_WAIT_OVER\n");
    release_all();
}

/* Nobody answers the DREQ: after some tries the side is told as if somebody had. The DREQ goes on
 * being repeated, for a minute in all. */
static void peer_is_gone(void **state)
{
    (void)state;
    connect_both();
    s.b.listener = NULL;
    s.b.connection = NULL;
    s.b.completions = NULL;
    host_die(s.b.host);
    disconnect(&s.a);
    scenario_run(&s);
    expect_trace(&s, "67109.864us B dies\n"
                     "67109.864us A>B DREQ\n"
                     "1067109.864us A>B DREQ\n"
                     "2067109.864us A>B DREQ\n"
                     "3067109.864us A>B DREQ\n"
                     "4067109.864us A event DISCONNECTED\n"
                     "4167109.864us A>B DREQ\n"
                     "4167109.864us A event TIME_WAIT_OVER\n"
                     "8167109.864us A>B DREQ\n"
                     "12167109.864us A>B DREQ\n"
                     "16167109.864us A>B DREQ\n"
                     "20167109.864us A>B DREQ\n"
                     "24167109.864us A>B DREQ\n"
                     "28167109.864us A>B DREQ\n"
                     "32167109.864us A>B DREQ\n"
                     "36167109.864us A>B DREQ\n"
                     "40167109.864us A>B DREQ\n"
                     "44167109.864us A>B DREQ\n"
                     "48167109.864us A>B DREQ\n"
                     "52167109.864us A>B DREQ\n"
                     "56167109.864us A>B DREQ\n");
    release_all();
}

/* A lets go of its connection while the way is cut; B, who has nothing to send, hears of it when
 * the way is there again. */
static void disconnect_while_the_way_is_cut(void **state)
{
    (void)state;
    connect_both();
    scenario_rule(&s, "A>B DREQ", FATE_LOST, 5);
    release(&s.a);
    scenario_run(&s);
    expect_trace(&s, "67109.864us A>B DREQ lost\n"
                     "1067109.864us A>B DREQ lost\n"
                     "2067109.864us A>B DREQ lost\n"
                     "3067109.864us A>B DREQ lost\n"
                     "4167109.864us A>B DREQ lost\n"
                     "8167109.864us A>B DREQ\n"
                     "8167110.864us B>A DREP\n"
                     "8167110.864us B event DISCONNECTED\n"
                     "8267110.864us B event TIME_WAIT_OVER\n");
    release_all();
}

/* Both have ended it without hearing of each other: the first DREQ that comes through is enough. */
static void both_ends_leave_while_the_way_is_cut(void **state)
{
    (void)state;
    connect_both();
    scenario_rule(&s, "A>B DREQ", FATE_LOST, 5);
    scenario_rule(&s, "B>A DREQ", FATE_LOST, 4);
    disconnect(&s.a);
    scenario_run_for(&s, 1000000);
    release(&s.b);
    scenario_run_for(&s, 3500000);
    forget_trace(&s);
    scenario_run(&s);
    expect_trace(&s, "5167109.864us B>A DREQ\n"
                     "5167110.864us A>B DREP\n");
    release_all();
}

/* A REQ for a queue pair that is connected already: the peer has begun anew, or it is a forgery.
 * The REQ is rejected with reason 10 [IBA 12.9.8.3.1], and the peer is asked by a DREQ for no queue
 * pair, which only one who has forgotten the connection answers. Here it has not. */
static void stale_connection(void **state)
{
    (void)state;
    connect_both();
    struct cm_connection *old = s.a.connection;
    s.on_cm = NULL;
    connect_a();
    struct cm_connection *begun = s.a.connection;
    scenario_run(&s);
    expect_trace(&s, "67109.864us A>B REQ\n"
                     "67110.864us B>A REJ reason=10\n"
                     "67110.864us B>A DREQ\n"
                     "67111.864us A drops management\n"
                     "67111.864us A event REJECTED\n");
    cm_release(begun, s.simulator.now);
    s.a.connection = old;
    forget_trace(&s);
    disconnect(&s.a);
    scenario_run(&s);
    expect_trace(&s, "71304.168us A>B DREQ\n"
                     "71305.168us B>A DREP\n"
                     "71305.168us B event DISCONNECTED\n"
                     "71306.168us A event DISCONNECTED\n"
                     "171305.168us B event TIME_WAIT_OVER\n"
                     "171306.168us A event TIME_WAIT_OVER\n");
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connect_and_write, start, stop),
        cmocka_unit_test_setup_teardown(request_lost, start, stop),
        cmocka_unit_test_setup_teardown(reply_lost, start, stop),
        cmocka_unit_test_setup_teardown(ready_lost, start, stop),
        cmocka_unit_test_setup_teardown(data_for_ready, start, stop),
        cmocka_unit_test_setup_teardown(duplicated_request, start, stop),
        cmocka_unit_test_setup_teardown(rejected, start, stop),
        cmocka_unit_test_setup_teardown(reject_lost, start, stop),
        cmocka_unit_test_setup_teardown(nobody_listens, start, stop),
        cmocka_unit_test_setup_teardown(unreachable, start, stop),
        cmocka_unit_test_setup_teardown(told_to_wait, start, stop),
        cmocka_unit_test_setup_teardown(told_to_wait_for_a_confirmation, start, stop),
        cmocka_unit_test_setup_teardown(reject_lost_after_waiting, start, stop),
        cmocka_unit_test_setup_teardown(disconnect_by_active, start, stop),
        cmocka_unit_test_setup_teardown(crossing_disconnects, start, stop),
        cmocka_unit_test_setup_teardown(disconnect_reply_lost, start, stop),
        cmocka_unit_test_setup_teardown(peer_is_gone, start, stop),
        cmocka_unit_test_setup_teardown(disconnect_while_the_way_is_cut, start, stop),
        cmocka_unit_test_setup_teardown(both_ends_leave_while_the_way_is_cut, start, stop),
        cmocka_unit_test_setup_teardown(stale_connection, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
