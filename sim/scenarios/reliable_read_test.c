/* READs and atomics: responses, their loss, replay, the limit on how many are outstanding, fences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(struct work work)
{
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

static void post_write(uint64_t id, uint32_t length)
{
    post((struct work){.kind = WORK_WRITE, .id = id, .length = length});
}

static void post_read(uint64_t id, uint32_t length)
{
    post((struct work){.kind = WORK_READ, .id = id, .length = length});
}

static void post_add(uint64_t id, uint64_t amount)
{
    post((struct work){.kind = WORK_FETCH_ADD, .id = id, .length = 8, .swap_or_add = amount});
}

static uint64_t number_at(const struct party *party)
{
    uint64_t number;
    memcpy(&number, party->bytes, sizeof number);
    return number;
}

static void set_number(struct party *party, uint64_t number)
{
    memcpy(party->bytes, &number, sizeof number);
}

/* The request takes the PSNs of its responses; only the first and the last carry an AETH.
 * */
static void read_in_packets(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_read(1, 600);
    post_write(2, 0);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=600\n"
                     "0us A>B WRITE_ONLY psn=10 length=0\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "1us B>A READ_RESPONSE_LAST psn=9\n"
                     "1us B>A ACK psn=10\n"
                     "2us A send 1 success\n"
                     "2us A send 2 success\n");
    expect_equal_bytes(&s.b, &s.a, 0, 600);
}

/* The timeout repeats it. */
static void request_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B READ_REQUEST psn=7");
    post_read(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=600 lost\n"
                     "1048.576us A>B READ_REQUEST psn=7 length=600\n"
                     "1049.576us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1049.576us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "1049.576us B>A READ_RESPONSE_LAST psn=9\n"
                     "1050.576us A send 1 success\n");
    expect_equal_bytes(&s.b, &s.a, 0, 600);
}

/* The rest is asked for from the first missing byte on: a duplicate READ of a part. */
static void response_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=8");
    post_read(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=600\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=8 lost\n"
                     "1us B>A READ_RESPONSE_LAST psn=9\n"
                     "2us A>B READ_REQUEST psn=8 length=344\n"
                     "3us B>A READ_RESPONSE_FIRST psn=8\n"
                     "3us B>A READ_RESPONSE_LAST psn=9\n"
                     "4us A send 1 success\n");
    expect_equal_bytes(&s.b, &s.a, 0, 600);
}

/* Nothing shows the gap: the timeout does, and only the rest comes again. */
static void last_response_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_LAST psn=9");
    post_read(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=600\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "1us B>A READ_RESPONSE_LAST psn=9 lost\n"
                     "1050.576us A>B READ_REQUEST psn=9 length=88\n"
                     "1051.576us B>A READ_RESPONSE_ONLY psn=9\n"
                     "1052.576us A send 1 success\n");
    expect_equal_bytes(&s.b, &s.a, 0, 600);
}

/* A READ that comes twice is answered twice; the requester drops what it has. */
static void duplicate_read_is_replayed(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B READ_REQUEST psn=7", FATE_DUPLICATED, 1);
    post_read(1, 100);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=100 duplicated\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7\n"
                     "2us A send 1 success\n"
                     "2.435us B>A READ_RESPONSE_ONLY psn=7\n"
                     "3.435us A drops psn\n");
}

/* What comes again from before a READ is acknowledged, the READ is not: only its response does
 * that, and who still waits for it would not know what to make of the rest. */
static void echo_from_before_a_read(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY psn=7", FATE_DUPLICATED, 1);
    scenario_lose(&s, "B>A READ_RESPONSE_LAST psn=10");
    post_write(1, 0);
    post_read(2, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=0 duplicated\n"
                     "0us A>B READ_REQUEST psn=8 length=600\n"
                     "1us B>A READ_RESPONSE_FIRST psn=8\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=9\n"
                     "1us B>A READ_RESPONSE_LAST psn=10 lost\n"
                     "2us A send 1 success\n"
                     "2.435us B>A ACK psn=7\n"
                     "3.435us A drops psn\n"
                     "1050.576us A>B READ_REQUEST psn=10 length=88\n"
                     "1051.576us B>A READ_RESPONSE_ONLY psn=10\n"
                     "1052.576us A send 2 success\n");
    expect_equal_bytes(&s.b, &s.a, 0, 600);
}

/* A lost atomic response comes out of the replay: the number is added once. [IBA 9.4.5] */
static void duplicate_atomic_is_not_repeated(void **state)
{
    (void)state;
    scenario_connect(&s);
    set_number(&s.b, 40);
    scenario_lose(&s, "B>A ATOMIC_ACKNOWLEDGE psn=7");
    post_add(1, 2);
    scenario_run(&s);
    expect_trace(&s, "0us A>B FETCH_ADD psn=7\n"
                     "1us B>A ATOMIC_ACKNOWLEDGE psn=7 lost\n"
                     "1048.576us A>B FETCH_ADD psn=7\n"
                     "1049.576us B>A ATOMIC_ACKNOWLEDGE psn=7\n"
                     "1050.576us A send 1 success\n");
    assert_int_equal(number_at(&s.b), 42);
    assert_int_equal(number_at(&s.a), 40);
}

/* It swaps where the numbers are equal, and brings the old one either way. */
static void compare_and_swap(void **state)
{
    (void)state;
    scenario_connect(&s);
    set_number(&s.b, 5);
    post((struct work){
        .kind = WORK_COMPARE_SWAP, .id = 1, .length = 8, .compare = 5, .swap_or_add = 6});
    scenario_run(&s);
    assert_int_equal(number_at(&s.b), 6);
    assert_int_equal(number_at(&s.a), 5);
    post((struct work){
        .kind = WORK_COMPARE_SWAP, .id = 2, .length = 8, .compare = 5, .swap_or_add = 7});
    scenario_run(&s);
    expect_trace(&s, "0us A>B COMPARE_SWAP psn=7\n"
                     "1us B>A ATOMIC_ACKNOWLEDGE psn=7\n"
                     "2us A send 1 success\n"
                     "1048.576us A>B COMPARE_SWAP psn=8\n"
                     "1049.576us B>A ATOMIC_ACKNOWLEDGE psn=8\n"
                     "1050.576us A send 2 success\n");
    assert_int_equal(number_at(&s.b), 6);
    assert_int_equal(number_at(&s.a), 6);
}

/* Several at once, answered in order. */
static void reads_outstanding(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_read(1, 300);
    post_read(2, 10);
    post_add(3, 1);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=300\n"
                     "0us A>B READ_REQUEST psn=9 length=10\n"
                     "0us A>B FETCH_ADD psn=10\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7\n"
                     "1us B>A READ_RESPONSE_LAST psn=8\n"
                     "1us B>A READ_RESPONSE_ONLY psn=9\n"
                     "1us B>A ATOMIC_ACKNOWLEDGE psn=10\n"
                     "2us A send 1 success\n"
                     "2us A send 2 success\n"
                     "2us A send 3 success\n");
}

/* With max_rd_atomic 2 the third waits for an answer; what stands behind it waits too. */
static void no_more_than_agreed(void **state)
{
    (void)state;
    s.a.attributes.max_reads_out = 2;
    scenario_connect(&s);
    post_read(1, 10);
    post_read(2, 10);
    post_read(3, 10);
    post_write(4, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=10\n"
                     "0us A>B READ_REQUEST psn=8 length=10\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7\n"
                     "1us B>A READ_RESPONSE_ONLY psn=8\n"
                     "2us A>B READ_REQUEST psn=9 length=10\n"
                     "2us A>B WRITE_ONLY psn=10 length=10\n"
                     "2us A send 1 success\n"
                     "2us A send 2 success\n"
                     "3us B>A READ_RESPONSE_ONLY psn=9\n"
                     "3us B>A ACK psn=10\n"
                     "4us A send 3 success\n"
                     "4us A send 4 success\n");
}

/* A fenced request waits for all READs and atomics before it; an unfenced one does not. */
static void fence(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_read(1, 10);
    post_write(2, 10);
    post((struct work){.kind = WORK_WRITE, .id = 3, .length = 10, .fence = true});
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=10\n"
                     "0us A>B WRITE_ONLY psn=8 length=10\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7\n"
                     "1us B>A ACK psn=8\n"
                     "2us A>B WRITE_ONLY psn=9 length=10\n"
                     "2us A send 1 success\n"
                     "2us A send 2 success\n"
                     "3us B>A ACK psn=9\n"
                     "4us A send 3 success\n");
}

/* A response that is missing is found by the ACK of the WRITE behind it. */
static void write_behind_lost_read(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_ONLY psn=7");
    post_read(1, 10);
    post_write(2, 10);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=10\n"
                     "0us A>B WRITE_ONLY psn=8 length=10\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7 lost\n"
                     "1us B>A ACK psn=8\n"
                     "2us A>B READ_REQUEST psn=7 length=10\n"
                     "2us A>B WRITE_ONLY psn=8 length=10\n"
                     "3us B>A READ_RESPONSE_ONLY psn=7\n"
                     "3us B>A ACK psn=8\n"
                     "4us A send 1 success\n"
                     "4us A send 2 success\n");
}

/* Eight bytes, answered by a READ response without any. [IBA annex A19] Lost, it is given again and
 * not written again. */
static void atomic_write(void **state)
{
    (void)state;
    static const uint64_t value = UINT64_C(0x1122334455667788);
    scenario_connect(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_ONLY psn=7");
    post((struct work){.kind = WORK_ATOMIC_WRITE, .id = 1, .at = 64, .swap_or_add = value});
    scenario_run_for(&s, 5);
    assert_memory_equal(s.b.bytes + 64, &value, sizeof value);
    memset(s.b.bytes + 64, 0, sizeof value);
    scenario_run(&s);
    expect_trace(&s, "0us A>B ATOMIC_WRITE psn=7 length=8\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7 lost\n"
                     "A>B ATOMIC_WRITE psn=7 length=8\n"
                     "B>A READ_RESPONSE_ONLY psn=7\n"
                     "A send 1 success\n");
    static const uint64_t zero;
    assert_memory_equal(s.b.bytes + 64, &zero, sizeof zero);
}

static void atomic_write_of_sges(void **state)
{
    (void)state;
    scenario_connect(&s);
    post((struct work){.kind = WORK_ATOMIC_WRITE, .id = 1, .at = 64, .length = 8});
    scenario_run(&s);
    expect_equal_bytes(&s.a, &s.b, 64, 8);
    assert_int_equal(scenario_post(&s.a, (struct work){.kind = WORK_ATOMIC_WRITE, .length = 4}),
                     STATUS_INVALID);
}

static void atomic_write_is_aligned(void **state)
{
    (void)state;
    scenario_connect(&s);
    post((struct work){.kind = WORK_ATOMIC_WRITE, .id = 1, .at = 68});
    scenario_run(&s);
    expect_trace(&s, "A>B ATOMIC_WRITE psn=7 length=8\n"
                     "B event qp_access_error\n"
                     "B>A NAK invalid_request psn=7\n"
                     "A send 1 remote invalid request\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(read_in_packets, start, stop),
        cmocka_unit_test_setup_teardown(request_lost, start, stop),
        cmocka_unit_test_setup_teardown(response_lost, start, stop),
        cmocka_unit_test_setup_teardown(last_response_lost, start, stop),
        cmocka_unit_test_setup_teardown(duplicate_read_is_replayed, start, stop),
        cmocka_unit_test_setup_teardown(echo_from_before_a_read, start, stop),
        cmocka_unit_test_setup_teardown(duplicate_atomic_is_not_repeated, start, stop),
        cmocka_unit_test_setup_teardown(compare_and_swap, start, stop),
        cmocka_unit_test_setup_teardown(reads_outstanding, start, stop),
        cmocka_unit_test_setup_teardown(no_more_than_agreed, start, stop),
        cmocka_unit_test_setup_teardown(fence, start, stop),
        cmocka_unit_test_setup_teardown(write_behind_lost_read, start, stop),
        cmocka_unit_test_setup_teardown(atomic_write, start, stop),
        cmocka_unit_test_setup_teardown(atomic_write_of_sges, start, stop),
        cmocka_unit_test_setup_teardown(atomic_write_is_aligned, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
