/* What a sender's habit excludes, and how many damaged packets pass in the end: no more than the
 * chances in senders.h and roce.c allow. The counts are printed. */
#include "rnic/io/senders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/random.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

#define TRIALS     1000000u
#define LENGTH_MAX 600u
#define BURST_MAX  64u

static const struct path ipv4 = {
    .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
    .source_port = 50000,
};
static const struct path ipv6 = {
    .local = {{0xfd, [15] = 1}}, .remote = {{0xfd, [15] = 2}}, .source_port = 50000};

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

/* One bit, or a burst: the first and the last of up to BURST_MAX bits, and some between. Only what
 * the ICRC covers counts as damage. */
static void damage(struct random *random, uint8_t *bytes, uint32_t length)
{
    bool done = false;
    uint8_t masked = bytes[4];
    while (!done) {
        uint32_t burst =
            random_below(random, 2) == 0 ? 1 : 2 + (uint32_t)random_below(random, BURST_MAX - 1);
        uint32_t first = (uint32_t)random_below(random, length * 8 - burst + 1);
        uint64_t between = random_u64(random);
        for (uint32_t i = 0; i < burst; i++) {
            if (i == 0 || i == burst - 1 || (between >> i & 1) != 0) {
                uint32_t bit = first + i;
                done |= bit / 8 != 4;
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
        }
        bytes[4] = masked;
    }
}

static uint16_t counting(struct random *random, uint32_t trial)
{
    (void)random;
    return (uint16_t)(trial * 3);
}

static uint16_t small(struct random *random, uint32_t trial)
{
    (void)trial;
    return (uint16_t)random_below(random, SENDERS_SMALL);
}

static uint16_t any(struct random *random, uint32_t trial)
{
    (void)trial;
    return (uint16_t)random_u64(random);
}

/* As ingress does it. */
static bool accepts(const struct path *path, const uint8_t *bytes, uint32_t length)
{
    struct roce_ip ip, hint = {.dont_fragment = true};
    if (!roce_icrc_verify(path, &hint, bytes, length, roce_icrc_load(bytes + length), &ip)) {
        return false;
    }
    return !gid_is_ipv4(&path->local) ||
           (ip.dont_fragment && takes((struct instant){1}, &path->local, ip.identification));
}

/* How many of TRIALS damaged packets pass, each behind a sound one of the same sender. */
static uint32_t passes(const struct path *path,
                       uint16_t (*identification)(struct random *random, uint32_t trial))
{
    uint8_t bytes[LENGTH_MAX + ICRC_LENGTH];
    struct random random;
    uint32_t passed = 0;
    random_seed(&random, 11);
    for (uint32_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)random_u64(&random);
    }
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        uint32_t length = BTH_LENGTH + (uint32_t)random_below(&random, LENGTH_MAX - BTH_LENGTH);
        struct roce_ip sent = {identification(&random, trial), true};
        bytes[random_below(&random, length)] ^= (uint8_t)random_u64(&random);
        roce_icrc_store(bytes + length, roce_icrc(path, &sent, bytes, length));
        assert_true(accepts(path, bytes, length));
        uint8_t copy[sizeof bytes];
        memcpy(copy, bytes, length + ICRC_LENGTH);
        damage(&random, copy, length + ICRC_LENGTH);
        passed += accepts(path, copy, length);
    }
    return passed;
}

/* Up to five standard deviations above `chance` of TRIALS. */
static void check_damage(const char *sender, const struct path *path,
                         uint16_t (*identification)(struct random *random, uint32_t trial),
                         double chance, uint32_t limit)
{
    uint32_t passed = passes(path, identification);
    printf("%-28s %u of %u damaged packets pass; derived: %.3f, limit %u\n", sender, passed, TRIALS,
           chance * TRIALS, limit);
    assert_in_range(passed, 0, limit);
}

static void damage_passes_as_rarely_as_derived(void **state)
{
    (void)state;
    static const double all = 4294967296.0;
    check_damage("IPv6", &ipv6, any, 1 / all, 0);
    forget(state);
    check_damage("IPv4, any identification", &ipv4, any, 65536 / all, 34);
    forget(state);
    check_damage("IPv4, counting", &ipv4, counting, (2 * SENDERS_NEAR + 1) / all, 9);
    forget(state);
    check_damage("IPv4, counting from 0", &ipv4, small, SENDERS_SMALL / all, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(anything_goes_without_a_habit, forget),
        cmocka_unit_test_setup(small_ones_stay_small, forget),
        cmocka_unit_test_setup(counting_ones_go_on, forget),
        cmocka_unit_test_setup(a_jump_costs_one_packet, forget),
        cmocka_unit_test_setup(a_habit_cannot_be_forged, forget),
        cmocka_unit_test_setup(damage_passes_as_rarely_as_derived, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
