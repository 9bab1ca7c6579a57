/* What waits in this host before its interface, and who waits for it. */
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "rnic/io/system/syscall_test.h"
#include "rnic/io/udp/udp_self_test.h"

/* What the kernel says, in place of the truth. */
static struct {
    int waiting;
    uint32_t asked;
    bool is_wireless; /* whichever interface */
} kernel;

/* The link's calls go through this, by the linker's --wrap. */
int __real_ioctl(int descriptor, unsigned long request, int *ret_waiting);
int __wrap_ioctl(int descriptor, unsigned long request, int *ret_waiting);

int __wrap_ioctl(int descriptor, unsigned long request, int *ret_waiting)
{
    assert_true(descriptor >= 0);
    if (request != SIOCOUTQ) {
        return __real_ioctl(descriptor, request, ret_waiting);
    }
    kernel.asked++;
    *ret_waiting = kernel.waiting;
    return 0;
}

long __wrap_syscall(long number, ...)
{
    long arguments[SYSCALL_ARGUMENTS];
    va_list list;
    va_start(list, number);
    take_arguments(list, arguments);
    va_end(list);
    bool asks = number == SYS_openat && strstr((const char *)arguments[1], "/phy80211") != NULL;
    if (asks && kernel.is_wireless) {
        return dup(STDIN_FILENO);
    }
    return pass_on(number, arguments);
}

static const struct qpn peer = {1234};

static uint64_t hold_ns(struct udp *udp, const struct path *path, uint64_t *mark)
{
    return udp_sink(udp)->hold_ns(udp_sink(udp), path, peer, mark);
}

/* As much as a stream has from one question to the next. */
static void send_run(struct udp *udp, const struct path *path)
{
    struct inbox inbox = {.receiver.receive = receive};
    emit_train(udp, path, 0, 56, 1024);
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
}

static void a_stream_waits_while_enough_of_it_waits_here(void **state)
{
    (void)state;
    struct gid here;
    struct udp *udp = create_at(78, &here);
    struct path path = path_to(&here);
    uint64_t mark = 0, other = 0;
    kernel.waiting = 0;
    assert_int_equal(hold_ns(udp, &path, &other), 0);
    assert_int_equal(hold_ns(udp, &path, &mark), 0);
    assert_int_equal(kernel.asked, 1);
    assert_int_equal(hold_ns(udp, &path, &mark), 0);
    assert_int_equal(kernel.asked, 1); /* nothing new can wait */

    send_run(udp, &path);
    kernel.waiting = 120000;
    assert_true(hold_ns(udp, &path, &mark) > 0);
    assert_true(hold_ns(udp, &path, &other) > 0);
    assert_int_equal(udp_counters(udp)->held, 2);
    kernel.waiting = 10000;
    assert_int_equal(hold_ns(udp, &path, &mark), 0);
    assert_int_equal(udp_counters(udp)->held, 2);
    udp_destroy(udp);
}

static void who_has_a_port_of_his_own_waits_for_nobody(void **state)
{
    (void)state;
    struct gid here;
    struct udp *udp = create_at(79, &here);
    struct path path = path_to(&here), own = path;
    own.flow_label = 77;
    own.source_port = (uint16_t)(own_port() + 20000);
    uint64_t mark = 0, other = 0;
    kernel.waiting = 0;
    assert_int_equal(hold_ns(udp, &path, &mark), 0);
    assert_int_equal(hold_ns(udp, &own, &other), 0);
    send_run(udp, &path);
    kernel.waiting = 120000;
    assert_true(hold_ns(udp, &path, &mark) > 0);
    assert_int_equal(hold_ns(udp, &own, &other), 0);
    send_run(udp, &own);
    assert_true(hold_ns(udp, &own, &other) > 0);
    udp_destroy(udp);
}

static void nobody_waits_for_what_wi_fi_gathers(void **state)
{
    (void)state;
    struct gid here;
    struct udp *udp = create_at(1, &here); /* which an interface has */
    struct path path = path_to(&here);
    uint64_t mark = 1, ns = 0;
    kernel.waiting = 100000000;
    kernel.is_wireless = true;
    send_run(udp, &path);
    assert_int_equal(hold_ns(udp, &path, &mark), 0);
    uint32_t asked = kernel.asked;
    send_run(udp, &path);
    assert_int_equal(hold_ns(udp, &path, &mark), 0);
    assert_int_equal(kernel.asked, asked); /* seldom */

    kernel.is_wireless = false;
    udp_addresses_changed(udp);
    for (uint32_t i = 0; i < 10 && ns == 0; i++) {
        send_run(udp, &path);
        ns = hold_ns(udp, &path, &mark);
    }
    assert_true(ns > 0);
    udp_destroy(udp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_waits_while_enough_of_it_waits_here),
        cmocka_unit_test(who_has_a_port_of_his_own_waits_for_nobody),
        cmocka_unit_test(nobody_waits_for_what_wi_fi_gathers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
