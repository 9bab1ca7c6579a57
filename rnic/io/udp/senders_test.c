/* What a sender's habit excludes. How much damage passes in the end: integrity_test.c. */
#include "rnic/io/udp/senders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/wire/path.h"

static const struct path ipv4 = {
    .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
    .source_port = 50000,
};

static struct senders senders;

static bool takes(struct instant now, const struct gid *gid, uint16_t identification)
{
    bool believed = senders_believe(&senders, now, gid, identification);
    if (believed) {
        senders_learn(&senders, now, gid, identification);
    }
    return believed;
}

static bool believes(uint64_t ms, uint16_t identification)
{
    return takes((struct instant){(1 + ms) * 1000000}, &ipv4.local, identification);
}

static int forget(void **state)
{
    (void)state;
    memset(&senders, 0, sizeof senders);
    return 0;
}

static void anything_goes_without_a_habit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(believes(i, (uint16_t)(i * 20011)));
    }
}

static void small_ones_stay_small(void **state)
{
    (void)state;
    for (uint16_t i = 0; i < 100; i++) {
        assert_true(believes(0, i % 5));
    }
    for (uint16_t i = 0; i < 64; i++) {
        assert_true(believes(0, i));
    }
    for (int i = 0; i < 5; i++) { /* each alone */
        assert_false(believes(0, 64));
        assert_true(believes(0, 63));
    }
    assert_false(believes(0, 33000)); /* two that do not fit each other */
    assert_false(believes(0, 9000));
    assert_true(believes(0, 9001)); /* now somebody else is there */
    assert_true(believes(0, 9002));
}

static void counting_ones_go_on(void **state)
{
    (void)state;
    uint16_t id = 65000;
    for (uint32_t i = 0; i < 1000; i++) { /* through the end of the numbers, and small ones */
        id++;
        assert_true(believes(0, id));
    }
    assert_true(believes(100, (uint16_t)(id - SENDERS_NEAR))); /* overtaken */
    assert_true(believes(100, (uint16_t)(id + SENDERS_NEAR)));
    id = (uint16_t)(id + SENDERS_NEAR);
    assert_false(believes(100, (uint16_t)(id + SENDERS_NEAR + 1)));
    assert_true(believes(100, id));
    assert_false(believes(100, (uint16_t)(id - SENDERS_NEAR - 1)));
    assert_true(believes(100, id));
    assert_true(believes(10100, (uint16_t)(id + SENDERS_NEAR + 9999))); /* ten idle seconds */
}

static void a_jump_costs_one_packet(void **state)
{
    (void)state;
    for (uint16_t i = 0; i < 100; i++) {
        assert_true(believes(0, i + 1000));
    }
    assert_false(believes(0, 40000));
    for (uint16_t i = 1; i < 100; i++) {
        assert_true(believes(0, i + 40000));
    }
    assert_false(believes(0, 1000));
}

/* Packets that no queue pair takes, between those of a peer that counts. */
static void a_habit_cannot_be_forged(void **state)
{
    (void)state;
    struct instant now = {1000000};
    for (uint16_t i = 0; i < 1000; i++) {
        assert_true(takes(now, &ipv4.local, i + 40000));
        (void)senders_believe(&senders, now, &ipv4.local, i % 4);
    }
    assert_false(takes(now, &ipv4.local, 20000));
    for (uint32_t i = 0; i < 4096; i++) { /* of many addresses, in all places */
        struct gid stranger = ipv4.local;
        stranger.bytes[14] = (uint8_t)(1 + i / 256);
        stranger.bytes[15] = (uint8_t)i;
        assert_true(senders_believe(&senders, now, &stranger, 7));
    }
    assert_false(takes(now, &ipv4.local, 10000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(anything_goes_without_a_habit, forget),
        cmocka_unit_test_setup(small_ones_stay_small, forget),
        cmocka_unit_test_setup(counting_ones_go_on, forget),
        cmocka_unit_test_setup(a_jump_costs_one_packet, forget),
        cmocka_unit_test_setup(a_habit_cannot_be_forged, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
