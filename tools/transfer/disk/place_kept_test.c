/* Files under way whose hidden name is always the same: what happens when somebody else takes it,
 * lets go of it or sweeps at the worst moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/transfer/disk/clear.h"
#include "tools/transfer/disk/place.h"
#include "tools/transfer/disk/scratch.h"

static const struct wishes no_wishes;
static const struct attributes attributes = {
    .wishes = &no_wishes, .mode = 0664, .mtime = {.tv_sec = 1000000000}, .fsync = true};

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

/* What others do just before the next lock is taken, or a directory is made durable. */
static void (*before_lock)(void);
static int lock_error; /* 0: there are locks here */
static void (*before_fsync)(void);

int __wrap_flock(int fd, int operation)
{
    void (*others)(void) = before_lock;
    before_lock = NULL;
    if (others != NULL) {
        others();
    }
    errno = lock_error;
    return lock_error != 0 ? -1 : __real_flock(fd, operation);
}

static mode_t mode_synced; /* of the last file whose contents were made durable */

int __wrap_fdatasync(int fd)
{
    struct stat status;
    mode_synced = fstat(fd, &status) == 0 ? status.st_mode & 07777 : 0;
    return __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
    struct stat status;
    if (before_fsync != NULL && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        void (*others)(void) = before_fsync;
        before_fsync = NULL;
        others();
    }
    return __real_fsync(fd);
}

static const struct scratch *scratch;
static struct place one, other;

static int set_up(void **state)
{
    *state = scratch_create();
    scratch = *state;
    before_lock = before_fsync = NULL;
    return 0;
}

static int tear_down(void **state)
{
    scratch_destroy(*state);
    return 0;
}

static int begin(struct place *place, bool *ret_existed)
{
    const char *flaw;
    int error = place_begin_kept(place, scratch->fd, "f", REPLACE_FILES, ret_existed, &flaw);
    assert_null(flaw);
    return error;
}

static void begin_with(struct place *place, const char *text)
{
    bool existed;
    assert_int_equal(begin(place, &existed), 0);
    assert_int_equal(place_write(place, text, strlen(text), 0), 0);
}

static void note(const struct place *place)
{
    char name[PLACE_JOURNAL_LENGTH + 1];
    place_journal_name(place, name);
    scratch_write(scratch, name, "noted");
}

static void commit_one(void)
{
    assert_int_equal(place_commit(&one, 3, &attributes), 0);
}

static void what_was_placed_before_the_lock_is_not_gone_on_with(void **state)
{
    bool existed;
    (void)state;
    begin_with(&one, "one");
    before_lock = commit_one;
    assert_int_equal(begin(&other, &existed), 0);
    assert_false(existed);
    assert_int_equal(place_cut(&other, 0), 0);
    scratch_expect(scratch, "f", "one");
    assert_int_equal(place_write(&other, "new", 3, 0), 0);
    assert_int_equal(place_commit(&other, 3, &attributes), 0);
    scratch_expect(scratch, "f", "new");
    assert_int_equal(scratch_count(scratch), 1);
}

static void place_what_was_left_and_begin_anew(void)
{
    bool existed;
    assert_int_equal(begin(&one, &existed), 0);
    assert_true(existed);
    commit_one();
    begin_with(&other, "new");
}

static void a_sweep_takes_nothing_that_has_a_name_anew(void **state)
{
    (void)state;
    begin_with(&one, "one");
    place_leave(&one);
    before_lock = place_what_was_left_and_begin_anew;
    place_sweep(scratch->fd);
    assert_true(scratch_exists(scratch, other.temporary));
    assert_int_equal(place_commit(&other, 3, &attributes), 0);
    scratch_expect(scratch, "f", "new");
}

static void what_another_one_has_under_way_is_not_placed(void **state)
{
    (void)state;
    begin_with(&one, "one");
    assert_int_equal(unlinkat(scratch->fd, one.temporary, 0), 0); /* somebody tidies up */
    begin_with(&other, "half");
    assert_int_equal(place_commit(&one, 3, &attributes), ESTALE);
    assert_false(scratch_exists(scratch, "f"));
    assert_true(scratch_exists(scratch, other.temporary));
    assert_int_equal(place_commit(&other, 4, &attributes), 0);
    scratch_expect(scratch, "f", "half");
}

static void begin_other_and_note(void)
{
    begin_with(&other, "new");
    note(&other);
}

static void the_journal_of_the_next_one_stays(void **state)
{
    char journal[PLACE_JOURNAL_LENGTH + 1];
    (void)state;
    begin_with(&one, "one");
    note(&one);
    before_fsync = begin_other_and_note;
    commit_one();
    place_journal_name(&other, journal);
    assert_true(scratch_exists(scratch, journal));
    place_abandon(&other);
    assert_int_equal(scratch_count(scratch), 1);
}

/* While it is written out, which may take long, it can be gone on with. */
static void it_is_ours_until_its_contents_are_stored(void **state)
{
    (void)state;
    mode_synced = 0;
    begin_with(&one, "one");
    commit_one();
    assert_int_equal(mode_synced, 0600);
}

static bool may_go(void *user)
{
    return true;
}

/* It can be gone on with. */
static void expect_journal(void *user, const char *path, mode_t mode)
{
    char journal[PLACE_JOURNAL_LENGTH + 1];
    place_journal_name(&one, journal);
    assert_true(scratch_exists(scratch, journal));
    ++*(unsigned *)user;
}

/* And so it can while a directory makes way for it. */
static void its_journal_stays_while_a_directory_goes(void **state)
{
    const char *flaw;
    bool existed;
    unsigned gone = 0;
    const struct clearing clearing = {.user = &gone, .may_go = may_go, .is_gone = expect_journal};
    (void)state;
    scratch_directory(scratch, "f");
    scratch_write(scratch, "f/a", "a");
    scratch_write(scratch, "f/b", "b");
    assert_int_equal(place_begin_kept(&one, scratch->fd, "f", REPLACE_TREES, &existed, &flaw), 0);
    assert_int_equal(place_write(&one, "one", 3, 0), 0);
    one.clearing = &clearing;
    note(&one);
    commit_one();
    assert_true(gone >= 2);
    scratch_expect(scratch, "f", "one");
    assert_int_equal(scratch_count(scratch), 1);
}

static void what_is_left_stays_for_a_journal_of_our_own_only(void **state)
{
    char journal[PLACE_JOURNAL_LENGTH + 1];
    (void)state;
    begin_with(&one, "one");
    note(&one);
    place_journal_name(&one, journal);
    place_leave(&one);
    place_sweep(scratch->fd);
    assert_int_equal(scratch_count(scratch), 2);
    if (geteuid() != 0) {
        skip(); /* nobody to give it to */
    }
    assert_int_equal(fchownat(scratch->fd, journal, 1, 1, AT_SYMLINK_NOFOLLOW), 0);
    place_sweep(scratch->fd);
    assert_false(scratch_exists(scratch, one.temporary));
}

static void where_nothing_can_be_locked_nothing_is_left(void **state)
{
    bool existed;
    (void)state;
    lock_error = ENOLCK;
    assert_int_equal(begin(&one, &existed), ENOLCK);
    lock_error = 0;
    assert_int_equal(scratch_count(scratch), 0);
}

/* A lease on a file of that name would hold up its opener for 45 s. */
static void nobody_holds_it_up(void **state)
{
    char name[PLACE_TEMPORARY_LENGTH + 1];
    const char *flaw;
    bool existed;
    (void)state;
    place_kept_name("f", name);
    scratch_write(scratch, name, "theirs");
    signal(SIGIO, SIG_IGN);
    int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0) {
        close(fd);
        skip();
    }
    time_t begun = time(NULL);
    assert_int_equal(place_begin_kept(&one, scratch->fd, "f", REPLACE_FILES, &existed, &flaw), 0);
    assert_true(time(NULL) - begun < 10);
    assert_string_equal(flaw, "could not be opened");
    close(fd);
    place_abandon(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(what_was_placed_before_the_lock_is_not_gone_on_with),
        T(a_sweep_takes_nothing_that_has_a_name_anew),
        T(what_another_one_has_under_way_is_not_placed),
        T(the_journal_of_the_next_one_stays),
        T(it_is_ours_until_its_contents_are_stored),
        T(its_journal_stays_while_a_directory_goes),
        T(what_is_left_stays_for_a_journal_of_our_own_only),
        T(where_nothing_can_be_locked_nothing_is_left),
        T(nobody_holds_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
