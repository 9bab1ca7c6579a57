/* What processes hand to each other. Both ends stand in this process: each has a slot of one
 * registry, in a temporary file. */
#include "rnic/io/registry/handoff.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/clock.h"

#define ENDS 3u

struct end {
    struct handoff_relay_receiver receiver;
    struct registry *registry;
    struct handoff *handoff;
    uint32_t heard, from;
    uint64_t latest; /* life: the tests number messages by it */
    uint8_t bytes[64];
    uint32_t length;
};

struct fixture {
    char path[64];
    struct end ends[ENDS];
    struct udp_receiver packets;
    uint32_t packet_count;
    struct complaint complaint; /* the last heard */
    uint32_t complaint_count;
    bool has_room;
};

static void hear(struct handoff_relay_receiver *receiver, uint32_t from,
                 const struct relay_message *message, const uint8_t *bytes, uint32_t length)
{
    struct end *end = (struct end *)receiver;
    assert_true(end->heard == 0 || message->life > end->latest); /* in order */
    end->heard++;
    end->from = from;
    end->latest = message->life;
    end->length = length;
    memcpy(end->bytes, bytes, length < sizeof end->bytes ? length : sizeof end->bytes);
}

static void count_packets(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    (void)datagrams;
    struct fixture *fixture =
        (struct fixture *)((uint8_t *)receiver - offsetof(struct fixture, packets));
    fixture->packet_count++;
}

static void note_complaint(struct udp_receiver *receiver, const struct complaint *complaint)
{
    struct fixture *fixture =
        (struct fixture *)((uint8_t *)receiver - offsetof(struct fixture, packets));
    fixture->complaint = *complaint;
    fixture->complaint_count++;
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-handoff-test-%ld", (long)getpid());
    unlink(fixture->path);
    fixture->packets.receive = count_packets;
    fixture->packets.hear = note_complaint;
    for (uint32_t i = 0; i < ENDS; i++) {
        struct end *end = &fixture->ends[i];
        assert_int_equal(registry_open(fixture->path, &end->registry), STATUS_OK);
        assert_int_equal(handoff_create(end->registry, &end->handoff), STATUS_OK);
        end->receiver.receive = hear;
        handoff_set_relay_receiver(end->handoff, &end->receiver);
    }
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < ENDS; i++) {
        handoff_destroy(fixture->ends[i].handoff);
        registry_close(fixture->ends[i].registry);
    }
    unlink(fixture->path);
    free(fixture);
    return 0;
}

static enum status tell(struct fixture *fixture, uint32_t to, uint64_t number)
{
    static const uint8_t bytes[4096] = "payload";
    struct relay_message message = {.kind = RELAY_REQUEST, .life = number};
    return handoff_send_relayed(fixture->ends[0].handoff, clock_now(),
                                registry_slot(fixture->ends[to].registry), &message, bytes,
                                sizeof bytes);
}

static void listen_to_all(struct fixture *fixture, uint32_t index)
{
    while (handoff_receive(fixture->ends[index].handoff, &fixture->packets) > 0) {
    }
}

static void test_message_arrives_whole(void **state)
{
    struct fixture *fixture = *state;
    struct end *end = &fixture->ends[1];
    assert_int_equal(tell(fixture, 1, 1), STATUS_OK);
    listen_to_all(fixture, 1);
    assert_int_equal(end->heard, 0); /* with the flush, behind the packets */
    assert_true(handoff_flush(fixture->ends[0].handoff, clock_now()));
    listen_to_all(fixture, 1);
    assert_int_equal(end->heard, 1);
    assert_int_equal(end->from, registry_slot(fixture->ends[0].registry));
    assert_int_equal(end->length, 4096);
    assert_string_equal((char *)end->bytes, "payload");
    assert_int_equal(fixture->packet_count, 0);
}

/* The kernel lets few wait. */
static void test_full_receiver_keeps_nobody_else_waiting(void **state)
{
    struct fixture *fixture = *state;
    struct handoff *handoff = fixture->ends[0].handoff;
    uint64_t number = 0;
    struct instant now = clock_now();
    do {
        assert_int_equal(tell(fixture, 1, ++number), STATUS_OK);
    } while (number < 500 && handoff_flush(handoff, now));
    assert_true(number < 500);
    assert_int_equal(tell(fixture, 2, 1), STATUS_OK);
    assert_false(handoff_flush(handoff, now));
    listen_to_all(fixture, 2);
    assert_int_equal(fixture->ends[2].heard, 1);
    listen_to_all(fixture, 1);
    assert_true(handoff_flush(handoff, now));
    listen_to_all(fixture, 1);
    assert_int_equal(fixture->ends[1].heard, number);
    assert_int_equal(handoff_counters(handoff)->dropped, 0);
}

static void test_what_waits_too_long_is_dropped(void **state)
{
    struct fixture *fixture = *state;
    struct handoff *handoff = fixture->ends[0].handoff;
    uint64_t number = 0;
    struct instant now = clock_now();
    do {
        assert_int_equal(tell(fixture, 1, ++number), STATUS_OK);
    } while (handoff_flush(handoff, now));
    assert_true(handoff_flush(handoff, instant_after(clock_now(), UINT64_C(1000000000))));
    assert_int_equal(handoff_counters(handoff)->dropped, 1);
}

static void test_dead_receiver_is_told_of(void **state)
{
    struct fixture *fixture = *state;
    handoff_destroy(
        fixture->ends[1].handoff); /* its slot is held still, as if nobody had noticed */
    fixture->ends[1].handoff = NULL;
    assert_int_equal(tell(fixture, 1, 1), STATUS_OK);
    assert_true(handoff_flush(fixture->ends[0].handoff, clock_now()));
    assert_int_equal(tell(fixture, 1, 2), STATUS_CLOSED);
    assert_int_equal(tell(fixture, 2, 1), STATUS_OK);
}

static enum status pass_on(struct fixture *fixture, uint32_t to)
{
    static const uint8_t bytes[60000];
    struct udp_datagrams datagrams = {.bytes = bytes, .length = sizeof bytes, .segment = 4096};
    return handoff_send(fixture->ends[0].handoff, clock_now(),
                        registry_slot(fixture->ends[to].registry), &datagrams);
}

/* Neither by what waits here, nor by what lies in the kernel. */
static void test_stopped_receiver_delays_nobody(void **state)
{
    struct fixture *fixture = *state;
    const struct handoff_counters *counters = handoff_counters(fixture->ends[0].handoff);
    while (counters->delayed < 3) {
        assert_int_equal(pass_on(fixture, 1), STATUS_OK);
    }
    assert_true(handoff_wake(fixture->ends[0].handoff, registry_slot(fixture->ends[2].registry)));
    listen_to_all(fixture, 2);
    assert_int_equal(handoff_counters(fixture->ends[2].handoff)->wake_ups, 1);
    uint64_t sent = counters->packets_sent;
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(pass_on(fixture, 2), STATUS_OK);
    }
    assert_int_equal(counters->packets_sent, sent + 5);
    assert_int_equal(counters->delayed, 3);
    listen_to_all(fixture, 2);
    assert_int_equal(fixture->packet_count, 5);
    struct instant later = instant_after(clock_now(), UINT64_C(1000000000));
    assert_true(handoff_flush(fixture->ends[0].handoff, later));
    assert_int_equal(counters->dropped, 3);
    assert_int_equal(counters->packets_dropped, 3 * 15);
}

/* Who has kept one message waiting in vain gets what there is room for at once, until it reads. */
static void test_stopped_receiver_costs_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct handoff *handoff = fixture->ends[0].handoff;
    uint64_t number = 0;
    struct instant now = clock_now();
    do {
        assert_int_equal(tell(fixture, 1, ++number), STATUS_OK);
    } while (handoff_flush(handoff, now));
    assert_true(handoff_flush(handoff, instant_after(clock_now(), UINT64_C(1000000000))));
    assert_int_equal(tell(fixture, 1, ++number), STATUS_OK);
    assert_true(handoff_flush(handoff, now));
    assert_int_equal(handoff_counters(handoff)->dropped, 2);
    listen_to_all(fixture, 1);
    assert_int_equal(fixture->ends[1].heard, number - 2);
    assert_int_equal(tell(fixture, 1, ++number), STATUS_OK);
    assert_true(handoff_flush(handoff, now));
    listen_to_all(fixture, 1);
    assert_int_equal(fixture->ends[1].heard, number - 2);
    assert_int_equal(fixture->ends[1].latest, number);
}

/* Of another user, too: names are to be seen in /proc/net/unix. */
static void test_former_name_is_nobodys(void **state)
{
    struct fixture *fixture = *state;
    struct end *end = &fixture->ends[1];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof name;
    uint8_t bytes[16];
    assert_int_equal(
        getsockname(handoff_descriptor(end->handoff), (struct sockaddr *)&name, &length), 0);
    handoff_destroy(end->handoff);
    int squatter = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(squatter, (struct sockaddr *)&name, length), 0);
    assert_int_equal(pass_on(fixture, 1), STATUS_CLOSED); /* its holder is about to end */
    assert_int_equal(handoff_create(end->registry, &end->handoff), STATUS_OK);
    handoff_set_relay_receiver(end->handoff, &end->receiver);
    assert_int_equal(tell(fixture, 1, 1), STATUS_OK);
    assert_true(handoff_flush(fixture->ends[0].handoff, clock_now()));
    assert_true(recv(squatter, bytes, sizeof bytes, MSG_DONTWAIT) < 0);
    listen_to_all(fixture, 1);
    assert_int_equal(end->heard, 1);
    close(squatter);
}

/* Who dies just when something is sent to him still seemed to live a moment ago. */
static void test_squatter_gets_nothing_of_who_was_met(void **state)
{
    struct fixture *fixture = *state;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof name;
    uint8_t got[16];
    int descriptor = handoff_descriptor(fixture->ends[1].handoff);
    assert_int_equal(pass_on(fixture, 1), STATUS_OK);
    assert_int_equal(pass_on(fixture, 2), STATUS_OK);
    assert_int_equal(pass_on(fixture, 1), STATUS_OK);
    listen_to_all(fixture, 1);
    assert_int_equal(fixture->packet_count, 2);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&name, &length), 0);
    int squatter = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(nothing, descriptor), descriptor); /* closed */
    assert_int_equal(bind(squatter, (struct sockaddr *)&name, length), 0);
    assert_int_equal(pass_on(fixture, 1), STATUS_CLOSED);
    assert_true(recv(squatter, got, sizeof got, 0) < 0);
    assert_int_equal(pass_on(fixture, 2), STATUS_OK);
    close(squatter);
    close(nothing);
}

/* To end 1, from a socket of nobody's. */
static ssize_t send_strangely(struct fixture *fixture, const uint8_t *bytes, size_t length)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t name_length = sizeof name;
    int stranger = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(getsockname(handoff_descriptor(fixture->ends[1].handoff),
                                 (struct sockaddr *)&name, &name_length),
                     0);
    ssize_t sent = sendto(stranger, bytes, length, 0, (struct sockaddr *)&name, name_length);
    close(stranger);
    return sent;
}

/* By who knows the token. */
static void test_malformed_is_refused(void **state)
{
    struct fixture *fixture = *state;
    const struct registry *registry = fixture->ends[1].registry;
    uint64_t token = registry->file->slots[registry->slot].handoff_token;
    uint8_t bytes[1024];
    for (uint32_t length = sizeof token + 1; length < sizeof bytes; length += 13) {
        memset(bytes, (int)length, sizeof bytes);
        memcpy(bytes, &token, sizeof token);
        assert_int_equal(send_strangely(fixture, bytes, length), length);
        listen_to_all(fixture, 1);
        assert_int_equal(handoff_receive(fixture->ends[1].handoff, &fixture->packets), 0);
    }
    assert_int_equal(fixture->ends[1].heard, 0);
    assert_int_equal(fixture->packet_count, 0);
    assert_int_equal(fixture->complaint_count, 0);
    assert_true(handoff_counters(fixture->ends[1].handoff)->refused > 70);
}

/* They may be another user's, who has found the name in /proc/net/unix. */
static void test_strangers_take_no_room(void **state)
{
    struct fixture *fixture = *state;
    struct end *end = &fixture->ends[1];
    uint64_t token = end->registry->file->slots[end->registry->slot].handoff_token;
    uint8_t bytes[512] = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t nearly = token ^ UINT64_C(1) << i % 64;
        memcpy(bytes, &nearly, sizeof nearly);
        (void)send_strangely(fixture, bytes, i % sizeof bytes);
    }
    assert_int_equal(tell(fixture, 1, 1), STATUS_OK);
    assert_true(handoff_flush(fixture->ends[0].handoff, clock_now()));
    listen_to_all(fixture, 1);
    assert_int_equal(end->heard, 1);
    assert_int_equal(handoff_counters(end->handoff)->wake_ups, 0);
    assert_int_equal(handoff_counters(end->handoff)->refused, 0);
}

/* It is of the user whose program it is, as its registry is; and is it still when it has given that
 * up, which many servers do once they have opened their device. */
static void test_set_user_id_program_is_heard(void **state)
{
    struct fixture *fixture = *state;
    if (geteuid() != 0 || setresuid(65534, 0, 0) != 0) {
        skip();
    }
    assert_int_equal(tell(fixture, 1, 1), STATUS_OK);
    assert_true(handoff_flush(fixture->ends[0].handoff, clock_now()));
    listen_to_all(fixture, 1);
    assert_int_equal(seteuid(65534), 0);
    assert_int_equal(tell(fixture, 1, 2), STATUS_OK);
    assert_true(handoff_flush(fixture->ends[0].handoff, clock_now()));
    assert_int_equal(setresuid(0, 0, 0), 0);
    listen_to_all(fixture, 1);
    assert_int_equal(fixture->ends[1].heard, 2);
}

/* By a process of ours that has gone mad: more is looked at than the first packet. */
static void test_packets_longer_than_any_are_refused(void **state)
{
    static const uint8_t bytes[64];
    static const uint32_t segments[] = {65537, 0x80000000, UINT32_MAX};
    struct fixture *fixture = *state;
    struct udp_datagrams datagrams = {.bytes = bytes, .length = sizeof bytes};
    for (size_t i = 0; i < sizeof segments / sizeof segments[0]; i++) {
        datagrams.segment = segments[i];
        assert_int_equal(handoff_send(fixture->ends[0].handoff, clock_now(),
                                      registry_slot(fixture->ends[1].registry), &datagrams),
                         STATUS_OK);
        (void)handoff_receive(fixture->ends[1].handoff, &fixture->packets);
    }
    assert_int_equal(fixture->packet_count, 0);
    assert_int_equal(handoff_counters(fixture->ends[1].handoff)->refused, 3);
}

/* Whatever its sender thinks of it. */
static void test_complaint_arrives_as_hearsay(void **state)
{
    struct fixture *fixture = *state;
    struct complaint complaint = {.trouble = {.certain = true, .mtu = 1500, .psn = {99}}};
    handoff_send_complaint(fixture->ends[0].handoff, registry_slot(fixture->ends[1].registry),
                           &complaint);
    listen_to_all(fixture, 2);
    assert_int_equal(fixture->complaint_count, 0);
    listen_to_all(fixture, 1);
    assert_int_equal(fixture->complaint_count, 1);
    assert_int_equal(fixture->complaint.trouble.mtu, 1500);
    assert_int_equal(fixture->complaint.trouble.psn.value, 99);
    assert_false(fixture->complaint.trouble.certain);
    assert_true(fixture->complaint.handed_on);
    fixture->packets.hear = NULL;
    handoff_send_complaint(fixture->ends[0].handoff, registry_slot(fixture->ends[1].registry),
                           &complaint);
    listen_to_all(fixture, 1);
    assert_int_equal(handoff_counters(fixture->ends[1].handoff)->refused, 1);
}

/* Nothing is kept for who does not read. */
static void test_complaints_wait_for_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct handoff *handoff = fixture->ends[0].handoff;
    struct complaint complaint = {.length = 0};
    for (uint32_t i = 0; i < 500; i++) {
        handoff_send_complaint(handoff, registry_slot(fixture->ends[1].registry), &complaint);
    }
    assert_true(handoff_flush(handoff, clock_now()));
    listen_to_all(fixture, 1);
    assert_in_range(fixture->complaint_count, 1, 499);
    assert_int_equal(fixture->complaint_count + handoff_counters(handoff)->dropped, 500);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* By a process that comes to its slot, and is killed. */
static void die_with_name(const struct fixture *fixture, uint32_t *ret_slot,
                          struct sockaddr_un *ret_name, socklen_t *length)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct registry *registry;
        struct handoff *handoff;
        if (registry_open(fixture->path, &registry) != STATUS_OK ||
            handoff_create(registry, &handoff) != STATUS_OK) {
            _exit(1);
        }
        uint32_t slot = registry_slot(registry);
        (void)getsockname(handoff_descriptor(handoff), (struct sockaddr *)ret_name, length);
        ssize_t written = write(pipes[1], &slot, sizeof slot);
        written += write(pipes[1], ret_name, sizeof *ret_name);
        written += write(pipes[1], length, sizeof *length);
        raise(written > 0 ? SIGKILL : SIGABRT);
    }
    assert_int_equal(read(pipes[0], ret_slot, sizeof *ret_slot), sizeof *ret_slot);
    assert_int_equal(read(pipes[0], ret_name, sizeof *ret_name), sizeof *ret_name);
    assert_int_equal(read(pipes[0], length, sizeof *length), sizeof *length);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(pipes[0]);
    close(pipes[1]);
}

/* Who takes it before the dead one is buried gets nothing, neither at once nor of what waits. */
static void test_name_of_the_dead_is_not_written_to(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t bytes[4096];
    struct udp_datagrams datagrams = {.bytes = bytes, .length = sizeof bytes, .segment = 4096};
    struct relay_message message = {.kind = RELAY_REQUEST, .life = 1};
    struct complaint complaint = {.handed_on = false};
    struct handoff *handoff = fixture->ends[0].handoff;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof name;
    uint32_t slot;
    uint8_t got[16];
    die_with_name(fixture, &slot, &name, &length);
    int squatter = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(squatter, (struct sockaddr *)&name, length), 0);
    assert_int_equal(handoff_send(handoff, clock_now(), slot, &datagrams), STATUS_CLOSED);
    handoff_send_complaint(handoff, slot, &complaint);
    assert_int_equal(handoff_send_relayed(handoff, clock_now(), slot, &message, bytes, 64),
                     STATUS_OK);
    assert_true(handoff_flush(handoff, clock_now()));
    assert_true(recv(squatter, got, sizeof got, MSG_DONTWAIT) < 0);
    close(squatter);
}

/* In a namespace of its own, where a socket holds many. */
static int setup_with_room(void **state)
{
    bool has_room = false;
    if (unshare(CLONE_NEWNET) == 0) {
        int file = open("/proc/sys/net/unix/max_dgram_qlen", O_WRONLY | O_CLOEXEC);
        has_room = file >= 0 && write(file, "200", 3) == 3;
        close(file);
    }
    int result = setup(state);
    ((struct fixture *)*state)->has_room = has_room;
    return result;
}

/* Else whoever sleeps on the socket wakes up for each batch again. */
static void test_wakes_are_taken_all_at_once(void **state)
{
    struct fixture *fixture = *state;
    if (!fixture->has_room) {
        skip();
    }
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(
            handoff_wake(fixture->ends[0].handoff, registry_slot(fixture->ends[1].registry)));
    }
    assert_int_equal(handoff_receive(fixture->ends[1].handoff, &fixture->packets), 0);
    assert_int_equal(handoff_counters(fixture->ends[1].handoff)->wake_ups, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_message_arrives_whole),
        TEST(test_full_receiver_keeps_nobody_else_waiting),
        TEST(test_what_waits_too_long_is_dropped),
        TEST(test_dead_receiver_is_told_of),
        TEST(test_stopped_receiver_delays_nobody),
        TEST(test_stopped_receiver_costs_nothing),
        TEST(test_former_name_is_nobodys),
        TEST(test_name_of_the_dead_is_not_written_to),
        TEST(test_squatter_gets_nothing_of_who_was_met),
        TEST(test_malformed_is_refused),
        TEST(test_strangers_take_no_room),
        TEST(test_set_user_id_program_is_heard),
        TEST(test_packets_longer_than_any_are_refused),
        TEST(test_complaint_arrives_as_hearsay),
        TEST(test_complaints_wait_for_nobody),
        cmocka_unit_test_setup_teardown(test_wakes_are_taken_all_at_once, setup_with_room,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
