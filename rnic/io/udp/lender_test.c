/* What is lent to the kernel arrives as what is copied does, whatever the kernel grants. */
#include "rnic/io/udp/lender.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "rnic/io/udp/udp_private.h"
#include "rnic/io/udp/udp_self_test.h"

#define PAYLOAD 1024u
#define TRAIN   61u /* fills a run */

/* Whatever that costs. */
static struct udp *create_lending(void)
{
    struct udp *udp = create(NULL);
    udp->lender.trial = (struct trial){.round = 2 * TRIAL_ROUNDS, .second = true};
    return udp;
}

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
        struct udp *udp = create_lending();
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

static const uint8_t *take(struct udp *udp, uint32_t destination_number)
{
    struct path path = path_to(&ipv4_loopback);
    return lender_take(&udp->lender, &path, (struct qpn){destination_number});
}

static const uint8_t *take_and_give_back(struct udp *udp, uint32_t destination_number)
{
    const uint8_t *place = take(udp, destination_number);
    assert_non_null(place);
    lender_give_back(&udp->lender, place);
    return place;
}

/* What a stream has in flight fits in its ring twice, whatever the length of its runs and however
 * much others take. */
static void bytes_come_again_late(void **state)
{
    (void)state;
    static const uint32_t trains[] = {TRAIN, TRAIN * 3 / 4};
    struct udp *udp = create_lending();
    struct path path = path_to(&ipv4_loopback);
    const struct lender_stream *stream = &udp->lender.streams[0];
    uint32_t payload = 0, before = 0;
    for (uint32_t i = 0; stream->next >= before; i++) {
        uint32_t count = trains[i % 2];
        struct inbox inbox = {.receiver = {receive}};
        before = stream->next;
        emit_train(udp, &path, 0, count, PAYLOAD);
        assert_true(udp_flush(udp));
        drain(udp, &inbox);
        (void)take_and_give_back(udp, 1);
        if (udp_counters(udp)->lent_runs == 0) {
            udp_destroy(udp);
            skip();
        }
        assert_int_equal(udp_counters(udp)->lent_runs, i + 1);
        assert_int_equal(stream->next % 4096, 0);
        payload += stream->next > before ? count * PAYLOAD : 0;
    }
    assert_in_range(payload, 2 * UDP_FLIGHT_MAX, 3 * UDP_FLIGHT_MAX);
    udp_destroy(udp);
}

/* One that has lent the first train already. */
static struct udp *create_with_pipe(const struct path *path)
{
    struct udp *udp = create_lending();
    emit_train(udp, path, 0, TRAIN, PAYLOAD);
    if (!segments(udp)) {
        udp_destroy(udp);
        skip();
    }
    return udp;
}

/* On a long way, which may be this host. */
static void who_has_more_under_way_lends_no_more(void **state)
{
    (void)state;
    static uint8_t bytes[TRAIN * PAYLOAD];
    struct path path = path_to(&ipv4_loopback);
    struct udp *udp = create_with_pipe(&path);
    uint8_t header[HEADER] = {OPCODE(SERVICE_RC, FORM_WRITE_MIDDLE)};
    struct train train = {&path, header, HEADER, bytes, PAYLOAD, TRAIN, 0};
    for (; train.under_way < 6 * UDP_FLIGHT_MAX; train.under_way += TRAIN * PAYLOAD) {
        assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), TRAIN);
    }
    uint64_t lent = udp_counters(udp)->lent_runs * sizeof bytes;
    assert_in_range(lent, UDP_FLIGHT_MAX, UDP_FLIGHT_MAX + 4 * sizeof bytes);
    train.under_way = 0;
    assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), TRAIN);
    assert_int_equal(udp_counters(udp)->lent_runs * sizeof bytes, lent + sizeof bytes);
    udp_destroy(udp);
}

/* What begins there has not left yet. */
static void a_place_is_taken_once(void **state)
{
    (void)state;
    struct udp *udp = create_lending();
    const uint8_t *place = take(udp, 1);
    assert_non_null(place);
    assert_null(take(udp, 1));
    assert_non_null(take(udp, 2));
    lender_give_back(&udp->lender, place);
    assert_ptr_equal(take(udp, 1), place);
    udp_destroy(udp);
}

static void who_has_lent_nothing_for_a_while_makes_room(void **state)
{
    (void)state;
    struct udp *udp = create_lending();
    for (uint32_t turn = 0; turn < 400; turn++) {
        for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
            take_and_give_back(udp, i);
        }
        assert_null(take(udp, LENDER_STREAMS));
    }
    udp->lender.swept.ns -= LENDER_IDLE_NS;
    assert_null(take(udp, LENDER_STREAMS)); /* all have lent since */
    for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
        if (i != 3) {
            take_and_give_back(udp, i);
        }
    }
    assert_null(take(udp, LENDER_STREAMS));
    udp->lender.swept.ns -= LENDER_IDLE_NS;
    take_and_give_back(udp, LENDER_STREAMS);
    assert_null(take(udp, 3));
    take_and_give_back(udp, 2);
    udp_destroy(udp);
}

static void what_is_not_repeated_is_not_lent(void **state)
{
    (void)state;
    struct udp *udp = create_lending();
    struct path path = path_to(&ipv4_loopback);
    static uint8_t bytes[TRAIN * PAYLOAD];
    static const uint8_t opcodes[] = {
        OPCODE(SERVICE_UC, FORM_WRITE_MIDDLE),
        OPCODE(SERVICE_UC, FORM_SEND_MIDDLE),
        OPCODE(SERVICE_RC, FORM_READ_RESPONSE_MIDDLE),
    };
    for (uint32_t i = 0; i < sizeof opcodes; i++) {
        uint8_t header[HEADER] = {opcodes[i]};
        struct train train = {&path, header, HEADER, bytes, PAYLOAD, TRAIN, 0};
        assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), TRAIN);
    }
    assert_true(udp_flush(udp));
    assert_int_equal(udp_counters(udp)->packets_sent, 3 * TRAIN);
    assert_int_equal(udp_counters(udp)->lent_runs, 0);
    udp_destroy(udp);
}

/* They gather in one run with what is, for another queue pair of the same process. */
static void nor_is_it_behind_what_is_repeated(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    static uint8_t bytes[TRAIN * PAYLOAD];
    uint8_t header[HEADER] = {OPCODE(SERVICE_UC, FORM_WRITE_MIDDLE)};
    header[7] = 1; /* the destination's number */
    struct train train = {&path, header, HEADER, bytes, PAYLOAD, TRAIN - 10, 0};
    emit_train(udp, &path, 0, 10, PAYLOAD);
    assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), TRAIN - 10);
    assert_true(udp_flush(udp));
    assert_int_equal(udp_counters(udp)->packets_sent, TRAIN);
    assert_true(!segments(udp) || udp_counters(udp)->segmented_sends == 1);
    assert_int_equal(udp_counters(udp)->lent_runs, 0);
    udp_destroy(udp);
}

static void without_descriptors_all_is_copied(void **state)
{
    (void)state;
    struct udp *udp = create_lending();
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
    struct path path = path_to(&ipv4_loopback);
    struct udp *udp = create_with_pipe(&path);
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
    struct path path = path_to(&ipv4_loopback);
    struct udp *udp = create_with_pipe(&path);
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

/* By a train that fills a run; splice(2) is refused. */
static void send_refused(struct udp *udp, const struct path *path, uint32_t first, int null)
{
    uint8_t *place =
        lender_take(&udp->lender, path, (struct qpn){0}); /* so that the pipe is there */
    int kept = -1;
    if (place != NULL) {
        lender_give_back(&udp->lender, place);
        kept = dup(udp->lender.pipe[0]);
        assert_true(kept >= 0 && dup3(null, udp->lender.pipe[0], O_CLOEXEC) >= 0);
    }
    emit_train(udp, path, first, TRAIN, PAYLOAD);
    close(kept);
}

static void a_family_that_is_always_refused_is_not_tried_for_ever(void **state)
{
    (void)state;
    struct udp *udp = create_lending();
    struct path ipv4 = path_to(&ipv4_loopback), ipv6 = path_to(&ipv6_loopback);
    struct inbox inbox = {.receiver = {receive}};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(null >= 0);
    for (uint32_t i = 0; i < 5; i++) {
        send_refused(udp, &ipv4, i * TRAIN, null);
    }
    drain(udp, &inbox);
    if (!segments(udp)) {
        close(null);
        udp_destroy(udp);
        skip();
    }
    assert_non_null(lender_take(&udp->lender, &ipv4, (struct qpn){0}));
    for (uint32_t i = 0; i < 5; i++) {
        send_refused(udp, &ipv4, i * TRAIN, null);
    }
    assert_null(lender_take(&udp->lender, &ipv4, (struct qpn){0}));
    assert_non_null(lender_take(&udp->lender, &ipv6, (struct qpn){0}));
    assert_int_equal(inbox.count, 5 * TRAIN);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    close(null);
    udp_destroy(udp);
}

/* What one device holds back for long is not written again for what another takes at once. */
static void a_slow_way_keeps_its_bytes_while_others_are_quick(void **state)
{
    (void)state;
    static uint8_t bytes[TRAIN * PAYLOAD];
    struct inbox inbox = {.receiver = {receive}};
    struct gid here, there;
    struct udp *quick = create_at(81, &here), *slow = create_at(82, &there);
    struct path to_slow = {.local = here, .remote = there}, to_self = path_to(&here);
    quick->lender.trial = (struct trial){.round = 2 * TRIAL_ROUNDS, .second = true};
    emit_train(quick, &to_slow, 0, 2 * TRAIN, PAYLOAD);
    for (uint32_t i = 0; i < 1000; i++) {
        uint8_t header[HEADER] = {OPCODE(SERVICE_RC, FORM_WRITE_MIDDLE)};
        struct train train = {&to_self, header, HEADER, bytes, PAYLOAD, TRAIN, 0};
        assert_int_equal(udp_sink(quick)->emit_train(udp_sink(quick), &train), TRAIN);
        struct inbox ignored = {.receiver = {receive}};
        drain(quick, &ignored);
    }
    drain(slow, &inbox);
    assert_int_equal(inbox.count, 2 * TRAIN);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    udp_destroy(quick);
    udp_destroy(slow);
}

/* Both ways are tried, and each brings everything. */
static void what_is_tried_arrives(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    for (uint32_t i = 0; i < 2 * TRIAL_ROUNDS; i++) {
        assert_int_equal(udp->lender.trial.round, i);
        emit_train(udp, &path, 0, TRAIN, PAYLOAD);
        check_arrived(udp, TRAIN);
        if (!segments(udp)) {
            udp_destroy(udp);
            skip();
        }
    }
    assert_int_equal(udp_counters(udp)->lent_runs, TRIAL_ROUNDS);
    for (uint32_t way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < TRIAL_SAMPLES; i++) {
            assert_in_range(udp->lender.trial.costs[way][i], 1, UINT32_MAX);
        }
    }
    udp_destroy(udp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_runs_are_lent),
        cmocka_unit_test(bytes_come_again_late),
        cmocka_unit_test(who_has_more_under_way_lends_no_more),
        cmocka_unit_test(a_place_is_taken_once),
        cmocka_unit_test(who_has_lent_nothing_for_a_while_makes_room),
        cmocka_unit_test(what_is_not_repeated_is_not_lent),
        cmocka_unit_test(nor_is_it_behind_what_is_repeated),
        cmocka_unit_test(without_descriptors_all_is_copied),
        cmocka_unit_test(what_a_short_pipe_does_not_hold_is_copied),
        cmocka_unit_test(what_is_not_taken_is_copied),
        cmocka_unit_test(a_family_that_is_always_refused_is_not_tried_for_ever),
        cmocka_unit_test(a_slow_way_keeps_its_bytes_while_others_are_quick),
        cmocka_unit_test(what_is_tried_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
