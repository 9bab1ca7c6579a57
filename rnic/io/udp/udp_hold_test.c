/* What waits in this host before its interface, and who waits for it. */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "rnic/io/udp/udp_self_test.h"

/* What the kernel says, in place of the truth. */
static struct {
    int waiting;
    uint32_t asked;
} kernel;

/* The link's calls go through this, by the linker's --wrap. */
int __wrap_ioctl(int descriptor, unsigned long request, int *ret_waiting);

int __wrap_ioctl(int descriptor, unsigned long request, int *ret_waiting)
{
    assert_int_equal(request, SIOCOUTQ);
    assert_true(descriptor >= 0);
    kernel.asked++;
    *ret_waiting = kernel.waiting;
    return 0;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_waits_while_enough_of_it_waits_here),
        cmocka_unit_test(who_has_a_port_of_his_own_waits_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
