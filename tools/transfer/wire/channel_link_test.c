/* A link whose connection refuses what is given to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/wire/channel_link.h"
#include "tools/trust/guard.h"

static enum weir_status answer;
static unsigned given, aborted;
static bool without_memory;

void *__real_malloc(size_t length);
void *__wrap_malloc(size_t length);
void *__wrap_malloc(size_t length)
{
    return without_memory ? NULL : __real_malloc(length);
}

enum weir_status __wrap_weir_send(struct weir_connection *connection, const void *bytes,
                                  size_t length, weir_done_callback *done, void *argument);
enum weir_status __wrap_weir_send(struct weir_connection *connection, const void *bytes,
                                  size_t length, weir_done_callback *done, void *argument)
{
    given++;
    return answer;
}

enum weir_status __wrap_weir_put(struct weir_connection *connection,
                                 const struct weir_transfer *transfer, weir_done_callback *done,
                                 void *argument);
enum weir_status __wrap_weir_put(struct weir_connection *connection,
                                 const struct weir_transfer *transfer, weir_done_callback *done,
                                 void *argument)
{
    given++;
    return answer;
}

void __wrap_weir_abort(struct weir_connection *connection, const char *reason);
void __wrap_weir_abort(struct weir_connection *connection, const char *reason)
{
    aborted++;
}

struct weir_poller *__wrap_weir_connection_poller(struct weir_connection *connection);
struct weir_poller *__wrap_weir_connection_poller(struct weir_connection *connection)
{
    return NULL;
}

/* Both take whole messages, however long. */
void __wrap_weir_connection_parameters(const struct weir_connection *connection,
                                       uint8_t ret_bytes[WEIR_PARAMETERS_LENGTH]);
void __wrap_weir_connection_parameters(const struct weir_connection *connection,
                                       uint8_t ret_bytes[WEIR_PARAMETERS_LENGTH])
{
    memset(ret_bytes, 0xff, WEIR_PARAMETERS_LENGTH);
}

static int setup(void **state)
{
    static char connection;
    struct link *link = channel_link_create(NULL, NULL);
    channel_link_attach(link, (struct weir_connection *)&connection);
    given = aborted = 0;
    *state = link;
    return 0;
}

static int teardown(void **state)
{
    channel_link_destroy(*state);
    return 0;
}

static const struct weir_piece piece = {"abc", 3};

static void what_is_refused_for_want_of_memory_ends_the_link(void **state)
{
    struct link *link = *state;
    answer = WEIR_NO_MEMORY;
    assert_true(link->operations->send(link, &piece, 1));
    assert_false(link->operations->flush(link));
    assert_int_equal(given, 1);
    assert_int_equal(aborted, 1);
    assert_int_equal(link->backlog_count, 0);
    assert_false(link->operations->put(link, &(struct link_put){.length = 1}));
    assert_int_equal(aborted, 2);
}

static void a_message_without_memory_ends_the_link(void **state)
{
    struct link *link = *state;
    without_memory = true;
    bool sent = link->operations->send(link, &piece, 1);
    without_memory = false;
    assert_false(sent);
    assert_int_equal(aborted, 1);
}

/* It ends in order, and what was given to it before is not to be lost. */
static void what_comes_after_the_end_is_dropped(void **state)
{
    struct link *link = *state;
    answer = WEIR_STATE;
    assert_true(link->operations->send(link, &piece, 1));
    assert_false(link->operations->flush(link));
    assert_int_equal(given, 1);
    assert_int_equal(aborted, 0);
}

/* Before it has let us in: one that died has refused nothing. */
static void who_dies_in_the_handshake_has_not_refused(void **state)
{
    static const enum weir_status ends[] = {WEIR_PEER_LOST, WEIR_TIMED_OUT, WEIR_DISCONNECTED,
                                            WEIR_PROTOCOL};
    static char connection;
    const struct secret secret = {{1}};
    for (size_t i = 0; i < 4; i++) {
        struct weir_connection *one = (struct weir_connection *)&connection;
        struct link *link = channel_link_create(guard_create_client("k", &secret, false), NULL);
        const struct weir_error error = {.status = ends[i]};
        link->events = &link_unheard;
        channel_link_attach(link, one);
        channel_link_handler.opened(one, link);
        assert_true(channel_link_is_outside(link));
        channel_link_handler.closed(one, &error, link);
        assert_int_equal(channel_link_was_lost(link), i < 2);
        assert_int_equal(channel_link_was_refused(link), i >= 2);
        channel_link_destroy(link);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_refused_for_want_of_memory_ends_the_link),
        T(a_message_without_memory_ends_the_link),
        T(what_comes_after_the_end_is_dropped),
        T(who_dies_in_the_handshake_has_not_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
