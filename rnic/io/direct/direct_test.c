/* One process touches another's memory, and the other takes it back. */
#include "rnic/io/direct/direct.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/direct/common.h"
#include "rnic/io/direct/whole.h"
#include "rnic/io/system/life.h"
#include "rnic/memory/access.h"

#define LENGTH    (1u << 20)
#define KEY       0x105u
#define NO_MEMORY 0x205u
#define COMMON    0x305u
#define PAGES     65536u /* so many bytes of it are common, where they can be */

struct shared {
    struct direct_shown shown;
    struct direct_announcement announcements[2];
    bool is_common; /* the owner could make its pages so */
};

static struct shared *shared;
static uint8_t *bytes; /* the owner's copy of it is what is touched */
static pid_t owner;
static struct direct_reach reach;
static struct memory_key key = {KEY}; /* that is used, */
static uint32_t length = LENGTH;      /* by a message so long, */
static bool may_fault;                /* from places that may not be there */

static const struct path path = {
    .local = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}},
    .remote = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}},
};

static void *hold(void *argument)
{
    assert_true(life_hold(&shared->shown.guard.life));
    pause();
    return NULL;
}

/* A page of the region comes before what is common of it, and a part behind. */
static void make_common(struct direct_table *table)
{
    struct common *common;
    struct common_range range;
    struct direct_key shown = {
        .key = {COMMON},
        .domain = 1,
        .length = PAGES + 8192,
        .bytes = (uintptr_t)bytes,
        .rights = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
    };
    if (common_create(&common) == STATUS_OK) {
        assert_int_equal(common_begin(common, bytes + 4096, PAGES, &range), STATUS_OK);
        shared->shown.common = common_descriptor(common);
        shown.common = (struct direct_common){
            .offset = range.offset, .lead = 4096, .length = (uint32_t)range.length};
        shared->is_common = true;
    }
    direct_table_show_key(table, &shown);
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
    struct direct_key shown = {
        .key = {KEY},
        .domain = 1,
        .length = LENGTH,
        .bytes = (uintptr_t)bytes,
        .rights = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
    };
    memset(bytes, 'o', LENGTH);
    make_common(&table);
    assert_int_equal(pull_identity_create(3, &shared->shown.identity), STATUS_OK);
    direct_table_show_qp(&table, &qp);
    direct_table_show_key(&table, &shown);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold, NULL), 0);
    while (!life_is_held(atomic_load(&shared->shown.guard.life))) {
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
    bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    memset(bytes, 'i', LENGTH);
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
    direct_reach_end(&reach);
    munmap(bytes, LENGTH);
    munmap(shared, sizeof *shared);
    return 0;
}

static bool touch_by(struct direct_reach *by, bool write, uint32_t offset, uint8_t *from,
                     uint32_t part, uint32_t place_count)
{
    uint32_t first = place_count == 1 ? part : part / 2;
    struct payload_place places[2] = {{from, first}, {from + first, part - first}};
    struct direct_access access = {
        .path = &path,
        .initiator = {8},
        .target = {7},
        .write = write,
        .key = key,
        .address = length <= 8 ? offset : 0,
        .length = length,
        .offset = length <= 8 ? 0 : offset,
        .part = part,
        .places = places,
        .place_count = part > 0 ? place_count : 0,
        .may_fault = may_fault,
    };
    return direct_reach_access(by, &access, 1) == 1;
}

static bool touch(struct direct_reach *by, bool write, uint32_t offset, uint8_t *from,
                  uint32_t part)
{
    return touch_by(by, write, offset, from, part, 2);
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

/* It is found out once for a key; others are as they were. */
static void memory_that_is_not_there(void **state)
{
    struct direct_table table = direct_table_of(&shared->shown);
    struct direct_key none = {
        .key = {NO_MEMORY},
        .domain = 1,
        .length = LENGTH,
        .bytes = (uintptr_t)bytes,
        .rights = ACCESS_REMOTE_WRITE,
    };
    none.bytes = 4096; /* nothing lies there */
    direct_table_show_key(&table, &none);
    key = (struct memory_key){NO_MEMORY};
    assert_true(touch(&reach, true, 0, NULL, 0));
    assert_false(touch(&reach, true, 0, bytes, 12));
    assert_int_equal(reach.calls, DIRECT_CALLS_MADE);
    assert_false(touch(&reach, true, 0, NULL, 0));
    key = (struct memory_key){KEY};
    assert_true(touch(&reach, true, 0, bytes, 12));
}

/* One call moves them in order, until one cannot be moved. */
static void several_are_moved_at_once(void **state)
{
    struct direct_table table = direct_table_of(&shared->shown);
    uint8_t from[4][6] = {"first", "secnd", "third", "forth"}, found[24];
    struct payload_place places[8];
    struct direct_access accesses[4];
    for (uint32_t i = 0; i < 4; i++) {
        places[2 * i] = (struct payload_place){from[i], 2};
        places[2 * i + 1] = (struct payload_place){from[i] + 2, 4};
        accesses[i] = (struct direct_access){
            .path = &path,
            .initiator = {8},
            .target = {7},
            .write = true,
            .key = {KEY},
            .address = 100 + 6 * i,
            .length = 6,
            .part = 6,
            .places = &places[2 * i],
            .place_count = 2,
        };
    }
    assert_int_equal(direct_reach_access(&reach, accesses, 4), 4);
    assert_true(touch(&reach, false, 100, found, 24));
    assert_memory_equal(found, from, 24);

    struct direct_key none = {
        .key = {NO_MEMORY}, .domain = 1, .length = LENGTH, .rights = ACCESS_REMOTE_WRITE};
    none.bytes = 4096;
    direct_table_show_key(&table, &none);
    memset(from, 'x', sizeof from);
    accesses[2].key = none.key;
    assert_int_equal(direct_reach_access(&reach, accesses, 4), 2);
    assert_int_equal(direct_reach_access(&reach, accesses, 4), 2); /* that is known now */
    assert_int_equal(direct_reach_access(&reach, accesses + 2, 2), 0);
    assert_true(touch(&reach, false, 100, found, 24));
    assert_memory_equal(found, "xxxxxxxxxxxxthird\0forth", 24);
}

static void a_word_stays_whole_or_is_not_moved(void **state)
{
    uint8_t word[8] = "aligned";
    for (length = 2; length <= 8; length *= 2) {
        assert_int_equal(touch_by(&reach, true, 64, word, length, 1), whole_is_moved(length));
        assert_false(touch_by(&reach, true, 64, word, length, 2));    /* piece by piece */
        assert_true(touch_by(&reach, true, 64 + 1, word, length, 1)); /* nobody's promise */
    }
    length = LENGTH;
}

static void use(uint32_t value, uint32_t bytes_of_message)
{
    key = (struct memory_key){value};
    length = bytes_of_message;
}

/* What one sees of the owner's bytes by system calls. */
static void expect(uint32_t offset, const char *text)
{
    uint8_t found[16];
    uint32_t count = (uint32_t)strlen(text);
    use(KEY, LENGTH);
    assert_true(touch(&reach, false, offset, found, count));
    assert_memory_equal(found, text, count);
    assert_false(reach.stores);
}

/* Stores and loads take the place of calls, for what lies wholly in it. */
static void memory_that_is_common_is_touched_without_calls(void **state)
{
    uint8_t found[12] = {0}, word[8] = "aligned";
    if (!shared->is_common) {
        skip();
    }
    use(COMMON, PAGES + 8192);
    assert_true(touch(&reach, true, 5000, (uint8_t *)"by stores, ", 11));
    assert_true(reach.stores);
    assert_true(touch(&reach, true, 5011, (uint8_t *)"and loads", 9));
    assert_true(touch(&reach, false, 5002, found, 12));
    assert_true(reach.stores);
    assert_memory_equal(found, " stores, and", 12);
    expect(5011, "and loads");

    use(COMMON, PAGES + 8192);
    assert_true(touch(&reach, true, 4090, (uint8_t *)"before and in", 13));
    assert_false(reach.stores);
    assert_true(touch(&reach, true, 4096 + PAGES - 4, (uint8_t *)"in and behind", 13));
    assert_false(reach.stores);
    expect(4090, "before and in");
    expect(4096 + PAGES - 4, "in and behind");

    may_fault = true; /* what it is copied from */
    assert_true(touch(&reach, true, 5000, (uint8_t *)"by a call", 9));
    assert_false(reach.stores);
    may_fault = false;
    use(COMMON, 8);
    assert_true(touch_by(&reach, true, 8192, word, 8, 1));
    assert_true(reach.stores);
    assert_false(touch_by(&reach, true, 8192, word, 8, 2)); /* piece by piece */
    expect(8192, "aligned");
    assert_int_equal(atomic_load(&shared->announcements[0].count) % 2, 0);
}

/* The kernel may let us open what it does not let us touch. */
static void common_memory_needs_no_calls(void **state)
{
    uint8_t found[9];
    if (!shared->is_common) {
        skip();
    }
    reach.calls = DIRECT_CALLS_REFUSED;
    use(KEY, LENGTH);
    assert_false(touch(&reach, true, 5000, NULL, 0));
    assert_false(touch(&reach, true, 5000, (uint8_t *)"by a call", 9));
    use(COMMON, PAGES + 8192);
    assert_true(touch(&reach, true, 5000, NULL, 0));
    assert_true(touch(&reach, true, 5000, (uint8_t *)"by stores", 9));
    assert_true(touch(&reach, false, 5000, found, 9));
    assert_memory_equal(found, "by stores", 9);
    assert_false(touch(&reach, true, 4090, (uint8_t *)"before and in", 13));
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    assert_false(touch(&reach, true, 5000, (uint8_t *)"too late.", 9));
    use(KEY, LENGTH);
}

/* Of what a table says about files nothing is believed. */
static void what_is_not_in_the_file_is_not_mapped(void **state)
{
    struct direct_table table = direct_table_of(&shared->shown);
    struct direct_key shown;
    if (!shared->is_common) {
        skip();
    }
    assert_true(direct_table_find_key(&table, (struct memory_key){COMMON}, &shown));
    uint64_t beyond[] = {INT64_MAX - 4095, UINT64_MAX - 4095, shown.common.offset + 1};
    int32_t descriptor = shared->shown.common;
    shared->shown.common = 0; /* not such a file */
    use(COMMON, PAGES + 8192);
    assert_true(touch(&reach, true, 5000, (uint8_t *)"by a call", 9));
    assert_false(reach.stores);
    shared->shown.common = descriptor;
    direct_reach_end(&reach);
    for (uint32_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        struct direct_key wrong = shown;
        wrong.common.offset = beyond[i];
        assert_true(direct_table_hide_key(&table, shown.key));
        direct_table_show_key(&table, &wrong);
        use(COMMON, PAGES + 8192);
        assert_true(touch(&reach, true, 5000, (uint8_t *)"by a call", 9));
        assert_false(reach.stores);
        expect(5000, "by a call");
    }
}

/* One is needed for a moment only, and may be had later. */
static void who_has_no_descriptor_maps_later(void **state)
{
    struct rlimit before, none;
    int next = dup(STDERR_FILENO);
    close(next);
    if (!shared->is_common) {
        skip();
    }
    use(COMMON, PAGES + 8192);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool moved = touch(&reach, true, 5000, (uint8_t *)"by a call", 9);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(moved);
    assert_false(reach.stores);
    for (uint32_t i = 0; i < 2 * COMMON_VIEW_MISSES && !reach.stores; i++) {
        assert_true(touch(&reach, true, 5000, (uint8_t *)"by a call", 9));
    }
    assert_true(reach.stores);
    assert_int_equal(dup(STDERR_FILENO), next);
    close(next);
}

/* Sooner for short regions, and for long messages. */
static uint32_t calls_until_wished(uint32_t value, uint32_t part)
{
    _Atomic uint32_t *wish = &shared->announcements[0].wish;
    uint32_t calls = 0;
    use(value, value == KEY ? LENGTH : PAGES + 8192);
    direct_reach_init(&reach, &shared->shown, &shared->announcements[0], (uint32_t)owner);
    atomic_store(wish, 0);
    for (; atomic_load(wish) == 0 && calls < 100000; calls++) {
        assert_false(reach.wishes);
        assert_true(touch(&reach, true, 0, bytes, part));
    }
    assert_int_equal(atomic_load(wish), value);
    assert_true(reach.wishes);
    atomic_store(wish, 1); /* another, that is not heard yet, stays */
    for (uint32_t i = 0; i < 2 * calls; i++) {
        assert_true(touch(&reach, true, 0, bytes, part));
    }
    assert_int_equal(atomic_load(wish), 1);
    atomic_store(wish, 0);
    for (uint32_t i = 0; i < 2 * calls; i++) { /* and the next comes the later */
        assert_true(touch(&reach, true, 0, bytes, part));
    }
    assert_int_equal(atomic_load(wish), 0);
    return calls;
}

/* What COMMON names is common no more. */
static struct direct_key end_common(struct direct_table *table)
{
    struct direct_key shown;
    assert_true(direct_table_find_key(table, (struct memory_key){COMMON}, &shown));
    assert_true(direct_table_hide_key(table, shown.key));
    shown.common = (struct direct_common){.length = 0};
    direct_table_show_key(table, &shown);
    return shown;
}

/* Also where no call may move them: only a store can, then. */
static void who_needs_words_wishes(void **state)
{
    struct direct_table table = direct_table_of(&shared->shown);
    _Atomic uint32_t *wish = &shared->announcements[0].wish;
    end_common(&table);
    for (uint32_t word = 2; word <= 8; word *= 2) {
        use(COMMON, word);
        direct_reach_init(&reach, &shared->shown, &shared->announcements[0], (uint32_t)owner);
        atomic_store(wish, 0);
        for (uint32_t i = 0; i < 1000; i++) {
            assert_false(touch_by(&reach, true, 64, bytes, word, 2)); /* nor can a store */
        }
        assert_int_equal(atomic_load(wish), 0);
        for (uint32_t i = 0; i < 1000; i++) {
            (void)touch_by(&reach, true, 64, bytes, word, 1);
        }
        assert_int_equal(atomic_load(wish), COMMON);
    }
    use(KEY, LENGTH);
}

static void who_calls_often_wishes(void **state)
{
    struct direct_table table = direct_table_of(&shared->shown);
    struct direct_key shown = end_common(&table);
    uint32_t many = calls_until_wished(KEY, 12), few = calls_until_wished(COMMON, 12);
    assert_in_range(few, 10, many / 4);
    assert_in_range(calls_until_wished(KEY, 65536), 1, many / 4);

    assert_true(direct_table_hide_key(&table, shown.key));
    shown.common.lead = DIRECT_NEVER;
    direct_table_show_key(&table, &shown);
    use(COMMON, PAGES + 8192);
    for (uint32_t i = 0; i < 2 * few; i++) {
        assert_true(touch(&reach, true, 0, bytes, 12));
    }
    assert_int_equal(atomic_load(&shared->announcements[0].wish), 0);
    use(KEY, LENGTH);
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
    shared->shown.identity.thread = (uint64_t)bystander; /* who has not the owner's words */
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
    assert_false(life_is_held(atomic_load(&shared->shown.guard.life)));
    reach.thread = (uint32_t)getpid();
    memset(bytes, 'i', 12);
    assert_false(touch(&reach, true, 0, (uint8_t *)"from outside", 12));
    assert_int_equal(bytes[0], 'i');
}

static void nobody_before_a_life_is_held(void **state)
{
    atomic_store(&shared->shown.guard.life, 0);
    assert_false(touch(&reach, true, 0, bytes, 12));
    assert_int_equal(reach.calls, DIRECT_CALLS_UNTRIED);
}

struct waiter {
    struct direct_waiter waiter; /* first */
    uint32_t asked;
    enum direct_patience answer;
    bool is_concerned;
};

static bool is_concerned(struct direct_waiter *waiter, uint32_t index)
{
    assert_int_equal(index, 1);
    return ((struct waiter *)waiter)->is_concerned;
}

static enum direct_patience ask(struct direct_waiter *direct_waiter, uint32_t index,
                                uint32_t thread, uint64_t waited_ns)
{
    struct waiter *waiter = (struct waiter *)direct_waiter;
    assert_int_equal(index, 1);
    assert_int_equal(thread, 99);
    assert_true(waited_ns >= waiter->asked * 1000000);
    if (++waiter->asked == 3 && waiter->answer == DIRECT_WAIT) {
        atomic_fetch_add(&shared->announcements[1].count, 1);
    }
    return waiter->answer;
}

static bool settle(uint32_t count, enum direct_patience answer, bool concerns, uint32_t *ret_asked)
{
    _Atomic uint32_t end = 1000; /* nobody's to believe */
    struct waiter waiter = {
        .waiter = {is_concerned, ask}, .answer = answer, .is_concerned = concerns};
    atomic_store(&shared->announcements[1].count, count);
    atomic_store(&shared->announcements[1].thread, 99);
    uint32_t hidden = atomic_load(&shared->shown.guard.hidden);
    bool settled = direct_settle(&shared->shown, shared->announcements, &end, 2, &waiter.waiter);
    assert_int_equal(atomic_load(&shared->shown.guard.hidden), hidden + 1);
    *ret_asked = waiter.asked;
    return settled;
}

static void who_is_at_it_is_waited_for(void **state)
{
    uint32_t asked;
    assert_true(settle(4, DIRECT_WAIT, true, &asked));
    assert_int_equal(asked, 0);
    assert_true(settle(5, DIRECT_WAIT, true, &asked));
    assert_int_equal(asked, 3);
    assert_true(settle(5, DIRECT_PASS, true, &asked));
    assert_int_equal(asked, 1);
    assert_false(settle(5, DIRECT_GIVE_UP, true, &asked));
    assert_int_equal(asked, 1);
    assert_true(settle(5, DIRECT_GIVE_UP, false, &asked));
    assert_int_equal(asked, 0);
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
        cmocka_unit_test_setup_teardown(several_are_moved_at_once, start, stop),
        cmocka_unit_test_setup_teardown(a_word_stays_whole_or_is_not_moved, start, stop),
        cmocka_unit_test_setup_teardown(memory_that_is_common_is_touched_without_calls, start,
                                        stop),
        cmocka_unit_test_setup_teardown(common_memory_needs_no_calls, start, stop),
        cmocka_unit_test_setup_teardown(what_is_not_in_the_file_is_not_mapped, start, stop),
        cmocka_unit_test_setup_teardown(who_has_no_descriptor_maps_later, start, stop),
        cmocka_unit_test_setup_teardown(who_calls_often_wishes, start, stop),
        cmocka_unit_test_setup_teardown(who_needs_words_wishes, start, stop),
        cmocka_unit_test_setup_teardown(who_is_not_the_owner_is_not_touched, start, stop),
        cmocka_unit_test_setup_teardown(the_dead_are_not_touched, start, stop),
        cmocka_unit_test_setup_teardown(nobody_before_a_life_is_held, start, stop),
        cmocka_unit_test_setup_teardown(who_is_at_it_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(a_new_one_is_not_at_it, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
