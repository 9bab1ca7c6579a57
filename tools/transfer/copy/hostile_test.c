/* A peer that lies: what it may do to the other side, which is to refuse it and name no file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/ends/receiver.h"
#include "tools/transfer/wire/digest.h"

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);

/* What happens while the receiver is in pwrite; NULL: nothing. */
static uint8_t *scribble_at;
/* Storage keeps another byte here than it was given; -1: it is honest. */
static off_t spoiled = -1;

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    for (size_t at = 0; scribble_at != NULL && at < RECEIVER_CHUNK_COUNT * MIB; at += 4096) {
        scribble_at[at] ^= 0xff;
    }
    ssize_t written = __real_pwrite64(fd, bytes, length, offset);
    if (written > 0 && spoiled >= offset && spoiled < offset + written) {
        uint8_t byte = ((const uint8_t *)bytes)[spoiled - offset] ^ 1;
        assert_int_equal(__real_pwrite64(fd, &byte, 1, spoiled), 1);
    }
    return written;
}

static void a_server_does_not_choose_the_name(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, false);
    world_inject_entry(world, 1, ENTRY_FILE, "evil", "data");
    while (memory_pair_step(world->pair)) {
    }
    scratch_expect(world->scratch, "here/x", "data");
    assert_false(scratch_exists(world->scratch, "here/evil"));
}

static void a_server_does_not_send_what_was_not_asked_for(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, false);
    world_inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    world_expect_broken(world);
    world_begin_lies(world, false);
    world_inject_entry(world, 1, ENTRY_SYMLINK, "x", "/etc");
    world_expect_broken(world);
    world_begin_lies(world, true); /* one source, two entries */
    world_inject_entry(world, 1, ENTRY_FILE, "x", "1");
    world_inject_entry(world, 2, ENTRY_FILE, "y", "2");
    world_expect_broken(world);
    assert_false(scratch_exists(world->scratch, "here/y"));
}

static void a_server_does_not_write_through_its_own_link(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, true);
    world_inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    world_inject_entry(world, 2, ENTRY_SYMLINK, "l", "../../root");
    world_inject_entry(world, 3, ENTRY_DIRECTORY, "l", "");
    world_inject_entry(world, 4, ENTRY_FILE, "f", "out");
    while (memory_pair_step(world->pair)) {
    }
    session_pump(world->client);
    assert_false(scratch_exists(world->scratch, "root/f"));
    scratch_expect(world->scratch, "here/x/l/f", "out"); /* the link had to go */
}

static void data_out_of_bounds_is_refused(void **state)
{
    static const struct {
        uint64_t size;
        uint32_t notice;
        size_t length;
    } cases[] = {{MIB, 0, MIB + 1},
                 {100, 0, 101},
                 {MIB, RECEIVER_CHUNK_COUNT, 100},
                 {MIB, 0xffff, 100},
                 {MIB, 1u << 16 | 0, 100},
                 {MIB, 0, 0}};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world_begin_lies(world, false);
        world_chunked_entry(world, cases[i].size);
        memory_pair_inject_notice(world->pair, 1, cases[i].notice, cases[i].length);
        world_expect_broken(world);
        assert_false(scratch_exists(world->scratch, "here/x"));
    }
    world_begin_lies(world, false);
    memory_pair_inject_notice(world->pair, 1, 0, 100); /* no file at all */
    world_expect_broken(world);
    world_begin_lies(world, false);
    world_chunked_entry(world, 100);
    struct message hole = {.type = MESSAGE_HOLE};
    hole.hole.length = 101;
    world_inject(world, &hole);
    world_expect_broken(world);
}

static void inject_puts(struct world *world, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        memory_pair_inject_notice(world->pair, 1, notice_pack((uint16_t)(i % 8), (uint16_t)i), 1);
    }
}

/* Who puts and puts and takes no answer cannot have been granted what it puts into. */
static void a_flood_of_puts_ends_the_connection(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, false);
    world_chunked_entry(world, UINT64_C(1) << 62);
    inject_puts(world, 5000);
    world_expect_broken(world);
    assert_string_equal(session_reason(world->client),
                        "the peer broke the protocol: data in a chunk that was not granted");
    world_begin_lies(world, false); /* who is a little slow to take answers goes on */
    world_chunked_entry(world, UINT64_C(1) << 62);
    inject_puts(world, 60);
    for (unsigned i = 0; i < 61; i++) {
        assert_true(memory_pair_step(world->pair));
    }
    assert_int_equal(session_outcome(world->client), SESSION_RUNNING);
}

static void a_file_ends_where_it_said(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, false);
    world_chunked_entry(world, 100);
    const struct message end_message = {.type = MESSAGE_END};
    world_inject(world, &end_message);
    world_expect_broken(world);
    assert_false(scratch_exists(world->scratch, "here/x"));
}

static void a_wrong_digest_keeps_the_name_away(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, false);
    struct message message = world_entry(1, ENTRY_FILE, "x", "data");
    message.entry.digest[3] ^= 1;
    world_inject(world, &message);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target digest\n");
    world_begin_lies(world, false);
    world_chunked_entry(world, MIB);
    memory_pair_inject_notice(world->pair, 1, 0, MIB);
    const struct message end_message = {.type = MESSAGE_END}; /* a digest of zeros */
    world_inject(world, &end_message);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target digest\n");
    assert_false(scratch_exists(world->scratch, "here/x"));
}

static void an_end_that_leaves_something_out_is_refused(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_FINISHED};
    world_begin_lies(world, false); /* the source has not come */
    world_inject(world, &message);
    world_expect_broken(world);
    world_begin_lies(world, false); /* one file fewer than it says */
    world_inject_entry(world, 1, ENTRY_FILE, "x", "data");
    message.finished.entries = 2;
    message.finished.sources = 1;
    world_inject(world, &message);
    world_expect_broken(world);
    scratch_write(world->scratch, "here/f", "x"); /* the receiver's summary */
    world_begin_push(world, "f", "/");
    while (memory_pair_step(world->pair)) {
    }
    session_pump(world->client);
    world_inject(world, &(struct message){.type = MESSAGE_SUMMARY});
    world_expect_broken(world);
}

/* A peer writes to a chunk after its digest was taken: wrong bytes never get the name. */
static void a_chunk_written_behind_our_back_is_not_placed(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", MIB, 1);
    world_begin_push(world, "f", "/");
    for (uint8_t *memory = NULL; memory == NULL && world_step(world);) {
        memory = memory_pair_memory(world->pair, 1);
        scribble_at = memory;
    }
    assert_non_null(scribble_at);
    world_run(world);
    scribble_at = NULL;
    assert_true(!scratch_exists(world->scratch, "root/f") ||
                scratch_same(world->scratch, "here/f", "root/f"));
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_string_equal(world->problems[0], "there target digest\n");
}

static void what_storage_keeps_otherwise_gets_no_name(void **state)
{
    static const size_t sizes[] = {1, EAGER_LENGTH_MAX, MIB, 21 * MIB + 5};
    struct world *world = *state;
    world->request.wishes.bits = WISH_VERIFY;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        scratch_fill(world->scratch, "here/f", sizes[i], 1);
        for (unsigned place = 0; place < 3; place++) {
            spoiled = (off_t)(sizes[i] - 1) * place / 2;
            assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
            spoiled = -1;
            assert_string_equal(world->problems[0], "there target digest\n");
            assert_int_equal(session_tally(world->client)->files, 0);
            assert_int_equal(session_tally(world->client)->bytes, 0);
            assert_false(scratch_exists(world->scratch, "root/f"));
        }
        assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_same(world->scratch, "here/f", "root/f"));
        unlinkat(world->scratch->fd, "root/f", 0);
    }
}

/* As if a chunk had been other while it was written than when its digest was taken. */
static void what_a_journal_says_of_other_bytes_is_sent_again(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    world->request.wishes.bits = WISH_RESUME;
    spoiled = 5 * MIB;
    world_begin_push(world, "f", "/");
    while (session_tally(world->server)->bytes < 14 * MIB && world_step(world)) {
    }
    memory_pair_cut(world->pair);
    world_run(world);
    spoiled = -1;
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->kept, 8 * MIB); /* of three pieces */
    assert_true(scratch_same(world->scratch, "here/f", "root/f"));
}

static void out_of_turn_is_refused(void **state)
{
    static const enum message_type types[] = {MESSAGE_LEAVE, MESSAGE_HOLE,    MESSAGE_END,
                                              MESSAGE_GRANT, MESSAGE_SUMMARY, MESSAGE_LEAVE};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct message message = {.type = types[i]};
        world_begin_lies(world, false);
        world_inject(world, &message);
        world_expect_broken(world);
    }
    world_begin_lies(world, false);
    memory_pair_inject(world->pair, 1, "garbage", 7);
    world_expect_broken(world);
    world_begin_lies(world, false);
    world_inject_entry(world, 2, ENTRY_FILE, "x", "1"); /* numbers begin at 1 */
    world_expect_broken(world);
}

static struct message attribute(const char *name, size_t length, bool more)
{
    static const uint8_t bytes[EAGER_LENGTH_MAX];
    struct message message = {.type = MESSAGE_ATTRIBUTE};
    message.attribute.name = (struct span){name, strlen(name)};
    message.attribute.value = (struct span){bytes, length};
    message.attribute.more = more;
    return message;
}

static void inject_attribute(struct world *world, const char *name, size_t length, bool more)
{
    const struct message message = attribute(name, length, more);
    world_inject(world, &message);
}

static void attributes_are_asked_for_and_bounded(void **state)
{
    struct world *world = *state;
    world_begin_lies(world, false);
    inject_attribute(world, "user.a", 1, false);
    world_expect_broken(world);
    world->request.wishes.preserve = PRESERVE_XATTRS;
    world_begin_lies(world, false); /* one too long for any file */
    for (unsigned i = 0; i < 3; i++) {
        inject_attribute(world, "user.a", EAGER_LENGTH_MAX, true);
    }
    world_expect_broken(world);
    world_begin_lies(world, false); /* too many */
    for (unsigned i = 0; i < 40; i++) {
        inject_attribute(world, "user.a", EAGER_LENGTH_MAX, false);
    }
    world_expect_broken(world);
    world_begin_lies(world, false); /* two at once */
    inject_attribute(world, "user.a", 1, true);
    inject_attribute(world, "user.b", 1, false);
    world_expect_broken(world);
    world_begin_lies(world, false); /* half of one */
    inject_attribute(world, "user.a", 1, true);
    world_inject_entry(world, 1, ENTRY_FILE, "x", "1");
    world_expect_broken(world);
    assert_false(scratch_exists(world->scratch, "here/x"));
}

static void a_link_leads_only_to_what_has_come(void **state)
{
    struct world *world = *state;
    struct message link = world_entry(3, ENTRY_HARD_LINK, "l", "");
    world->request.wishes.preserve = PRESERVE_HARD_LINKS;
    world_begin_lies(world, true);
    world_inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    world_inject_entry(world, 2, ENTRY_FILE, "f", "in"); /* says of no further name */
    link.entry.first = 2;
    world_inject(world, &link);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target not-found\n");
    assert_false(scratch_exists(world->scratch, "here/x/l"));
    world->request.wishes.preserve = 0;
    world_begin_lies(world, true);
    link.entry.id = 2;
    link.entry.first = 1;
    world_inject_entry(world, 1, ENTRY_DIRECTORY, "y", "");
    world_inject(world, &link);
    world_expect_broken(world);
}

/* The file's place was taken by a link to something outside. */
static void a_link_is_not_made_to_what_took_the_place_of_its_file(void **state)
{
    struct world *world = *state;
    struct message first = world_entry(2, ENTRY_FILE, "f", "in"),
                   link = world_entry(3, ENTRY_HARD_LINK, "l", "");
    char path[PATH_MAX];
    world->request.wishes.preserve = PRESERVE_HARD_LINKS;
    world_begin_lies(world, true);
    world_inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    first.entry.names = 2;
    world_inject(world, &first);
    while (memory_pair_step(world->pair)) {
    }
    session_pump(world->client);
    snprintf(path, sizeof(path), "%s/here/x/f", world->scratch->path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("../../root/secret", path), 0);
    link.entry.first = 2;
    world_inject(world, &link);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target changed\n");
    assert_false(scratch_exists(world->scratch, "here/x/l"));
}

/* A server that was not told to trust its clients. */
static void a_stranger_makes_no_device_and_sets_no_ids(void **state)
{
    struct world *world = *state;
    char path[PATH_MAX];
    struct stat status;
    world->request.wishes.bits |= WISH_RECURSIVE;
    world->request.wishes.preserve = PRESERVE_EVERYTHING;
    scratch_directory(world->scratch, "here/t");
    scratch_write(world->scratch, "here/t/program", "x");
    snprintf(path, sizeof(path), "%s/here/t/program", world->scratch->path);
    assert_int_equal(chmod(path, 06755), 0);
    snprintf(path, sizeof(path), "%s/here/t/null", world->scratch->path);
    bool device = mknod(path, S_IFCHR | 0666, makedev(1, 3)) == 0; /* where this test may */
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, device ? 1 : 0);
    assert_false(scratch_exists(world->scratch, "root/t/null"));
    snprintf(path, sizeof(path), "%s/root/t/program", world->scratch->path);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0755);
}

static void what_was_not_placed_is_no_warning(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_FAILED};
    message.problem.id = 1;
    message.problem.code = PROBLEM_WARNING;
    scratch_fill(world->scratch, "here/f", 9 * MIB, 1);
    world_begin_push(world, "f", "/");
    while (session_tally(world->server)->bytes == 0 && world_step(world)) {
    }
    world_inject(world, &message);
    world_run(world);
    assert_int_equal(session_tally(world->client)->failed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(a_server_does_not_choose_the_name),
        T(a_server_does_not_send_what_was_not_asked_for),
        T(a_server_does_not_write_through_its_own_link),
        T(data_out_of_bounds_is_refused),
        T(a_flood_of_puts_ends_the_connection),
        T(a_file_ends_where_it_said),
        T(a_wrong_digest_keeps_the_name_away),
        T(a_chunk_written_behind_our_back_is_not_placed),
        T(an_end_that_leaves_something_out_is_refused),
        T(what_storage_keeps_otherwise_gets_no_name),
        T(what_a_journal_says_of_other_bytes_is_sent_again),
        T(out_of_turn_is_refused),
        T(attributes_are_asked_for_and_bounded),
        T(a_link_leads_only_to_what_has_come),
        T(a_link_is_not_made_to_what_took_the_place_of_its_file),
        T(a_stranger_makes_no_device_and_sets_no_ids),
        T(what_was_not_placed_is_no_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
