/* Where a sender and the receiver that it wakes for long records are on one processor. */
#include "rnic/io/same_host/inbox_sleep.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/same_host/inbox.h"
#include "rnic/io/same_host/outbox.h"
#include "rnic/io/system/processor.h"

#define OWNER  UINT64_C(0x1111)
#define SENDER UINT64_C(0x2222)
#define LONG   32768u
#define SHORT  8u

struct both {
    struct inbox *inbox;
    struct outbox *outbox;
    cpu_set_t before;
    uint8_t bytes[LONG];
};

static void drop(struct inbox_receiver *receiver, const struct arrival *arrival,
                 const uint8_t *bytes, uint32_t length, const struct payload_reference *reference)
{
}

static void run_on(uint32_t processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

static int setup(void **state)
{
    struct both *both = calloc(1, sizeof *both);
    assert_int_equal(sched_getaffinity(0, sizeof both->before, &both->before), 0);
    run_on(processor_here());
    assert_int_equal(inbox_create(OWNER, true, &both->inbox), STATUS_OK);
    assert_int_equal(outbox_open(getpid(), inbox_descriptor(both->inbox), OWNER, SENDER, NULL, true,
                                 &both->outbox),
                     STATUS_OK);
    *state = both;
    return 0;
}

static int teardown(void **state)
{
    struct both *both = *state;
    assert_int_equal(sched_setaffinity(0, sizeof both->before, &both->before), 0);
    outbox_close(both->outbox);
    inbox_destroy(both->inbox);
    free(both);
    return 0;
}

static void put(struct both *both, uint32_t length)
{
    const struct path path = {
        .local = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}},
        .remote = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}},
        .source_port = 50000,
    };
    uint8_t header[BTH_LENGTH] = {4};
    struct fragment fragment = {both->bytes, length};
    struct outgoing outgoing = {
        .path = &path,
        .header = header,
        .header_length = sizeof header,
        .fragments = &fragment,
        .fragment_count = 1,
        .payload_length = length,
        .reference_shift = length > SHORT ? 10 : 0,
    };
    assert_int_equal(outbox_put(both->outbox, &outgoing), STATUS_OK);
}

/* The owner sleeps, is woken for a record by somebody on `ringer`, and takes it. */
static void wake_for(struct both *both, uint32_t length, uint32_t ringer)
{
    struct inbox_receiver receiver = {.receive = drop};
    uint32_t owner = processor_here();
    assert_true(inbox_fall_asleep(both->inbox));
    put(both, length);
    run_on(ringer);
    assert_true(outbox_flush(both->outbox));
    bool rung = outbox_wake(both->outbox);
    (void)
        rung; /* by its bell or, where the kernel lends none, by a message that is not sent here */
    outbox_has_woken(both->outbox);
    run_on(owner);
    assert_int_not_equal(inbox_receive(both->inbox, &receiver, 64), 0);
}

static void it_is_crowded_on_one_processor(void **state)
{
    struct both *both = *state;
    wake_for(both, LONG, processor_here());
    assert_true(inbox_is_crowded(both->inbox));
    assert_false(inbox_is_crowded(both->inbox)); /* nothing has come since */
    wake_for(both, LONG, processor_here());
    assert_true(inbox_is_crowded(both->inbox));
}

static void short_records_do_not_crowd(void **state)
{
    struct both *both = *state;
    wake_for(both, SHORT, processor_here());
    assert_false(inbox_is_crowded(both->inbox));
}

static void another_processor_is_no_crowd(void **state)
{
    struct both *both = *state;
    uint32_t here = processor_here(), other = 0;
    while (other < CPU_SETSIZE && (other == here || !CPU_ISSET(other, &both->before))) {
        other++;
    }
    if (other == CPU_SETSIZE) {
        skip();
    }
    wake_for(both, LONG, other);
    assert_false(inbox_is_crowded(both->inbox));
}

/* Whoever rang before the latest sleep says nothing of what came without a ring. */
static void who_was_not_woken_is_not_crowded(void **state)
{
    struct both *both = *state;
    struct inbox_receiver receiver = {.receive = drop};
    wake_for(both, LONG, processor_here());
    (void)inbox_is_crowded(both->inbox);
    assert_true(inbox_fall_asleep(both->inbox));
    put(both, LONG);
    assert_true(outbox_flush(both->outbox));
    inbox_sleep_end(inbox_sleep(both->inbox));
    assert_int_not_equal(inbox_receive(both->inbox, &receiver, 64), 0);
    assert_false(inbox_is_crowded(both->inbox));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_crowded_on_one_processor, setup, teardown),
        cmocka_unit_test_setup_teardown(short_records_do_not_crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(another_processor_is_no_crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(who_was_not_woken_is_not_crowded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
