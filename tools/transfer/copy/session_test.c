/* Whole transfers between two honest ends. */
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

#include "tools/transfer/copy/session_world.h"

int __real_fsync(int fd);
int __wrap_fsync(int fd);

/* What was made durable last, and before. */
static ino_t synced_inode, synced_inodes[16];
static unsigned synced_count;

int __wrap_fsync(int fd)
{
    struct stat status;
    synced_inode = fstat(fd, &status) == 0 ? status.st_ino : 0;
    synced_inodes[synced_count++ % 16] = synced_inode;
    return __real_fsync(fd);
}

static void files_of_every_size_cross(void **state)
{
    static const size_t sizes[] = {0,       1,           EAGER_LENGTH_MAX, EAGER_LENGTH_MAX + 1,
                                   MIB - 1, MIB,         MIB + 1,          8 * MIB,
                                   9 * MIB, 20 * MIB + 3};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char there[32], here[32];
        snprintf(there, sizeof(there), "/f%zu", i);
        snprintf(here, sizeof(here), "g%zu", i);
        scratch_fill(world->scratch, "here/f", sizes[i], (unsigned)i);
        assert_int_equal(world_push(world, "f", there), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->files, 1);
        assert_int_equal(session_tally(world->client)->bytes, sizes[i]);
        assert_int_equal(world_pull(world, there, here), SESSION_COMPLETE);
        char path[2][64];
        snprintf(path[0], 64, "root%s", there);
        snprintf(path[1], 64, "here/%s", here);
        assert_true(scratch_same(world->scratch, "here/f", path[0]));
        assert_true(scratch_same(world->scratch, "here/f", path[1]));
    }
}

static void make_tree(const struct scratch *s)
{
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/empty");
    scratch_directory(s, "here/t/locked");
    scratch_write(s, "here/t/locked/file", "in a directory one may not write");
    scratch_fill(s, "here/t/big", 3 * MIB + 5, 1);
    scratch_write(s, "here/t/\xff\n", "any bytes");
    symlinkat("/nowhere at all", s->fd, "here/t/link");
    mkfifoat(s->fd, "here/t/fifo", 0600);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1234567890, .tv_nsec = 7}};
    fchmodat(s->fd, "here/t/locked", 0555, 0);
    utimensat(s->fd, "here/t/locked", times, 0);
}

static void a_tree_keeps_modes_times_and_links(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    make_tree(s);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_TOTALS;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    const struct tally *tally = session_tally(world->client);
    assert_int_equal(tally->files, 3);
    assert_int_equal(tally->directories, 3);
    assert_int_equal(tally->symlinks, 1);
    assert_int_equal(tally->warnings, 1); /* the FIFO */
    assert_int_equal(tally->failed, 0);
    assert_true(session_tally(world->server)->totals_known);
    assert_int_equal(session_tally(world->server)->total_files, 3);
    assert_string_equal(world->problems[0], "here source warning\n");
    assert_string_equal(world->problems[1], "there source warning\n");
    struct stat status;
    assert_int_equal(fstatat(s->fd, "root/t/locked", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0555);
    assert_int_equal(status.st_mtim.tv_sec, 1234567890);
    assert_int_equal(status.st_mtim.tv_nsec, 7);
    assert_true(scratch_same(s, "here/t/big", "root/t/big"));
    assert_true(scratch_same(s, "here/t/\xff\n", "root/t/\xff\n"));
    assert_true(scratch_same(s, "here/t/locked/file", "root/t/locked/file"));
    char target[32] = {0};
    assert_true(readlinkat(s->fd, "root/t/link", target, sizeof(target)) > 0);
    assert_string_equal(target, "/nowhere at all");
    assert_false(scratch_exists(s, "root/t/fifo"));

    assert_int_equal(world_pull(world, "/t", "back"), SESSION_COMPLETE);
    assert_true(scratch_same(s, "here/t/big", "here/back/big"));
    assert_true(scratch_exists(s, "here/back/empty"));
    assert_int_equal(world_pull(world, "/", "back"), SESSION_COMPLETE); /* the root: its contents */
    assert_true(scratch_same(s, "here/t/big", "here/back/t/big"));
}

static void durable_names_are_those_at_the_top_too(void **state)
{
    static const char *const names[] = {"file", "link", "empty", "tree"};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct stat status;
    assert_int_equal(fstat(world->root, &status), 0);
    scratch_write(s, "here/file", "x");
    symlinkat("nowhere", s->fd, "here/link");
    scratch_directory(s, "here/empty");
    scratch_directory(s, "here/tree");
    scratch_write(s, "here/tree/file", "x");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_FSYNC;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        synced_inode = 0;
        assert_int_equal(world_push(world, names[i], "/"), SESSION_COMPLETE);
        assert_int_equal(synced_inode, status.st_ino);
    }
}

static void a_link_in_the_way_is_replaced_and_not_followed(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/a");
    scratch_directory(s, "here/t/a/deep");
    scratch_fill(s, "here/t/a/deep/big", 2 * MIB, 1);
    scratch_write(s, "here/t/a/small", "x");
    scratch_write(s, "here/t/z", "z");
    scratch_directory(s, "root/t");
    symlinkat("/tmp", s->fd, "root/t/a"); /* a trap: nothing may be written through it */
    world->request.wishes.bits |= WISH_RECURSIVE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    scratch_expect(s, "root/t/z", "z");
    scratch_expect(s, "root/t/a/small", "x");
    assert_int_not_equal(access("/tmp/small", F_OK), 0);
}

/* As with cp, scp and rsync: what is called so may be one's only copy, and the name mistyped. */
static void a_file_that_is_the_target_itself_stays_where_a_directory_comes(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/a", "new");
    scratch_write(s, "root/f", "old");
    symlinkat("f", s->fd, "root/link");
    const char *const targets[] = {"/f", "/link"};
    const uint32_t wishes[] = {0, WISH_DRY_RUN, WISH_DELETE | WISH_FORCE};
    for (size_t i = 0; i < 6; i++) {
        world->request.wishes.bits = WISH_RECURSIVE | wishes[i / 2];
        assert_int_equal(world_push(world, "t", targets[i % 2]), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 1);
        assert_string_equal(world->problems[0], "there target wrong-kind\n");
        scratch_expect(s, "root/f", "old");
        scratch_expect(s, "root/link", "old");
    }
    assert_int_equal(world_push(world, "t", "/new"), SESSION_COMPLETE);
    assert_int_equal(world_push(world, "t/a", "/new/b"), SESSION_COMPLETE);
    scratch_expect(s, "root/new/b", "new");
}

static void refusals_say_why(void **state)
{
    struct world *world = *state;
    scratch_write(world->scratch, "here/f", "x");
    assert_int_equal(world_push(world, "f", "/no/such/place"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client),
                        "/no/such: no such directory (--mkpath makes it)");
    assert_int_equal(world_push(world, "f", "/../f"), SESSION_REFUSED);
    assert_int_equal(world_push(world, "f", "/no/new/"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client),
                        "/no/new/: no such directory (--mkpath makes it)");
    assert_int_equal(world_push(world, "f", "/new/."), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client),
                        "/new/.: no such directory (--mkpath makes it)");
    symlinkat("/tmp", world->scratch->fd, "root/out");
    assert_int_equal(world_push(world, "f", "/out/f"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "/out/f: leads out of the served folder");
    world->request.direction = DIRECTION_PUSH;
    world_connect(world, true);
    world_run(world);
    assert_int_equal(session_outcome(world->client), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "this server is read-only");
}

static void a_path_is_made_however_deep(void **state)
{
    struct world *world = *state;
    char path[4090], *at = path;
    scratch_write(world->scratch, "here/f", "x");
    world->request.wishes.bits |= WISH_MAKE_PATH;
    assert_int_equal(world_push(world, "f", "/new//and/./newer/g"), SESSION_COMPLETE);
    scratch_expect(world->scratch, "root/new/and/newer/g", "x");
    while (at < path + sizeof(path) - 3) {
        at = stpcpy(at, "/d");
    }
    assert_int_equal(world_push(world, "f", path), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->files, 1);
    symlinkat("/tmp", world->scratch->fd, "root/out");
    assert_int_equal(world_push(world, "f", "/out/weir-made/g"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client),
                        "/out/weir-made/g: leads out of the served folder");
    symlinkat("nowhere", world->scratch->fd, "root/dangling");
    assert_int_equal(world_push(world, "f", "/dangling/made/g"), SESSION_REFUSED);
}

static bool is_durable(const struct world *world, const char *path)
{
    struct stat status;
    assert_int_equal(fstatat(world->scratch->fd, path, &status, 0), 0);
    for (unsigned i = 0; i < 16; i++) {
        if (synced_inodes[i] == status.st_ino) {
            return true;
        }
    }
    return false;
}

static void a_path_that_was_made_is_durable(void **state)
{
    struct world *world = *state;
    scratch_write(world->scratch, "here/f", "x");
    world->request.wishes.bits |= WISH_MAKE_PATH | WISH_FSYNC;
    memset(synced_inodes, 0, sizeof(synced_inodes));
    assert_int_equal(world_push(world, "f", "/new/er/g"), SESSION_COMPLETE);
    assert_true(is_durable(world, "root"));
    assert_true(is_durable(world, "root/new"));
    assert_true(is_durable(world, "root/new/er"));
    memset(synced_inodes, 0, sizeof(synced_inodes));
    assert_int_equal(world_push(world, "f", "/new/est/"), SESSION_COMPLETE);
    assert_true(is_durable(world, "root/new"));
    assert_true(is_durable(world, "root/new/est"));
}

static void so_is_one_that_a_pull_makes(void **state)
{
    struct world *world = *state;
    scratch_write(world->scratch, "root/f", "x");
    world->request.wishes.bits |= WISH_MAKE_PATH | WISH_FSYNC;
    memset(synced_inodes, 0, sizeof(synced_inodes));
    assert_int_equal(world_pull(world, "/f", "new/er/g"), SESSION_COMPLETE);
    assert_true(is_durable(world, "here"));
    assert_true(is_durable(world, "here/new"));
    assert_true(is_durable(world, "here/new/er"));
}

static void a_pull_from_nowhere_fails_that_source(void **state)
{
    struct world *world = *state;
    assert_int_equal(world_pull(world, "/nope", "f"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_string_equal(world->problems[0], "there source not-found\n");
}

static void grow(struct world *world, unsigned number)
{
    if (number == 6) {
        int fd = openat(world->scratch->fd, "here/f", O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "more", 4), 4);
        close(fd);
    }
}

static void shrink(struct world *world, unsigned number)
{
    if (number == 6) {
        int fd = openat(world->scratch->fd, "here/f", O_WRONLY);
        assert_int_equal(ftruncate(fd, MIB), 0);
        close(fd);
    }
}

static void change_and_hide_it(struct world *world, unsigned number)
{
    if (number == 6) {
        struct stat status;
        int fd = openat(world->scratch->fd, "here/f", O_WRONLY);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(pwrite(fd, "other", 5, 29 * MIB), 5);
        assert_int_equal(futimens(fd, (struct timespec[2]){status.st_atim, status.st_mtim}), 0);
        close(fd);
    }
}

static void vanish(struct world *world, unsigned number)
{
    if (number == 6) {
        unlinkat(world->scratch->fd, "here/f", 0);
    }
}

static void a_source_that_changes_once_comes_again(void **state)
{
    static const struct {
        void (*between)(struct world *world, unsigned step);
        const char *problem;
    } cases[] = {{grow, "here source warning\n"},
                 {shrink, "here source warning\n"},
                 {change_and_hide_it, "here source warning\n"},
                 {vanish, "here source warning\nhere source vanished\n"}};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool vanished = cases[i].between == vanish;
        scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
        world->between = cases[i].between;
        assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
        assert_string_equal(world->problems[0], cases[i].problem);
        assert_int_equal(session_tally(world->client)->failed, vanished);
        assert_int_equal(session_tally(world->client)->files, !vanished);
        assert_true(vanished || scratch_same(world->scratch, "here/f", "root/f"));
        struct stat status;
        assert_int_equal(fstatat(world->scratch->fd, "root/f", &status, 0), vanished ? -1 : 0);
        assert_int_equal(session_tally(world->client)->bytes, vanished ? 0 : status.st_size);
        unlinkat(world->scratch->fd, "root/f", 0);
    }
}

static void grow_always(struct world *world, unsigned number)
{
    grow(world, 6);
}

/* A small one is read at once, and cannot be seen to change here. */
static void a_source_that_keeps_changing_is_not_placed(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    world->between = grow_always;
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0],
                        "here source warning\nhere source warning\nhere source changed\n");
    assert_string_equal(world->problems[1],
                        "there source warning\nthere source warning\nthere source changed\n");
    assert_int_equal(session_tally(world->server)->warnings, 2);
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_int_equal(session_tally(world->client)->bytes, 0);
    assert_false(scratch_exists(world->scratch, "root/f"));
}

static void a_file_that_hides_its_size_is_not_placed(void **state)
{
    struct world *world = *state;
    symlinkat("/proc/self/status", world->scratch->fd, "here/f");
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0],
                        "here source warning\nhere source warning\nhere source changed\n");
    assert_false(scratch_exists(world->scratch, "root/f"));
}

/* What a sweep would remove is never said to have been copied. */
static void names_of_files_under_way_are_not_copied(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    const char *path = ".weir-0123456789abcdef";
    scratch_write(s, "here/.weir-0123456789abcdef", "mine");
    assert_int_equal(world_push(world, path, "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "there target name\n");
    world->request.wishes.bits |= WISH_RECURSIVE;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/.weir-0123456789abcdef");
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "here source warning\n");
    assert_int_equal(session_tally(world->client)->warnings, 1);
    assert_int_equal(world_push(world, "t/.weir-0123456789abcdef", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "there target name\n");
    assert_int_equal(session_tally(world->client)->failed, 1);
}

static void directories_inherit_their_group(void **state)
{
    struct world *world = *state;
    struct stat status;
    assert_int_equal(fchmod(world->root, 02775), 0);
    scratch_directory(world->scratch, "here/t");
    world->request.wishes.bits |= WISH_RECURSIVE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(fstatat(world->scratch->fd, "root/t", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 02755);
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(fstatat(world->scratch->fd, "root/t", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 02755);
}

static void holes_cost_nothing(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    int fd = openat(s->fd, "here/sparse", O_CREAT | O_RDWR, 0600);
    const uint64_t size = 100ull << 30;
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(pwrite(fd, "middle", 6, 50ll << 30), 6);
    assert_int_equal(pwrite(fd, "last", 4, (off_t)size - 4), 4);
    close(fd);
    assert_int_equal(world_push(world, "sparse", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    struct stat status;
    char text[8] = {0};
    fd = openat(s->fd, "root/sparse", O_RDONLY);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_size, size);
    assert_true(status.st_blocks * 512 < 1 << 20);
    assert_int_equal(pread(fd, text, 6, 50ll << 30), 6);
    assert_string_equal(text, "middle");
    assert_int_equal(pread(fd, text, 4, (off_t)size - 4), 4);
    close(fd);
}

/* They are not written, and read back all the same. */
static void zeros_at_the_end_are_read_back(void **state)
{
    struct world *world = *state;
    world->request.wishes.bits = WISH_VERIFY;
    world->request.wishes.preserve = PRESERVE_SPARSE;
    for (size_t data = 0; data <= 5 * MIB; data += 5 * MIB) {
        static const char zeros[MIB];
        scratch_fill(world->scratch, "here/f", data, 1);
        int fd = openat(world->scratch->fd, "here/f", O_WRONLY);
        assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)data), sizeof(zeros));
        close(fd);
        assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_same(world->scratch, "here/f", "root/f"));
    }
}

static void a_cut_line_leaves_no_name(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 12 * MIB, 1);
    for (unsigned cut = 0; cut < 40; cut++) {
        world_begin_push(world, "f", "/");
        for (unsigned i = 0; i < cut && world_step(world); i++) {
        }
        bool through = session_outcome(world->server) == SESSION_COMPLETE;
        memory_pair_cut(world->pair);
        world_run(world);
        assert_true(session_is_closed(world->client) && session_is_closed(world->server));
        bool placed = scratch_exists(world->scratch, "root/f");
        assert_true(placed || !through);
        assert_true(!placed || scratch_same(world->scratch, "here/f", "root/f"));
        assert_int_equal(scratch_count(world->scratch), 2);
        if (!through) {
            assert_int_equal(session_outcome(world->client), SESSION_LOST);
            assert_string_equal(session_reason(world->client), "the line was cut");
        }
        unlinkat(world->scratch->fd, "root/f", 0);
    }
}

static void lose_some(struct world *world, unsigned step)
{
    if (session_tally(world->client)->retransmissions_known ||
        session_tally(world->server)->retransmissions_known) {
        memory_pair_retransmitted(world->pair, 150);
    }
}

static void expect_retransmissions(const struct world *world, bool known, uint64_t count)
{
    const struct session *const both[] = {world->client, world->server};
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(session_tally(both[i])->retransmissions_known, known);
        assert_int_equal(session_tally(both[i])->retransmissions, count);
    }
}

/* Both sides know what the sender's device had to send again for them, and not what it had before.
 */
static void retransmissions_are_told(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 8 * MIB, 1);
    world->between = lose_some;
    world_begin_push(world, "f", "/f");
    memory_pair_retransmitted(world->pair, 100);
    world_run(world);
    expect_retransmissions(world, true, 50);
    world_begin_pull(world, "/f", "g");
    memory_pair_retransmitted(world->pair, 100);
    world_run(world);
    expect_retransmissions(world, true, 50);
    world->between = NULL;
    world_push(world, "f", "/f"); /* by something that does not count them */
    expect_retransmissions(world, false, 0);
}

static void *allocate_nothing(struct link *link, size_t length, unsigned rights,
                              struct weir_remote *ret_remote, struct weir_error *ret_error)
{
    *ret_error = (struct weir_error){WEIR_NO_MEMORY, "nothing may be locked"};
    return NULL;
}

static void who_has_no_memory_blames_nobody(void **state)
{
    struct world *world = *state;
    static struct link_operations operations;
    scratch_fill(world->scratch, "here/f", MIB, 1);
    world_begin_push(world, "f", "/f");
    struct link *link = memory_pair_link(world->pair, 0);
    operations = *link->operations;
    operations.allocate = allocate_nothing;
    link->operations = &operations;
    world_run(world);
    assert_int_equal(session_outcome(world->client), SESSION_BROKEN);
    assert_string_equal(session_reason(world->client), "nothing may be locked");
    assert_string_equal(memory_pair_last_abort(world->pair), "nothing may be locked");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(files_of_every_size_cross),
        T(a_tree_keeps_modes_times_and_links),
        T(durable_names_are_those_at_the_top_too),
        T(a_link_in_the_way_is_replaced_and_not_followed),
        T(a_file_that_is_the_target_itself_stays_where_a_directory_comes),
        T(refusals_say_why),
        T(a_path_is_made_however_deep),
        T(a_path_that_was_made_is_durable),
        T(so_is_one_that_a_pull_makes),
        T(retransmissions_are_told),
        T(a_pull_from_nowhere_fails_that_source),
        T(a_source_that_changes_once_comes_again),
        T(a_source_that_keeps_changing_is_not_placed),
        T(a_file_that_hides_its_size_is_not_placed),
        T(names_of_files_under_way_are_not_copied),
        T(directories_inherit_their_group),
        T(holes_cost_nothing),
        T(zeros_at_the_end_are_read_back),
        T(a_cut_line_leaves_no_name),
        T(who_has_no_memory_blames_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
