/* A call that is made only if a word says what it said. */
#include "rnic/io/system/guarded.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STEPS 3000

static ssize_t move(const _Atomic uint64_t *word, uint64_t expected, char *from, char *to)
{
    struct iovec here = {from, 8}, there = {to, 8};
    return guarded_move(word, expected, true, getpid(), &here, 1, &there, 1);
}

static void moves_if_the_word_is_as_expected(void **state)
{
    _Atomic uint64_t word = 5;
    char from[] = "written", to[8] = "";
    struct iovec here = {to, 8}, there = {from, 8};
    assert_int_equal(move(&word, 5, from, to), 8);
    assert_string_equal(to, "written");
    from[0] = 'W';
    assert_int_equal(guarded_move(&word, 5, false, getpid(), &here, 1, &there, 1), 8);
    assert_string_equal(to, "Written");
}

static void does_not_if_it_is_not(void **state)
{
    _Atomic uint64_t word = 5;
    char from[] = "written", to[8] = "";
    assert_int_equal(move(&word, 6, from, to), -1);
    assert_int_equal(errno, ESTALE);
    assert_int_equal(to[0], 0);
}

static void says_what_went_wrong(void **state)
{
    _Atomic uint64_t word = 5;
    char from[] = "written";
    assert_int_equal(move(&word, 5, from, NULL), -1);
    assert_int_equal(errno, EFAULT);
}

struct shared {
    _Atomic uint64_t word;
    _Atomic int result;
    char to[8];
};

/* One that is stopped after each of its instructions never comes to the call; once it runs freely
 * it finds that the word has changed. */
static void who_is_interrupted_looks_again(void **state)
{
    int status;
    if (!guarded_is_possible()) {
        skip();
    }
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        char from[] = "written";
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(2);
        }
        raise(SIGSTOP);
        ssize_t moved = move(&shared->word, 0, from, shared->to);
        atomic_store(&shared->result, moved == -1 && errno == ESTALE ? 1 : 2);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status));
    }
    assert_int_equal(shared->to[0], 0);
    atomic_store(&shared->word, 1);
    assert_int_equal(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&shared->result), 1);
    assert_int_equal(shared->to[0], 0);
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_if_the_word_is_as_expected),
        cmocka_unit_test(does_not_if_it_is_not),
        cmocka_unit_test(says_what_went_wrong),
        cmocka_unit_test(who_is_interrupted_looks_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
