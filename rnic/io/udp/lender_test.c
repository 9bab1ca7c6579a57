/* What is lent to the kernel arrives as what is copied does, whatever the kernel grants. */
#include "rnic/io/udp/lender.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "rnic/io/udp/udp_private.h"
#include "rnic/io/udp/udp_self_test.h"

#define PAYLOAD 1024u
#define TRAIN   61u /* fills a run */

static void check_arrived(struct udp *udp, uint32_t count)
{
    struct inbox inbox = {.receiver = {receive}};
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, count);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    assert_int_equal(inbox.identification_hints, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(inbox.numbers[i], i);
    }
}

static bool segments(const struct udp *udp)
{
    return udp_counters(udp)->segmented_sends > 0; /* else the kernel has no UDP_SEGMENT */
}

static void full_runs_are_lent(void **state)
{
    (void)state;
    static const struct gid *const gids[] = {&ipv4_loopback, &ipv6_loopback};
    for (uint32_t family = 0; family < 2; family++) {
        struct udp *udp = create(NULL);
        struct path path = path_to(gids[family]);
        if (udp_descriptor(udp, udp_family_of(gids[family])) >= 0) {
            emit_train(udp, &path, 0, 5 * TRAIN + 7, PAYLOAD);
            check_arrived(udp, 5 * TRAIN + 7);
            if (segments(udp)) {
                assert_int_equal(udp_counters(udp)->lent_runs, 5);
                assert_int_equal(udp_counters(udp)->packets_sent, 5 * TRAIN + 7);
            }
        }
        udp_destroy(udp);
    }
}

/* What a stream has in flight fits in its places twice, with the runs that are sent early. */
static void places_come_again_late(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    const uint8_t *first = lender_take(&udp->lender, &path, (struct qpn){1});
    uint32_t others = 0;
    assert_non_null(first);
    while (lender_take(&udp->lender, &path, (struct qpn){1}) != first) {
        const uint8_t *copied = lender_take(&udp->lender, &path, (struct qpn){1});
        lender_give_back(&udp->lender, copied);
        others++;
    }
    assert_in_range((uint64_t)others * LENDER_LEAST, 2 * UDP_FLIGHT_MAX - LENDER_PLACE,
                    2 * UDP_FLIGHT_MAX + 2 * LENDER_PLACE);
    udp_destroy(udp);
}

/* One of each in turn; each goes on as long as it goes on. */
static void more_streams_have_more_places(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    const uint8_t *seen[4096];
    uint32_t count = 0, repeated = 4096;
    for (uint32_t turn = 0; turn < 400; turn++) {
        for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
            seen[count] = lender_take(&udp->lender, &path, (struct qpn){i});
            assert_non_null(seen[count]);
            for (uint32_t back = 1; back <= count && back < repeated; back++) {
                repeated = seen[count - back] == seen[count] ? back : repeated;
            }
            count++;
        }
        assert_null(lender_take(&udp->lender, &path, (struct qpn){LENDER_STREAMS}));
    }
    assert_true((uint64_t)repeated * LENDER_LEAST >= 2 * LENDER_STREAMS * UDP_FLIGHT_MAX);
    for (uint32_t i = 0; i < 400; i++) {
        assert_non_null(lender_take(&udp->lender, &path, (struct qpn){0}));
    }
    assert_non_null(lender_take(&udp->lender, &path, (struct qpn){LENDER_STREAMS}));
    udp_destroy(udp);
}

static void what_is_not_repeated_is_not_lent(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    static uint8_t bytes[TRAIN * PAYLOAD];
    static const uint8_t opcodes[] = {
        OPCODE(SERVICE_UC, FORM_WRITE_MIDDLE),
        OPCODE(SERVICE_UC, FORM_SEND_MIDDLE),
        OPCODE(SERVICE_RC, FORM_READ_RESPONSE_MIDDLE),
    };
    for (uint32_t i = 0; i < sizeof opcodes; i++) {
        uint8_t header[HEADER] = {opcodes[i]};
        struct train train = {&path, header, HEADER, bytes, PAYLOAD, TRAIN};
        assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), TRAIN);
    }
    assert_true(udp_flush(udp));
    assert_int_equal(udp_counters(udp)->packets_sent, 3 * TRAIN);
    assert_int_equal(udp_counters(udp)->lent_runs, 0);
    udp_destroy(udp);
}

static void without_descriptors_all_is_copied(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {3, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    emit_train(udp, &path, 0, 3 * TRAIN, PAYLOAD);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_arrived(udp, 3 * TRAIN);
    assert_int_equal(udp_counters(udp)->lent_runs, 0);
    udp_destroy(udp);
}

/* As for a user with too many of them. */
static void what_a_short_pipe_does_not_hold_is_copied(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    emit_train(udp, &path, 0, TRAIN, PAYLOAD);
    if (!segments(udp)) {
        udp_destroy(udp);
        skip();
    }
    assert_int_equal(udp_counters(udp)->lent_runs, 1);
    assert_true(fcntl(udp->lender.pipe[1], F_SETPIPE_SZ, 4096) >= 0);
    emit_train(udp, &path, TRAIN, 4 * TRAIN, PAYLOAD);
    check_arrived(udp, 5 * TRAIN);
    assert_int_equal(udp->lender.open, false);
    udp_destroy(udp);
}

/* A pipe that splice(2) is refused. */
static void what_is_not_taken_is_copied(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    emit_train(udp, &path, 0, TRAIN, PAYLOAD);
    if (!segments(udp)) {
        udp_destroy(udp);
        skip();
    }
    int kept = dup(udp->lender.pipe[0]); /* else who fills the pipe has SIGPIPE */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(dup3(null, udp->lender.pipe[0], O_CLOEXEC) >= 0);
    close(null);
    assert_true(kept >= 0);
    emit_train(udp, &path, TRAIN, 4 * TRAIN,
               PAYLOAD); /* by the next pipe, those behind the first */
    check_arrived(udp, 5 * TRAIN);
    assert_in_range(udp_counters(udp)->lent_runs, 4, 5);
    udp_destroy(udp);
    close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_runs_are_lent),
        cmocka_unit_test(places_come_again_late),
        cmocka_unit_test(more_streams_have_more_places),
        cmocka_unit_test(what_is_not_repeated_is_not_lent),
        cmocka_unit_test(without_descriptors_all_is_copied),
        cmocka_unit_test(what_a_short_pipe_does_not_hold_is_copied),
        cmocka_unit_test(what_is_not_taken_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
