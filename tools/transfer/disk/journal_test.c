/* What a journal says, and what it does not make anybody believe; the same of the names of files
 * that stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/journal.h"
#include "tools/transfer/disk/place.h"
#include "tools/transfer/disk/scratch.h"

#define RECORDS 5
#define LENGTH  (JOURNAL_HEAD_LENGTH + RECORDS * JOURNAL_RECORD_LENGTH)

static const struct journal_head head = {.size = 30 << 20,
                                         .mtime_s = -7,
                                         .mtime_ns = 999999999,
                                         .inode = 42,
                                         .name = {1, 2, 3},
                                         .random = 0x1122334455667788};

static struct piece piece_number(unsigned i)
{
    return (struct piece){.offset = (uint64_t)i * PIECE_LENGTH_MIN,
                          .length = PIECE_LENGTH_MIN,
                          .digest = {(uint8_t)(i + 1)}};
}

static void make_journal(uint8_t bytes[LENGTH])
{
    journal_pack_head(&head, bytes);
    for (unsigned i = 0; i < RECORDS; i++) {
        const struct piece piece = piece_number(i);
        journal_pack_record(head.random, i, false, &piece,
                            bytes + JOURNAL_HEAD_LENGTH + i * JOURNAL_RECORD_LENGTH);
    }
}

static enum journal_state parse(const void *bytes, size_t length, unsigned *ret_count,
                                unsigned *ret_damaged, bool *ret_torn)
{
    struct journal_claims claims;
    uint8_t *exact = malloc(length + 1); /* so that a sanitizer sees a byte too far */
    memcpy(exact, bytes, length);
    enum journal_state state = journal_parse(exact, length, &head, &claims);
    *ret_count = claims.count;
    *ret_damaged = claims.damaged;
    *ret_torn = claims.torn;
    for (unsigned i = 0; i < claims.count; i++) {
        const struct piece expected = piece_number(claims.list[i].number);
        assert_memory_equal(&claims.list[i].piece, &expected, sizeof(expected));
    }
    journal_claims_clear(&claims);
    free(exact);
    return state;
}

static void what_was_written_is_read(void **state)
{
    uint8_t bytes[LENGTH];
    unsigned count, damaged;
    bool torn;
    make_journal(bytes);
    assert_int_equal(parse(bytes, LENGTH, &count, &damaged, &torn), JOURNAL_SOUND);
    assert_int_equal(count, RECORDS);
    assert_int_equal(damaged, 0);
    assert_false(torn);
}

static void a_torn_tail_is_told_and_not_believed(void **state)
{
    uint8_t bytes[LENGTH];
    make_journal(bytes);
    for (size_t length = 0; length < LENGTH; length++) {
        unsigned count, damaged;
        bool torn;
        enum journal_state is = parse(bytes, length, &count, &damaged, &torn);
        if (length < JOURNAL_HEAD_LENGTH) {
            assert_int_equal(is, JOURNAL_NONE);
            continue;
        }
        size_t records = (length - JOURNAL_HEAD_LENGTH) / JOURNAL_RECORD_LENGTH;
        assert_int_equal(is, JOURNAL_SOUND);
        assert_int_equal(count, records);
        assert_int_equal(torn, length != JOURNAL_HEAD_LENGTH + records * JOURNAL_RECORD_LENGTH);
    }
}

static void each_flipped_bit_is_told_and_not_believed(void **state)
{
    uint8_t bytes[LENGTH];
    make_journal(bytes);
    for (size_t bit = 0; bit < 8 * LENGTH; bit++) {
        unsigned count, damaged;
        bool torn;
        bytes[bit / 8] ^= 1 << bit % 8;
        enum journal_state is = parse(bytes, LENGTH, &count, &damaged, &torn);
        if (bit / 8 < JOURNAL_HEAD_LENGTH) {
            assert_int_not_equal(is, JOURNAL_SOUND);
            assert_int_equal(count, 0);
        } else {
            assert_int_equal(is, JOURNAL_SOUND);
            assert_int_equal(count, RECORDS - 1);
            assert_int_equal(damaged, 1);
        }
        bytes[bit / 8] ^= 1 << bit % 8;
    }
}

static void a_journal_of_something_else_is_not_believed(void **state)
{
    struct journal_head other = head;
    struct journal_claims claims;
    uint8_t bytes[LENGTH];
    make_journal(bytes);
    other.inode++;
    assert_int_equal(journal_parse(bytes, LENGTH, &other, &claims), JOURNAL_OTHER_FILE);
    other = head;
    other.name[15]++;
    assert_int_equal(journal_parse(bytes, LENGTH, &other, &claims), JOURNAL_OTHER_FILE);
    other = head;
    other.mtime_ns--;
    assert_int_equal(journal_parse(bytes, LENGTH, &other, &claims), JOURNAL_OTHER_SOURCE);
    other = head;
    other.size++;
    assert_int_equal(journal_parse(bytes, LENGTH, &other, &claims), JOURNAL_OTHER_SOURCE);
    bytes[11]++; /* the version's last octet */
    assert_int_equal(journal_parse(bytes, LENGTH, &head, &claims), JOURNAL_OTHER_VERSION);
    assert_null(claims.list);
}

/* Records with right checksums that cannot have been written here: one of another journal, one in
 * another place, pieces beyond the file, without length, too long. */
static void right_checksums_do_not_suffice(void **state)
{
    static const struct {
        uint64_t random_off;
        uint32_t number_off;
        struct piece piece;
    } cases[] = {{1, 0, {.offset = 0, .length = 1}},
                 {0, 1, {.offset = 0, .length = 1}},
                 {0, 0, {.offset = 30 << 20, .length = 1}},
                 {0, 0, {.offset = UINT64_MAX, .length = 2}},
                 {0, 0, {.offset = 1, .length = UINT64_MAX}},
                 {0, 0, {.offset = 5, .length = 0}},
                 {0, 0, {.offset = 0, .length = PIECE_LENGTH_MIN + 1}}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[LENGTH];
        unsigned count, damaged;
        bool torn;
        make_journal(bytes);
        journal_pack_record(head.random + cases[i].random_off, 2 + cases[i].number_off, false,
                            &cases[i].piece,
                            bytes + JOURNAL_HEAD_LENGTH + 2 * JOURNAL_RECORD_LENGTH);
        assert_int_equal(parse(bytes, LENGTH, &count, &damaged, &torn), JOURNAL_SOUND);
        assert_int_equal(count, RECORDS - 1);
        assert_int_equal(damaged, 1);
    }
}

static struct journal_claims parse_two(struct piece one, struct piece other, bool struck)
{
    uint8_t bytes[JOURNAL_HEAD_LENGTH + 2 * JOURNAL_RECORD_LENGTH];
    struct journal_claims claims;
    journal_pack_head(&head, bytes);
    journal_pack_record(head.random, 0, struck, &one, bytes + JOURNAL_HEAD_LENGTH);
    journal_pack_record(head.random, 1, false, &other,
                        bytes + JOURNAL_HEAD_LENGTH + JOURNAL_RECORD_LENGTH);
    assert_int_equal(journal_parse(bytes, sizeof(bytes), &head, &claims), JOURNAL_SOUND);
    return claims;
}

static void the_later_of_two_holds_and_what_overlaps_does_not(void **state)
{
    struct piece one = piece_number(3), other = piece_number(3);
    other.digest[0] = 99;
    struct journal_claims claims = parse_two(one, other, false);
    assert_int_equal(claims.count, 1);
    assert_int_equal(claims.list[0].piece.digest[0], 99);
    journal_claims_clear(&claims);
    other = piece_number(1); /* written out of order */
    claims = parse_two(one, other, false);
    assert_int_equal(claims.count, 2);
    assert_int_equal(claims.list[0].number, 1);
    journal_claims_clear(&claims);
    claims = parse_two(one, other, true);
    assert_int_equal(claims.count, 1);
    journal_claims_clear(&claims);
    other = piece_number(3);
    other.offset++;
    other.length--;
    claims = parse_two(one, other, false);
    assert_int_equal(claims.count, 0);
    journal_claims_clear(&claims);
}

static int make_scratch(void **state)
{
    *state = scratch_create();
    return 0;
}

static int remove_scratch(void **state)
{
    scratch_destroy(*state);
    return 0;
}

/* In rows of records that follow each other, some of which are struck already. */
static void many_are_struck_at_once(void **state)
{
    const struct scratch *scratch = *state;
    struct journal_head large = head;
    struct journal journal;
    struct journal_claims claims;
    large.size = (uint64_t)300 * PIECE_LENGTH_MIN;
    assert_int_equal(journal_create(&journal, scratch->fd, "j", &large, false), 0);
    for (unsigned i = 0; i < 300; i++) { /* two of each ten in the other order */
        unsigned at = i % 10 == 3 ? i + 1 : i % 10 == 4 ? i - 1 : i;
        const struct piece piece = {.offset = (uint64_t)at * PIECE_LENGTH_MIN,
                                    .length = PIECE_LENGTH_MIN};
        journal_add(&journal, -1, &piece);
    }
    journal_close(&journal, -1);
    assert_int_equal(journal_open(&journal, scratch->fd, "j", &large, false, &claims),
                     JOURNAL_SOUND);
    assert_int_equal(claims.count, 300);
    journal_strike(&journal, &claims.list[50], 1);
    journal_strike(&journal, &claims.list[10], 280);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(claims.list[i].piece.offset, (uint64_t)i * PIECE_LENGTH_MIN);
        assert_int_equal(claims.list[i].gone, i >= 10 && i < 290);
    }
    journal_claims_clear(&claims);
    journal_close(&journal, -1);
    assert_int_equal(journal_open(&journal, scratch->fd, "j", &large, false, &claims),
                     JOURNAL_SOUND);
    assert_int_equal(claims.count, 20);
    assert_int_equal(claims.damaged, 0);
    assert_int_equal(claims.list[10].piece.offset, (uint64_t)290 * PIECE_LENGTH_MIN);
    journal_claims_clear(&claims);
    journal_close(&journal, -1);
}

/* A disk that has no room for the next record has those before it. */
static void what_was_noted_is_of_use_when_nothing_more_can_be(void **state)
{
    const struct scratch *scratch = *state;
    struct journal journal;
    const struct piece pieces[2] = {piece_number(0), piece_number(1)};
    for (int durable = 0; durable < 2; durable++) {
        for (int before = 0; before < 2; before++) {
            assert_int_equal(journal_create(&journal, scratch->fd, "j", &head, durable == 1), 0);
            if (before == 1) {
                journal_add(&journal, journal.fd, &pieces[0]);
                journal_close(&journal, journal.fd);
                struct journal_claims claims;
                assert_int_equal(
                    journal_open(&journal, scratch->fd, "j", &head, durable == 1, &claims),
                    JOURNAL_SOUND);
                journal_claims_clear(&claims);
            }
            int closed = openat(scratch->fd, "j", O_RDONLY); /* nothing can be written to it */
            assert_int_equal(dup2(closed, journal.fd), journal.fd);
            close(closed);
            journal_add(&journal, journal.fd, &pieces[1]);
            journal_close(&journal, journal.fd);
            assert_int_equal(journal_is_of_use(&journal), before == 1);
        }
    }
}

static void on_disk_it_goes_on_where_it_was(void **state)
{
    const struct scratch *scratch = *state;
    struct journal journal;
    struct journal_claims claims;
    for (int durable = 0; durable < 2; durable++) {
        assert_int_equal(journal_create(&journal, scratch->fd, "j", &head, durable == 1), 0);
        assert_false(journal_is_of_use(&journal));
        for (unsigned i = 0; i < 2; i++) {
            const struct piece piece = piece_number(i);
            journal_add(&journal, journal.fd, &piece);
        }
        const struct piece small = {.offset = 20 << 20, .length = JOURNAL_PIECE_MIN - 1};
        journal_add(&journal, journal.fd, &small);
        assert_true(journal_is_of_use(&journal));
        journal_close(&journal, journal.fd);
        assert_int_equal(journal_open(&journal, scratch->fd, "j", &head, false, &claims),
                         JOURNAL_SOUND);
        assert_int_equal(claims.count, 2);
        journal_strike(&journal, &claims.list[0], 1);
        const struct piece piece = piece_number(4);
        journal_add(&journal, journal.fd, &piece);
        journal_close(&journal, -1);
        journal_claims_clear(&claims);
        assert_int_equal(journal_open(&journal, scratch->fd, "j", &head, false, &claims),
                         JOURNAL_SOUND);
        assert_int_equal(claims.count, 2);
        assert_int_equal(claims.damaged, 0);
        assert_int_equal(claims.list[0].piece.offset, PIECE_LENGTH_MIN);
        assert_int_equal(claims.list[1].piece.offset, 4 * PIECE_LENGTH_MIN);
        journal_claims_clear(&claims);
        journal_close(&journal, -1);
    }
}

static enum journal_state open_and_close(const struct scratch *scratch, const char *name)
{
    struct journal journal;
    struct journal_claims claims;
    enum journal_state state = journal_open(&journal, scratch->fd, name, &head, false, &claims);
    journal_claims_clear(&claims);
    journal_close(&journal, -1);
    return state;
}

static void what_others_can_have_made_is_no_journal(void **state)
{
    const struct scratch *scratch = *state;
    struct journal journal;
    assert_int_equal(journal_create(&journal, scratch->fd, "j", &head, false), 0);
    journal_close(&journal, -1);
    assert_int_equal(open_and_close(scratch, "j"), JOURNAL_SOUND);
    assert_int_equal(open_and_close(scratch, "none"), JOURNAL_MISSING);
    symlinkat("j", scratch->fd, "l");
    assert_int_equal(open_and_close(scratch, "l"), JOURNAL_MISSING);
    mkfifoat(scratch->fd, "p", 0600);
    assert_int_equal(open_and_close(scratch, "p"), JOURNAL_MISSING);
    assert_int_equal(fchmodat(scratch->fd, "j", 0620, 0), 0);
    assert_int_equal(open_and_close(scratch, "j"), JOURNAL_MISSING);
    assert_int_equal(fchmodat(scratch->fd, "j", 0600, 0), 0);
    assert_int_equal(linkat(scratch->fd, "j", scratch->fd, "k", 0), 0);
    assert_int_equal(open_and_close(scratch, "j"), JOURNAL_MISSING);
    unlinkat(scratch->fd, "k", 0);
    if (geteuid() == 0 && fchownat(scratch->fd, "j", 12345, -1, 0) == 0) {
        assert_int_equal(open_and_close(scratch, "j"), JOURNAL_MISSING);
    }
}

/* The name is always the same, and what has it is taken only if nobody else can have made it. */
static void what_stays_is_found_again(void **state)
{
    const struct scratch *scratch = *state;
    struct place place, other;
    const char *flaw;
    bool existed;
    assert_int_equal(place_begin_kept(&place, scratch->fd, "x", REPLACE_FILES, &existed, &flaw), 0);
    assert_false(existed);
    assert_int_equal(place_write(&place, "abc", 3, 0), 0);
    assert_int_equal(place_begin_kept(&other, scratch->fd, "x", REPLACE_FILES, &existed, &flaw),
                     EBUSY);
    place_leave(&place);
    assert_int_equal(place_begin_kept(&place, scratch->fd, "x", REPLACE_FILES, &existed, &flaw), 0);
    assert_true(existed);
    assert_null(flaw);
    char name[PLACE_TEMPORARY_LENGTH + 1];
    strcpy(name, place.temporary);
    scratch_expect(scratch, name, "abc");
    fchmod(place.fd, 0660);
    place_leave(&place);
    assert_int_equal(place_begin_kept(&place, scratch->fd, "x", REPLACE_FILES, &existed, &flaw), 0);
    assert_false(existed);
    assert_string_equal(flaw, "could be written to by others");
    place_abandon(&place);
    symlinkat("/etc/passwd", scratch->fd, name);
    assert_int_equal(place_begin_kept(&place, scratch->fd, "x", REPLACE_FILES, &existed, &flaw), 0);
    assert_non_null(flaw);
    place_abandon(&place);
    assert_int_equal(scratch_count(scratch), 0);
}

static void the_sweep_leaves_what_has_a_journal_for_a_week(void **state)
{
    const struct scratch *scratch = *state;
    const char *data = ".weir-0123456789abcdef", *journal = ".weir-0123456789abcdef.journal";
    scratch_write(scratch, data, "x");
    scratch_write(scratch, journal, "x");
    place_sweep(scratch->fd);
    assert_int_equal(scratch_count(scratch), 2);
    const struct timespec old[2] = {{.tv_sec = time(NULL) - PLACE_KEPT_S - 1},
                                    {.tv_sec = time(NULL) - PLACE_KEPT_S - 1}};
    utimensat(scratch->fd, journal, old, 0);
    place_sweep(scratch->fd);
    assert_int_equal(scratch_count(scratch), 0);
    scratch_write(scratch, journal, "x");
    place_sweep(scratch->fd);
    assert_int_equal(scratch_count(scratch), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, make_scratch, remove_scratch)
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(a_torn_tail_is_told_and_not_believed),
        cmocka_unit_test(each_flipped_bit_is_told_and_not_believed),
        cmocka_unit_test(a_journal_of_something_else_is_not_believed),
        cmocka_unit_test(right_checksums_do_not_suffice),
        cmocka_unit_test(the_later_of_two_holds_and_what_overlaps_does_not),
        T(many_are_struck_at_once),
        T(what_was_noted_is_of_use_when_nothing_more_can_be),
        T(on_disk_it_goes_on_where_it_was),
        T(what_others_can_have_made_is_no_journal),
        T(what_stays_is_found_again),
        T(the_sweep_leaves_what_has_a_journal_for_a_week),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
