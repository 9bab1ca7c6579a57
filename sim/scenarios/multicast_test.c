/* Datagrams to a group: one copy for each queue pair that is attached, each with a receive of its
 * own, and none for anybody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

static const struct gid group = {{[10] = 0xff, [11] = 0xff, 239, 1, 2, 3}};
static const struct gid other_group = {{[10] = 0xff, [11] = 0xff, 239, 1, 2, 4}};

static int start(void **state)
{
    (void)state;
    scenario_start_service(&s, SERVICE_UD);
    scenario_connect(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(struct party *party, struct work work)
{
    work.kind = WORK_SEND;
    work.qkey = work.qkey.value == 0 ? SCENARIO_QKEY : work.qkey;
    work.group = work.group == NULL ? &group : work.group;
    work.length = 100;
    assert_int_equal(scenario_post(party, work), STATUS_OK);
}

static void attach(struct party *party, struct qp *qp)
{
    assert_int_equal(device_attach_multicast(party->host->device, qp, &group), STATUS_OK);
}

static void reaches_who_is_attached(void **state)
{
    (void)state;
    attach(&s.b, s.b.qp);
    scenario_receive(&s.b, 1, 140);
    post(&s.a, (struct work){.id = 1});
    scenario_run(&s);
    expect_trace(&s, "0us A>A UD_SEND_ONLY psn=7\n"
                     "0us A>B UD_SEND_ONLY psn=7\n"
                     "0us A send 1 success\n"
                     "1us A drops no_group\n"
                     "1us B receive 1 success length=140\n");
}

/* Two queue pairs of a host: each spends a receive. */
static void reaches_each(void **state)
{
    (void)state;
    scenario_add_second(&s.b);
    attach(&s.b, s.b.qp);
    attach(&s.b, s.b.second);
    scenario_receive(&s.b, 1, 140);
    scenario_receive_second(&s.b, 2, 140);
    scenario_receive_second(&s.b, 3, 140);
    post(&s.a, (struct work){.id = 1});
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=7\n"
                     "A>B UD_SEND_ONLY psn=7\n"
                     "A send 1 success\n"
                     "A drops no_group\n"
                     "B receive 1 success length=140\n"
                     "B receive 2 success length=140\n");
    /* Who has no receive left misses it; who has gets it. */
    post(&s.a, (struct work){.id = 2});
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=8\n"
                     "A>B UD_SEND_ONLY psn=8\n"
                     "A send 2 success\n"
                     "A drops no_group\n"
                     "B drops no_receive\n"
                     "B receive 3 success length=140\n");
}

/* The sender hears itself if it is attached, */
static void own_copy(void **state)
{
    (void)state;
    attach(&s.a, s.a.qp);
    scenario_receive(&s.a, 1, 140);
    post(&s.a, (struct work){.id = 1});
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=7\n"
                     "A>B UD_SEND_ONLY psn=7\n"
                     "A send 1 success\n"
                     "B drops no_group\n"
                     "A receive 1 success length=140\n");
}

/* unless it asked not to; its neighbour does all the same, and it hears others. */
static void own_copy_blocked(void **state)
{
    (void)state;
    scenario_add_second(&s.a);
    qp_block_own_multicast(s.a.qp);
    attach(&s.a, s.a.qp);
    attach(&s.a, s.a.second);
    scenario_receive(&s.a, 1, 140);
    scenario_receive_second(&s.a, 2, 140);
    scenario_receive_second(&s.a, 3, 140);
    post(&s.a, (struct work){.id = 1});
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=7\n"
                     "A>B UD_SEND_ONLY psn=7\n"
                     "A send 1 success\n"
                     "B drops no_group\n"
                     "A receive 2 success length=140\n");
    post(&s.b, (struct work){.id = 2});
    scenario_run(&s);
    expect_trace(&s, "B>A UD_SEND_ONLY psn=100\n"
                     "B>B UD_SEND_ONLY psn=100\n"
                     "B send 2 success\n"
                     "B drops no_group\n"
                     "A receive 1 success length=140\n"
                     "A receive 3 success length=140\n");
}

/* A datagram is its own by whichever of the host's addresses it went, and when they take turns. */
static void own_copy_blocked_by_each_address(void **state)
{
    (void)state;
    struct gid *source = &s.a.attributes.path.local, first = *source;
    network_share(&s.network, s.a.host->index, s.b.host->index);
    qp_block_own_multicast(s.a.qp);
    attach(&s.a, s.a.qp);
    scenario_receive(&s.a, 1, 140);
    post(&s.a, (struct work){.id = 1});
    *source = s.b.attributes.path.local;
    post(&s.a, (struct work){.id = 2});
    *source = first;
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=7\n"
                     "A>B UD_SEND_ONLY psn=7\n"
                     "A>A UD_SEND_ONLY psn=8\n"
                     "A>B UD_SEND_ONLY psn=8\n"
                     "A send 1 success\n"
                     "A send 2 success\n"
                     "B drops no_group\n"
                     "B drops no_group\n");
}

/* Another Q_Key is another application's traffic. */
static void wrong_qkey(void **state)
{
    (void)state;
    attach(&s.b, s.b.qp);
    scenario_receive(&s.b, 1, 140);
    post(&s.a, (struct work){.id = 1, .qkey = {7}});
    post(&s.a, (struct work){.id = 2, .group = &other_group});
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=7\n"
                     "A>B UD_SEND_ONLY psn=7\n"
                     "A>A UD_SEND_ONLY psn=8\n"
                     "A>B UD_SEND_ONLY psn=8\n"
                     "A send 1 success\n"
                     "A send 2 success\n"
                     "A drops no_group\n"
                     "B drops qkey\n"
                     "A drops no_group\n"
                     "B drops no_group\n");
}

static void detached(void **state)
{
    (void)state;
    struct device *device = s.b.host->device;
    attach(&s.b, s.b.qp);
    assert_int_equal(device_attach_multicast(device, s.b.qp, &group), STATUS_IN_USE);
    assert_true(qp_is_attached(s.b.qp));
    assert_int_equal(device_detach_multicast(device, s.b.qp, &other_group), STATUS_NOT_FOUND);
    assert_int_equal(device_detach_multicast(device, s.b.qp, &group), STATUS_OK);
    assert_int_equal(device_detach_multicast(device, s.b.qp, &group), STATUS_NOT_FOUND);
    assert_false(qp_is_attached(s.b.qp));
    scenario_receive(&s.b, 1, 140);
    post(&s.a, (struct work){.id = 1});
    scenario_run(&s);
    expect_trace(&s, "A>A UD_SEND_ONLY psn=7\n"
                     "A>B UD_SEND_ONLY psn=7\n"
                     "A send 1 success\n"
                     "A drops no_group\n"
                     "B drops no_group\n");
    struct gid unicast = network_gid(0, false);
    assert_int_equal(device_attach_multicast(device, s.b.qp, &unicast), STATUS_INVALID);
}

/* As many groups as are promised, and as many queue pairs in one; then FULL. What is left is
 * detached with its queue pair. */
static void bounded(void **state)
{
    (void)state;
    struct device *device = s.b.host->device;
    struct gid gid = group;
    for (uint32_t i = 0; i < MULTICAST_GROUPS_MAX; i++) {
        gid.bytes[14] = (uint8_t)(i * 7 >> 8);
        gid.bytes[15] = (uint8_t)(i * 7);
        assert_int_equal(device_attach_multicast(device, s.b.qp, &gid), STATUS_OK);
    }
    gid.bytes[13] = 99;
    assert_int_equal(device_attach_multicast(device, s.b.qp, &gid), STATUS_FULL);
    gid.bytes[13] = group.bytes[13];
    assert_int_equal(device_detach_multicast(device, s.b.qp, &gid), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reaches_who_is_attached, start, stop),
        cmocka_unit_test_setup_teardown(reaches_each, start, stop),
        cmocka_unit_test_setup_teardown(own_copy, start, stop),
        cmocka_unit_test_setup_teardown(own_copy_blocked, start, stop),
        cmocka_unit_test_setup_teardown(own_copy_blocked_by_each_address, start, stop),
        cmocka_unit_test_setup_teardown(wrong_qkey, start, stop),
        cmocka_unit_test_setup_teardown(detached, start, stop),
        cmocka_unit_test_setup_teardown(bounded, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
