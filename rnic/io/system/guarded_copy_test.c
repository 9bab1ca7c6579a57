/* Copies of all lengths and alignments, if a word says so; one who looks from the end sees all that
 * comes before. */
#include "rnic/io/system/guarded.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MOST   4096u
#define ROUNDS 2000u
#define STEPS  2000
#define LONG   (1u << 20)

static _Alignas(64) uint8_t from[MOST + 64], to[MOST + 128], before[MOST + 128];

static _Atomic uint64_t word = 5;

static void copy(uint8_t *there, const uint8_t *here, uint64_t length)
{
    if (!guarded_is_possible()) {
        skip();
    }
    assert_true(guarded_copy(&word, 5, there, here, length));
}

static void nothing_is_copied_if_the_word_is_another(void **state)
{
    memset(to, 0, sizeof to);
    assert_false(guarded_copy(&word, 6, to, (const uint8_t *)"something", 9));
    assert_memory_equal(to, before, sizeof to);
}

static void bytes_arrive_and_no_others(void **state)
{
    for (uint32_t i = 0; i < sizeof from; i++) {
        from[i] = (uint8_t)(i * 7 + 1);
    }
    for (uint32_t length = 0; length <= MOST; length += length < 200 ? 1 : 61) {
        for (uint32_t shift = 0; shift < 17; shift++) {
            uint8_t *place = to + 32 + shift;
            memset(to, 0, sizeof to);
            copy(place, from + (shift * 5) % 16, length);
            assert_memory_equal(place, from + (shift * 5) % 16, length);
            assert_memory_equal(to, before, (size_t)(place - to));
            assert_memory_equal(place + length, before, sizeof to - (size_t)(place + length - to));
        }
    }
}

struct watcher {
    uint32_t length;
    _Atomic uint32_t seen; /* the latest round whose last byte has come */
    _Atomic bool over;
    uint32_t torn;
};

/* Once the last byte is there all others must be. */
static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    const volatile uint8_t *bytes = to;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        while (bytes[watcher->length - 1] != (uint8_t)round) {
            sched_yield();
        }
        atomic_thread_fence(memory_order_acquire);
        for (uint32_t i = 0; i < watcher->length; i++) {
            watcher->torn += bytes[i] != (uint8_t)round;
        }
        atomic_store(&watcher->seen, round);
    }
    return NULL;
}

static void the_last_byte_comes_last(void **state)
{
    static const uint32_t lengths[] = {3, 16, 40, 200, 1000, 4096};
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct watcher watcher = {.length = lengths[i]};
        pthread_t thread;
        memset(to, 0, sizeof to);
        assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            memset(from, (int)(uint8_t)round, lengths[i]);
            copy(to, from, lengths[i]);
            while (atomic_load(&watcher.seen) != round) {
                sched_yield();
            }
        }
        pthread_join(thread, NULL);
        assert_int_equal(watcher.torn, 0);
    }
}

/* A word is as one of those who write it has written it. */
static void *watch_word(void *argument)
{
    struct watcher *watcher = argument;
    while (!atomic_load(&watcher->over)) {
        uint64_t now = *(const volatile uint64_t *)(const void *)to;
        watcher->torn += now != 0 && now != UINT64_MAX;
    }
    return NULL;
}

static void a_word_is_stored_at_once(void **state)
{
    struct watcher watcher = {.length = 8};
    pthread_t thread;
    memset(to, 0, sizeof to);
    assert_int_equal(pthread_create(&thread, NULL, watch_word, &watcher), 0);
    for (uint32_t round = 0; round < 100 * ROUNDS; round++) {
        uint64_t next = round % 2 == 0 ? UINT64_MAX : 0;
        copy(to, (const uint8_t *)&next, sizeof next);
    }
    atomic_store(&watcher.over, true);
    pthread_join(thread, NULL);
    assert_int_equal(watcher.torn, 0);
}

struct shared {
    _Atomic uint64_t word;
    _Atomic int result;
    uint8_t to[MOST];
};

/* Steps through a copy of so many bytes, of which the last is not 0. */
static pid_t start_copy(struct shared *shared, uint32_t length)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        memset(from, 'c', MOST);
        if (!guarded_is_possible() || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(2);
        }
        raise(SIGSTOP);
        bool copied = guarded_copy(&shared->word, 0, shared->to, from, length);
        atomic_store(&shared->result, copied ? 2 : 1);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        skip();
    }
    return child;
}

static void step(pid_t child)
{
    int status;
    assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
}

static void finish_copy(pid_t child)
{
    int status;
    assert_int_equal(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* One that is stopped after each of its instructions never comes to the end of many; once the word
 * has changed it copies no more. */
static void who_is_interrupted_looks_again(void **state)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t child = start_copy(shared, 600);
    for (int i = 0; i < STEPS; i++) {
        step(child);
    }
    atomic_store(&shared->word, 1);
    memset(shared->to, 0, MOST);
    finish_copy(child);
    assert_int_equal(atomic_load(&shared->result), 1);
    assert_memory_equal(shared->to, before, MOST);
    munmap(shared, sizeof *shared);
}

static bool set_watchpoint(pid_t child, const void *byte, bool writes)
{
    unsigned long control = writes ? 1ul | 1ul << 16 : 0; /* the first, for writes of one byte */
    return ptrace(PTRACE_POKEUSER, child, (void *)offsetof(struct user, u_debugreg[0]), byte) ==
               0 &&
           ptrace(PTRACE_POKEUSER, child, (void *)offsetof(struct user, u_debugreg[7]), control) ==
               0;
}

/* One is interrupted right behind the store of the last byte: what others have changed since it
 * does not store again. */
static void the_last_store_is_made_once(void **state)
{
    static const uint32_t lengths[] = {1, 2, 3, 4, 7, 8, 15, 16, 24, 100, 768, 1000};
    int status;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(shared, 0, sizeof *shared);
        pid_t child = start_copy(shared, lengths[i]);
        const uint8_t *last = &shared->to[lengths[i] - 1];
        if (!set_watchpoint(child, last, true)) {
            print_message("no watchpoints here\n");
            finish_copy(child);
            continue;
        }
        assert_int_equal(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
        assert_int_equal(*last, 'c');
        assert_true(set_watchpoint(child, NULL, false));
        memset(shared->to, 0, MOST);
        finish_copy(child);
        assert_int_equal(atomic_load(&shared->result), 2);
        assert_memory_equal(shared->to, before, MOST);
    }
    munmap(shared, sizeof *shared);
}

struct long_copy {
    _Atomic uint64_t word;
    _Atomic uint32_t begun, refused; /* rounds */
    uint8_t to[LONG];
};

static void copy_again_and_again(struct long_copy *shared)
{
    uint8_t *text = malloc(LONG);
    for (uint32_t round = 1;; round++) {
        uint64_t expected = atomic_load(&shared->word);
        memset(text, (int)round, LONG);
        while (atomic_load(&shared->begun) != round) {
            sched_yield();
        }
        while (guarded_copy(&shared->word, expected, shared->to, text, LONG)) {
        }
        atomic_store(&shared->refused, round);
    }
}

/* One that a signal stops in the middle of a long one stores nothing more once the word is another.
 */
static void who_is_stopped_stores_nothing_more(void **state)
{
    int status;
    struct long_copy *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    if (!guarded_is_possible()) {
        skip();
    }
    pid_t child = fork();
    if (child == 0) {
        copy_again_and_again(shared);
    }
    for (uint32_t round = 1; round <= 50; round++) {
        memset(shared->to, 0, LONG);
        atomic_store(&shared->begun, round);
        while (*(const volatile uint8_t *)shared->to == 0) {
            sched_yield();
        }
        kill(child, SIGSTOP);
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        atomic_fetch_add(&shared->word, 1);
        memset(shared->to, 0, LONG);
        kill(child, SIGCONT);
        while (atomic_load(&shared->refused) != round) {
            sched_yield();
        }
        for (uint32_t i = 0; i < LONG; i++) {
            assert_int_equal(shared->to[i], 0);
        }
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_copied_if_the_word_is_another),
        cmocka_unit_test(bytes_arrive_and_no_others),
        cmocka_unit_test(the_last_byte_comes_last),
        cmocka_unit_test(a_word_is_stored_at_once),
        cmocka_unit_test(who_is_interrupted_looks_again),
        cmocka_unit_test(the_last_store_is_made_once),
        cmocka_unit_test(who_is_stopped_stores_nothing_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
