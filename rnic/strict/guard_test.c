/* The guard: what it closes it opens again, whatever happens in between. Without cmocka, whose
 * handler of SIGSEGV would stand in the way. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rnic/strict/guard.h"

#define expect(truth)                                                                              \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            fprintf(stderr, "%s:%d: not %s\n", __func__, __LINE__, #truth);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define PAGES  4u
#define PAGE   ((size_t)sysconf(_SC_PAGESIZE))
#define LENGTH (PAGES * PAGE)

static uint8_t *pages(void)
{
    uint8_t *bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(bytes != MAP_FAILED);
    return bytes;
}

/* Asked of the kernel, which calls no handler. */
static bool is_open(uint8_t *bytes, size_t length)
{
    int zeroes = open("/dev/zero", O_RDONLY);
    ssize_t got = read(zeroes, bytes, length);
    close(zeroes);
    return got == (ssize_t)length;
}

/* Once it has seen that a thread blocks the signal it believes so for a moment. */
static bool raise_soon(uint8_t *bytes, size_t length)
{
    time_t end = time(NULL) + 5;
    bool raised = guard_raise(bytes, length);
    while (!raised && time(NULL) < end) {
        raised = guard_raise(bytes, length);
    }
    return raised;
}

static void test_whole_pages_are_closed(void)
{
    uint8_t *bytes = pages();
    struct trace where;
    expect(raise_soon(bytes + 8, LENGTH - 8));
    expect(is_open(bytes, PAGE));
    expect(!is_open(bytes + PAGE, 1));
    expect(!guard_lower(&where));
    expect(is_open(bytes, LENGTH));
    munmap(bytes, LENGTH);
}

static void test_a_touch_opens(void)
{
    uint8_t *bytes = pages();
    struct trace where;
    expect(raise_soon(bytes, LENGTH));
    expect(*(volatile uint8_t *)(bytes + PAGE) == 0);
    expect(is_open(bytes, LENGTH));
    expect(!guard_lower(&where)); /* by the code of this very object: nobody's mistake */
    munmap(bytes, LENGTH);
}

/* The last pages cannot be closed: they are gone. */
static void test_half_a_guard_is_taken_back(void)
{
    uint8_t *bytes = pages();
    munmap(bytes + 2 * PAGE, PAGE);
    expect(!guard_raise(bytes, LENGTH));
    expect(is_open(bytes, 2 * PAGE));
    munmap(bytes, LENGTH);
}

static void test_a_child_finds_no_guard(void)
{
    uint8_t *bytes = pages();
    struct trace where;
    expect(raise_soon(bytes, LENGTH));
    pid_t child = fork();
    if (child == 0) {
        _exit(is_open(bytes, LENGTH) ? 0 : 1);
    }
    int status;
    expect(waitpid(child, &status, 0) == child);
    expect(WIFEXITED(status));
    expect(WEXITSTATUS(status) == 0);
    expect(!is_open(bytes, LENGTH));
    expect(!guard_lower(&where));
    munmap(bytes, LENGTH);
}

static void test_a_signal_that_was_sent_kills(void)
{
    uint8_t *bytes = pages();
    struct trace where;
    expect(raise_soon(bytes, LENGTH));
    expect(!guard_lower(&where));
    pid_t child = fork();
    if (child == 0) {
        kill(getpid(), SIGSEGV);
        _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    munmap(bytes, LENGTH);
}

static void *touch(void *bytes)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_barrier_wait(*(pthread_barrier_t **)bytes);
    pthread_barrier_wait(*(pthread_barrier_t **)bytes);
    return NULL;
}

/* Its first look at the range would be its last. */
static void test_no_guard_beside_a_thread_that_blocks_the_signal(void)
{
    uint8_t *bytes = pages();
    pthread_barrier_t barrier, *known = &barrier;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, touch, &known);
    pthread_barrier_wait(&barrier);
    bool raised = guard_raise(bytes, LENGTH);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    expect(!raised);
    expect(is_open(bytes, LENGTH));
    munmap(bytes, LENGTH);
}

int main(void)
{
    test_no_guard_beside_a_thread_that_blocks_the_signal();
    test_whole_pages_are_closed();
    test_a_touch_opens();
    test_half_a_guard_is_taken_back();
    test_a_child_finds_no_guard();
    test_a_signal_that_was_sent_kills();
    return 0;
}
