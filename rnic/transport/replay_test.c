/* What a responder remembers, for how long, and the order in which it answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/base/heap.h"
#include "rnic/transport/replay.h"

static struct replay create(uint32_t limit)
{
    struct replay replay;
    assert_int_equal(replay_init(&replay, heap_allocator(), limit), STATUS_OK);
    replay_reset(&replay, limit);
    return replay;
}

static struct replay_entry *add(struct replay *replay, uint32_t psn, uint32_t packets)
{
    struct replay_entry *entry = replay_add(replay);
    if (entry != NULL) {
        entry->first_psn = psn_make(psn);
        entry->packet_count = packets;
        entry->end = packets;
    }
    return entry;
}

/* Sends what is pending; returns how many packets that were. */
static uint32_t drain(struct replay *replay)
{
    uint32_t sent = 0;
    struct replay_entry *entry;
    while ((entry = replay_pending(replay)) != NULL) {
        replay_sent(entry, 1);
        sent++;
    }
    return sent;
}

static void the_agreed_number_may_be_under_way(void **state)
{
    struct replay replay = create(3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_non_null(add(&replay, i * 10, 10));
    }
    assert_null(add(&replay, 30, 10));
    assert_int_equal(drain(&replay), 30);
    assert_non_null(add(&replay, 30, 10));
    replay_fini(&replay, heap_allocator());
}

static void the_last_ones_are_found_by_any_of_their_psns(void **state)
{
    struct replay replay = create(3);
    for (uint32_t i = 0; i < 5; i++) {
        assert_non_null(add(&replay, 0xfffff0u + i * 10, 10)); /* wraps */
        assert_int_equal(drain(&replay), 10);
    }
    assert_null(replay_find(&replay, psn_make(0xfffff0u + 19)));
    for (uint32_t packet = 20; packet < 50; packet++) {
        struct replay_entry *entry = replay_find(&replay, psn_make(0xfffff0u + packet));
        assert_non_null(entry);
        assert_int_equal(entry->first_psn.value, psn_make(0xfffff0u + packet / 10 * 10).value);
    }
    assert_null(replay_find(&replay, psn_make(0xfffff0u + 50)));
    replay_fini(&replay, heap_allocator());
}

/* What is remembered and what is under way. */
static void another_limit_is_in_force_at_once(void **state)
{
    struct replay replay = create(2);
    for (uint32_t i = 0; i < 3; i++) {
        assert_non_null(add(&replay, i * 10, 10));
        replay_sent(replay_pending(&replay), i == 0 ? 10 : 1);
    }
    assert_null(add(&replay, 30, 1));
    assert_int_equal(replay_reserve(&replay, heap_allocator(), 16), STATUS_OK);
    replay_set_limit(&replay, 16);
    for (uint32_t i = 3; i < 17; i++) {
        assert_non_null(add(&replay, i * 10, 10));
    }
    assert_null(add(&replay, 170, 1));
    assert_non_null(replay_find(&replay, psn_make(15)));
    assert_int_equal(drain(&replay), 14 * 10 + 2 * 9);
    replay_set_limit(&replay, 1);
    assert_null(replay_find(&replay, psn_make(150)));
    assert_non_null(replay_find(&replay, psn_make(160)));
    assert_non_null(add(&replay, 170, 1));
    assert_null(add(&replay, 171, 1));
    replay_fini(&replay, heap_allocator());
}

/* Once round, the PSN of an old READ is that of a new request. */
static void what_lies_half_round_back_is_forgotten(void **state)
{
    struct replay replay = create(3);
    assert_non_null(add(&replay, 5, 1));
    assert_int_equal(drain(&replay), 1);
    replay_pass(&replay, psn_make(5 + (1u << 23)));
    assert_non_null(replay_find(&replay, psn_make(5)));
    replay_pass(&replay, psn_make(6 + (1u << 23)));
    assert_null(replay_find(&replay, psn_make(5)));
    assert_non_null(add(&replay, 0x900000, 1));
    assert_non_null(replay_find(&replay, psn_make(0x900000)));
    replay_fini(&replay, heap_allocator());
}

static void responses_that_cover_every_psn_have_a_beginning(void **state)
{
    struct replay replay = create(3);
    assert_non_null(add(&replay, 7, 1));
    assert_non_null(add(&replay, 8, 1u << 23));
    assert_non_null(add(&replay, 8 + (1u << 23), (1u << 23) - 1));
    assert_int_equal(replay_before(&replay, psn_make(6)).value, 6);
    replay_fini(&replay, heap_allocator());
}

static void a_restart_answers_from_there_and_then_what_was_behind(void **state)
{
    struct replay replay = create(4);
    struct replay_entry *first = add(&replay, 0, 10);
    assert_int_equal(drain(&replay), 10);
    struct replay_entry *second = add(&replay, 10, 10);
    for (int i = 0; i < 4; i++) {
        replay_sent(replay_pending(&replay), 1);
    }
    replay_restart(&replay, first, 7, 10, false);
    for (uint32_t packet = 7; packet < 10; packet++) {
        struct replay_entry *entry = replay_pending(&replay);
        assert_ptr_equal(entry, first);
        assert_int_equal(entry->next, packet);
        replay_sent(entry, 1);
    }
    assert_ptr_equal(replay_pending(&replay), second);
    assert_int_equal(second->next, 0);
    assert_int_equal(drain(&replay), 10);
    replay_fini(&replay, heap_allocator());
}

/* Who repairs asks for a part while the rest has not left: that is still due, behind it or before
 * it. */
static void a_restart_drops_nothing_that_is_due(void **state)
{
    struct replay replay = create(4);
    struct replay_entry *entry = add(&replay, 0, 10);
    for (int i = 0; i < 6; i++) {
        replay_sent(replay_pending(&replay), 1);
    }
    replay_restart(&replay, entry, 2, 3, true);
    assert_int_equal(entry->next, 2);
    assert_int_equal(drain(&replay), 8);
    replay_restart(&replay, entry, 2, 3, true);
    replay_restart(&replay, entry, 5, 6, true);
    assert_int_equal(entry->next, 2);
    assert_int_equal(drain(&replay), 4);
    replay_fini(&replay, heap_allocator());
}

/* Anybody else's last packet is to be the last that it asked for. */
static void a_restart_is_what_was_asked_for(void **state)
{
    struct replay replay = create(4);
    struct replay_entry *entry = add(&replay, 0, 10);
    for (int i = 0; i < 6; i++) {
        replay_sent(replay_pending(&replay), 1);
    }
    replay_restart(&replay, entry, 2, 4, false);
    assert_int_equal(entry->start, 2);
    assert_int_equal(entry->end, 4);
    assert_int_equal(drain(&replay), 2);
    replay_fini(&replay, heap_allocator());
}

static void an_echo_takes_no_room(void **state)
{
    struct replay replay = create(1);
    struct replay_entry *first = add(&replay, 0, 10);
    assert_int_equal(drain(&replay), 10);
    replay_restart(&replay, first, 0, 10, false);
    struct replay_entry *second = add(&replay, 10, 5);
    assert_non_null(second);
    assert_ptr_equal(replay_pending(&replay), second);
    replay_fini(&replay, heap_allocator());
}

static void without_a_limit_nothing_is_taken(void **state)
{
    struct replay replay = create(0);
    assert_null(replay_add(&replay));
    replay_fini(&replay, heap_allocator());
}

static void more_room_is_taken_and_never_less(void **state)
{
    struct replay replay = create(0);
    assert_null(add(&replay, 0, 1));
    assert_int_equal(replay_reserve(&replay, heap_allocator(), 100), STATUS_OK);
    replay_reset(&replay, 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_non_null(add(&replay, i, 1));
    }
    assert_int_equal(replay_reserve(&replay, heap_allocator(), 3), STATUS_OK);
    assert_int_equal(drain(&replay), 100);
    replay_fini(&replay, heap_allocator());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_room_is_taken_and_never_less),
        cmocka_unit_test(the_agreed_number_may_be_under_way),
        cmocka_unit_test(the_last_ones_are_found_by_any_of_their_psns),
        cmocka_unit_test(another_limit_is_in_force_at_once),
        cmocka_unit_test(what_lies_half_round_back_is_forgotten),
        cmocka_unit_test(responses_that_cover_every_psn_have_a_beginning),
        cmocka_unit_test(a_restart_answers_from_there_and_then_what_was_behind),
        cmocka_unit_test(a_restart_drops_nothing_that_is_due),
        cmocka_unit_test(a_restart_is_what_was_asked_for),
        cmocka_unit_test(an_echo_takes_no_room),
        cmocka_unit_test(without_a_limit_nothing_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
