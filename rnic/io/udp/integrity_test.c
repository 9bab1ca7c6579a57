/* How much damage passes for a sound packet: what is derived in senders.h and roce.c, and no more.
 * Each figure is held against the mean of what was tried, three standard deviations of it apart,
 * and is printed; and a check that is weaker than ours is caught by the same figures. */
#include "rnic/io/udp/integrity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/random.h"

#define TRIALS      1000000u
#define MANY        (2 * TRIALS) /* to tell twice as many from as many */
#define FEW         (TRIALS / 4)
#define LENGTH_MAX  600u
#define BURST_MAX   64u
#define CERTAIN     32u /* the longest burst that CRC-32 notices always */
#define MASKED_BYTE 4u  /* the ICRC does not cover it */
#define REMAINDERS  4294967296.0
#define ALL_IDS     65536u

static const struct path ipv4 = {
    .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
    .source_port = 50000,
};
static const struct path ipv6 = {
    .local = {{0xfd, [15] = 1}}, .remote = {{0xfd, [15] = 2}}, .source_port = 50000};
static const struct instant now = {1};

static struct integrity integrity;
static struct random dice;

static int begin(void **state)
{
    (void)state;
    memset(&integrity, 0, sizeof integrity);
    random_seed(&dice, 11);
    return 0;
}

/* What a sender does with its identifications, and how many of them are believed. */
struct habit {
    const char *name;
    const struct path *path;
    uint16_t (*next)(uint32_t trial);
    uint32_t believed;
};

static uint16_t counting(uint32_t trial)
{
    return (uint16_t)(trial * 3);
}

static uint16_t small(uint32_t trial)
{
    (void)trial;
    return (uint16_t)random_below(&dice, SENDERS_SMALL);
}

static uint16_t any(uint32_t trial)
{
    (void)trial;
    return (uint16_t)random_u64(&dice);
}

static const struct habit over_ipv6 = {"IPv6", &ipv6, any, 1};
static const struct habit unknown = {"IPv4, any identification", &ipv4, any, ALL_IDS};
static const struct habit counts = {"IPv4, counting", &ipv4, counting, 2 * SENDERS_NEAR + 1};
static const struct habit counts_from_0 = {"IPv4, counting from 0", &ipv4, small, SENDERS_SMALL};

/* One that is ours, or a weaker one. */
typedef bool taker(const struct path *path, const uint8_t *bytes, uint32_t body);

static bool take(const struct path *path, const uint8_t *bytes, uint32_t body)
{
    struct roce_ip ip;
    return integrity_check(&integrity, now, path, bytes, body, 0, &ip) == REFUSED_NOT;
}

/* Planted: DF may be anything, and so may be the identification. */
static bool take_whatever_fits(const struct path *path, const uint8_t *bytes, uint32_t body)
{
    struct roce_ip ip;
    return integrity_fits(&integrity, path, bytes, body, 0, &ip);
}

/* Planted: the sender's habit counts for nothing. */
static bool take_any_identification(const struct path *path, const uint8_t *bytes, uint32_t body)
{
    struct roce_ip ip;
    return integrity_fits(&integrity, path, bytes, body, 0, &ip) &&
           (!gid_is_ipv4(&path->local) || ip.dont_fragment);
}

/* Planted: 24 bits of the ICRC count. */
static bool take_a_part(const struct path *path, const uint8_t *bytes, uint32_t body)
{
    struct roce_ip ip = {.dont_fragment = true};
    return ((roce_icrc(path, &ip, bytes, body) ^ roce_icrc_load(bytes + body)) & 0xffffff00) == 0;
}

static void seal(const struct path *path, uint8_t *bytes, uint32_t body, uint16_t identification,
                 bool dont_fragment)
{
    struct roce_ip ip = {identification, dont_fragment};
    roce_icrc_store(bytes + body, roce_icrc(path, &ip, bytes, body));
}

/* A sound packet of the sender, which a queue pair takes for its peer's. Returns its length. */
static uint32_t send(const struct habit *habit, uint32_t trial, uint8_t bytes[])
{
    uint32_t body = BTH_LENGTH + (uint32_t)random_below(&dice, LENGTH_MAX - BTH_LENGTH);
    bytes[random_below(&dice, body)] ^= (uint8_t)random_u64(&dice);
    seal(habit->path, bytes, body, habit->next(trial), true);
    struct roce_ip ip;
    assert_int_equal(integrity_check(&integrity, now, habit->path, bytes, body, 0, &ip),
                     REFUSED_NOT);
    integrity_learn(&integrity, now, habit->path, &ip);
    return body;
}

/* The first and the last of `burst` bits, and some between. Only what the ICRC covers counts.
 * Returns where the first stands. */
static uint32_t damage(uint8_t *bytes, uint32_t length, uint32_t burst)
{
    bool done = false;
    uint8_t masked = bytes[MASKED_BYTE];
    uint32_t first = 0;
    while (!done) {
        first = (uint32_t)random_below(&dice, length * 8 - burst + 1);
        uint64_t between = random_u64(&dice);
        for (uint32_t i = 0; i < burst; i++) {
            if (i == 0 || i == burst - 1 || (between >> i & 1) != 0) {
                uint32_t bit = first + i;
                done |= bit / 8 != MASKED_BYTE;
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
        }
        bytes[MASKED_BYTE] = masked;
    }
    return first;
}

struct figure {
    uint32_t passed;
    double mean; /* of how many may, as derived */
};

/* How many of the bursts of so many bits that begin there fit for some identification, exactly: a
 * flipped bit looks like a difference of the IP header's word that the identification stands in, x
 * times less with each bit that it is further away (roce.c), and what is flipped must look like
 * nothing but a difference of the identification: 16 other bits cancel. Those of the bits between
 * first and last span a space; if it holds what the two look like, one in 2^dimension cancels it.
 */
static double fitting[(LENGTH_MAX + ICRC_LENGTH) * 8][BURST_MAX + 1];

static uint32_t next_bit(uint32_t word)
{
    return word >> 31 != 0 ? (word ^ UINT32_C(0xedb88320)) << 1 | 1 : word << 1;
}

static uint16_t reduce(const uint16_t basis[16], uint16_t vector)
{
    for (int bit = 15; bit >= 0; bit--) {
        if ((vector >> bit & 1) != 0) {
            vector ^= basis[bit];
        }
    }
    return vector;
}

/* Of bursts that begin with the first of `looks`. */
static void derive_at(const uint16_t *looks, uint32_t count, double ret_fitting[BURST_MAX + 1])
{
    uint16_t basis[16] = {0};
    uint32_t dimension = 0;
    ret_fitting[1] = looks[0] == 0;
    for (uint32_t burst = 2; burst <= BURST_MAX && burst <= count; burst++) {
        uint16_t rest = reduce(basis, looks[0] ^ looks[burst - 1]);
        ret_fitting[burst] = rest == 0 ? ldexp(1, -(int)dimension) : 0;
        uint16_t added = reduce(basis, looks[burst - 1]);
        if (added != 0) {
            basis[31 - __builtin_clz(added)] = added;
            dimension++;
        }
    }
}

static int derive(void **state)
{
    (void)state;
    enum {
        BITS = (LENGTH_MAX + ICRC_LENGTH) * 8
    };
    static uint16_t looks[BITS];
    uint32_t word = UINT32_C(1) << 31; /* the word's own last bit */
    for (uint32_t bit = 0; bit < (20 - 8 + 8) * 8; bit++) {
        word = next_bit(word); /* the rest of the IP header, and UDP's */
    }
    for (uint32_t bit = 0; bit < BITS; bit++) {
        word = next_bit(word);
        looks[bit] = bit / 8 == MASKED_BYTE ? 0 : (uint16_t)(word >> 16);
    }
    for (uint32_t first = 0; first < BITS; first++) {
        derive_at(looks + first, BITS - first, fitting[first]);
    }
    return 0;
}

static double chance(const struct habit *habit, uint32_t first, uint32_t burst)
{
    if (!gid_is_ipv4(&habit->path->local)) {
        return burst > CERTAIN ? 1 / REMAINDERS : 0;
    }
    return fitting[first][burst] * habit->believed / ALL_IDS;
}

/* So many packets damaged by bursts of `shortest` to `longest` bits, each behind a sound one. */
static struct figure try_damage(const struct habit *habit, taker *takes, uint32_t trials,
                                uint32_t shortest, uint32_t longest)
{
    static uint8_t bytes[LENGTH_MAX + ICRC_LENGTH];
    struct figure figure = {0, 0};
    (void)begin(NULL);
    for (uint32_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)random_u64(&dice);
    }
    for (uint32_t trial = 0; trial < trials; trial++) {
        uint32_t body = send(habit, trial, bytes);
        uint32_t burst = shortest + (uint32_t)random_below(&dice, longest - shortest + 1);
        uint8_t copy[sizeof bytes];
        memcpy(copy, bytes, body + ICRC_LENGTH);
        uint32_t first = damage(copy, body + ICRC_LENGTH, burst);
        figure.mean += chance(habit, first, burst);
        figure.passed += takes(habit->path, copy, body);
    }
    return figure;
}

/* So many packets that are sound but for an identification that may be any: as damage looks that
 * fits for some identification. */
static struct figure try_identifications(const struct habit *habit, taker *takes, uint32_t trials)
{
    static uint8_t bytes[LENGTH_MAX + ICRC_LENGTH];
    struct figure figure = {0, 0};
    (void)begin(NULL);
    for (uint32_t trial = 0; trial < trials; trial++) {
        uint32_t body = send(habit, trial, bytes);
        seal(habit->path, bytes, body, (uint16_t)random_u64(&dice), true);
        figure.mean += habit->believed / (double)ALL_IDS;
        figure.passed += takes(habit->path, bytes, body);
    }
    return figure;
}

static uint32_t most(const struct figure *figure)
{
    return (uint32_t)floor(figure->mean + 3 * sqrt(figure->mean));
}

static void print(const struct habit *habit, const char *what, uint32_t trials,
                  const struct figure *figure)
{
    printf("%-26s %8u of %u %s pass; derived: %.3f, at most %u\n", habit->name, figure->passed,
           trials, what, figure->mean, most(figure));
}

static void check(const struct habit *habit, const char *what, uint32_t trials,
                  const struct figure *figure)
{
    print(habit, what, trials, figure);
    assert_true(figure->passed <= most(figure));
    assert_true(figure->passed >= figure->mean - 3 * sqrt(figure->mean));
}

/* The figures of a weaker check are not those derived. */
static void check_planted(const struct habit *habit, const char *what, uint32_t trials,
                          const struct figure *figure)
{
    print(habit, what, trials, figure);
    assert_true(figure->passed > most(figure));
}

static void single_bits_never_pass(void **state)
{
    (void)state;
    static const struct habit *const habits[] = {&over_ipv6, &unknown};
    for (uint32_t i = 0; i < sizeof habits / sizeof habits[0]; i++) {
        struct figure figure = try_damage(habits[i], take, TRIALS, 1, 1);
        assert_true(figure.mean == 0);
        check(habits[i], "single bits", TRIALS, &figure);
    }
}

static void bursts_pass_as_rarely_as_derived(void **state)
{
    (void)state;
    static const struct habit *const habits[] = {&over_ipv6, &unknown, &counts, &counts_from_0};
    for (uint32_t i = 0; i < sizeof habits / sizeof habits[0]; i++) {
        uint32_t trials = habits[i] == &unknown ? MANY : TRIALS;
        struct figure figure = try_damage(habits[i], take, trials, 2, BURST_MAX);
        check(habits[i], "bursts", trials, &figure);
    }
}

static void few_identifications_are_believed(void **state)
{
    (void)state;
    static const struct habit *const habits[] = {&unknown, &counts, &counts_from_0};
    for (uint32_t i = 0; i < sizeof habits / sizeof habits[0]; i++) {
        struct figure figure = try_identifications(habits[i], take, FEW);
        check(habits[i], "identifications", FEW, &figure);
    }
}

/* Who has ever sent without it is unknown to us. */
static void none_without_df_is_believed(void **state)
{
    (void)state;
    uint8_t bytes[LENGTH_MAX + ICRC_LENGTH] = {0};
    for (uint32_t identification = 0; identification < ALL_IDS; identification++) {
        seal(&ipv4, bytes, BTH_LENGTH, (uint16_t)identification, false);
        assert_false(take(&ipv4, bytes, BTH_LENGTH));
    }
}

static void weaker_checks_are_caught(void **state)
{
    (void)state;
    struct figure figure = try_damage(&unknown, take_whatever_fits, MANY, 2, BURST_MAX);
    check_planted(&unknown, "bursts, without DF,", MANY, &figure);
    figure = try_damage(&counts, take_any_identification, TRIALS, 2, BURST_MAX);
    check_planted(&counts, "bursts, any identification,", TRIALS, &figure);
    figure = try_damage(&over_ipv6, take_a_part, FEW, 1, 1);
    check_planted(&over_ipv6, "single bits, 24 bits of the ICRC,", FEW, &figure);
    figure = try_identifications(&counts, take_any_identification, FEW);
    check_planted(&counts, "identifications, any,", FEW, &figure);
}

/* A segmented send that comes apart: each packet alone, with the identification of its place. Then
 * one of which nobody has expected anything, and one in the middle of a read. */
static void the_next_of_a_send_that_came_apart_is_expected(void **state)
{
    static const struct {
        uint16_t identification, place, likely;
    } packets[] = {{0, 0, 0},  {1, 0, 2}, {2, 0, 3},     {3, 0, 4}, {0, 0, 0},
                   {9, 0, 10}, {3, 3, 0}, {65535, 0, 0}, {1, 0, 2}};
    uint8_t bytes[BTH_LENGTH + ICRC_LENGTH] = {4};
    memset(&integrity, 0, sizeof integrity);
    for (size_t i = 0; i < sizeof packets / sizeof packets[0]; i++) {
        struct roce_ip ip;
        seal(&ipv4, bytes, BTH_LENGTH, packets[i].identification, true);
        assert_int_equal(
            integrity_check(&integrity, now, &ipv4, bytes, BTH_LENGTH, packets[i].place, &ip),
            REFUSED_NOT);
        assert_int_equal(ip.identification, packets[i].identification);
        assert_int_equal(integrity.likely, packets[i].likely);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_of_a_send_that_came_apart_is_expected),
        cmocka_unit_test_setup(single_bits_never_pass, begin),
        cmocka_unit_test_setup(bursts_pass_as_rarely_as_derived, begin),
        cmocka_unit_test_setup(few_identifications_are_believed, begin),
        cmocka_unit_test_setup(none_without_df_is_believed, begin),
        cmocka_unit_test_setup(weaker_checks_are_caught, begin),
    };
    return cmocka_run_group_tests(tests, derive, NULL);
}
