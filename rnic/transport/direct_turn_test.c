/* An owner takes something back before, between and after each of the steps of who touches it. */
#include "rnic/transport/direct_turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/memory/access.h"

#define ENTRIES 16u
#define OTHERS  3u
#define THREAD  42u

enum step {
    BEFORE,
    ANNOUNCED,
    LOOKED,
    MOVING,
    NEVER
};

struct world {
    struct direct_mover mover; /* first */
    struct direct_entry qps[ENTRIES], keys[ENTRIES];
    struct direct_table table;
    struct direct_guard guard;
    struct direct_announcement announcements[OTHERS];
    _Atomic uint32_t end;
    struct direct_turn turn;
    struct direct_seen seen;
    enum step hides_at;
    struct direct_wait wait; /* begun at that step */
    bool was_over;           /* ... at once */
    uint32_t moves;          /* parts moved */
    bool fails;
};

static struct world world;

static const struct path path = {.local = {{[15] = 2}}, .remote = {{[15] = 1}}};

static void hide(void)
{
    world.hides_at = NEVER;
    assert_true(direct_table_hide_key(&world.table, (struct memory_key){0x705}));
    direct_wait_begin(&world.wait, &world.guard, world.announcements, &world.end);
    world.was_over = direct_wait_is_over(&world.wait);
}

static void reach(enum step step)
{
    if (world.hides_at == step) {
        hide();
    }
}

static bool is_there(struct direct_mover *mover, uint32_t life)
{
    assert_int_equal(life, 7);
    reach(ANNOUNCED);
    return true;
}

static bool move(struct direct_mover *mover, uint64_t guard, const struct direct_access *accesses,
                 uint32_t count, const struct direct_there *there, uint32_t *ret_moved)
{
    assert_int_equal(there->bytes, 0x500000 + 8);
    reach(LOOKED);
    if (atomic_load(&world.guard.word) != guard) {
        return false;
    }
    reach(MOVING);
    *ret_moved = world.fails ? 0 : count;
    world.moves += *ret_moved;
    return true;
}

static int begin(void **state)
{
    memset(&world, 0, sizeof world);
    world.mover = (struct direct_mover){is_there, move};
    world.table = (struct direct_table){world.qps, world.keys, ENTRIES, ENTRIES};
    world.turn = (struct direct_turn){&world.table, &world.guard, &world.announcements[1],
                                      &world.mover, &world.seen};
    atomic_store(&world.end, OTHERS);
    atomic_store(&world.guard.life, 7);
    world.hides_at = NEVER;
    struct direct_qp qp = {.number = {35},
                           .destination = {77},
                           .local = path.remote,
                           .remote = path.local,
                           .domain = 3,
                           .rights = ACCESS_REMOTE_WRITE};
    struct direct_key key = {.key = {0x705},
                             .domain = 3,
                             .length = 100,
                             .bytes = 0x500000,
                             .rights = ACCESS_REMOTE_WRITE};
    direct_table_show_qp(&world.table, &qp);
    direct_table_show_key(&world.table, &key);
    direct_turn_init(&world.turn);
    return 0;
}

static bool take(void)
{
    struct direct_access access = {.path = &path,
                                   .initiator = {77},
                                   .target = {35},
                                   .write = true,
                                   .key = {0x705},
                                   .address = 8,
                                   .length = 8,
                                   .part = 8};
    reach(BEFORE);
    return direct_turn_take(&world.turn, &access, 1, THREAD) == 1;
}

static bool is_at_it(void)
{
    return atomic_load(&world.announcements[1].count) % 2 == 1;
}

static void what_is_shown_is_moved(void **state)
{
    assert_true(take());
    assert_int_equal(world.moves, 1);
    assert_false(is_at_it());
    assert_int_equal(atomic_load(&world.announcements[1].thread), THREAD);
    world.fails = true;
    assert_false(take());
    assert_false(is_at_it());
}

/* Whoever is found at it is waited for; and what is moved was not hidden when the wait was over. */
static void hidden_at(enum step step, bool waits, uint32_t moves)
{
    world.hides_at = step;
    assert_int_equal(take(), moves > 0);
    assert_int_equal(world.moves, moves);
    assert_int_equal(world.was_over, !waits);
    assert_true(direct_wait_is_over(&world.wait));
    assert_false(is_at_it());
}

static void hidden_before(void **state)
{
    hidden_at(BEFORE, false, 0);
}

static void hidden_after_the_announcement(void **state)
{
    hidden_at(ANNOUNCED, true, 0);
}

static void hidden_after_the_look(void **state)
{
    hidden_at(LOOKED, true, 0);
}

static void hidden_while_it_is_moved(void **state)
{
    hidden_at(MOVING, true, 1);
}

static void what_else_was_hidden_does_not_matter(void **state)
{
    struct direct_wait wait;
    direct_wait_begin(&wait, &world.guard, world.announcements, &world.end);
    assert_true(direct_wait_is_over(&wait));
    assert_true(take());
}

static void nobody_is_there(void **state)
{
    atomic_store(&world.guard.life, 0);
    assert_false(take());
    assert_int_equal(world.moves, 0);
    assert_false(is_at_it());
}

static void all_who_are_at_it_are_waited_for(void **state)
{
    struct direct_wait wait;
    atomic_store(&world.announcements[0].count, 3);
    atomic_store(&world.announcements[2].count, 5);
    direct_wait_begin(&wait, &world.guard, world.announcements, &world.end);
    assert_false(direct_wait_is_over(&wait));
    assert_int_equal(wait.index, 0);
    atomic_store(&world.announcements[0].count, 5); /* at something else by now */
    assert_false(direct_wait_is_over(&wait));
    assert_int_equal(wait.index, 2);
    assert_false(direct_wait_is_over(&wait));
    direct_wait_pass(&wait);
    assert_true(direct_wait_is_over(&wait));
    atomic_store(&world.end, 2);
    atomic_store(&world.announcements[0].count, 6);
    direct_wait_begin(&wait, &world.guard, world.announcements, &world.end);
    assert_true(direct_wait_is_over(&wait));
}

static void a_new_one_is_not_at_it(void **state)
{
    atomic_store(&world.announcements[1].count, 5);
    direct_turn_init(&world.turn);
    assert_int_equal(atomic_load(&world.announcements[1].count), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_shown_is_moved, begin),
        cmocka_unit_test_setup(hidden_before, begin),
        cmocka_unit_test_setup(hidden_after_the_announcement, begin),
        cmocka_unit_test_setup(hidden_after_the_look, begin),
        cmocka_unit_test_setup(hidden_while_it_is_moved, begin),
        cmocka_unit_test_setup(what_else_was_hidden_does_not_matter, begin),
        cmocka_unit_test_setup(nobody_is_there, begin),
        cmocka_unit_test_setup(all_who_are_at_it_are_waited_for, begin),
        cmocka_unit_test_setup(a_new_one_is_not_at_it, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
