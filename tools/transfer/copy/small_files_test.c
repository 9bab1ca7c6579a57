/* Small files are opened, looked at and made with few calls of the system: what must not be lost
 * by that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/disk/confine.h"
#include "tools/transfer/wire/listing.h"

int __real_confine_open(int directory, const char *path, int flags, mode_t mode,
                        enum confinement confinement);
int __wrap_confine_open(int directory, const char *path, int flags, mode_t mode,
                        enum confinement confinement);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
int __real_close(int fd);
int __wrap_close(int fd);

/* New files get no descriptors from here on; 0: as many as there are. */
static int descriptors_end;
static unsigned refusals;
/* There is no room to write where more files than this have no names yet; 0: there always is. */
static int nameless_max;
#define DESCRIPTORS 1024
static atomic_bool is_nameless[DESCRIPTORS];
/* Directories that are asked about cannot be looked into. */
static bool is_blind;

int __wrap_confine_open(int directory, const char *path, int flags, mode_t mode,
                        enum confinement confinement)
{
    if (is_blind && flags == (O_RDONLY | O_DIRECTORY) && strchr(path, '/') != NULL) {
        refusals++;
        return -EMFILE;
    }
    int fd = __real_confine_open(directory, path, flags, mode, confinement);
    if ((flags & O_TMPFILE) == O_TMPFILE && descriptors_end > 0 && fd >= descriptors_end) {
        close(fd);
        refusals++;
        return -EMFILE;
    }
    if ((flags & O_TMPFILE) == O_TMPFILE && fd >= 0 && fd < DESCRIPTORS) {
        is_nameless[fd] = true;
    }
    return fd;
}

int __wrap_close(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS) {
        is_nameless[fd] = false;
    }
    return __real_close(fd);
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    int nameless = 0;
    for (int i = 0; nameless_max > 0 && i < DESCRIPTORS; i++) {
        nameless += is_nameless[i];
    }
    if (nameless > nameless_max) {
        refusals++;
        errno = ENOSPC;
        return -1;
    }
    return __real_pwrite64(fd, bytes, length, offset);
}

#define STEPS 24 /* more than such a copy takes */

static unsigned when; /* `between` changes something before this step */
static void (*change)(const struct scratch *scratch);

static void at_one_step(struct world *world, unsigned step)
{
    if (step == when) {
        change(world->scratch);
    }
}

static void grow(const struct scratch *s)
{
    scratch_write(s, "here/t/f", "something new, and longer than what was there before");
}

static void become_large(const struct scratch *s)
{
    scratch_fill(s, "here/t/f", EAGER_LENGTH_MAX + 5, 7);
}

static void shrink(const struct scratch *s)
{
    scratch_write(s, "here/t/f", "new");
}

/* As long, and of the same time: nothing but the inode tells. */
static void be_replaced(const struct scratch *s)
{
    struct stat status;
    assert_int_equal(fstatat(s->fd, "here/t/f", &status, 0), 0);
    scratch_write(s, "here/other", "NEW");
    const struct timespec times[2] = {status.st_mtim, status.st_mtim};
    assert_int_equal(utimensat(s->fd, "here/other", times, 0), 0);
    assert_int_equal(renameat(s->fd, "here/other", s->fd, "here/t/f"), 0);
}

static void become_a_fifo(const struct scratch *s)
{
    assert_int_equal(unlinkat(s->fd, "here/t/f", 0), 0);
    assert_int_equal(mkfifoat(s->fd, "here/t/f", 0600), 0);
}

static void vanish(const struct scratch *s)
{
    assert_int_equal(unlinkat(s->fd, "here/t/f", 0), 0);
}

static void begin_anew(struct world *world)
{
    const struct scratch *s = world->scratch;
    if (!scratch_exists(s, "here/t")) {
        scratch_directory(s, "here/t");
    }
    unlinkat(s->fd, "here/t/f", 0);
    unlinkat(s->fd, "here/t/g", 0);
    unlinkat(s->fd, "root/t/f", 0);
    unlinkat(s->fd, "root/t/g", 0);
    unlinkat(s->fd, "root/t", AT_REMOVEDIR);
    scratch_write(s, "here/t/f", "old");
    scratch_write(s, "here/t/g", "beside it");
    world->request.wishes.bits |= WISH_RECURSIVE;
}

/* Before or after the change, and nothing in between; `is_file`: there is something afterwards. */
static void expect_one_or_the_other(struct world *world, bool is_file)
{
    const struct scratch *s = world->scratch;
    unsigned olds = 0, others = 0;
    world->between = at_one_step;
    for (when = 0; when < STEPS; when++) {
        begin_anew(world);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        scratch_expect(s, "root/t/g", "beside it");
        bool failed = session_tally(world->client)->failed > 0;
        bool warned = session_tally(world->client)->warnings > 0;
        assert_true(!failed || !is_file);
        struct stat status;
        bool there = fstatat(s->fd, "root/t/f", &status, 0) == 0;
        if (there && status.st_size == 3 && !(is_file && scratch_same(s, "here/t/f", "root/t/f"))) {
            scratch_expect(s, "root/t/f", "old");
            olds++;
        } else {
            assert_int_equal(there, is_file);
            assert_true(there ? scratch_same(s, "here/t/f", "root/t/f") : true);
            others++;
        }
        assert_true(!(there && (failed || (warned && !is_file)))); /* of what is read again */
        if (failed && change == become_a_fifo) { /* and not that it cannot be read */
            assert_string_equal(world->problems[0], "here source changed\n");
        }
    }
    assert_true(olds > 0 && others > 0);
}

static void what_changes_before_it_is_read_comes_whole(void **state)
{
    void (*const changes[])(const struct scratch *) = {grow, become_large, shrink, be_replaced};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        change = changes[i];
        expect_one_or_the_other(*state, true);
    }
}

static void what_is_no_file_any_more_is_not_read(void **state)
{
    void (*const changes[])(const struct scratch *) = {become_a_fifo, vanish};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        change = changes[i];
        expect_one_or_the_other(*state, false);
    }
}

static void modes_do_not_depend_on_the_umask(void **state)
{
    static const mode_t modes[] = {0, 0400, 0444, 0600, 0640, 0644, 0666, 0755, 0777, 01644};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    char here[40], there[40];
    struct stat status;
    const mode_t before = umask(0);
    for (mode_t mask = 0; mask <= 0777; mask += 077) {
        begin_anew(world);
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            snprintf(here, sizeof(here), "here/t/%o", modes[i]);
            scratch_write(s, here, "x");
            assert_int_equal(fchmodat(s->fd, here, modes[i] | 0400, 0), 0);
        }
        umask(mask);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        umask(0);
        assert_int_equal(session_tally(world->client)->failed, 0);
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            snprintf(here, sizeof(here), "here/t/%o", modes[i]);
            snprintf(there, sizeof(there), "root/t/%o", modes[i]);
            assert_int_equal(fstatat(s->fd, there, &status, 0), 0);
            assert_int_equal(status.st_mode & 07777, modes[i] | 0400);
            unlinkat(s->fd, here, 0);
            unlinkat(s->fd, there, 0);
        }
    }
    umask(before);
}

/* Somebody makes the file in a directory that the copy has made. */
static void be_first(struct world *world, unsigned step)
{
    if (scratch_exists(world->scratch, "root/t") && !world->replaced) {
        world->replaced = true;
        scratch_write(world->scratch, "root/t/f", "theirs");
    }
}

static void who_comes_between_is_met(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    for (int spare = 0; spare < 2; spare++) {
        begin_anew(world);
        scratch_fill(s, "here/t/a", 4 * MIB, 1); /* so that there are steps between */
        world->request.wishes.bits |= spare ? WISH_IGNORE_EXISTING : 0;
        world->between = be_first;
        world->replaced = false;
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        assert_true(world->replaced);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_exists(s, "root/t/f"));
        unlinkat(s->fd, "root/t/a", 0);
    }
}

#define MANY 300

static void numbered(char ret_path[64], const char *side, unsigned number)
{
    const char *folder = number % 3 == 0 ? "u/" : ""; /* every third one in a directory below */
    snprintf(ret_path, 64, "%s/t/%sf%03u", side, folder, number);
}

static size_t length_of(unsigned number)
{
    return number % 7 == 0 ? EAGER_LENGTH_MAX + number : number; /* some by chunks */
}

static void set_times(const struct scratch *s)
{
    const struct timespec times[2] = {{.tv_sec = 77}, {.tv_sec = 88, .tv_nsec = 99}};
    assert_int_equal(utimensat(s->fd, "here/t/u", times, 0), 0);
    assert_int_equal(utimensat(s->fd, "here/t", times, 0), 0);
}

static void make_many(const struct scratch *s)
{
    char path[64];
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/u");
    for (unsigned i = 0; i < MANY; i++) {
        numbered(path, "here", i);
        scratch_fill(s, path, length_of(i), i);
    }
    assert_int_equal(linkat(s->fd, "here/t/f001", s->fd, "here/t/u/z", 0), 0);
    assert_int_equal(linkat(s->fd, "here/t/f298", s->fd, "here/t/z", 0), 0);
    set_times(s);
}

static void expect_linked(const struct scratch *s, const char *one, const char *other)
{
    struct stat status[2];
    assert_int_equal(fstatat(s->fd, one, &status[0], 0), 0);
    assert_int_equal(fstatat(s->fd, other, &status[1], 0), 0);
    assert_int_equal(status[0].st_ino, status[1].st_ino);
}

/* But for two that something is in the way of; MANY: for none. */
static void expect_many(const struct scratch *s, unsigned one, unsigned other)
{
    char here[64], there[64];
    struct stat status;
    for (unsigned i = 0; i < MANY; i++) {
        numbered(here, "here", i);
        numbered(there, "root", i);
        assert_true(i == one || i == other || scratch_same(s, here, there));
    }
    expect_linked(s, "root/t/f001", "root/t/u/z");
    expect_linked(s, "root/t/f298", "root/t/z");
    assert_int_equal(fstatat(s->fd, "root/t/u", &status, 0), 0);
    assert_int_equal(status.st_mtim.tv_sec, 88);
    assert_int_equal(status.st_mtim.tv_nsec, 99);
    assert_int_equal(fstatat(s->fd, "root/t", &status, 0), 0);
    assert_int_equal(status.st_mtim.tv_sec, 88);
}

static void prepare_many(struct world *world)
{
    make_many(world->scratch);
    world->request.wishes.bits |= WISH_RECURSIVE | WISH_PERMS;
    world->request.wishes.preserve = PRESERVE_HARD_LINKS;
    world->crowd = 40; /* as when they come packed */
}

static void many_are_all_there_and_two_in_the_way_are_told(void **state)
{
    struct world *world = *state;
    prepare_many(world);
    scratch_directory(world->scratch, "root/t");
    scratch_directory(world->scratch, "root/t/f017");
    scratch_write(world->scratch, "root/t/f017/full", "in the way");
    scratch_directory(world->scratch, "root/t/f028"); /* of one that comes by chunks */
    scratch_write(world->scratch, "root/t/f028/full", "in the way");
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    const struct tally *tally = session_tally(world->client);
    assert_int_equal(tally->failed, 2);
    assert_int_equal(tally->files, MANY + 2 - 2);
    assert_string_equal(world->problems[1], "here target wrong-kind\nhere target wrong-kind\n");
    expect_many(world->scratch, 17, 28);
}

static void put_in_the_way(const struct scratch *s, const char *directory)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/full", directory);
    scratch_directory(s, directory);
    scratch_write(s, path, "in the way");
}

/* In a directory that the copy has made, where it looks for nothing. */
static void come_between(struct world *world, unsigned step)
{
    if (scratch_exists(world->scratch, "root/t") && !world->replaced) {
        world->replaced = true;
        put_in_the_way(world->scratch, "root/t/f028");
        put_in_the_way(world->scratch, "root/t/f029");
    }
}

static void names_that_cannot_be_given_are_told_and_not_counted(void **state)
{
    struct world *world = *state;
    uint64_t bytes = 4 * MIB;
    prepare_many(world);
    scratch_fill(world->scratch, "here/t/a", 4 * MIB, 1); /* so that there are steps between */
    set_times(world->scratch);
    world->between = come_between;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_true(world->replaced);
    const struct tally *tally = session_tally(world->client);
    for (unsigned i = 0; i < MANY; i++) {
        bytes += i == 28 || i == 29 ? 0 : length_of(i);
    }
    assert_int_equal(tally->failed, 2);
    assert_int_equal(tally->files, MANY + 2 + 1 - 2);
    assert_int_equal(tally->bytes, bytes);
    assert_string_equal(world->problems[1], "here target wrong-kind\nhere target wrong-kind\n");
    expect_many(world->scratch, 28, 29);
}

/* Files that wait for their names hold the room of those they replace; what there is no room for
 * waits for them. */
static void little_room_is_enough(void **state)
{
    struct world *world = *state;
    prepare_many(world);
    nameless_max = 3;
    refusals = 0;
    int outcome = world_push(world, "t", "/");
    nameless_max = 0;
    assert_true(refusals > 0);
    assert_int_equal(outcome, SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    expect_many(world->scratch, MANY, MANY);
}

/* Files that wait for their names hold descriptors; where there are few, fewer wait. */
static void few_descriptors_are_enough(void **state)
{
    struct world *world = *state;
    prepare_many(world);
    world_begin_push(world, "t", "/");
    int next = dup(0);
    descriptors_end = next + 12;
    close(next);
    world_run(world);
    descriptors_end = 0;
    assert_true(refusals > 0);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    expect_many(world->scratch, MANY, MANY);
}

/* What nobody could look at is no reason to leave anything out. */
static void what_could_not_be_looked_at_comes(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    begin_anew(world);
    scratch_directory(s, "here/t/u");
    scratch_write(s, "here/t/u/f", "new");
    scratch_write(s, "here/t/u/g", "and not there");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/u");
    scratch_write(s, "root/t/u/f", "older");
    world->request.wishes.bits |= WISH_EXISTING;
    refusals = 0;
    is_blind = true;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    is_blind = false;
    assert_true(refusals > 0);
    assert_int_equal(session_tally(world->client)->failed, 0);
    scratch_expect(s, "root/t/u/f", "new");
    assert_false(scratch_exists(s, "root/t/u/g"));
}

static char said[64 * 1024]; /* by the server, of names and of what is wrong, in order */

static void note(const char *prefix, struct span text)
{
    size_t length = strlen(said);
    snprintf(said + length, sizeof(said) - length, "%s%.*s\n", prefix, (int)text.length,
             (const char *)text.bytes);
}

static void note_item(void *user, const struct item *item)
{
    note("", item->path);
}

static void note_problem(void *user, const struct problem *problem)
{
    note("! ", problem->path);
}

/* What the source says of one comes after what is said of those before it, which may still wait for
 * their names. */
static void what_is_left_out_is_said_in_its_turn(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    prepare_many(world);
    assert_int_equal(mkfifoat(s->fd, "here/t/f150a", 0600), 0);
    world->request.wishes.bits |= WISH_ITEMS;
    world->reports[1] = (struct report){.problem = note_problem, .item = note_item};
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    const char *problem = strstr(said, "! ");
    assert_non_null(problem);
    int fd = openat(s->fd, "here/t", O_RDONLY | O_DIRECTORY);
    DIR *directory = fdopendir(fd);
    bool is_before = true; /* in the order in which the source has them */
    char line[NAME_MAX + 8];
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        is_before &= strcmp(entry->d_name, "f150a") != 0;
        snprintf(line, sizeof(line), "t/%s\n", entry->d_name);
        const char *at = strstr(said, line);
        assert_true(at == NULL || entry->d_type != DT_REG || (at < problem) == is_before);
    }
    closedir(directory);
}

/* As long as it was told in time: here there is a file in between that waits for its grants. */
static void another_name_comes_whole_where_the_first_could_not_be(void **state)
{
    static const char *const paths[] = {"a/f", "m/big", "z/one"};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct listing listing = {0};
    for (unsigned i = 0; i < 3; i++) { /* in this order */
        assert_true(listing_add(&listing, (struct span){paths[i], strlen(paths[i])}));
    }
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/a");
    scratch_directory(s, "here/t/m");
    scratch_directory(s, "here/t/z");
    scratch_write(s, "here/t/a/f", "one");
    scratch_fill(s, "here/t/m/big", 40 * MIB, 1);
    assert_int_equal(linkat(s->fd, "here/t/a/f", s->fd, "here/t/z/one", 0), 0);
    scratch_directory(s, "root/a");
    scratch_directory(s, "root/a/f");
    scratch_write(s, "root/a/f/in the way", "x");
    world->request.listing = &listing;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_LISTED;
    world->request.wishes.preserve = PRESERVE_HARD_LINKS;
    assert_int_equal(world_push(world, "t/", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    scratch_expect(s, "root/a/f/in the way", "x");
    scratch_expect(s, "root/z/one", "one");
    world->request.listing = NULL;
    listing_clear(&listing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(another_name_comes_whole_where_the_first_could_not_be),
        T(what_changes_before_it_is_read_comes_whole),
        T(what_is_no_file_any_more_is_not_read),
        T(modes_do_not_depend_on_the_umask),
        T(who_comes_between_is_met),
        T(many_are_all_there_and_two_in_the_way_are_told),
        T(names_that_cannot_be_given_are_told_and_not_counted),
        T(few_descriptors_are_enough),
        T(little_room_is_enough),
        T(what_could_not_be_looked_at_comes),
        T(what_is_left_out_is_said_in_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
