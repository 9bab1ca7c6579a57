/* One process touches another's memory, and the other takes it back. */
#include "rnic/io/direct.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/life.h"
#include "rnic/memory/access.h"

#define LENGTH (1u << 20)
#define KEY    0x105u

struct shared {
    struct direct_shown shown;
    struct direct_announcement announcements[2];
    _Atomic bool stop;
};

static struct shared *shared;
static uint8_t bytes[LENGTH]; /* the owner's copy of it is what is touched */
static pid_t owner;
static struct direct_reach reach;

static const struct path path = {
    .local = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}},
    .remote = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}},
};

static void *hold(void *argument)
{
    assert_true(life_hold(&shared->shown.life));
    pause();
    return NULL;
}

static void own(int ready)
{
    struct direct_table table = direct_table_of(&shared->shown);
    struct direct_qp qp = {
        .number = {7},
        .destination = {8},
        .local = path.local,
        .remote = path.remote,
        .domain = 1,
        .rights = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
    };
    struct direct_key key = {
        .key = {KEY},
        .domain = 1,
        .length = LENGTH,
        .bytes = (uintptr_t)bytes,
        .rights = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
    };
    memset(bytes, 'o', sizeof bytes);
    assert_int_equal(pull_identity_create(3, &shared->shown.identity), STATUS_OK);
    direct_table_show_qp(&table, &qp);
    direct_table_show_key(&table, &key);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold, NULL), 0);
    while (!life_is_held(atomic_load(&shared->shown.life))) {
        usleep(100);
    }
    assert_int_equal(write(ready, "", 1), 1);
    pthread_join(thread, NULL);
}

static int start(void **state)
{
    int ready[2];
    char byte;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    memset(bytes, 'i', sizeof bytes);
    assert_int_equal(pipe(ready), 0);
    owner = fork();
    if (owner == 0) {
        own(ready[1]);
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    direct_reach_init(&reach, &shared->shown, &shared->announcements[0], (uint32_t)owner);
    return 0;
}

static int stop(void **state)
{
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    munmap(shared, sizeof *shared);
    return 0;
}

static bool touch(struct direct_reach *by, bool write, uint32_t offset, uint8_t *from,
                  uint32_t length)
{
    struct payload_place places[2] = {{from, length / 2}, {from + length / 2, length - length / 2}};
    struct direct_access access = {
        .path = &path,
        .initiator = {8},
        .target = {7},
        .write = write,
        .key = {KEY},
        .length = LENGTH,
        .offset = offset,
        .part = length,
        .places = places,
        .place_count = length > 0 ? 2 : 0,
    };
    return direct_reach_access(by, &access);
}

static void memory_of_another_is_written_and_read(void **state)
{
    uint8_t read[12] = {0};
    assert_true(touch(&reach, true, 100, (uint8_t *)"from outside", 12));
    assert_true(touch(&reach, false, 100, read, 12));
    assert_memory_equal(read, "from outside", 12);
    assert_true(touch(&reach, false, LENGTH - 12, read, 12));
    assert_memory_equal(read, "oooooooooooo", 12);
    assert_true(touch(&reach, true, 0, NULL, 0));
    assert_int_equal(bytes[100], 'i'); /* not our own */
    assert_int_equal(atomic_load(&shared->announcements[0].count) % 2, 0);
}

static void what_is_not_granted_is_not_touched(void **state)
{
    struct direct_table table = direct_table_of(&shared->shown);
    uint8_t read[12] = {0};
    assert_true(direct_table_hide_key(&table, (struct memory_key){KEY}));
    assert_false(touch(&reach, false, 0, read, 12));
    assert_int_equal(read[0], 0);
    assert_int_equal(atomic_load(&shared->announcements[0].count) % 2, 0);
}

static void memory_that_is_not_there(void **state)
{
    uint8_t *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(none, MAP_FAILED);
    assert_false(touch(&reach, true, 0, none, 12));
    assert_false(reach.hopeless);
    assert_true(touch(&reach, true, 0, bytes, 12));
    munmap(none, 4096);
}

static void who_is_not_the_owner_is_not_touched(void **state)
{
    struct direct_reach other;
    pid_t bystander = fork();
    if (bystander == 0) {
        pause();
        _exit(0);
    }
    direct_reach_init(&other, &shared->shown, &shared->announcements[1], (uint32_t)bystander);
    assert_false(touch(&other, true, 0, bytes, 12));
    shared->shown.identity.process = (uint64_t)bystander; /* who has not the owner's words */
    direct_reach_init(&other, &shared->shown, &shared->announcements[1], (uint32_t)bystander);
    assert_false(touch(&other, true, 0, bytes, 12));
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
}

/* Its number may be somebody else's: the word in shared memory tells. */
static void the_dead_are_not_touched(void **state)
{
    assert_true(touch(&reach, true, 0, bytes, 12));
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    assert_false(life_is_held(atomic_load(&shared->shown.life)));
    reach.process = (uint32_t)getpid();
    memset(bytes, 'i', 12);
    assert_false(touch(&reach, true, 0, (uint8_t *)"from outside", 12));
    assert_int_equal(bytes[0], 'i');
}

static void nobody_before_a_life_is_held(void **state)
{
    atomic_store(&shared->shown.life, 0);
    assert_false(touch(&reach, true, 0, bytes, 12));
    assert_false(reach.hopeless);
}

struct waiter {
    struct direct_patience patience; /* first */
    uint32_t asked;
    bool gives_up;
};

static bool goes_on(struct direct_patience *patience, uint32_t index, uint64_t waited_ns)
{
    struct waiter *waiter = (struct waiter *)patience;
    assert_int_equal(index, 1);
    assert_true(waited_ns >= 1000000);
    if (++waiter->asked == 3 && !waiter->gives_up) {
        atomic_fetch_add(&shared->announcements[1].count, 1);
    }
    return !waiter->gives_up;
}

static void who_is_at_it_is_waited_for(void **state)
{
    struct waiter waiter = {.patience = {goes_on}};
    direct_settle(&shared->shown, shared->announcements, 2, &waiter.patience);
    assert_int_equal(waiter.asked, 0);
    atomic_store(&shared->announcements[1].count, 5);
    direct_settle(&shared->shown, shared->announcements, 2, &waiter.patience);
    assert_int_equal(waiter.asked, 3);
    atomic_store(&shared->announcements[1].count, 5);
    waiter = (struct waiter){.patience = {goes_on}, .gives_up = true};
    direct_settle(&shared->shown, shared->announcements, 2, &waiter.patience);
    assert_int_equal(waiter.asked, 1);
}

/* What a dead one has left announced is not its successor's. */
static void a_new_one_is_not_at_it(void **state)
{
    atomic_store(&shared->announcements[1].count, 5);
    direct_reach_init(&reach, &shared->shown, &shared->announcements[1], (uint32_t)owner);
    assert_int_equal(atomic_load(&shared->announcements[1].count) % 2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_another_is_written_and_read, start, stop),
        cmocka_unit_test_setup_teardown(what_is_not_granted_is_not_touched, start, stop),
        cmocka_unit_test_setup_teardown(memory_that_is_not_there, start, stop),
        cmocka_unit_test_setup_teardown(who_is_not_the_owner_is_not_touched, start, stop),
        cmocka_unit_test_setup_teardown(the_dead_are_not_touched, start, stop),
        cmocka_unit_test_setup_teardown(nobody_before_a_life_is_held, start, stop),
        cmocka_unit_test_setup_teardown(who_is_at_it_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(a_new_one_is_not_at_it, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
