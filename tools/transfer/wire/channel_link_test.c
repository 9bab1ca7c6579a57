/* A link whose connection refuses what is given to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tools/transfer/wire/channel_link.h"

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

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_refused_for_want_of_memory_ends_the_link),
        T(a_message_without_memory_ends_the_link),
        T(what_comes_after_the_end_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
