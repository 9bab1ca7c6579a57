/* A stream is many packets that nobody answers; it is over soon after the last. */
#include "rnic/io/same_host/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void come(struct stream *stream, uint32_t packets)
{
    for (uint32_t i = 0; i < packets; i++) {
        stream_goes_on(stream);
    }
}

static void many_in_a_row_are_a_stream(void **state)
{
    struct stream stream = {0};
    come(&stream, STREAM_LEAST - 1);
    assert_false(stream_flows(&stream));
    come(&stream, 1);
    assert_true(stream_flows(&stream));
}

static void questions_and_answers_are_none(void **state)
{
    struct stream stream = {0};
    for (int i = 0; i < 1000; i++) {
        come(&stream, STREAM_LEAST - 1);
        assert_false(stream_flows(&stream));
        stream_is_answered(&stream);
    }
}

static void looks_in_vain_end_it(void **state)
{
    struct stream stream = {0};
    uint32_t looks = 0;
    come(&stream, 1000000);
    while (stream_flows(&stream)) {
        stream_pauses(&stream);
        looks++;
    }
    assert_in_range(looks, 2, 16);
    for (uint32_t i = 0; i < 1000; i++) {
        stream_pauses(&stream);
    }
    come(&stream, STREAM_LEAST);
    assert_true(stream_flows(&stream));
}

/* Packets so far apart that most looks find none. */
static void single_packets_are_none(void **state)
{
    struct stream stream = {0};
    for (int i = 0; i < 10000; i++) {
        come(&stream, 1);
        assert_false(stream_flows(&stream));
        stream_pauses(&stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_a_row_are_a_stream),
        cmocka_unit_test(questions_and_answers_are_none),
        cmocka_unit_test(looks_in_vain_end_it),
        cmocka_unit_test(single_packets_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
