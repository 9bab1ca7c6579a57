/* Warnings do no harm, and queues that starve are told apart from those that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

#include "rnic/strict/receives.h"
#include "rnic/strict/strict.h"

/* Standard error leads to nobody. */
static void a_closed_pipe_ends_nothing(void **state)
{
    int ends[2], standard = dup(STDERR_FILENO);
    sigset_t pending;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    pitfall_warn(PITFALL_LIMIT, NULL, "asked for at", "nobody hears of %d", 1);
    dup2(standard, STDERR_FILENO);
    close(ends[1]);
    close(standard);
    assert_int_equal(pitfall_count(PITFALL_LIMIT), 1);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
}

static const struct receive_queue *queue(size_t number)
{
    return (const struct receive_queue *)(number * 64); /* only compared */
}

/* Of a queue pair whose receives are shared. */
static void no_queue_starves(void **state)
{
    receives_missing(queue(1), (struct qpn){17}, false);
    strict_receives_end(NULL);
    strict_receive_posted(queue(2));
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 0);
    receives_missing(NULL, (struct qpn){18}, false);
    strict_receives_end(NULL);
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 0);
    strict_receive_posted(queue(1));
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 1);
    strict_receives_end(queue(1));
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_pipe_ends_nothing),
        cmocka_unit_test(no_queue_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
