/* Unreliable connections and datagrams: what is lost stays lost, and nobody is told. */
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
    return 0; /* each test starts with the service it is about */
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(struct work work)
{
    work.qkey = work.qkey.value == 0 ? SCENARIO_QKEY : work.qkey;
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

static void start_uc(void)
{
    scenario_start_service(&s, SERVICE_UC);
    scenario_connect(&s);
}

static void start_ud(void)
{
    scenario_start_service(&s, SERVICE_UD);
    scenario_connect(&s);
}

/* The sender is done when the last packet has left. */
static void uc_send(void **state)
{
    (void)state;
    start_uc();
    scenario_receive(&s.b, 1, 600);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 600});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_SEND_FIRST psn=7\n"
                     "0us A>B UC_SEND_MIDDLE psn=8\n"
                     "0us A>B UC_SEND_LAST psn=9\n"
                     "0us A send 1 success\n"
                     "1us B receive 1 success length=600\n");
}

/* The message is dropped; its receive waits for the next one. */
static void uc_middle_lost(void **state)
{
    (void)state;
    start_uc();
    scenario_lose(&s, "A>B UC_SEND_MIDDLE psn=8");
    scenario_receive(&s.b, 1, 600);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 600});
    post((struct work){.kind = WORK_SEND, .id = 2, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_SEND_FIRST psn=7\n"
                     "0us A>B UC_SEND_MIDDLE psn=8 lost\n"
                     "0us A>B UC_SEND_LAST psn=9\n"
                     "0us A>B UC_SEND_ONLY psn=10\n"
                     "0us A send 1 success\n"
                     "0us A send 2 success\n"
                     "1us B drops sequence\n"
                     "1us B receive 1 success length=10\n");
}

/* Without its beginning the rest means nothing. */
static void uc_first_lost(void **state)
{
    (void)state;
    start_uc();
    scenario_lose(&s, "A>B UC_WRITE_FIRST psn=7");
    post((struct work){.kind = WORK_WRITE, .id = 1, .length = 300});
    post((struct work){.kind = WORK_WRITE, .id = 2, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_WRITE_FIRST psn=7 length=300 lost\n"
                     "0us A>B UC_WRITE_LAST psn=8\n"
                     "0us A>B UC_WRITE_ONLY psn=9 length=10\n"
                     "0us A send 1 success\n"
                     "0us A send 2 success\n"
                     "1us B drops sequence\n");
    expect_equal_bytes(&s.a, &s.b, 0, 10);
}

/* It is dropped, and counted. */
static void uc_no_receive(void **state)
{
    (void)state;
    start_uc();
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "1us B drops no_receive\n");
}

/* A message that does not fit is dropped when that shows; its receive waits for the next one. */
static void uc_too_long(void **state)
{
    (void)state;
    start_uc();
    scenario_receive(&s.b, 1, 500);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 600});
    post((struct work){.kind = WORK_SEND, .id = 2, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_SEND_FIRST psn=7\n"
                     "0us A>B UC_SEND_MIDDLE psn=8\n"
                     "0us A>B UC_SEND_LAST psn=9\n"
                     "0us A>B UC_SEND_ONLY psn=10\n"
                     "0us A send 1 success\n"
                     "0us A send 2 success\n"
                     "1us B drops too_long\n"
                     "1us B drops sequence\n"
                     "1us B receive 1 success length=10\n");
    assert_int_equal(qp_current_state(s.b.qp), QP_RTS);
}

/* A WRITE that is not allowed is dropped; both ends go on. */
static void uc_wrong_key(void **state)
{
    (void)state;
    start_uc();
    post((struct work){.kind = WORK_WRITE, .id = 1, .length = 10, .key = {0x12345678}});
    post((struct work){.kind = WORK_WRITE, .id = 2, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_WRITE_ONLY psn=7 length=10\n"
                     "0us A>B UC_WRITE_ONLY psn=8 length=10\n"
                     "0us A send 1 success\n"
                     "0us A send 2 success\n"
                     "1us B drops access\n");
    expect_equal_bytes(&s.a, &s.b, 0, 10);
    assert_int_equal(qp_current_state(s.b.qp), QP_RTS);
}

/* 40 bytes stand before the datagram in its receive. */
static void ud_send(void **state)
{
    (void)state;
    start_ud();
    scenario_receive(&s.b, 1, 140);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 100});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UD_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "1us B receive 1 success length=140\n");
}

/* Not for us: dropped before it touches the receive. */
static void ud_wrong_qkey(void **state)
{
    (void)state;
    start_ud();
    scenario_receive(&s.b, 1, 140);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 100, .qkey = {1}});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UD_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "1us B drops qkey\n");
}

/* Dropped, and counted. */
static void ud_no_receive(void **state)
{
    (void)state;
    start_ud();
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 100});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UD_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "1us B drops no_receive\n");
}

/* A datagram that does not fit is dropped; the receive stays for the next one. */
static void ud_too_long(void **state)
{
    (void)state;
    start_ud();
    scenario_receive(&s.b, 1, 139);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 100});
    post((struct work){.kind = WORK_SEND, .id = 2, .length = 99});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UD_SEND_ONLY psn=7\n"
                     "0us A>B UD_SEND_ONLY psn=8\n"
                     "0us A send 1 success\n"
                     "0us A send 2 success\n"
                     "1us B drops too_long\n"
                     "1us B receive 1 success length=139\n");
}

/* The sender's interface takes less than a whole packet: nobody else would say so. */
static void uc_interface_too_narrow(void **state)
{
    (void)state;
    start_uc();
    s.network.links[0][1].config.takes = 28 + 12 + 256 + 4 - 1;
    scenario_receive(&s.b, 1, 600);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 252});
    post((struct work){.kind = WORK_SEND, .id = 2, .length = 600});
    post((struct work){.kind = WORK_SEND, .id = 3, .length = 10});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UC_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "0us A send 2 local length error\n"
                     "0us A send 3 flushed\n"
                     "1us B receive 1 success length=252\n");
    assert_int_equal(qp_current_state(s.a.qp), QP_SQE);
}

static void ud_interface_too_narrow(void **state)
{
    (void)state;
    start_ud();
    s.network.links[0][1].config.takes = 28 + 12 + 8 + 100 + 4 - 1;
    scenario_receive(&s.b, 1, 140);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 96});
    post((struct work){.kind = WORK_SEND, .id = 2, .length = 97});
    post((struct work){.kind = WORK_SEND, .id = 3, .length = 96});
    scenario_run(&s);
    expect_trace(&s, "0us A>B UD_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "0us A send 2 local length error\n"
                     "0us A send 3 flushed\n"
                     "1us B receive 1 success length=136\n");
    assert_int_equal(qp_current_state(s.a.qp), QP_SQE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(uc_send, start, stop),
        cmocka_unit_test_setup_teardown(uc_middle_lost, start, stop),
        cmocka_unit_test_setup_teardown(uc_first_lost, start, stop),
        cmocka_unit_test_setup_teardown(uc_no_receive, start, stop),
        cmocka_unit_test_setup_teardown(uc_too_long, start, stop),
        cmocka_unit_test_setup_teardown(uc_wrong_key, start, stop),
        cmocka_unit_test_setup_teardown(ud_send, start, stop),
        cmocka_unit_test_setup_teardown(ud_wrong_qkey, start, stop),
        cmocka_unit_test_setup_teardown(ud_no_receive, start, stop),
        cmocka_unit_test_setup_teardown(ud_too_long, start, stop),
        cmocka_unit_test_setup_teardown(uc_interface_too_narrow, start, stop),
        cmocka_unit_test_setup_teardown(ud_interface_too_narrow, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
