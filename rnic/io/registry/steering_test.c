/* Three processes behind one port: each packet reaches the owner of its QPN, by the kernel's choice
 * or by hand-on, whoever is killed.
 *
 * The processes are forked children with a small link of their own; the test sends to them and they
 * report what they got by pipe. The packets are as short as steering needs. */
#include "rnic/io/registry/steering.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/registry/handoff.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/udp/address.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"

#define PROCESSES   4u
#define PATIENCE_MS 20000

static const struct gid loopback = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};

/* What a process says about one packet. */
struct report {
    uint32_t slot;
    uint32_t number;
    bool handed_on;
};

struct process {
    pid_t pid;
    uint32_t slot;
};

struct fixture {
    char path[64];
    uint16_t port;
    int reports[2];
    struct process processes[PROCESSES];
    uint32_t direct, handed_on; /* packets seen */
};

/* A process's end of the line: what ingress does, without device and cm. */
struct member {
    struct udp_receiver receiver;
    struct registry *registry;
    struct steering steering;
    struct handoff *handoff;
    int reports;
};

static uint32_t owner_of(const uint8_t *bytes)
{
    struct qpn qpn = {(uint32_t)bytes[5] << 16 | (uint32_t)bytes[6] << 8 | bytes[7]};
    if (!qpn_equal(qpn, QPN_MANAGEMENT)) {
        return slot_of_qpn(qpn);
    }
    const uint8_t *id = bytes + BTH_LENGTH + 8 + 28;
    return slot_of_communication_id((uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 |
                                    (uint32_t)id[2] << 8 | id[3]);
}

static void member_receive(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    struct member *member = (struct member *)receiver;
    uint32_t owner = owner_of(datagrams->bytes);
    if (owner != registry_slot(member->registry)) {
        enum status status = handoff_send(member->handoff, clock_now(), owner, datagrams);
        (void)status;
        steering_correct(&member->steering, datagrams->family, owner);
        return;
    }
    struct report report = {.slot = owner, .handed_on = datagrams->handed_on};
    memcpy(&report.number, datagrams->bytes + 8, sizeof report.number);
    if (write(member->reports, &report, sizeof report) != (ssize_t)sizeof report) {
        _exit(1);
    }
}

static void run_member(const struct fixture *fixture)
{
    struct member member = {.receiver = {member_receive}, .reports = fixture->reports[1]};
    struct udp_config config = {.port = fixture->port};
    const char *message;
    if (registry_open(fixture->path, &member.registry) != STATUS_OK ||
        steering_open(&member.steering, member.registry, &config, &message) != STATUS_OK ||
        handoff_create(member.registry, &member.handoff) != STATUS_OK) {
        _exit(1);
    }
    struct report hello = {.slot = registry_slot(member.registry), .number = UINT32_MAX};
    struct pollfd watched[] = {
        {.fd = udp_descriptor(member.steering.udp, UDP_IPV4), .events = POLLIN},
        {.fd = handoff_descriptor(member.handoff), .events = POLLIN},
    };
    ssize_t written = write(fixture->reports[1], &hello, sizeof hello);
    while (written == (ssize_t)sizeof hello && poll(watched, 2, -1) > 0) {
        udp_receive(member.steering.udp, UDP_IPV4, &member.receiver);
        handoff_receive(member.handoff, &member.receiver);
    }
    _exit(1);
}

static bool read_report(struct fixture *fixture, int patience_ms, struct report *ret_report)
{
    struct pollfd ready = {.fd = fixture->reports[0], .events = POLLIN};
    return poll(&ready, 1, patience_ms) == 1 &&
           read(fixture->reports[0], ret_report, sizeof *ret_report) == (ssize_t)sizeof *ret_report;
}

static void start(struct fixture *fixture, uint32_t index)
{
    struct report hello;
    pid_t child = fork();
    if (child == 0) {
        run_member(fixture);
    }
    assert_true(read_report(fixture, PATIENCE_MS, &hello));
    assert_int_equal(hello.number, UINT32_MAX);
    fixture->processes[index] = (struct process){child, hello.slot};
}

static void end(struct fixture *fixture, uint32_t index)
{
    struct process *process = &fixture->processes[index];
    if (process->pid != 0) {
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
        process->pid = 0;
    }
}

static int setup(void **state)
{
    static uint32_t count;
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-steering-test-%ld", (long)getpid());
    unlink(fixture->path);
    fixture->port = (uint16_t)(11000 + getpid() % 1000 + 1000 * count++);
    *state = fixture;
    return pipe(fixture->reports);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        end(fixture, i);
    }
    close(fixture->reports[0]);
    close(fixture->reports[1]);
    unlink(fixture->path);
    free(fixture);
    return 0;
}

/* A packet for a queue pair of that slot, or a MAD that names a communication id of it. From one
 * and the same source port, as RNICs of one host would send. */
static void send_packet(struct fixture *fixture, int sender, uint32_t slot, uint32_t number,
                        bool management)
{
    uint8_t bytes[BTH_LENGTH + 8 + MAD_LENGTH + ICRC_LENGTH] = {0x04};
    uint32_t qpn = management ? 1 : slot * SLOT_QPNS + 77;
    size_t length = management ? sizeof bytes : BTH_LENGTH + ICRC_LENGTH;
    bytes[5] = (uint8_t)(qpn >> 16);
    bytes[6] = (uint8_t)(qpn >> 8);
    bytes[7] = (uint8_t)qpn;
    memcpy(bytes + 8, &number, sizeof number);
    if (management) {
        bytes[BTH_LENGTH + 8 + 17] = CM_MESSAGE_RTU;
        bytes[BTH_LENGTH + 8 + 28] = (uint8_t)(slot >> 2);
        bytes[BTH_LENGTH + 8 + 29] = (uint8_t)(slot << 6 | 5);
    }
    struct sockaddr_storage name;
    socklen_t name_length = address_to_socket(&loopback, fixture->port, 0, &name);
    assert_int_equal(sendto(sender, bytes, length, 0, (struct sockaddr *)&name, name_length),
                     length);
}

/* Sends to each living process in turn and waits for every report, so that no queue is ever full.
 * Returns how many packets had to be handed on. */
static uint32_t exchange(struct fixture *fixture, uint32_t rounds)
{
    int sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t handed_on = 0;
    assert_true(sender >= 0);
    for (uint32_t number = 0; number < rounds; number++) {
        for (uint32_t i = 0; i < PROCESSES; i++) {
            struct report report;
            if (fixture->processes[i].pid == 0) {
                continue;
            }
            send_packet(fixture, sender, fixture->processes[i].slot, number, number % 3 == 2);
            assert_true(read_report(fixture, PATIENCE_MS, &report));
            assert_int_equal(report.slot, fixture->processes[i].slot);
            assert_int_equal(report.number, number);
            handed_on += report.handed_on;
        }
    }
    close(sender);
    return handed_on;
}

/* Until steering has settled: it waits some milliseconds before it believes the evidence. Where the
 * record names no socket the kernel picks by source port, and may be right by luck: so it has to be
 * right for many ports. */
static void exchange_until_settled(struct fixture *fixture)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < 100000 && right < 20; i++) {
        right = exchange(fixture, 1) == 0 ? right + 1 : 0;
    }
    assert_int_equal(right, 20);
}

static void kernel_steers_to_the_owner(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < 3; i++) {
        start(fixture, i);
        assert_int_equal(exchange(fixture, 30), 0);
    }
}

static void survivors_get_theirs_after_a_death(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < 3; i++) {
        start(fixture, i);
    }
    end(fixture, 0);
    exchange_until_settled(fixture);
    assert_int_equal(exchange(fixture, 30), 0);
    start(fixture, 3);
    assert_int_equal(exchange(fixture, 30), 0);
}

static void order_is_learned_after_several_deaths(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t victims = 0; victims < 3; victims++) {
        for (uint32_t i = 0; i < PROCESSES; i++) {
            start(fixture, i);
        }
        end(fixture, (victims + 1) % PROCESSES);
        end(fixture, victims);
        exchange_until_settled(fixture);
        assert_int_equal(exchange(fixture, 30), 0);
        for (uint32_t i = 0; i < PROCESSES; i++) {
            end(fixture, i);
        }
    }
}

/* Whoever takes the registry's lock may be the one who finds a death, and nobody looks again. */
static void who_finds_a_death_by_the_way_tells_the_kernel(void **state)
{
    struct fixture *fixture = *state;
    struct steering steering;
    struct registry *registry;
    struct udp_config config = {.port = fixture->port};
    const char *message;
    start(fixture, 0);
    start(fixture, 1);
    assert_int_equal(registry_open(fixture->path, &registry), STATUS_OK);
    assert_int_equal(steering_open(&steering, registry, &config, &message), STATUS_OK);
    start(fixture, 2);
    end(fixture, 0); /* in whose place the last is now */
    assert_int_equal(registry_process_count(registry), 3);
    assert_int_equal(exchange(fixture, 30), 0);
    steering_close(&steering, NULL);
    registry_close(registry);
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* Processes that share the port and not the registry, as with another /dev/shm: said, in time. One
 * that dies is no stranger. */
static void strangers_are_noticed(void **state)
{
    struct fixture *fixture = *state, other = *fixture;
    struct steering steering;
    struct registry *registry;
    struct udp_config config = {.port = fixture->port};
    const char *message;
    snprintf(other.path, sizeof other.path, "%.50s-other", fixture->path);
    start(fixture, 0);
    start(&other, 1);
    assert_int_equal(registry_open(fixture->path, &registry), STATUS_OK);
    assert_int_equal(steering_open(&steering, registry, &config, &message), STATUS_OK);
    assert_true(steering_has_strangers(&steering));
    end(&other, 1);
    assert_false(steering_has_strangers(&steering));
    kill(fixture->processes[0].pid, SIGKILL);
    assert_false(steering_has_strangers(&steering));
    unlink(other.path);
    steering_close(&steering, NULL);
    registry_close(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(kernel_steers_to_the_owner),
        SHARED(survivors_get_theirs_after_a_death),
        SHARED(order_is_learned_after_several_deaths),
        SHARED(who_finds_a_death_by_the_way_tells_the_kernel),
        SHARED(strangers_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
