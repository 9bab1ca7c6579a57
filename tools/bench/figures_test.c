/* Buckets, percentiles and spreads; sizes and lists as typed; figures of results; JSON that may
 * stand in a page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/carrier.h"
#include "tools/bench/ends.h"
#include "tools/bench/page.h"
#include "tools/bench/result.h"
#include "tools/bench/stopwatch.h"
#include "tools/bench/table.h"
#include "tools/stop.h"

static struct histogram histogram, other;

static void test_buckets_hold_their_values(void **state)
{
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int nudge = -1; nudge <= 1; nudge++) {
            uint64_t value = ((uint64_t)1 << shift) + (uint64_t)nudge;
            size_t index = histogram_bucket_of(value);
            assert_in_range(index, 0, HISTOGRAM_BUCKETS - 1);
            assert_true(histogram_bucket_begin(index) <= value);
            assert_true(index + 1 == HISTOGRAM_BUCKETS ||
                        histogram_bucket_begin(index + 1) > value);
        }
    }
}

static void test_quantiles_of_what_is_known(void **state)
{
    histogram_clear(&histogram);
    assert_true(histogram_quantile(&histogram, 0.5) == 0);
    for (uint64_t value = 1; value <= 100000; value++) {
        histogram_add(&histogram, value);
    }
    static const double fractions[] = {0.001, 0.5, 0.9, 0.99, 0.999};
    for (unsigned i = 0; i < 5; i++) {
        double exact = fractions[i] * 100000;
        double found = histogram_quantile(&histogram, fractions[i]);
        assert_true(fabs(found - exact) <= exact / 256 + 0.5);
    }
    assert_true(histogram_quantile(&histogram, 1) == 100000);
    assert_int_equal(histogram.least, 1);
}

static void test_a_quantile_is_a_value_that_was_seen(void **state)
{
    histogram_clear(&histogram);
    for (int i = 0; i < 99; i++) {
        histogram_add(&histogram, 10);
    }
    histogram_add(&histogram, 1000000);
    assert_true(histogram_quantile(&histogram, 0.5) == 10);
    assert_true(histogram_quantile(&histogram, 0.99) == 10);
    assert_true(histogram_quantile(&histogram, 0.991) == 1000000);
    histogram_clear(&histogram);
    histogram_add(&histogram, 1000003);
    assert_true(histogram_quantile(&histogram, 0.5) == 1000003);
}

static void test_merged_is_as_if_counted_together(void **state)
{
    histogram_clear(&histogram);
    histogram_clear(&other);
    for (uint64_t i = 0; i < 1000; i++) {
        histogram_add(i % 2 == 0 ? &histogram : &other, i * 37);
    }
    histogram_merge(&histogram, &other);
    assert_int_equal(histogram.count, 1000);
    assert_int_equal(histogram.least, 0);
    assert_int_equal(histogram.greatest, 999 * 37);
    assert_true(fabs(histogram_quantile(&histogram, 0.5) - 499 * 37) < 499 * 37 / 200.0);
}

static void test_spread(void **state)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    struct spread spread = spread_of(odd, 3);
    assert_true(spread.median == 2 && spread.least == 1 && spread.greatest == 3);
    assert_true(spread_of(even, 4).median == 2.5);
    assert_true(spread_of(odd, 0).median == 0);
}

static void test_lists_and_sizes(void **state)
{
    unsigned set;
    char bad[32], text[PLAN_SIZE_TEXT];
    struct plan plan;
    assert_true(plan_parse_set(PLAN_OPERATIONS, "read,send", &set, bad));
    assert_int_equal(set, 1u << PLAN_READ | 1u << PLAN_SEND);
    assert_true(plan_parse_set(PLAN_MODES, "all", &set, bad));
    assert_int_equal(set, 3);
    assert_false(plan_parse_set(PLAN_OPERATIONS, "send,rea", &set, bad));
    assert_string_equal(bad, "rea");
    assert_false(plan_parse_set(PLAN_OPERATIONS, "", &set, bad));
    assert_false(plan_parse_set(PLAN_OPERATIONS, "send,", &set, bad));
    assert_true(plan_parse_sizes(&plan, "1,4k,64m", bad));
    assert_int_equal(plan.size_count, 3);
    assert_int_equal(plan.sizes[2], 64 << 20);
    static const char *const wrong[] = {
        "0", "65m", "4g", "-1", "k", "1,,2", "99999999999999999999"};
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(plan_parse_sizes(&plan, wrong[i], bad));
    }
    plan_size_text(1536, text);
    assert_string_equal(text, "1536 B");
    plan_size_text(1 << 20, text);
    assert_string_equal(text, "1 MiB");
}

static void test_cases_survive_the_way_to_the_other_end(void **state)
{
    struct plan_case item = {PLAN_WRITE, PLAN_BANDWIDTH, true, true, true, 4096, 7}, back;
    json_t *object = plan_case_to_json(&item);
    assert_true(plan_case_from_json(object, &back));
    json_t *again = plan_case_to_json(&back);
    assert_true(json_equal(object, again));
    json_decref(again);
    assert_true(back.both_ways && back.is_blocked && back.is_huge && back.size == 4096);
    static const struct {
        const char *key;
        long long value;
    } bad[] = {{"size", 0}, {"size", (64 << 20) + 1}, {"depth", 0}, {"depth", 1025}, {"mode", 1}};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *copy = json_deep_copy(object);
        json_object_set_new(copy, bad[i].key, json_integer(bad[i].value));
        assert_false(plan_case_from_json(copy, &back));
        json_decref(copy);
    }
    json_object_set_new(object, "operation", json_string("fetch-add")); /* of 4096 bytes */
    assert_false(plan_case_from_json(object, &back));
    json_decref(object);
}

static struct result result;

static void test_figures_of_a_result(void **state)
{
    memset(&result, 0, sizeof(result));
    histogram_clear(&result.latency);
    result.item = (struct plan_case){.operation = PLAN_SEND, .size = 8};
    histogram_clear(&histogram);
    for (int i = 0; i < 200; i++) {
        histogram_add(&histogram, 100);
    }
    for (int i = 1; i <= 3; i++) {
        struct result_run run = {.count = 200, .seconds = i, .client_cpu_s = 2e-4};
        result_add(&result, &run, &histogram);
    }
    assert_true(fabs(result_latency_us(&result, 1).median - 0.05) < 1e-9); /* half of 100 ns */
    assert_true(result_point_is_known(&result, 3));                        /* 99 % */
    assert_false(result_point_is_known(&result, 4));                       /* 99.9 % */
    assert_true(result_rates(&result).median == 100);
    assert_true(fabs(result_cpu_us(&result, false).median - 1) < 1e-9);
    assert_null(result_doubt(&result));
    result.item.operation = PLAN_READ; /* there and back is what one waits for */
    struct result_run run = {.count = 19, .seconds = 1};
    result_add(&result, &run, &histogram);
    assert_true(fabs(result.runs[3].latency_us[1] - 0.1) < 1e-9);
    assert_non_null(result_doubt(&result));
}

static void test_both_ways_is_the_sum(void **state)
{
    memset(&result, 0, sizeof(result));
    result.item =
        (struct plan_case){.operation = PLAN_WRITE, .measure = PLAN_BANDWIDTH, .both_ways = true};
    struct result_run run = {.count = 100, .seconds = 1, .server_seconds = 2, .client_cpu_s = 1};
    result_add(&result, &run, NULL);
    assert_true(result_rates(&result).median == 150);
    assert_true(fabs(result_cpu_us(&result, false).median - 5000) < 1e-6);
}

static void test_numbers_for_people(void **state)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0.35, "0.350"}, {0.9996, "1.00"}, {9.996, "10.0"},       {99.96, "100"},
                {999.4, "999"},  {999.6, "1,000"}, {1234567, "1,234,567"}};
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[TABLE_NUMBER];
        table_number(rows[i].value, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void test_nothing_in_a_string_ends_the_script(void **state)
{
    const char *evil = "</script><!--<script>&'\"\\\xe2\x80\xa8";
    json_t *object = json_pack("{s:s}", "a", evil);
    char *text = page_json(object);
    assert_null(strpbrk(text, "<>&"));
    assert_null(strchr(text, '\xe2')); /* a line separator ended statements once */
    json_t *back = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(back, "a")), evil);
    free(text);
    json_decref(back);
    json_decref(object);
}

static size_t read_page(char ret_text[65536])
{
    FILE *file = fopen("page.html", "r");
    size_t length = fread(ret_text, 1, 65535, file);
    ret_text[length] = '\0';
    fclose(file);
    return length;
}

static void test_a_page_without_room_leaves_the_one_before(void **state)
{
    char folder[] = "/tmp/weir-page-XXXXXX", text[65536];
    const struct rlimit little = {1000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    json_t *document = json_pack("{s:s}", "format", "weir-bench-1");
    assert_true(mkdtemp(folder) != NULL && chdir(folder) == 0);
    signal(SIGXFSZ, SIG_IGN);
    FILE *before = fopen("page.html", "w");
    fputs("of before", before);
    fclose(before);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_false(page_write("page.html", document));
    assert_int_equal(errno, EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    read_page(text);
    assert_string_equal(text, "of before");
    before = fopen("page.html", "a"); /* longer than the page */
    assert_int_equal(ftruncate(fileno(before), 1 << 20), 0);
    fclose(before);
    assert_true(page_write("page.html", document));
    size_t length = read_page(text);
    assert_true(length < 65535 && strstr(text, "weir-bench-1") != NULL);
    assert_string_equal(text + length - 8, "</html>\n");
    assert_false(page_write("/dev/full", document));
    assert_int_equal(errno, ENOSPC);
    json_decref(document);
    assert_true(unlink("page.html") == 0 && rmdir(folder) == 0);
}

static void test_both_ends_send_other_bytes(void **state)
{
    uint8_t bytes[256];
    carrier_fill(bytes, sizeof(bytes), true);
    assert_int_equal(carrier_compare(bytes, sizeof(bytes), true), sizeof(bytes));
    assert_int_equal(carrier_compare(bytes, sizeof(bytes), false), 0); /* of one byte, too */
    bytes[200] ^= 1;
    assert_int_equal(carrier_compare(bytes, sizeof(bytes), true), 200);
}

/* What a thread of its own says to the server, 10 ms between its bytes. */
static const char *said;

static void *say_slowly(void *argument)
{
    for (const char *at = said; *at != 0; at++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (send(*(int *)argument, at, 1, MSG_NOSIGNAL) != 1) {
            break;
        }
    }
    return NULL;
}

/* A client that says nothing, or nothing whole, does not hold the server. */
static void test_a_silent_client_is_given_up(void **state)
{
    static struct control control;
    static const char *const words[] = {"", "{\"hello\":                                        "};
    for (unsigned i = 0; i < 2; i++) {
        struct weir_error error;
        int ends[2];
        pthread_t thread;
        said = words[i];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        control_begin(&control, ends[0]);
        assert_in_range(control.silence_ms, 1000, 120000);
        control.silence_ms = 100;
        assert_int_equal(pthread_create(&thread, NULL, say_slowly, &ends[1]), 0);
        alarm(20);
        assert_false(ends_serve(&control, NULL, &error));
        alarm(0);
        assert_int_equal(error.status, WEIR_TIMED_OUT);
        control_close(&control);
        pthread_join(thread, NULL);
        close(ends[1]);
    }
}

/* Nor does one whose host is gone, or who takes nothing. */
static void test_a_dead_host_is_noticed(void **state)
{
    static struct control control;
    int fd = socket(AF_INET, SOCK_STREAM, 0), is_on = 0;
    struct timeval limit = {0};
    socklen_t length = sizeof(is_on), limit_length = sizeof(limit);
    control_begin(&control, fd);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &is_on, &length), 0);
    assert_int_equal(is_on, 1);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, &limit_length), 0);
    assert_int_equal(limit.tv_sec, PATIENCE_S);
    control_close(&control);
}

/* Whichever is read; a thousandth off at most. */
static void test_the_stopwatch_agrees_with_the_clock(void **state)
{
    stopwatch_init();
    assert_non_null(stopwatch_name());
    const uint64_t least_ns = 5000000;
    uint64_t before_ns = clock_now_ns(), began = stopwatch_ticks(), began_ns = clock_now_ns();
    uint64_t ended_ns, ended, after_ns, last = began;
    do {
        ended_ns = clock_now_ns();
        ended = stopwatch_ticks();
        after_ns = clock_now_ns();
        assert_true(ended >= last);
        last = ended;
    } while (ended_ns - began_ns < least_ns);
    uint64_t ns = stopwatch_ns(ended - began), most_ns = after_ns - before_ns;
    assert_in_range(ns, ended_ns - began_ns - most_ns / 1000, most_ns + most_ns / 1000);
}

int __real_poll(struct pollfd *waits, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *waits, nfds_t count, int timeout_ms);
static bool is_signal_due;

int __wrap_poll(struct pollfd *waits, nfds_t count, int timeout_ms)
{
    if (is_signal_due) {
        is_signal_due = false;
        raise(SIGTERM);
    }
    return __real_poll(waits, count, timeout_ms);
}

/* One that comes after it was asked for and before the wait begins: not with the next message. */
static void test_a_signal_just_before_a_wait_is_heard(void **state)
{
    static struct control control;
    struct weir_error error;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    control_begin(&control, ends[0]);
    stop_prepare();
    is_signal_due = true;
    assert_null(control_receive(&control, 5000, &error));
    assert_false(is_signal_due);
    assert_int_equal(error.status, WEIR_CANCELED);
    control_close(&control);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_hold_their_values),
        cmocka_unit_test(test_quantiles_of_what_is_known),
        cmocka_unit_test(test_a_quantile_is_a_value_that_was_seen),
        cmocka_unit_test(test_merged_is_as_if_counted_together),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_lists_and_sizes),
        cmocka_unit_test(test_cases_survive_the_way_to_the_other_end),
        cmocka_unit_test(test_figures_of_a_result),
        cmocka_unit_test(test_both_ways_is_the_sum),
        cmocka_unit_test(test_numbers_for_people),
        cmocka_unit_test(test_nothing_in_a_string_ends_the_script),
        cmocka_unit_test(test_a_page_without_room_leaves_the_one_before),
        cmocka_unit_test(test_both_ends_send_other_bytes),
        cmocka_unit_test(test_a_silent_client_is_given_up),
        cmocka_unit_test(test_a_dead_host_is_noticed),
        cmocka_unit_test(test_the_stopwatch_agrees_with_the_clock),
        cmocka_unit_test(test_a_signal_just_before_a_wait_is_heard), /* which stays asked for */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
