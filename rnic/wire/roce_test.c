#include "rnic/wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/random.h"
#include "rnic/wire/samples.h"

static const struct roce_ip zero_with_df = {0, true};

static void real_icrcs_are_computed(void **state)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        assert_int_equal(roce_icrc(&view.path, &view.ip, view.bth, view.length), samples[i].icrc);
        struct roce_crc crc =
            roce_crc_start(&view.path, &view.ip, view.length, view.bth, view.length / 2 + 6);
        roce_crc_add(&crc, view.bth + view.length / 2 + 6, view.length - view.length / 2 - 6);
        roce_crc_add(&crc, NULL, 0);
        assert_int_equal(roce_crc_finish(&crc), samples[i].icrc);
    }
}

static void real_identifications_are_found(void **state)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        struct roce_ip found = {1, false};
        assert_true(roce_icrc_verify(&view.path, &zero_with_df, view.bth, view.length,
                                     samples[i].icrc, &found));
        if (gid_is_ipv4(&view.path.local)) {
            assert_int_equal(found.identification, view.ip.identification);
            assert_int_equal(found.dont_fragment, view.ip.dont_fragment);
        }
    }
}

static struct path ipv4_path(void)
{
    struct path path = {.source_port = 50000};
    static const uint8_t local[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1};
    static const uint8_t remote[16] = {[10] = 0xff, 0xff, 192, 0, 2, 9};
    memcpy(path.local.bytes, local, 16);
    memcpy(path.remote.bytes, remote, 16);
    return path;
}

/* Any identification, DF or not, any length, any hint: this recomputes the constants too. */
static void any_identification_is_found(void **state)
{
    static uint8_t bytes[9000];
    struct path path = ipv4_path();
    struct random random;
    random_seed(&random, 5);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)random_u64(&random);
    }
    for (uint32_t round = 0; round < 4000; round++) {
        struct roce_ip sent = {(uint16_t)random_u64(&random), random_below(&random, 2) != 0};
        struct roce_ip hint = {(uint16_t)random_u64(&random), random_below(&random, 2) != 0};
        size_t length = round < 500 ? 12 + round : 12 + random_below(&random, sizeof bytes - 12);
        uint32_t icrc = roce_icrc(&path, &sent, bytes, length);
        struct roce_ip found;
        assert_true(roce_icrc_verify(&path, &hint, bytes, length, icrc, &found));
        assert_int_equal(found.identification, sent.identification);
        assert_int_equal(found.dont_fragment, sent.dont_fragment);
    }
    static uint8_t longest[UINT16_MAX - 52];
    struct roce_ip sent = {0xabcd, false}, found;
    uint32_t icrc = roce_icrc(&path, &sent, longest, sizeof longest);
    assert_true(roce_icrc_verify(&path, &zero_with_df, longest, sizeof longest, icrc, &found));
    assert_int_equal(found.identification, 0xabcd);
}

static struct roce_likeness *place_of(struct roce_series *series, size_t length)
{
    return &series->places[length / 4 % ROCE_SERIES_PLACES];
}

/* The short way gives what the long one gives, whatever came before: all identifications' bits,
 * changes of path, length and the BTH's fifth byte, no DF. */
static void series_give_the_same_icrc(void **state)
{
    static const size_t lengths[] = {12, 20, 28, 256, 1040, 4128};
    static uint8_t bytes[4128];
    struct roce_series series = {0};
    struct random random;
    random_seed(&random, 8);
    struct path path = ipv4_path();
    size_t length = 1040;
    uint32_t short_ways = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t dice = random_u64(&random);
        for (uint32_t k = 0; k < 3; k++) {
            bytes[random_u64(&random) % length] = (uint8_t)(dice >> 8);
        }
        if (dice % 16 == 0) {
            bytes[4] = (uint8_t)(dice >> 16);
        }
        if (dice % 32 == 1) {
            length = lengths[(dice >> 24) % 6];
        }
        if (dice % 64 == 2) {
            path.remote.bytes[15] ^= 1;
        }
        if (dice % 128 == 3) {
            path.local.bytes[10] ^= 0xff; /* IPv6 and back */
        }
        uint16_t identification =
            i % 32 < 16 ? (uint16_t)(1 << i % 16) : (uint16_t)random_u64(&random);
        struct roce_ip ip = {.identification = identification, .dont_fragment = dice % 256 != 4};
        short_ways += place_of(&series, length)->length == length;
        uint32_t icrc = roce_icrc(&path, &ip, bytes, length);
        assert_int_equal(roce_icrc_in_series(&series, &path, &ip, bytes, length), icrc);
        struct roce_ip found;
        assert_true(roce_icrc_verify_in_series(&series, &path, &ip, bytes, length, icrc, &found));
        assert_false(
            roce_icrc_verify_in_series(&series, &path, &ip, bytes, length, icrc ^ 1, &found));
    }
    assert_true(short_ways > 8000);
}

/* Whatever the series was of before, what is alike has exactly the ICRC that it would have alone.
 */
static void what_is_alike_is_checked_at_once(void **state)
{
    (void)state;
    static uint8_t bytes[1040];
    struct roce_series series = {0};
    struct path paths[2] = {ipv4_path(), ipv4_path()};
    struct random random;
    uint32_t alike = 0;
    random_seed(&random, 9);
    paths[1].local.bytes[10] ^= 0xff; /* IPv6 */
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t drawn = random_u64(&random);
        const struct path *path = &paths[i / 64 % 2];
        size_t length = drawn % 64 == 0 ? 528 : 1040; /* of one place */
        uint16_t identification = (uint16_t)(drawn >> 16);
        struct roce_ip ip = {.identification = identification, .dont_fragment = true};
        bytes[4] = drawn % 32 == 1 ? (uint8_t)(drawn >> 8) : bytes[4];
        bytes[5 + (drawn >> 32) % (length - 5)] = (uint8_t)(drawn >> 8);
        const struct roce_likeness *like = roce_likeness(&series, path, bytes, length);
        uint32_t icrc = roce_icrc(path, &ip, bytes, length);
        if (like != NULL) {
            alike++;
            assert_int_equal(like->length, length);
            assert_true(roce_icrc_is_alike(like, identification, bytes, icrc));
            assert_false(roce_icrc_is_alike(like, identification, bytes, icrc ^ 1u << drawn % 32));
            assert_int_equal(roce_icrc_is_alike(like, identification ^ 1, bytes, icrc),
                             !gid_is_ipv4(&path->local));
        }
        (void)roce_icrc_in_series(&series, path, &ip, bytes, length);
    }
    assert_in_range(alike, 10000, 19900);
}

/* A tag of selective repeat stands in the BTH's fifth byte, another for each queue pair. */
static void any_fifth_byte_goes_the_short_way(void **state)
{
    static uint8_t bytes[1036];
    struct roce_series series = {0};
    struct path path = ipv4_path();
    struct roce_ip ip = {.identification = 7, .dont_fragment = true};
    bytes[4] = 0x2a;
    for (uint32_t i = 0; i < 2; i++) {
        (void)roce_icrc_in_series(&series, &path, &ip, bytes, sizeof bytes);
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        bytes[4] = (uint8_t)byte;
        uint32_t icrc = roce_icrc(&path, &ip, bytes, sizeof bytes);
        assert_int_equal(roce_icrc_in_series(&series, &path, &ip, bytes, sizeof bytes), icrc);
        place_of(&series, sizeof bytes)->masking ^= 1; /* what only the short way looks at */
        assert_int_equal(roce_icrc_in_series(&series, &path, &ip, bytes, sizeof bytes), icrc ^ 1);
        place_of(&series, sizeof bytes)->masking ^= 1;
    }
}

/* As an acknowledgement and a request do, neither of which puts the other out of its place. */
static void two_lengths_by_turns_go_the_short_way(void **state)
{
    (void)state;
    static uint8_t bytes[28];
    struct roce_series series = {0};
    struct path path = ipv4_path();
    for (uint32_t i = 0; i < 8; i++) {
        size_t length = i % 2 == 0 ? 28 : 20;
        struct roce_ip ip = {.identification = (uint16_t)(i % 2), .dont_fragment = true};
        bytes[11] = (uint8_t)i;
        uint32_t icrc = roce_icrc(&path, &ip, bytes, length);
        bool is_short = place_of(&series, length)->length == length;
        assert_int_equal(is_short, i >= 4);
        assert_int_equal(roce_icrc_in_series(&series, &path, &ip, bytes, length), icrc);
    }
}

/* 2^17 of 2^32 ICRCs fit, so of 2^20 random ones 32 are expected; 5 sigma are 28. */
static void random_icrcs_pass_as_rarely_as_derived(void **state)
{
    enum {
        TRIALS = 1 << 20
    };
    uint8_t bytes[12] = {4};
    struct path path = ipv4_path();
    struct random random;
    uint32_t passed = 0;
    random_seed(&random, 6);
    for (uint32_t i = 0; i < TRIALS; i++) {
        struct roce_ip found;
        passed += roce_icrc_verify(&path, &zero_with_df, bytes, sizeof bytes,
                                   (uint32_t)random_u64(&random), &found);
    }
    assert_in_range(passed, 32 - 28, 32 + 28);
}

/* Whether a pattern of flipped bits is noticed hangs on its distance from the identification alone,
 * not on the packet. So one packet of full length stands for all: with DF as it was no single bit
 * passes, and two do if DF may have been anything. */
static void flipped_bits_over_ipv4(void **state)
{
    static uint8_t bytes[28 + 4096];
    struct path path = ipv4_path();
    uint32_t icrc = roce_icrc(&path, &zero_with_df, bytes, sizeof bytes);
    uint32_t passed = 0;
    for (uint32_t bit = 0; bit < sizeof bytes * 8; bit++) {
        struct roce_ip found = {7, true};
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bool passes = roce_icrc_verify(&path, &zero_with_df, bytes, sizeof bytes, icrc, &found);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit / 8 == 4) { /* FECN, BECN: not covered */
            assert_true(passes && found.dont_fragment && found.identification == 0);
        } else if (passes) {
            assert_false(found.dont_fragment);
            passed++;
        } else {
            assert_int_equal(found.identification, 7);
        }
    }
    assert_int_equal(passed, 2);
    for (int bit = 0; bit < 32; bit++) {
        struct roce_ip found;
        assert_false(roce_icrc_verify(&path, &zero_with_df, bytes, sizeof bytes,
                                      icrc ^ UINT32_C(1) << bit, &found));
    }
}

/* The word's difference that one bit later in the packet looks like: x times less. */
static uint32_t next_bit(uint32_t word)
{
    return word >> 31 != 0 ? (word ^ UINT32_C(0xedb88320)) << 1 | 1 : word << 1;
}

/* Every burst of up to 12 bits at every place of the longest packet, DF known. What one bit looks
 * like is computed by another way than in roce.c, which must agree on those that pass. */
static void bursts_over_ipv4_pass_as_rarely_as_derived(void **state)
{
    enum {
        BURST = 12,
        BITS = (28 + 4096) * 8
    };
    static uint8_t bytes[BITS / 8];
    static uint32_t looks[BITS];
    struct path path = ipv4_path();
    uint32_t icrc = roce_icrc(&path, &zero_with_df, bytes, sizeof bytes);
    uint32_t word = UINT32_C(1) << 31; /* the word's own last bit */
    for (uint32_t bit = 0; bit < (20 - 8 + 8) * 8; bit++) {
        word = next_bit(word); /* the rest of the IP header, and UDP's */
    }
    for (uint32_t bit = 0; bit < BITS; bit++) {
        looks[bit] = word = next_bit(word);
    }
    uint32_t tried = 0, passed = 0;
    for (uint32_t first = 5 * 8; first + BURST <= BITS; first++) {
        for (uint32_t pattern = 3; pattern < 1u << BURST; pattern += 2) { /* the first bit is hit */
            uint32_t difference = 0;
            for (uint32_t i = 0; i < BURST; i++) {
                difference ^= looks[first + i] & -(pattern >> i & 1);
            }
            tried++;
            if ((difference & 0xffff0000u) != 0) {
                continue;
            }
            passed++;
            struct roce_ip found = {0};
            for (uint32_t i = 0; i < BURST; i++) {
                bytes[(first + i) / 8] ^= (uint8_t)((pattern >> i & 1) << (first + i) % 8);
            }
            assert_true(roce_icrc_verify(&path, &zero_with_df, bytes, sizeof bytes, icrc, &found));
            assert_true(found.dont_fragment);
            assert_int_equal(found.identification,
                             (difference & 0xff) << 8 | (difference >> 8 & 0xff));
            memset(bytes + first / 8, 0,
                   BURST / 8 + 2 < sizeof bytes - first / 8 ? BURST / 8 + 2
                                                            : sizeof bytes - first / 8);
        }
    }
    double derived = tried / 65536.0;
    printf("%u of %u bursts of 2 to %d bits pass; derived: %.0f\n", passed, tried, BURST, derived);
    assert_true(passed < derived * 1.2 && passed > derived * 0.8);
}

static void flipped_bits_over_ipv6(void **state)
{
    uint32_t count = 0;
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        uint8_t bytes[344];
        memcpy(bytes, view.bth, view.length);
        for (uint32_t bit = 0; bit < view.length * 8 && !gid_is_ipv4(&view.path.local); bit++) {
            struct roce_ip found;
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(roce_icrc_verify(&view.path, &zero_with_df, bytes, view.length,
                                              samples[i].icrc, &found),
                             bit / 8 == 4);
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            count++;
        }
    }
    assert_true(count > 2000);
}

static void another_address_or_port_is_noticed(void **state)
{
    uint8_t bytes[64] = {0};
    struct path path = ipv4_path();
    struct roce_ip found;
    uint32_t icrc = roce_icrc(&path, &zero_with_df, bytes, sizeof bytes);
    struct path other = path;
    other.source_port++;
    assert_false(roce_icrc_verify(&other, &zero_with_df, bytes, sizeof bytes, icrc, &found));
    other = path;
    other.remote.bytes[15]++;
    assert_false(roce_icrc_verify(&other, &zero_with_df, bytes, sizeof bytes, icrc, &found));
    assert_false(roce_icrc_verify(&path, &zero_with_df, bytes, 11, icrc, &found));
    assert_false(roce_icrc_verify(&path, &zero_with_df, bytes, 60, icrc, &found));
}

static void a_path_reversed_twice_is_itself(void **state)
{
    struct path path = ipv4_path();
    path.traffic_class = 3;
    struct path back = path_reverse(&path);
    assert_true(gid_equal(&back.local, &path.remote));
    assert_true(gid_equal(&back.remote, &path.local));
    assert_int_equal(back.source_port, path.source_port);
    back = path_reverse(&back);
    assert_memory_equal(&back, &path, sizeof path);
}

static void icrc_stands_little_endian(void **state)
{
    uint8_t bytes[4];
    roce_icrc_store(bytes, 0x01020384);
    assert_memory_equal(bytes, "\x84\x03\x02\x01", 4);
    assert_int_equal(roce_icrc_load(bytes), 0x01020384);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_icrcs_are_computed),
        cmocka_unit_test(real_identifications_are_found),
        cmocka_unit_test(any_identification_is_found),
        cmocka_unit_test(series_give_the_same_icrc),
        cmocka_unit_test(what_is_alike_is_checked_at_once),
        cmocka_unit_test(two_lengths_by_turns_go_the_short_way),
        cmocka_unit_test(any_fifth_byte_goes_the_short_way),
        cmocka_unit_test(random_icrcs_pass_as_rarely_as_derived),
        cmocka_unit_test(flipped_bits_over_ipv4),
        cmocka_unit_test(bursts_over_ipv4_pass_as_rarely_as_derived),
        cmocka_unit_test(flipped_bits_over_ipv6),
        cmocka_unit_test(another_address_or_port_is_noticed),
        cmocka_unit_test(a_path_reversed_twice_is_itself),
        cmocka_unit_test(icrc_stands_little_endian),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
