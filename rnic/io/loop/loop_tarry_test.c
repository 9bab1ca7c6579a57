/* WRITEs that wait for more of their kind in a running engine, as if a stream of them had been
 * posted: they are done before anything else is, and by the thread if nothing else comes. */
#include <stdlib.h>

#include "rnic/io/loop/loop_ends_test.h"
#include "rnic/io/loop/loop_private.h"

struct posts {
    struct end *a, *b;
    struct introduction of_b;
    struct loop *loop;
    uint8_t value;
};

/* With one that has gone directly already, in each direction. */
static void begin_stream(struct posts *stream)
{
    stream->a = create_end();
    stream->b = create_end();
    stream->of_b = introduce(stream->b);
    stream->loop = loop_of(stream->a->engine);
    stream->value = 0;
    connect_both(stream->a, stream->b);
    struct introduction of_a = introduce(stream->a);
    post(stream->a, WORK_WRITE, 64, &stream->of_b);
    assert_int_equal(wait_one(stream->a), COMPLETION_SUCCESS);
    post(stream->b, WORK_WRITE, 64, &of_a);
    assert_int_equal(wait_one(stream->b), COMPLETION_SUCCESS);
}

static void end_stream(struct posts *stream)
{
    destroy_end(stream->a);
    destroy_end(stream->b);
}

/* From now on the thread sleeps, and nobody wakes it. One that was just being woken says anew until
 * when it sleeps: then it is told once more. */
static void still_thread(struct posts *stream)
{
    struct loop *loop = stream->loop;
    do {
        wait_until_thread_sleeps(loop);
        atomic_store(&loop->patience_ns, UINT64_MAX);
        atomic_store(&loop->sleeping_until_ns, 0);
        usleep(5000);
    } while (atomic_load(&loop->sleeping_until_ns) != 0);
}

/* What is dated so was just now, however long it takes until it is looked at. */
static struct instant later(void)
{
    return instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
}

static void post_waiting(struct posts *stream)
{
    struct loop *loop = stream->loop;
    uint64_t before = atomic_load(&loop->counters.waits);
    while (atomic_load(&loop->counters.waits) == before) { /* the thread may have held the lock */
        stream->a->buffer[0] = ++stream->value;
        lock_take(&loop->lock, LOCK_INNER);
        bool is_at_it = !completion_queue_is_empty(stream->a->completions);
        loop->tarry = (struct tarry){.polled = true, .posted = later(), .shown = 1000};
        lock_give(&loop->lock, LOCK_INNER);
        if (is_at_it) {
            poll_one(stream->a);
        }
        post(stream->a, WORK_WRITE, 64, &stream->of_b);
    }
}

static bool has_come(const struct posts *stream)
{
    return *(volatile uint8_t *)stream->b->buffer == stream->value;
}

static void the_thread_serves_who_does_not_poll(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    for (int i = 0; i < 20; i++) {
        struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
        post_waiting(&stream);
        while (!has_come(&stream) && instant_before(clock_now(), until)) {
        }
        assert_true(has_come(&stream));
        poll_one(stream.a);
        usleep(i * 500); /* until the thread sleeps on without an end, too */
    }
    end_stream(&stream);
}

static void what_waits_is_done_before_anything_else(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    still_thread(&stream);
    post_waiting(&stream);
    assert_false(has_come(&stream));
    engine_lock(stream.a->engine);
    bool came = has_come(&stream);
    engine_unlock(stream.a->engine);
    assert_true(came);
    poll_one(stream.a);

    post_receive(stream.b);
    post_waiting(&stream);
    assert_false(has_come(&stream));
    post(stream.a, WORK_SEND, 0, NULL);
    assert_true(has_come(&stream));
    poll_one(stream.b);
    end_stream(&stream);
}

static void a_poll_ends_the_wait(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    still_thread(&stream);
    for (int i = 0; i < 1000; i++) {
        post_waiting(&stream);
        assert_true(engine_wants_drive(stream.a->engine)); /* though there may be completions */
        assert_false(has_come(&stream));
        stream.loop->rests = true; /* nothing else is to be done */
        stream.loop->looked = clock_now();
        engine_drive(stream.a->engine);
        assert_true(has_come(&stream));
        assert_false(engine_wants_drive(stream.a->engine));
        poll_one(stream.a);
    }
    end_stream(&stream);
}

/* Each end is on this engine, so one call does both. */
static void two_queue_pairs_wait_together(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    still_thread(&stream);
    struct introduction of_a = introduce(stream.a);
    post_waiting(&stream);
    stream.b->buffer[64] = 7;
    lock_take(&stream.loop->lock, LOCK_INNER);
    stream.loop->tarry.polled = true;
    stream.loop->tarry.posted = later();
    lock_give(&stream.loop->lock, LOCK_INNER);
    post(stream.b, WORK_WRITE, 65, &of_a);
    assert_false(has_come(&stream));
    assert_int_equal(*(volatile uint8_t *)&stream.a->buffer[64], 0);
    poll_one(stream.b);
    assert_true(has_come(&stream));
    assert_int_equal(*(volatile uint8_t *)&stream.a->buffer[64], 7);
    poll_one(stream.a);
    end_stream(&stream);
}

static void who_goes_to_sleep_leaves_nothing(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    still_thread(&stream);
    post_waiting(&stream);
    engine_about_to_sleep(stream.a->engine);
    assert_true(has_come(&stream));
    poll_one(stream.a);
    end_stream(&stream);
}

/* Looks that find nothing, as if so many packets had come in a row: each makes it less of one. */
static void look(struct loop *loop, uint32_t seen)
{
    for (int i = 0; i < 500; i++) {
        atomic_store(&loop->stream.seen, seen);
        engine_drive(&loop->engine);
        assert_true(seen == 0 || stream_seen(&loop->stream) < seen);
    }
}

static void a_stream_is_looked_for_more_rarely(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    still_thread(&stream);
    struct loop *loop = stream.loop;
    look(loop, STREAM_MOST);
    look(loop, 0);
    atomic_store(&loop->stream.seen, STREAM_MOST);
    post_waiting(&stream); /* who posts does not only receive */
    assert_false(stream_flows(&loop->stream));
    poll_one(stream.a);
    end_stream(&stream);
}

/* The time that it takes to move much is no gap in the polling; where the thread did not do it. */
static void who_moves_much_polls_meanwhile(void **state)
{
    struct posts stream;
    begin_stream(&stream);
    bool counts = false;
    for (int i = 0; i < 1000 && !counts; i++) {
        post_receive(stream.b);
        post(stream.a, WORK_SEND, BUFFER_BYTES, NULL);
        poll_one(stream.b);
        lock_take(&stream.loop->lock, LOCK_INNER);
        counts = atomic_load(&stream.loop->driven_ns) > stream.loop->turn_began.ns;
        lock_give(&stream.loop->lock, LOCK_INNER);
        poll_one(stream.a);
    }
    assert_true(counts);
    end_stream(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_serves_who_does_not_poll),
        cmocka_unit_test(what_waits_is_done_before_anything_else),
        cmocka_unit_test(a_poll_ends_the_wait),
        cmocka_unit_test(two_queue_pairs_wait_together),
        cmocka_unit_test(who_goes_to_sleep_leaves_nothing),
        cmocka_unit_test(a_stream_is_looked_for_more_rarely),
        cmocka_unit_test(who_moves_much_polls_meanwhile),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    setenv("WEIR_LINK", "memory", 1);
    setenv("WEIR_DIRECT", "calls", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
