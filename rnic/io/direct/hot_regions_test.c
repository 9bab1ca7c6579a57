/* What is made common, when, and what is not. */
#include "rnic/io/direct/hot_regions.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/direct/direct.h"
#include "rnic/memory/access.h"

#define PAGE   4096u
#define LENGTH (16u * PAGE)
#define KEY    0x105u
#define OTHER  0x205u
#define THIRD  0x305u

struct settler {
    struct hot_settler settler; /* first */
    bool settles;
    uint32_t asked;
    const uint8_t *read; /* by others, a byte */
};

static struct direct_shown *shown;
static struct direct_table table;
static struct hot_regions hot;
static uint8_t *bytes;
static struct settler settler;

static bool settle(struct hot_settler *hot_settler)
{
    struct direct_key found;
    struct settler *own = (struct settler *)hot_settler;
    own->asked++;
    bool is_shown = direct_table_find_key(&table, (struct memory_key){KEY}, &found);
    assert_false(is_shown && hot.count == 0 && own->read == NULL); /* while it is made common */
    return own->settles;
}

static bool is_read(struct hot_settler *hot_settler, const uint8_t *from, uint64_t length)
{
    const struct settler *own = (const struct settler *)hot_settler;
    return own->read >= from && own->read < from + length;
}

static uint8_t *map(uint64_t length)
{
    uint8_t *place = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(place != MAP_FAILED);
    return place;
}

static void show(uint32_t value, uint8_t *from, uint64_t length)
{
    struct direct_key key = {.key = {value},
                             .domain = 1,
                             .length = length,
                             .bytes = (uintptr_t)from,
                             .rights = ACCESS_REMOTE_WRITE};
    (void)hot_regions_let_show(&hot, key.key, from, length);
    direct_table_show_key(&table, &key);
}

static bool may_be_shown(const uint8_t *from, uint64_t length)
{
    return hot_regions_let_show(&hot, (struct memory_key){OTHER}, from, length);
}

static int begin(void **state)
{
    shown = mmap(NULL, sizeof *shown, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(shown != MAP_FAILED && bytes != MAP_FAILED);
    memset(bytes, 'a', LENGTH);
    table = direct_table_of(shown);
    settler = (struct settler){{settle, is_read}, true, 0, NULL};
    hot_regions_init(&hot, shown);
    show(KEY, bytes, LENGTH);
    return 0;
}

static int end(void **state)
{
    hot_regions_destroy(&hot);
    munmap(bytes, LENGTH);
    munmap(shown, sizeof *shown);
    return 0;
}

static bool grant(uint32_t key)
{
    return hot_regions_grant(&hot, &(struct memory_key){key}, 1, &settler.settler);
}

static void end_all(void)
{
    hot_regions_is_to_fork(&hot);
    hot_regions_end_all(&hot, &settler.settler);
}

static struct direct_common common_of(uint32_t key)
{
    struct direct_key found;
    assert_true(direct_table_find_key(&table, (struct memory_key){key}, &found));
    return found.common;
}

static bool is_common(uint32_t key)
{
    struct direct_common common = common_of(key);
    assert_true(common.length > 0 || common.lead == DIRECT_NEVER || common.lead == 0);
    return common.length > 0;
}

static void need_common(void)
{
    struct common *common;
    if (common_create(&common) != STATUS_OK) {
        skip();
    }
    common_destroy(common);
}

static void a_region_becomes_common_and_ends_so(void **state)
{
    need_common();
    assert_int_equal(shown->common, -1);
    assert_true(grant(KEY));
    assert_true(is_common(KEY));
    assert_true(shown->common >= 0);
    assert_int_equal(settler.asked, 1);
    assert_true(grant(KEY)); /* it is */
    assert_int_equal(hot.count, 1);
    assert_int_equal(bytes[LENGTH - 1], 'a');
    assert_false(may_be_shown(bytes + LENGTH - 1, 1));
    assert_true(may_be_shown(bytes + LENGTH, PAGE));
    assert_true(direct_table_hide_key(&table, (struct memory_key){KEY}));
    hot_regions_end(&hot, (struct memory_key){KEY});
    assert_int_equal(hot.count, 0);
    assert_int_equal(hot.bytes, 0);
    assert_int_equal(bytes[0], 'a');
    assert_true(may_be_shown(bytes, 1));
}

static void a_key_that_nobody_knows_is_passed_over(void **state)
{
    assert_true(grant(OTHER));
    assert_int_equal(settler.asked, 0);
    hot_regions_end(&hot, (struct memory_key){OTHER});
}

static void where_somebody_stays_it_is_tried_again(void **state)
{
    need_common();
    settler.settles = false;
    assert_false(grant(KEY));
    assert_false(is_common(KEY));
    assert_int_not_equal(common_of(KEY).lead, DIRECT_NEVER);
    settler.settles = true;
    assert_true(grant(KEY));
    assert_true(is_common(KEY));
    end_all();
}

static void where_others_read_by_packets_it_is_tried_again(void **state)
{
    need_common();
    uint8_t *other = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show(OTHER, other, LENGTH);
    const struct memory_key both[] = {{KEY}, {OTHER}};
    settler.read = bytes + LENGTH - 1;
    assert_false(hot_regions_grant(&hot, both, 2, &settler.settler));
    assert_false(is_common(KEY));
    assert_int_not_equal(common_of(KEY).lead, DIRECT_NEVER);
    assert_true(is_common(OTHER)); /* where nobody does */
    settler.read = NULL;
    assert_true(hot_regions_grant(&hot, both, 2, &settler.settler));
    assert_true(is_common(KEY));
    end_all();
    munmap(other, LENGTH);
}

static void expect_never(void)
{
    assert_true(grant(KEY));
    assert_int_equal(common_of(KEY).length, 0);
    assert_int_equal(common_of(KEY).lead, DIRECT_NEVER);
    assert_int_equal(hot.count, 0);
}

static void what_overlaps_another_is_never_common(void **state)
{
    show(OTHER, bytes + LENGTH - 1, PAGE);
    expect_never();
}

static void what_is_too_long_is_never_common(void **state)
{
    assert_true(direct_table_hide_key(&table, (struct memory_key){KEY}));
    show(KEY, bytes, COMMON_RANGE_MAX + 1);
    expect_never();
}

static void what_has_no_whole_page_is_never_common(void **state)
{
    assert_true(direct_table_hide_key(&table, (struct memory_key){KEY}));
    show(KEY, bytes + 1, PAGE);
    expect_never();
}

static void a_fork_ends_all_for_good(void **state)
{
    need_common();
    uint8_t *other = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show(OTHER, other, LENGTH);
    assert_true(grant(KEY));
    assert_true(grant(OTHER));
    assert_int_equal(hot.count, 2);
    end_all();
    assert_int_equal(hot.count, 0);
    assert_int_equal(settler.asked, 3); /* once for all */
    assert_int_equal(common_of(KEY).lead, DIRECT_NEVER);
    pid_t child = fork();
    if (child == 0) {
        memset(bytes, 'c', LENGTH);
        _exit(bytes[0] == 'c' ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(bytes[0], 'a');
    expect_never();
    assert_int_equal(common_of(OTHER).lead, DIRECT_NEVER);
    munmap(other, LENGTH);
    show(THIRD, bytes, PAGE); /* one that comes later is nobody's copy */
    assert_true(direct_table_hide_key(&table, (struct memory_key){KEY}));
    assert_true(grant(THIRD));
    assert_false(is_common(THIRD)); /* the fork is not over */
    atomic_store(&hot.forks, false);
    assert_true(grant(THIRD));
    assert_true(is_common(THIRD));
    hot_regions_end(&hot, (struct memory_key){THIRD});
}

/* Somebody had the engine's lock, or there was no memory to turn it back. */
static void a_child_has_a_copy_of_what_has_not_ended(void **state)
{
    need_common();
    assert_true(grant(KEY));
    assert_int_equal(mprotect(bytes + PAGE, PAGE, PROT_READ), 0);
    pid_t child = fork();
    if (child == 0) {
        hot_regions_abandon(&hot);
        bool whole = bytes[0] == 'a' && bytes[PAGE] == 'a' && bytes[LENGTH - 1] == 'a';
        whole &= mprotect(bytes + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0;
        memset(bytes, 'c', LENGTH);
        _exit(whole && bytes[0] == 'c' ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(mprotect(bytes + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
    for (uint32_t i = 0; i < LENGTH; i++) {
        assert_int_equal(bytes[i], 'a');
    }
    end_all();
    assert_int_equal(hot.count, 0);
}

/* It takes its time, while its parent ends the region. */
static void a_child_copies_what_its_parent_has_ended_since(void **state)
{
    need_common();
    int told[2];
    assert_int_equal(pipe(told), 0);
    assert_true(grant(KEY));
    common_fork_begins();
    pid_t child = fork();
    if (child == 0) {
        char word;
        close(told[1]);
        bool heard = read(told[0], &word, 1) == 1;
        hot_regions_abandon(&hot);
        _exit(heard && bytes[0] == 'a' && bytes[LENGTH - 1] == 'a' ? 0 : 1);
    }
    assert_true(direct_table_hide_key(&table, (struct memory_key){KEY}));
    hot_regions_end(&hot, (struct memory_key){KEY});
    int status;
    assert_int_equal(write(told[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(hot.count, 0);
    assert_int_equal(hot.bytes, LENGTH); /* which the file keeps */
    close(told[0]);
    close(told[1]);
}

/* Also one without a free descriptor, and of what the program has moved. */
static void a_child_shares_nothing_with_its_parent(void **state)
{
    need_common();
    uint8_t *place = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(grant(KEY));
    assert_ptr_equal(mremap(bytes, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place), place);
    common_fork_begins();
    pid_t child = fork();
    if (child == 0) {
        while (dup(STDOUT_FILENO) >= 0) {
        }
        hot_regions_abandon(&hot);
        bool whole = place[0] == 'a' && bytes[LENGTH - 1] == 'a';
        memset(place, 'c', PAGE);
        memset(bytes + PAGE, 'c', LENGTH - PAGE);
        _exit(whole ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(place[0], 'a');
    assert_int_equal(bytes[LENGTH - 1], 'a');
    end_all();
    munmap(place, PAGE);
}

static void what_a_fork_could_not_turn_back_is_not_shown(void **state)
{
    need_common();
    struct direct_key found;
    FILE *other = tmpfile();
    assert_true(other != NULL && grant(KEY));
    int copy = dup(shown->common);
    assert_int_equal(dup2(fileno(other), shown->common), shown->common); /* ours is gone */
    end_all();
    assert_int_equal(hot.count, 1);
    assert_false(direct_table_find_key(&table, (struct memory_key){KEY}, &found));
    assert_int_equal(dup2(copy, shown->common), shown->common);
    hot_regions_tidy(&hot);
    assert_int_equal(hot.count, 0);
    close(copy);
    fclose(other);
}

static void who_is_told_not_to_makes_nothing_common(void **state)
{
    hot_regions_init(&hot, NULL);
    hot_regions_expect(&hot, &settler.settler);
    show(THIRD, bytes, LENGTH);
    assert_int_equal(hot.trials, 0);
    assert_true(grant(KEY));
    assert_int_equal(common_of(KEY).length, 0);
    assert_true(may_be_shown(bytes, LENGTH));
    end_all();
}

static void what_a_wish_takes_is_there_before_it(void **state)
{
    need_common();
    assert_null(hot.common); /* something is shown, and nobody is there */
    hot_regions_expect(&hot, &settler.settler);
    assert_non_null(hot.common);
    assert_true(shown->common >= 0);
    hot_regions_expect(&hot, &settler.settler);
    assert_int_equal(hot.trials, 1);
    hot_regions_end(&hot, (struct memory_key){KEY});
}

static void what_is_short_is_common_before_any_wish(void **state)
{
    need_common();
    uint64_t length = HOT_REGIONS_FIRST_BYTES;
    uint8_t *more = map(length), *late = map(PAGE);
    show(OTHER, more, length); /* too much beside the other */
    hot_regions_expect(&hot, &settler.settler);
    assert_true(is_common(KEY));
    assert_int_equal(bytes[LENGTH - 1], 'a');
    assert_false(is_common(OTHER));
    show(THIRD, late, PAGE);
    hot_regions_expect(&hot, &settler.settler);
    assert_false(is_common(THIRD)); /* once */
    assert_true(grant(OTHER) && is_common(OTHER) && grant(THIRD) && is_common(THIRD));
    hot_regions_end(&hot, (struct memory_key){KEY});
    hot_regions_end(&hot, (struct memory_key){OTHER});
    hot_regions_end(&hot, (struct memory_key){THIRD});
    munmap(more, length);
    munmap(late, PAGE);
}

static void a_fork_before_any_wish_ends_nothing_for_good(void **state)
{
    need_common();
    hot_regions_expect(&hot, &settler.settler);
    assert_true(is_common(KEY));
    end_all();
    atomic_store(&hot.forks, false);
    assert_int_equal(common_of(KEY).lead, 0);
    assert_false(is_common(KEY));
    assert_true(grant(KEY) && is_common(KEY));
    end_all();
    assert_int_equal(common_of(KEY).lead, DIRECT_NEVER);
}

static void what_cannot_be_before_a_wish_can_be_wished(void **state)
{
    need_common();
    assert_int_equal(mprotect(bytes, PAGE, PROT_READ), 0);
    hot_regions_expect(&hot, &settler.settler);
    assert_non_null(hot.common);
    assert_int_equal(common_of(KEY).lead, 0);
    assert_int_equal(mprotect(bytes, PAGE, PROT_READ | PROT_WRITE), 0);
    assert_true(grant(KEY));
    assert_true(is_common(KEY));
    hot_regions_end(&hot, (struct memory_key){KEY});
}

/* One that overlaps may have been deregistered by the time of the wish. */
static void what_overlaps_before_a_wish_can_be_wished_later(void **state)
{
    need_common();
    show(OTHER, bytes + PAGE, PAGE);
    hot_regions_expect(&hot, &settler.settler);
    assert_int_equal(common_of(KEY).lead, 0);
    assert_int_equal(common_of(OTHER).lead, 0);
    assert_true(direct_table_hide_key(&table, (struct memory_key){OTHER}));
    assert_true(grant(KEY));
    assert_true(is_common(KEY));
    hot_regions_end(&hot, (struct memory_key){KEY});
}

/* All of which would be looked at. */
static void who_has_many_descriptors_waits_for_the_wish(void **state)
{
    int many[128];
    need_common();
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        many[i] = dup(0);
    }
    hot_regions_expect(&hot, &settler.settler);
    assert_int_equal(hot.trials, 0);
    assert_true(grant(KEY));
    assert_int_equal(hot.trials, 1);
    assert_true(is_common(KEY));
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        close(many[i]);
    }
    hot_regions_end(&hot, (struct memory_key){KEY});
}

static volatile sig_atomic_t forks;

static void fork_there(int signal)
{
    hot_regions_is_to_fork(&hot);
    atomic_store(&hot.forks, false);
    forks++;
}

/* In the very thread that makes it common. */
static void a_handler_that_forks_waits_for_nobody(void **state)
{
    need_common();
    struct sigaction action = {.sa_handler = fork_there}, before;
    struct itimerval often = {{.tv_usec = 200}, {.tv_usec = 200}}, never = {{0}, {0}};
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (uint32_t i = 0; i < 200; i++) {
        show(KEY, bytes, LENGTH);
        (void)grant(KEY);
        (void)direct_table_hide_key(&table, (struct memory_key){KEY});
        hot_regions_end(&hot, (struct memory_key){KEY});
    }
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_true(forks > 0);
}

static void nothing_is_tried_where_nothing_can_be_wished(void **state)
{
    need_common();
    hot_regions_init(&hot, shown);
    hot_regions_expect(&hot, &settler.settler);
    show(OTHER, bytes, PAGE - 1); /* which has no page of its own */
    assert_int_equal(hot.trials, 0);
    hot_regions_is_to_fork(&hot);
    show(KEY, bytes, LENGTH);
    assert_int_equal(hot.trials, 0);
    atomic_store(&hot.forks, false);
    show(THIRD, bytes, LENGTH);
    assert_non_null(hot.common);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_region_becomes_common_and_ends_so, begin, end),
        cmocka_unit_test_setup_teardown(a_key_that_nobody_knows_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(where_somebody_stays_it_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(where_others_read_by_packets_it_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(what_overlaps_another_is_never_common, begin, end),
        cmocka_unit_test_setup_teardown(what_is_too_long_is_never_common, begin, end),
        cmocka_unit_test_setup_teardown(what_has_no_whole_page_is_never_common, begin, end),
        cmocka_unit_test_setup_teardown(a_fork_ends_all_for_good, begin, end),
        cmocka_unit_test_setup_teardown(a_child_has_a_copy_of_what_has_not_ended, begin, end),
        cmocka_unit_test_setup_teardown(a_child_copies_what_its_parent_has_ended_since, begin, end),
        cmocka_unit_test_setup_teardown(a_child_shares_nothing_with_its_parent, begin, end),
        cmocka_unit_test_setup_teardown(what_a_fork_could_not_turn_back_is_not_shown, begin, end),
        cmocka_unit_test_setup_teardown(who_is_told_not_to_makes_nothing_common, begin, end),
        cmocka_unit_test_setup_teardown(what_a_wish_takes_is_there_before_it, begin, end),
        cmocka_unit_test_setup_teardown(what_is_short_is_common_before_any_wish, begin, end),
        cmocka_unit_test_setup_teardown(a_fork_before_any_wish_ends_nothing_for_good, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_before_a_wish_can_be_wished, begin, end),
        cmocka_unit_test_setup_teardown(what_overlaps_before_a_wish_can_be_wished_later, begin,
                                        end),
        cmocka_unit_test_setup_teardown(who_has_many_descriptors_waits_for_the_wish, begin, end),
        cmocka_unit_test_setup_teardown(a_handler_that_forks_waits_for_nobody, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_tried_where_nothing_can_be_wished, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
