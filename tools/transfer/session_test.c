/* Whole transfers over a pair of links in memory: both ends as they are, the line between them
 * ours. */
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

#include "tools/transfer/digest.h"
#include "tools/transfer/memory_link.h"
#include "tools/transfer/scratch.h"
#include "tools/transfer/session.h"

#define MIB (1u << 20)

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
int __real_fsync(int fd);
int __wrap_fsync(int fd);

/* What was made durable last. */
static ino_t synced_inode;

int __wrap_fsync(int fd)
{
    struct stat status;
    synced_inode = fstat(fd, &status) == 0 ? status.st_ino : 0;
    return __real_fsync(fd);
}

/* What happens while the receiver is in pwrite; NULL: nothing. */
static uint8_t *scribble_at;

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    for (size_t at = 0; scribble_at != NULL && at < 8 * MIB; at += 4096) {
        scribble_at[at] ^= 0xff;
    }
    return __real_pwrite64(fd, bytes, length, offset);
}

struct world {
    struct scratch *scratch; /* "here" is the client's folder, "root" the server's */
    int root;
    struct memory_pair *pair;
    struct session *client, *server;
    struct target target;
    struct session_request request;
    const char *source;
    char problems[2][2048]; /* client's, server's */
    struct report reports[2];
    char target_path[PATH_MAX];
    void (*between)(struct world *world, unsigned step);
};

static void note_problem(void *user, const struct problem *problem)
{
    char *problems = user;
    size_t length = strlen(problems);
    snprintf(problems + length, 2048 - length, "%s %s %s\n", problem->remote ? "there" : "here",
             problem->at_source ? "source" : "target", problem_code_name(problem->code));
}

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    world->scratch = scratch_create();
    scratch_directory(world->scratch, "here");
    scratch_directory(world->scratch, "root");
    world->root = openat(world->scratch->fd, "root", O_RDONLY | O_DIRECTORY);
    world->target.directory = -1;
    for (int i = 0; i < 2; i++) {
        world->reports[i] = (struct report){.problem = note_problem, .user = world->problems[i]};
    }
    *state = world;
    return 0;
}

static void end(struct world *world)
{
    session_destroy(world->client);
    session_destroy(world->server);
    target_close(&world->target);
    if (world->pair != NULL) {
        memory_pair_destroy(world->pair);
    }
    world->client = world->server = NULL;
    world->pair = NULL;
    memset(world->problems, 0, sizeof(world->problems));
}

static int teardown(void **state)
{
    struct world *world = *state;
    end(world);
    close(world->root);
    scratch_destroy(world->scratch);
    free(world);
    return 0;
}

static void connect_pair(struct world *world, bool read_only)
{
    const struct session_service service = {world->root, read_only, "test0", NULL};
    end(world);
    world->pair = memory_pair_create();
    world->server =
        session_create_server(memory_pair_link(world->pair, 1), &service, &world->reports[1]);
    world->client = session_create_client(memory_pair_link(world->pair, 0), &world->request,
                                          &world->reports[0]);
    memory_pair_open(world->pair);
}

static bool step(struct world *world)
{
    bool more = session_pump(world->client);
    more |= session_pump(world->server);
    return memory_pair_step(world->pair) || more;
}

static void run(struct world *world)
{
    for (unsigned i = 0; step(world); i++) {
        if (world->between != NULL) {
            world->between(world, i);
        }
    }
}

static void begin_push(struct world *world, const char *source, const char *target)
{
    snprintf(world->target_path, sizeof(world->target_path), "%s/here/%s", world->scratch->path,
             source);
    world->source = world->target_path;
    world->request.direction = DIRECTION_PUSH;
    world->request.sources = &world->source;
    world->request.source_count = 1;
    world->request.target_path = target;
    connect_pair(world, false);
}

static enum session_outcome push(struct world *world, const char *source, const char *target)
{
    begin_push(world, source, target);
    run(world);
    assert_true(session_is_closed(world->client) && session_is_closed(world->server));
    return session_outcome(world->client);
}

static void begin_pull(struct world *world, const char *source, const char *target)
{
    char text[TEXT_LENGTH_MAX];
    end(world);
    snprintf(world->target_path, sizeof(world->target_path), "%s/here/%s", world->scratch->path,
             target);
    const struct target_request where = {
        .root = AT_FDCWD, .path = world->target_path, .source_count = 1};
    world->source = source;
    world->request.direction = DIRECTION_PULL;
    world->request.sources = &world->source;
    world->request.source_count = 1;
    world->request.target = &world->target;
    connect_pair(world, false);
    assert_int_equal(target_open(&where, &world->target, text), PROBLEM_NONE);
}

static enum session_outcome pull(struct world *world, const char *source, const char *target)
{
    begin_pull(world, source, target);
    run(world);
    assert_true(session_is_closed(world->client) && session_is_closed(world->server));
    return session_outcome(world->client);
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
        assert_int_equal(push(world, "f", there), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->files, 1);
        assert_int_equal(session_tally(world->client)->bytes, sizes[i]);
        assert_int_equal(pull(world, there, here), SESSION_COMPLETE);
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
    world->request.recursive = world->request.totals = true;
    assert_int_equal(push(world, "t", "/"), SESSION_COMPLETE);
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

    assert_int_equal(pull(world, "/t", "back"), SESSION_COMPLETE);
    assert_true(scratch_same(s, "here/t/big", "here/back/big"));
    assert_true(scratch_exists(s, "here/back/empty"));
    assert_int_equal(pull(world, "/", "back"), SESSION_COMPLETE); /* the root: its contents */
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
    world->request.recursive = world->request.fsync = true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        synced_inode = 0;
        assert_int_equal(push(world, names[i], "/"), SESSION_COMPLETE);
        assert_int_equal(synced_inode, status.st_ino);
    }
}

static void what_exists_stays_unless_forced(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_fill(s, "here/big", 3 * MIB, 1);
    scratch_write(s, "here/small", "new");
    scratch_write(s, "root/big", "old");
    scratch_write(s, "root/small", "old");
    assert_int_equal(push(world, "big", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_string_equal(world->problems[0], "there target exists\n");
    assert_string_equal(world->problems[1], "here target exists\n");
    scratch_expect(s, "root/big", "old");
    assert_int_equal(push(world, "small", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    scratch_expect(s, "root/small", "old");
    world->request.force = true;
    assert_int_equal(push(world, "small", "/"), SESSION_COMPLETE);
    assert_int_equal(push(world, "big", "/"), SESSION_COMPLETE);
    scratch_expect(s, "root/small", "new");
    assert_true(scratch_same(s, "here/big", "root/big"));
    assert_int_equal(session_tally(world->client)->failed, 0);
}

static void a_directory_in_the_way_costs_its_contents_only(void **state)
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
    world->request.recursive = true;
    assert_int_equal(push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    scratch_expect(s, "root/t/z", "z");
    assert_int_not_equal(access("/tmp/small", F_OK), 0);
}

static void refusals_say_why(void **state)
{
    struct world *world = *state;
    scratch_write(world->scratch, "here/f", "x");
    assert_int_equal(push(world, "f", "/no/such/place"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "/no/such: No such file or directory");
    assert_int_equal(push(world, "f", "/../f"), SESSION_REFUSED);
    assert_int_equal(push(world, "f", "/new/"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "/new/: no such directory");
    assert_int_equal(push(world, "f", "/new/."), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "/new/.: no such directory");
    symlinkat("/tmp", world->scratch->fd, "root/out");
    assert_int_equal(push(world, "f", "/out/f"), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "/out/f: leads out of the served folder");
    world->request.direction = DIRECTION_PUSH;
    connect_pair(world, true);
    run(world);
    assert_int_equal(session_outcome(world->client), SESSION_REFUSED);
    assert_string_equal(session_reason(world->client), "this server is read-only");
}

static void a_pull_from_nowhere_fails_that_source(void **state)
{
    struct world *world = *state;
    assert_int_equal(pull(world, "/nope", "f"), SESSION_COMPLETE);
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

static void a_source_that_changes_is_not_placed(void **state)
{
    static const struct {
        void (*between)(struct world *world, unsigned step);
        const char *problem;
    } cases[] = {{grow, "here source changed\n"},
                 {shrink, "here source changed\n"},
                 {change_and_hide_it, "here source changed\n"},
                 {vanish, "here source vanished\n"}};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
        world->between = cases[i].between;
        assert_int_equal(push(world, "f", "/"), SESSION_COMPLETE);
        assert_string_equal(world->problems[0], cases[i].problem);
        assert_int_equal(session_tally(world->client)->failed, 1);
        assert_int_equal(session_tally(world->client)->bytes, 0);
        assert_false(scratch_exists(world->scratch, "root/f"));
    }
}

static void a_file_that_hides_its_size_is_not_placed(void **state)
{
    struct world *world = *state;
    symlinkat("/proc/self/status", world->scratch->fd, "here/f");
    assert_int_equal(push(world, "f", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "here source changed\n");
    assert_false(scratch_exists(world->scratch, "root/f"));
}

/* What a sweep would remove is never said to have been copied. */
static void names_of_files_under_way_are_not_copied(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    const char *path = ".weir-0123456789abcdef";
    scratch_write(s, "here/.weir-0123456789abcdef", "mine");
    assert_int_equal(push(world, path, "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "there target name\n");
    world->request.recursive = true;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/.weir-0123456789abcdef");
    assert_int_equal(push(world, "t", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "here source warning\n");
    assert_int_equal(session_tally(world->client)->warnings, 1);
    assert_int_equal(push(world, "t/.weir-0123456789abcdef", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "there target name\n");
    assert_int_equal(session_tally(world->client)->failed, 1);
}

static void inject(struct world *world, const struct message *message)
{
    uint8_t bytes[MESSAGE_LENGTH_MAX];
    size_t length = protocol_pack(message, bytes);
    if (message->type == MESSAGE_ENTRY && message->entry.data.length > 0) {
        memcpy(bytes + length, message->entry.data.bytes, message->entry.data.length);
        length += message->entry.data.length;
    }
    memory_pair_inject(world->pair, 1, bytes, length);
}

static void directories_inherit_their_group(void **state)
{
    struct world *world = *state;
    struct stat status;
    assert_int_equal(fchmod(world->root, 02775), 0);
    scratch_directory(world->scratch, "here/t");
    world->request.recursive = true;
    assert_int_equal(push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(fstatat(world->scratch->fd, "root/t", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 02755);
    world->request.force = true;
    assert_int_equal(push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(fstatat(world->scratch->fd, "root/t", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 02755);
}

static void what_was_not_placed_is_no_warning(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_FAILED};
    message.problem.id = 1;
    message.problem.code = PROBLEM_WARNING;
    scratch_fill(world->scratch, "here/f", 9 * MIB, 1);
    begin_push(world, "f", "/");
    while (session_tally(world->server)->bytes == 0 && step(world)) {
    }
    inject(world, &message);
    run(world);
    assert_int_equal(session_tally(world->client)->failed, 1);
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
    assert_int_equal(push(world, "sparse", "/"), SESSION_COMPLETE);
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

static void a_cut_line_leaves_no_name(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 12 * MIB, 1);
    for (unsigned cut = 0; cut < 40; cut++) {
        begin_push(world, "f", "/");
        for (unsigned i = 0; i < cut && step(world); i++) {
        }
        bool through = session_outcome(world->server) == SESSION_COMPLETE;
        memory_pair_cut(world->pair);
        run(world);
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

/* --- a server that lies ------------------------------------------------------------------------
 */

/* The client waits for "/x" into its folder; the server says nothing but welcome, and the test
 * speaks for it. */
static void begin_lies(struct world *world, bool recursive)
{
    world->request.recursive = recursive;
    begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) { /* without a pump, so the server sends no entry */
    }
    assert_true(session_is_running(world->client));
}

static struct message entry(uint32_t id, enum entry_kind kind, const char *name, const char *data)
{
    struct message message = {.type = MESSAGE_ENTRY};
    message.entry.id = id;
    message.entry.kind = kind;
    message.entry.eager = kind == ENTRY_FILE;
    message.entry.mode = 0755;
    message.entry.size = strlen(data);
    message.entry.name = (struct span){name, strlen(name)};
    message.entry.data = (struct span){data, strlen(data)};
    digest_of(data, strlen(data), message.entry.digest);
    return message;
}

static void expect_broken(struct world *world)
{
    while (memory_pair_step(world->pair)) {
    }
    assert_int_equal(session_outcome(world->client), SESSION_BROKEN);
    assert_true(session_is_closed(world->client));
}

static void inject_entry(struct world *world, uint32_t id, enum entry_kind kind, const char *name,
                         const char *data)
{
    const struct message message = entry(id, kind, name, data);
    inject(world, &message);
}

static void a_server_does_not_choose_the_name(void **state)
{
    struct world *world = *state;
    begin_lies(world, false);
    inject_entry(world, 1, ENTRY_FILE, "evil", "data");
    while (memory_pair_step(world->pair)) {
    }
    scratch_expect(world->scratch, "here/x", "data");
    assert_false(scratch_exists(world->scratch, "here/evil"));
}

static void a_server_does_not_send_what_was_not_asked_for(void **state)
{
    struct world *world = *state;
    begin_lies(world, false);
    inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    expect_broken(world);
    begin_lies(world, false);
    inject_entry(world, 1, ENTRY_SYMLINK, "x", "/etc");
    expect_broken(world);
    begin_lies(world, true); /* one source, two entries */
    inject_entry(world, 1, ENTRY_FILE, "x", "1");
    inject_entry(world, 2, ENTRY_FILE, "y", "2");
    expect_broken(world);
    assert_false(scratch_exists(world->scratch, "here/y"));
}

static void a_server_does_not_write_through_its_own_link(void **state)
{
    struct world *world = *state;
    begin_lies(world, true);
    inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    inject_entry(world, 2, ENTRY_SYMLINK, "l", "../../root");
    inject_entry(world, 3, ENTRY_DIRECTORY, "l", "");
    inject_entry(world, 4, ENTRY_FILE, "f", "out");
    while (memory_pair_step(world->pair)) {
    }
    assert_false(scratch_exists(world->scratch, "root/f"));
    assert_string_equal(world->problems[0], "here target confined\n");
}

static void chunked_entry(struct world *world, uint64_t size)
{
    struct message message = entry(1, ENTRY_FILE, "x", "");
    message.entry.eager = false;
    message.entry.size = size;
    inject(world, &message);
}

static void data_out_of_bounds_is_refused(void **state)
{
    static const struct {
        uint64_t size;
        uint32_t notice;
        size_t length;
    } cases[] = {{MIB, 0, MIB + 1},        {100, 0, 101}, {MIB, 8, 100}, {MIB, 0xffff, 100},
                 {MIB, 1u << 16 | 0, 100}, {MIB, 0, 0}};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin_lies(world, false);
        chunked_entry(world, cases[i].size);
        memory_pair_inject_notice(world->pair, 1, cases[i].notice, cases[i].length);
        expect_broken(world);
        assert_false(scratch_exists(world->scratch, "here/x"));
    }
    begin_lies(world, false);
    memory_pair_inject_notice(world->pair, 1, 0, 100); /* no file at all */
    expect_broken(world);
    begin_lies(world, false);
    chunked_entry(world, 100);
    struct message hole = {.type = MESSAGE_HOLE};
    hole.hole.length = 101;
    inject(world, &hole);
    expect_broken(world);
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
    begin_lies(world, false);
    chunked_entry(world, UINT64_C(1) << 62);
    inject_puts(world, 5000);
    expect_broken(world);
    assert_string_equal(session_reason(world->client),
                        "the peer broke the protocol: data in a chunk that was not granted");
    begin_lies(world, false); /* who is a little slow to take answers goes on */
    chunked_entry(world, UINT64_C(1) << 62);
    inject_puts(world, 60);
    for (unsigned i = 0; i < 61; i++) {
        assert_true(memory_pair_step(world->pair));
    }
    assert_int_equal(session_outcome(world->client), SESSION_RUNNING);
}

static void a_file_ends_where_it_said(void **state)
{
    struct world *world = *state;
    begin_lies(world, false);
    chunked_entry(world, 100);
    const struct message end_message = {.type = MESSAGE_END};
    inject(world, &end_message);
    expect_broken(world);
    assert_false(scratch_exists(world->scratch, "here/x"));
}

static void a_wrong_digest_keeps_the_name_away(void **state)
{
    struct world *world = *state;
    begin_lies(world, false);
    struct message message = entry(1, ENTRY_FILE, "x", "data");
    message.entry.digest[3] ^= 1;
    inject(world, &message);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target digest\n");
    begin_lies(world, false);
    chunked_entry(world, MIB);
    memory_pair_inject_notice(world->pair, 1, 0, MIB);
    const struct message end_message = {.type = MESSAGE_END}; /* a digest of zeros */
    inject(world, &end_message);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target digest\n");
    assert_false(scratch_exists(world->scratch, "here/x"));
}

static void an_end_that_leaves_something_out_is_refused(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_FINISHED};
    begin_lies(world, false); /* the source has not come */
    inject(world, &message);
    expect_broken(world);
    begin_lies(world, false); /* one file fewer than it says */
    inject_entry(world, 1, ENTRY_FILE, "x", "data");
    message.totals.files = 2;
    inject(world, &message);
    expect_broken(world);
    scratch_write(world->scratch, "here/f", "x"); /* the receiver's summary */
    begin_push(world, "f", "/");
    while (memory_pair_step(world->pair)) {
    }
    session_pump(world->client);
    inject(world, &(struct message){.type = MESSAGE_SUMMARY});
    expect_broken(world);
}

/* A peer writes to a chunk after its digest was taken: wrong bytes never get the name. */
static void a_chunk_written_behind_our_back_is_not_placed(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", MIB, 1);
    begin_push(world, "f", "/");
    for (uint8_t *memory = NULL; memory == NULL && step(world);) {
        memory = memory_pair_memory(world->pair, 1);
        scribble_at = memory;
    }
    assert_non_null(scribble_at);
    run(world);
    scribble_at = NULL;
    assert_true(!scratch_exists(world->scratch, "root/f") ||
                scratch_same(world->scratch, "here/f", "root/f"));
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_string_equal(world->problems[0], "there target digest\n");
}

static void out_of_turn_is_refused(void **state)
{
    static const enum message_type types[] = {MESSAGE_LEAVE, MESSAGE_HOLE,    MESSAGE_END,
                                              MESSAGE_GRANT, MESSAGE_SUMMARY, MESSAGE_LEAVE};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct message message = {.type = types[i]};
        begin_lies(world, false);
        inject(world, &message);
        expect_broken(world);
    }
    begin_lies(world, false);
    memory_pair_inject(world->pair, 1, "garbage", 7);
    expect_broken(world);
    begin_lies(world, false);
    inject_entry(world, 2, ENTRY_FILE, "x", "1"); /* numbers begin at 1 */
    expect_broken(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(files_of_every_size_cross),
        T(a_tree_keeps_modes_times_and_links),
        T(durable_names_are_those_at_the_top_too),
        T(what_exists_stays_unless_forced),
        T(a_directory_in_the_way_costs_its_contents_only),
        T(refusals_say_why),
        T(a_pull_from_nowhere_fails_that_source),
        T(a_source_that_changes_is_not_placed),
        T(a_file_that_hides_its_size_is_not_placed),
        T(names_of_files_under_way_are_not_copied),
        T(directories_inherit_their_group),
        T(what_was_not_placed_is_no_warning),
        T(holes_cost_nothing),
        T(a_cut_line_leaves_no_name),
        T(a_server_does_not_choose_the_name),
        T(a_server_does_not_send_what_was_not_asked_for),
        T(a_server_does_not_write_through_its_own_link),
        T(data_out_of_bounds_is_refused),
        T(a_flood_of_puts_ends_the_connection),
        T(a_file_ends_where_it_said),
        T(a_wrong_digest_keeps_the_name_away),
        T(a_chunk_written_behind_our_back_is_not_placed),
        T(an_end_that_leaves_something_out_is_refused),
        T(out_of_turn_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
