/* Pages are turned while everybody uses them. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/io/direct/common_test.h"

#define PAGES   48u
#define BYTES   (PAGES * PAGE)
#define TURNS   100u
#define WRITERS 3u

extern char **environ;

/* Threads run until `stop`; the turning waits for each to have been around once in between, so that
 * all of them meet both kinds of page. */
struct crowd {
    uint8_t *bytes; /* BYTES */
    _Atomic bool stop;
    _Atomic bool failed;
};

struct member {
    struct crowd *crowd;
    void (*work)(struct member *member); /* once around */
    uint32_t number;
    uint32_t round;
    int ends[2];
    _Atomic uint32_t rounds;
    pthread_t thread;
};

static void expect(struct member *member, bool right)
{
    if (!right) {
        atomic_store(&member->crowd->failed, true);
        atomic_store(&member->crowd->stop, true);
    }
}

static void *run_member(void *argument)
{
    struct member *member = argument;
    for (; !atomic_load(&member->crowd->stop); member->round++) {
        member->work(member);
        atomic_fetch_add(&member->rounds, 1);
    }
    return NULL;
}

static void await_round(struct member *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t seen = atomic_load(&members[i].rounds);
        while (atomic_load(&members[i].rounds) == seen && !atomic_load(&members[i].crowd->stop)) {
            sched_yield();
        }
    }
}

static void turn_among(struct crowd *crowd, struct member *members, uint32_t count, uint32_t turns)
{
    for (uint32_t i = 0; i < count; i++) {
        members[i].crowd = crowd;
        members[i].number = i;
        assert_int_equal(pthread_create(&members[i].thread, NULL, run_member, &members[i]), 0);
    }
    for (uint32_t i = 0; i < turns && !atomic_load(&crowd->stop); i++) {
        struct common_range range;
        enum status status;
        while ((status = common_begin(common, crowd->bytes, BYTES, &range)) == STATUS_BUSY) {
            sched_yield(); /* process_vm_readv pins */
        }
        assert_int_equal(status, STATUS_OK);
        if (i % 8 == 0) {
            await_round(members, count);
        }
        assert_int_equal(common_end(common, &range), STATUS_OK);
        if (i % 8 == 0) {
            await_round(members, count);
        }
    }
    atomic_store(&crowd->stop, true);
    for (uint32_t i = count; i-- > 0;) { /* who signals others first */
        pthread_join(members[i].thread, NULL);
    }
    assert_false(atomic_load(&crowd->failed));
}

static void make_crowd(struct crowd *crowd)
{
    memset(crowd, 0, sizeof *crowd);
    crowd->bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(crowd->bytes, MAP_FAILED);
}

/* Every word of the range belongs to one thread, which finds there what it has stored last. */
static void store_and_look(struct member *member)
{
    volatile uint32_t *words = (volatile uint32_t *)member->crowd->bytes;
    for (uint32_t i = member->number; i < BYTES / sizeof *words; i += WRITERS) {
        expect(member, words[i] == (member->round == 0 ? 0 : member->round + i));
        words[i] = member->round + 1 + i;
    }
}

static void no_store_is_lost(void **state)
{
    struct crowd crowd;
    struct member members[WRITERS] = {{.work = store_and_look}};
    make_crowd(&crowd);
    for (uint32_t i = 0; i < WRITERS; i++) {
        members[i].work = store_and_look;
    }
    turn_among(&crowd, members, WRITERS, 2 * TURNS);
    munmap(crowd.bytes, BYTES);
}

/* Atomic operations of all on the same words. */
static void count_up(struct member *member)
{
    _Atomic uint64_t *words = (_Atomic uint64_t *)member->crowd->bytes;
    for (uint32_t i = 0; i < BYTES / sizeof *words; i += 64) {
        atomic_fetch_add(&words[i], 1);
    }
}

static void no_count_is_lost(void **state)
{
    struct crowd crowd;
    struct member members[WRITERS] = {{.work = NULL}};
    uint64_t sum = 0;
    make_crowd(&crowd);
    for (uint32_t i = 0; i < WRITERS; i++) {
        members[i].work = count_up;
    }
    turn_among(&crowd, members, WRITERS, TURNS);
    for (uint32_t i = 0; i < WRITERS; i++) {
        sum += members[i].round;
    }
    for (uint32_t i = 0; i < BYTES / sizeof(uint64_t); i += 64) {
        assert_int_equal(((uint64_t *)crowd.bytes)[i], sum);
    }
    munmap(crowd.bytes, BYTES);
}

/* A part of the range for each of the system calls. */
#define PART (BYTES / 4)

static void fill_with(uint8_t *bytes, uint32_t length, uint32_t seed)
{
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(seed * 7 + i + (i >> 8));
    }
}

/* Through a socket: the kernel reads from the first half of our part and writes to the second. */
static void send_to_self(struct member *member)
{
    uint8_t *from = member->crowd->bytes + (uint64_t)member->number * PART, *to = from + PART / 2;
    fill_with(from, PART / 2, member->round);
    for (uint32_t sent = 0, got = 0; got < PART / 2;) {
        ssize_t out = sent == PART / 2
                          ? 0
                          : send(member->ends[0], from + sent, PART / 2 - sent, MSG_DONTWAIT);
        expect(member, out >= 0 || errno == EAGAIN);
        sent += out > 0 ? (uint32_t)out : 0;
        ssize_t in = recv(member->ends[1], to + got, PART / 2 - got, MSG_DONTWAIT);
        expect(member, in >= 0 || errno == EAGAIN);
        got += in > 0 ? (uint32_t)in : 0;
        if (atomic_load(&member->crowd->failed)) {
            return;
        }
    }
    expect(member, memcmp(from, to, PART / 2) == 0);
}

/* Through a pipe, with calls that block. */
static void pipe_to_self(struct member *member)
{
    uint8_t *from = member->crowd->bytes + (uint64_t)member->number * PART, *to = from + PART / 2;
    fill_with(from, PART / 2, member->round);
    for (uint32_t done = 0; done < PART / 2; done += PAGE) {
        expect(member, write(member->ends[1], from + done, PAGE) == PAGE);
        expect(member, read(member->ends[0], to + done, PAGE) == PAGE);
    }
    expect(member, memcmp(from, to, PART / 2) == 0);
}

static void copy_by_kernel(struct member *member)
{
    uint8_t *from = member->crowd->bytes + (uint64_t)member->number * PART, *to = from + PART / 2;
    struct iovec here = {to, PART / 2}, there = {from, PART / 2};
    fill_with(from, PART / 2, member->round);
    expect(member, process_vm_readv(getpid(), &here, 1, &there, 1, 0) == PART / 2);
    expect(member, memcmp(from, to, PART / 2) == 0);
}

/* Interrupts the threads before us. */
static void disturb(struct member *member)
{
    for (uint32_t i = 1; i <= member->number; i++) {
        expect(member, pthread_kill(member[-(int)i].thread, SIGUSR2) == 0);
    }
    for (uint32_t i = 0; i < 10; i++) {
        sched_yield();
    }
}

static void do_nothing(int number)
{
}

static void system_calls_wait_and_go_on(void **state)
{
    struct crowd crowd;
    struct member members[3] = {{.work = send_to_self}, {.work = pipe_to_self}, {.work = disturb}};
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = SA_RESTART}, before;
    make_crowd(&crowd);
    assert_int_equal(sigaction(SIGUSR2, &action, &before), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, members[0].ends), 0);
    assert_int_equal(pipe(members[1].ends), 0);
    turn_among(&crowd, members, 3, TURNS);
    assert_int_equal(sigaction(SIGUSR2, &before, NULL), 0);
    for (uint32_t i = 0; i < 4; i++) {
        close(members[i / 2].ends[i % 2]);
    }
    munmap(crowd.bytes, BYTES);
}

static void reads_by_other_processes_wait_and_go_on(void **state)
{
    struct crowd crowd;
    struct member members[1] = {{.work = copy_by_kernel}};
    make_crowd(&crowd);
    turn_among(&crowd, members, 1, TURNS);
    munmap(crowd.bytes, BYTES);
}

/* All by malloc, in one heap, whose own notes lie in the pages that are turned. */
#define BLOCKS 64u

static void allocate(struct member *member)
{
    uint8_t *blocks[BLOCKS] = {NULL};
    for (uint32_t i = 0; i < BLOCKS * 4; i++) {
        uint8_t **block = &blocks[(i * 37 + member->round) % BLOCKS];
        uint32_t length = 16 + (i * 331 + member->number * 97) % 3000;
        if (*block != NULL) {
            expect(member, (*block)[0] == (uint8_t)member->number &&
                               (*block)[15] == (uint8_t)member->number);
            free(*block);
        }
        *block = malloc(length);
        memset(*block, (int)member->number, length);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
}

static void the_heap_goes_on(void **state)
{
    struct crowd crowd;
    struct member members[WRITERS] = {{.work = NULL}};
    void *around[8];
    memset(&crowd, 0, sizeof crowd);
    (void)mallopt(M_ARENA_MAX, 1);
    for (uint32_t i = 0; i < 8; i++) {
        around[i] = malloc(BYTES / 4); /* so that the heap is as long, and full of holes */
        memset(around[i], 0, BYTES / 4);
    }
    crowd.bytes = around[2];
    for (uint32_t i = 0; i < 8; i += 3) {
        free(around[i]);
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        members[i].work = allocate;
    }
    turn_among(&crowd, members, WRITERS, TURNS / 2);
    for (uint32_t i = 0; i < 8; i++) {
        if (i % 3 != 0) {
            free(around[i]);
        }
    }
}

/* What runs in our memory until it is another program has our descriptors, too. */
static void start_program(struct member *member)
{
    char *name = (char *)member->crowd->bytes, *arguments[] = {name, NULL};
    pid_t child;
    int status = 1;
    memcpy(name, "/bin/true", 10);
    expect(member, posix_spawn(&child, name, NULL, NULL, arguments, environ) == 0);
    expect(member, waitpid(child, &status, 0) == child && status == 0);
}

static void programs_can_be_started(void **state)
{
    struct crowd crowd;
    struct member members[1] = {{.work = start_program}};
    make_crowd(&crowd);
    turn_among(&crowd, members, 1, TURNS);
    munmap(crowd.bytes, BYTES);
}

/* A handler that uses the memory, called in the thread that turns it. */
static _Atomic uint64_t *volatile signalled;
static _Atomic uint32_t handled;
static pthread_t turner;

static void on_signal(int number)
{
    atomic_fetch_add(&handled, 1);
    for (uint32_t i = 0; i < PAGES; i++) {
        atomic_fetch_add(&signalled[i * PAGE / sizeof *signalled], 1);
    }
}

/* One at a time, and some time in between. */
static void send_signal(struct member *member)
{
    uint32_t before = atomic_load(&handled);
    expect(member, pthread_kill(turner, SIGUSR1) == 0);
    while (atomic_load(&handled) == before && !atomic_load(&member->crowd->stop)) {
        sched_yield();
    }
    for (uint32_t i = 0; i < 100 && !atomic_load(&member->crowd->stop); i++) {
        sched_yield();
    }
}

static void a_handler_may_touch_it(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it keeps a signal back until some call that it knows */
#endif
    struct crowd crowd;
    struct member members[1] = {{.work = send_signal}};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    make_crowd(&crowd);
    turner = pthread_self();
    signalled = (_Atomic uint64_t *)crowd.bytes;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    turn_among(&crowd, members, 1, TURNS);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_int_equal(signalled[i * PAGE / sizeof *signalled], signalled[0]);
    }
    assert_true(signalled[0] > 0);
    munmap(crowd.bytes, BYTES);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_store_is_lost),
        cmocka_unit_test(no_count_is_lost),
        cmocka_unit_test(system_calls_wait_and_go_on),
        cmocka_unit_test(reads_by_other_processes_wait_and_go_on),
        cmocka_unit_test(the_heap_goes_on),
        cmocka_unit_test(programs_can_be_started),
        cmocka_unit_test(a_handler_may_touch_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_with_common(run);
}
