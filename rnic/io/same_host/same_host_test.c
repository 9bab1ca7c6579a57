/* Who is reached through memory, who by the other link, and what becomes of packets for a process
 * that does not take them. The ends stand in this process: each has a slot of one registry. */
#include "rnic/io/same_host/same_host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/io/same_host/same_host_private.h"
#include "rnic/io/system/clock.h"
#include "rnic/wire/packet.h"

#define ENDS 3u

struct end {
    struct registry *registry;
    struct handoff *handoff;
    struct same_host *same_host;
    struct packet_sink otherwise;
    struct inbox_receiver receiver;
    uint32_t by_memory, by_other;
    uint8_t opcodes[8]; /* of the first by the other link */
    struct psn psn;     /* of the latest of these that is an acknowledgement */
};

struct fixture {
    char path[64];
    struct end ends[ENDS];
};

static const struct gid loopback = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

static bool emit_otherwise(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct end *end = CONTAINER_OF(sink, struct end, otherwise);
    struct packet packet;
    if (end->by_other < sizeof end->opcodes) {
        end->opcodes[end->by_other] = outgoing->header[0];
    }
    if (outgoing->header[0] == OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE)) {
        assert_int_equal(packet_parse(outgoing->header, outgoing->header_length, &packet),
                         REFUSED_NOT);
        end->psn = packet.psn;
    }
    end->by_other++;
    return true;
}

static void receive(struct inbox_receiver *receiver, const struct arrival *arrival,
                    const uint8_t *bytes, uint32_t length,
                    const struct payload_reference *reference)
{
    struct end *end = CONTAINER_OF(receiver, struct end, receiver);
    end->by_memory++;
}

static void open_bound(struct fixture *fixture, uint32_t index, bool off, const struct gid *bind)
{
    struct end *end = &fixture->ends[index];
    *end = (struct end){.otherwise = {.emit = emit_otherwise}, .receiver = {receive}};
    assert_int_equal(registry_open(fixture->path, &end->registry), STATUS_OK);
    assert_int_equal(handoff_create(end->registry, &end->handoff), STATUS_OK);
    struct same_host_config config = {
        .registry = end->registry,
        .handoff = end->handoff,
        .otherwise = &end->otherwise,
        .seed = index + 1,
        .bind = bind,
        .off = off,
    };
    assert_int_equal(same_host_create(&config, &end->same_host), STATUS_OK);
    same_host_live(end->same_host);
}

static void open_end(struct fixture *fixture, uint32_t index, bool off)
{
    open_bound(fixture, index, off, NULL);
}

static void close_end(struct end *end)
{
    same_host_destroy(end->same_host);
    handoff_destroy(end->handoff);
    registry_close(end->registry);
    end->same_host = NULL;
    end->handoff = NULL;
    end->registry = NULL;
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-same-host-test-%ld", (long)getpid());
    unlink(fixture->path);
    for (uint32_t i = 0; i < ENDS; i++) {
        open_end(fixture, i, i == 2);
    }
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < ENDS; i++) {
        close_end(&fixture->ends[i]);
    }
    unlink(fixture->path);
    free(fixture);
    return 0;
}

/* From end 0; false: refused. `shift` as reference_shift. */
static bool send_as(struct fixture *fixture, struct qpn to, const struct gid *address,
                    uint32_t length, uint8_t shift)
{
    static const uint8_t bytes[1 << 20];
    uint8_t header[BTH_LENGTH] = {
        4, 0, 0, 0, 0, (uint8_t)(to.value >> 16), (uint8_t)(to.value >> 8), (uint8_t)to.value};
    struct path path = {.local = loopback, .remote = *address, .source_port = 50000};
    struct fragment fragment = {bytes, length};
    struct outgoing outgoing = {.path = &path,
                                .header = header,
                                .header_length = sizeof header,
                                .fragments = &fragment,
                                .fragment_count = 1,
                                .payload_length = length,
                                .reference_shift = shift};
    struct packet_sink *sink = same_host_sink(fixture->ends[0].same_host);
    return sink->emit(sink, &outgoing);
}

static bool send_to(struct fixture *fixture, struct qpn to, const struct gid *address,
                    uint32_t length)
{
    return send_as(fixture, to, address, length, 0);
}

/* By the way for short packets, from end `from`. */
static bool send_short(struct fixture *fixture, uint32_t from, struct qpn to)
{
    static const uint8_t bytes[8];
    struct path path = {.local = loopback, .remote = loopback, .source_port = 50000};
    struct outgoing_short outgoing = {
        .path = &path, .bth = {4u << 24, to.value}, .payload = bytes, .length = sizeof bytes};
    struct packet_sink *sink = same_host_sink(fixture->ends[from].same_host);
    return sink->emit_short(sink, &outgoing);
}

static struct qpn number_of(struct fixture *fixture, uint32_t index)
{
    return (struct qpn){registry_first_qpn(fixture->ends[index].registry).value + 99};
}

/* Of a slot that no end holds: they begin at a random one. */
static struct qpn number_of_nobody(struct fixture *fixture)
{
    uint32_t slot = 0;
    while (registry_slot_is_used(fixture->ends[0].registry, slot)) {
        slot++;
    }
    return (struct qpn){slot * SLOT_QPNS + 99};
}

static struct same_host_counters count(struct fixture *fixture, uint32_t index)
{
    struct same_host_counters counters;
    same_host_count(fixture->ends[index].same_host, &counters);
    return counters;
}

static void receive_all(struct end *end)
{
    while (same_host_receive(end->same_host, &end->receiver, 100) > 0) {
    }
}

static void by_memory_only_where_there_is_an_inbox(void **state)
{
    struct fixture *fixture = *state;
    struct gid far = {{[10] = 0xff, [11] = 0xff, [12] = 198, [13] = 51, [14] = 100, [15] = 1}};
    assert_true(send_to(fixture, number_of(fixture, 0), &loopback, 8)); /* ourselves */
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_true(same_host_flush(fixture->ends[0].same_host));
    assert_int_equal(fixture->ends[0].by_other, 0);
    receive_all(&fixture->ends[0]);
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[0].by_memory, 1);
    assert_int_equal(fixture->ends[1].by_memory, 1);

    assert_true(send_to(fixture, number_of(fixture, 2), &loopback, 8)); /* it wants none */
    assert_true(send_to(fixture, number_of(fixture, 1), &far, 8));
    assert_true(send_to(fixture, number_of_nobody(fixture), &loopback, 8));
    assert_true(send_to(fixture, (struct qpn){1}, &loopback, 8));
    assert_true(send_to(fixture, QPN_MULTICAST, &loopback, 8));
    assert_int_equal(fixture->ends[0].by_other, 5);
    assert_int_equal(count(fixture, 0).bytes_sent, 16);
    assert_non_null(strstr(same_host_describe(fixture->ends[0].same_host),
                           "memory, long payloads read from where they lie"));
    assert_non_null(strstr(same_host_describe(fixture->ends[2].same_host), "UDP: "));
    assert_int_equal(count(fixture, 0).packets_sent, 2);
}

/* They would be reached by the other link as long as they live, or until addresses change. */
static void who_has_no_descriptor_left_reaches_who_comes(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit before, few = {.rlim_cur = 128};
    int taken[128], count_taken = 0, file;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((file = dup(STDIN_FILENO)) >= 0) {
        taken[count_taken++] = file;
    }
    assert_true(send_to(fixture, number_of(fixture, 0), &loopback, 8));
    same_host_addresses_changed(fixture->ends[0].same_host);
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_int_equal(dup(STDIN_FILENO), -1); /* ours is kept for the next who comes */
    while (count_taken > 0) {
        close(taken[--count_taken]);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(count(fixture, 0).peers, 2);
    assert_int_equal(count(fixture, 0).unreachable, 0);
    assert_int_equal(fixture->ends[0].by_other, 0);
}

/* What a program prints that closes one of these is not to go into an inbox, which it shares. */
static void what_is_kept_for_who_comes_is_no_standard_stream(void **state)
{
    struct fixture *fixture = *state;
    struct same_host *same_host = fixture->ends[0].same_host;
    int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(same_host->spare);
    same_host->spare = -1; /* as where there was none left for it at first */
    close(STDIN_FILENO);
    assert_true(send_to(fixture, number_of(fixture, 0), &loopback, 8));
    assert_true(same_host->spare > STDERR_FILENO);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    close(input);
}

/* ... so that its receiver copies while the next is put. */
static void what_stands_for_several_is_shown_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct qpn to = number_of(fixture, 1);
    assert_true(send_to(fixture, to, &loopback, 64));
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[1].by_memory, 0);
    assert_true(send_as(fixture, to, &loopback, 8192, 10));
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[1].by_memory, 2);
    (void)same_host_flush(fixture->ends[0].same_host);
}

/* As a loss: whoever comes after who has taken references may not take them yet. */
static void what_is_too_long_for_its_lane_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct qpn to = number_of(fixture, 1);
    struct path path = {.local = loopback, .remote = loopback};
    struct packet_sink *sink = same_host_sink(fixture->ends[0].same_host);
    uint32_t most = sink->reach(sink, &path, to); /* nobody there has looked yet */
    assert_in_range(most, 8192, REFERENCE_MAX - 1);
    assert_true(send_as(fixture, to, &loopback, most + 1024, 10));
    assert_int_equal(count(fixture, 0).withdrawn, 1);
    assert_int_equal(count(fixture, 0).packets_sent, 0);
    assert_true(send_as(fixture, to, &loopback, most, 10));
    assert_int_equal(count(fixture, 0).packets_sent, 1);
    (void)same_host_flush(fixture->ends[0].same_host);
    receive_all(&fixture->ends[1]);
    assert_int_equal(sink->reach(sink, &path, to), REFERENCE_MAX);
}

static void by_the_other_link_an_acknowledgement_goes_alone(void **state)
{
    struct fixture *fixture = *state;
    struct qpn to = number_of(fixture, 2);
    uint8_t header[BTH_LENGTH] = {
        4, 0, 0, 0, 0, (uint8_t)(to.value >> 16), (uint8_t)(to.value >> 8), (uint8_t)to.value};
    struct path path = {.local = loopback, .remote = loopback};
    struct outgoing outgoing = {.path = &path,
                                .header = header,
                                .header_length = sizeof header,
                                .acknowledges = true,
                                .acknowledged = psn_make(77)};
    struct packet_sink *sink = same_host_sink(fixture->ends[0].same_host);
    assert_true(sink->emit(sink, &outgoing));
    assert_int_equal(fixture->ends[0].by_other, 2);
    assert_int_equal(fixture->ends[0].opcodes[0], OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE));
    assert_int_equal(fixture->ends[0].opcodes[1], 4);
    assert_int_equal(fixture->ends[0].psn.value, 77);
}

/* At the host's other addresses there are processes of other registries, with numbers like ours. */
static void who_is_bound_is_not_at_other_addresses(void **state)
{
    struct fixture *fixture = *state;
    struct gid bind[] = {loopback, {{0}}}, other = {{[10] = 0xff, 0xff, 10, 1, 2, 3}};
    close_end(&fixture->ends[0]);
    open_bound(fixture, 0, false, bind);
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_int_equal(fixture->ends[0].by_other, 0);
    close_end(&fixture->ends[0]);
    bind[0] = other;
    open_bound(fixture, 0, false, bind);
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_int_equal(fixture->ends[0].by_other, 1);
}

static void many_peers_cost_no_questions_to_the_kernel(void **state)
{
    struct fixture *fixture = *state;
    struct gid far = {{[10] = 0xff, [11] = 0xff, [12] = 198, [13] = 51}};
    for (uint32_t i = 0; i < 3000; i++) {
        far.bytes[14] = (uint8_t)(i >> 8);
        far.bytes[15] = (uint8_t)i;
        assert_true(send_to(fixture, number_of(fixture, 1), &far, 8));
    }
    assert_int_equal(count(fixture, 0).address_reads, 1);
    same_host_addresses_changed(fixture->ends[0].same_host);
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_int_equal(count(fixture, 0).address_reads, 2);
    assert_int_equal(count(fixture, 0).packets_sent, 1);
}

/* As in another namespace of processes: the number is nobody's, or somebody else's. */
static void inbox_that_cannot_be_opened_is_counted(void **state)
{
    struct fixture *fixture = *state;
    struct registry_inbox lie = {registry_slot(fixture->ends[2].registry) + SLOT_COUNT, 0x7ffffff0,
                                 3};
    registry_publish_inbox(fixture->ends[2].registry, &lie);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(send_to(fixture, number_of(fixture, 2), &loopback, 8));
    }
    assert_int_equal(fixture->ends[0].by_other, 10);
    assert_int_equal(count(fixture, 0).unreachable, 1);
    assert_int_equal(count(fixture, 0).peers, 0);
}

static void who_takes_nothing_holds_up_nobody_else(void **state)
{
    struct fixture *fixture = *state;
    struct packet_sink *sink = same_host_sink(fixture->ends[0].same_host);
    uint32_t sent = 0;
    while (send_to(fixture, number_of(fixture, 1), &loopback, 4096)) {
        sent++;
    }
    assert_true(sent > 50);
    assert_true(sink->others_may_go);
    assert_false(same_host_flush(fixture->ends[0].same_host));
    assert_true(send_to(fixture, number_of(fixture, 0), &loopback, 8));
    assert_true(same_host_flush(fixture->ends[0].same_host));
    receive_all(&fixture->ends[0]);
    assert_int_equal(fixture->ends[0].by_memory, 1);

    struct instant start = clock_now();
    while (!send_to(fixture, number_of(fixture, 1), &loopback, 4096)) {
        usleep(10000);
    }
    assert_true(instant_elapsed_ns(start, clock_now()) < UINT64_C(20) * SAME_HOST_PATIENCE_NS);
    assert_int_equal(count(fixture, 0).dropped, 1); /* given up, not delivered */
    (void)same_host_flush(fixture->ends[0].same_host);
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[1].by_memory, sent);
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_true(same_host_flush(fixture->ends[0].same_host));
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[1].by_memory, sent + 1);
    assert_int_equal(count(fixture, 0).dropped, 1);
}

/* The first end; the second has made room since. */
static void sleep_before_a_full_lane(struct fixture *fixture)
{
    struct same_host *sender = fixture->ends[0].same_host;
    while (send_to(fixture, number_of(fixture, 1), &loopback, 4096)) {
    }
    (void)same_host_flush(sender);
    assert_true(same_host_fall_asleep(sender));
    receive_all(&fixture->ends[1]);
}

/* Asleep, with a lane that is full: its owner makes room, and sends a wake-up for that alone. */
static void who_sleeps_is_woken_for_room(void **state)
{
    struct fixture *fixture = *state;
    struct same_host *sender = fixture->ends[0].same_host, *owner = fixture->ends[1].same_host;
    sleep_before_a_full_lane(fixture);
    assert_int_equal(count(fixture, 1).wake_ups, 0);
    assert_true(same_host_flush(owner));
    assert_int_equal(count(fixture, 1).wake_ups, 1);

    same_host_wake_up(sender);
    while (send_to(fixture, number_of(fixture, 1), &loopback, 4096)) {
    }
    (void)same_host_flush(sender);
    receive_all(&fixture->ends[1]);
    assert_true(same_host_flush(owner));
    assert_int_equal(count(fixture, 1).wake_ups, 1); /* it does not sleep yet, */
    receive_all(&fixture->ends[0]);
    assert_false(same_host_fall_asleep(sender)); /* and must not: there is room */
    assert_true(same_host_fall_asleep(sender));
}

/* Else the next that finds it full would be given up at once. */
static void where_a_short_one_finds_room_nobody_has_waited(void **state)
{
    struct fixture *fixture = *state;
    struct same_host *sender = fixture->ends[0].same_host;
    while (send_to(fixture, number_of(fixture, 1), &loopback, 8)) {
    }
    assert_false(same_host_flush(sender));
    assert_false(send_short(fixture, 0, number_of(fixture, 1)));
    assert_int_equal(sender->full_count, 1);
    receive_all(&fixture->ends[1]);
    assert_true(send_short(fixture, 0, number_of(fixture, 1)));
    assert_int_equal(sender->full_count, 0);
    assert_int_equal(count(fixture, 0).dropped, 0);
}

/* Nothing else may leave for a while. */
static void a_short_one_leaves_nobody_behind_who_waits_for_room(void **state)
{
    struct fixture *fixture = *state;
    struct same_host *owner = fixture->ends[1].same_host;
    sleep_before_a_full_lane(fixture);
    assert_false(send_short(fixture, 1, number_of(fixture, 1)));
    assert_true(same_host_flush(owner)); /* as follows */
    assert_int_equal(count(fixture, 1).wake_ups, 1);
    assert_true(send_short(fixture, 1, number_of(fixture, 1)));
    receive_all(&fixture->ends[1]);
    assert_int_equal(count(fixture, 1).packets_sent, 1);
}

static void a_short_one_wakes_who_sleeps(void **state)
{
    struct fixture *fixture = *state;
    struct qpn to = number_of(fixture, 1);
    assert_true(same_host_fall_asleep(fixture->ends[1].same_host));
    assert_true(send_short(fixture, 0, to));
    assert_int_equal(count(fixture, 0).wake_ups, 1);
    assert_false(same_host_is_asleep(fixture->ends[1].same_host));
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[1].by_memory, 1);
    assert_false(send_short(fixture, 0, number_of(fixture, 2))); /* by the other link */
    assert_false(send_short(fixture, 0, number_of_nobody(fixture)));
    close_end(&fixture->ends[1]);
    assert_false(send_short(fixture, 0, to));
    assert_int_equal(fixture->ends[0].by_other, 0);
    open_end(fixture, 1, false);
    assert_true(send_short(fixture, 0, number_of(fixture, 1)));
}

/* There is no bell where memory is not touched, and no socket for a while. */
static void who_could_not_be_woken_is_tried_again(void **state)
{
    struct fixture *fixture = *state;
    struct end *owner = &fixture->ends[1];
    struct qpn to = number_of(fixture, 1);
    close_end(&fixture->ends[0]);
    assert_int_equal(setenv("WEIR_DIRECT", "0", 1), 0);
    open_end(fixture, 0, false);
    unsetenv("WEIR_DIRECT");
    handoff_destroy(owner->handoff);
    assert_true(same_host_fall_asleep(owner->same_host));
    assert_true(send_to(fixture, to, &loopback, 8));
    (void)same_host_flush(fixture->ends[0].same_host);
    assert_true(same_host_is_asleep(owner->same_host));
    assert_int_equal(handoff_create(owner->registry, &owner->handoff), STATUS_OK);
    assert_true(send_to(fixture, to, &loopback, 8));
    (void)same_host_flush(fixture->ends[0].same_host);
    assert_false(same_host_is_asleep(owner->same_host));
    assert_int_equal(count(fixture, 0).wake_ups, 2);
}

static void who_has_ended_is_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct qpn to = number_of(fixture, 1);
    assert_true(send_to(fixture, to, &loopback, 8));
    close_end(&fixture->ends[1]);
    assert_true(send_to(fixture, to, &loopback, 8));
    assert_int_equal(fixture->ends[0].by_other, 1); /* whose business it is that nobody is there */
    struct path here = {.local = loopback, .remote = loopback}, there = here;
    there.remote.bytes[12] = 198;
    assert_false(same_host_is_of_dead(fixture->ends[0].same_host, &here, to));
    assert_true(same_host_tidy(fixture->ends[0].same_host));
    assert_true(same_host_is_of_dead(fixture->ends[0].same_host, &here, to));
    assert_false(same_host_is_of_dead(fixture->ends[0].same_host, &there, to));
    assert_false(same_host_is_of_dead(fixture->ends[0].same_host, &here, number_of(fixture, 0)));
    assert_false(same_host_tidy(fixture->ends[0].same_host));
    assert_false(same_host_is_of_dead(fixture->ends[0].same_host, &here, to));
    assert_int_equal(count(fixture, 0).peers, 0);
    open_end(fixture, 1, false);
    assert_true(send_to(fixture, number_of(fixture, 1), &loopback, 8));
    assert_true(same_host_flush(fixture->ends[0].same_host));
    receive_all(&fixture->ends[1]);
    assert_int_equal(fixture->ends[1].by_memory, 1);
    assert_int_equal(count(fixture, 0).peers, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(by_memory_only_where_there_is_an_inbox),
        TEST(who_has_no_descriptor_left_reaches_who_comes),
        TEST(what_is_kept_for_who_comes_is_no_standard_stream),
        TEST(what_stands_for_several_is_shown_at_once),
        TEST(what_is_too_long_for_its_lane_is_lost),
        TEST(by_the_other_link_an_acknowledgement_goes_alone),
        TEST(who_is_bound_is_not_at_other_addresses),
        TEST(many_peers_cost_no_questions_to_the_kernel),
        TEST(inbox_that_cannot_be_opened_is_counted),
        TEST(who_takes_nothing_holds_up_nobody_else),
        TEST(who_sleeps_is_woken_for_room),
        TEST(where_a_short_one_finds_room_nobody_has_waited),
        TEST(a_short_one_leaves_nobody_behind_who_waits_for_room),
        TEST(a_short_one_wakes_who_sleeps),
        TEST(who_could_not_be_woken_is_tried_again),
        TEST(who_has_ended_is_nobody),
    };
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
