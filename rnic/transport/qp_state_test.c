/* The transitions that ibv_modify_qp(3) lists, and that nothing else is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/qp_state.h"

static void only_the_listed_transitions_exist(void **state)
{
    static const char *const reliable[QP_STATE_COUNT] = {
        /* to: R I r s D E X */
        [QP_RESET] = "xx....x", [QP_INIT] = "xxx...x", [QP_RTR] = "x..x..x",   [QP_RTS] = "x..xx.x",
        [QP_SQD] = "x..xx.x",   [QP_SQE] = "x.....x",  [QP_ERROR] = "x.....x",
    };
    for (int from = 0; from < QP_STATE_COUNT; from++) {
        for (int to = 0; to < QP_STATE_COUNT; to++) {
            enum status status = qp_state_check(SERVICE_RC, false, (enum qp_state)from,
                                                (enum qp_state)to, QP_SET_STATE, NULL);
            assert_int_equal(status != STATUS_STATE, reliable[from][to] == 'x');
        }
    }
    assert_int_equal(qp_state_check(SERVICE_UD, false, QP_SQE, QP_RTS, QP_SET_STATE, NULL),
                     STATUS_OK);
}

static void missing_and_foreign_attributes_are_named(void **state)
{
    unsigned reset_init = QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS;
    unsigned offending = 0;
    assert_int_equal(qp_state_check(SERVICE_RC, false, QP_RESET, QP_INIT, reset_init, &offending),
                     STATUS_OK);
    assert_int_equal(offending, 0);
    assert_int_equal(qp_state_check(SERVICE_RC, false, QP_RESET, QP_INIT,
                                    reset_init & ~(unsigned)QP_SET_PORT, &offending),
                     STATUS_INVALID);
    assert_int_equal(offending, QP_SET_PORT);
    assert_int_equal(
        qp_state_check(SERVICE_RC, false, QP_RESET, QP_INIT, reset_init | QP_SET_QKEY, &offending),
        STATUS_INVALID);
    assert_int_equal(offending, QP_SET_QKEY);
    assert_int_equal(qp_state_check(SERVICE_UD, false, QP_RESET, QP_INIT, reset_init, &offending),
                     STATUS_INVALID);
    assert_int_equal(offending, QP_SET_QKEY | QP_SET_ACCESS);
}

static void each_service_has_its_own_needs(void **state)
{
    unsigned connected =
        QP_SET_STATE | QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN;
    unsigned reliable = connected | QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER;
    unsigned offending = 0;
    assert_int_equal(qp_state_check(SERVICE_RC, false, QP_INIT, QP_RTR, reliable, NULL), STATUS_OK);
    assert_int_equal(qp_state_check(SERVICE_UC, false, QP_INIT, QP_RTR, connected, NULL),
                     STATUS_OK);
    assert_int_equal(qp_state_check(SERVICE_UC, false, QP_INIT, QP_RTR, reliable, &offending),
                     STATUS_INVALID);
    assert_int_equal(offending, QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER);
    assert_int_equal(qp_state_check(SERVICE_UD, false, QP_INIT, QP_RTR, QP_SET_STATE, NULL),
                     STATUS_OK);
    unsigned send = QP_SET_STATE | QP_SET_SEND_PSN;
    assert_int_equal(qp_state_check(SERVICE_UD, false, QP_RTR, QP_RTS, send, NULL), STATUS_OK);
    assert_int_equal(qp_state_check(SERVICE_RC, false, QP_RTR, QP_RTS, send, &offending),
                     STATUS_INVALID);
    assert_int_equal(offending, QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |
                                    QP_SET_MAX_READS_OUT);
}

/* As the kernel's ib_modify_qp_is_ok has it for all adapters. */
static void beliefs_and_paths_have_their_places(void **state)
{
    static const struct {
        enum qp_state from, to;
        bool current, migration;
    } rows[] = {
        {QP_RESET, QP_RESET, false, false}, {QP_INIT, QP_INIT, false, false},
        {QP_RTS, QP_RTS, true, true},       {QP_RTS, QP_SQD, false, false},
        {QP_SQD, QP_SQD, false, true},      {QP_SQD, QP_RTS, true, true},
        {QP_RTS, QP_ERROR, false, false},   {QP_ERROR, QP_RESET, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int datagram = 0; datagram <= 1; datagram++) {
            enum service service = datagram ? SERVICE_UD : SERVICE_UC;
            enum status current = qp_state_check(service, false, rows[i].from, rows[i].to,
                                                 QP_SET_STATE | QP_SET_CURRENT_STATE, NULL);
            enum status migration = qp_state_check(service, false, rows[i].from, rows[i].to,
                                                   QP_SET_STATE | QP_SET_MIGRATION, NULL);
            assert_int_equal(current == STATUS_OK, rows[i].current);
            assert_int_equal(migration == STATUS_OK, rows[i].migration && !datagram);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_listed_transitions_exist),
        cmocka_unit_test(missing_and_foreign_attributes_are_named),
        cmocka_unit_test(each_service_has_its_own_needs),
        cmocka_unit_test(beliefs_and_paths_have_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
