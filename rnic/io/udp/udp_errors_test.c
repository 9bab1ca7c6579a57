/* What the kernel says of packets that did not get through, and what it does to those that do. */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "rnic/io/system/syscall_test.h"
#include "rnic/io/udp/udp_private.h"
#include "rnic/io/udp/udp_self_test.h"
#include "rnic/wire/report.h"

/* Sends of the link fail so often as if ICMP had said that an earlier packet was too long. */
static struct {
    uint32_t left;
    bool is_kept;   /* the error queue had room for what ICMP says */
    uint32_t asked; /* calls that read */
} told;

static int tell_no_more(void **state)
{
    (void)state;
    told.left = 0;
    return 0;
}

static void leave_record(int descriptor)
{
    struct sockaddr_in gone = {
        .sin_family = AF_INET, .sin_port = htons(own_port()), .sin_addr.s_addr = htonl(0x7f00004e)};
    assert_int_equal(sendto(descriptor, "x", 1, 0, (struct sockaddr *)&gone, sizeof gone), 1);
}

long __wrap_syscall(long number, ...)
{
    long arguments[SYSCALL_ARGUMENTS];
    va_list list;
    va_start(list, number);
    take_arguments(list, arguments);
    va_end(list);
    told.asked += number == SYS_recvmsg;
    if (told.left > 0 && (number == SYS_sendmsg || number == SYS_sendmmsg)) {
        told.left--;
        if (told.is_kept) {
            leave_record((int)arguments[0]);
        }
        errno = EMSGSIZE;
        return -1;
    }
    return pass_on(number, arguments);
}

static void emit_and_flush(struct udp *udp, const struct path *path, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        assert_true(emit(udp, path, i, 1024));
    }
    assert_true(udp_flush(udp));
}

/* Whoever forges ICMP as fast as he can costs packets, and no queue pair: none of them is known to
 * be too long. */
static void what_only_icmp_says_is_never_certain(void **state)
{
    (void)state;
    struct gid here;
    struct udp *udp = create_at(77, &here);
    struct path path = path_to(&here);
    for (uint32_t kept = 0; kept < 2; kept++) {
        told.is_kept = kept;
        told.left = 100;
        emit_and_flush(udp, &path, kept, 1);
        told.left = 0;
        assert_int_equal(udp_counters(udp)->dropped_too_long, 0);
        assert_int_equal(udp_counters(udp)->dropped_other, kept + 1);
        assert_int_equal(udp_complaints(udp)->certain.count, 0);
    }
    udp_destroy(udp);
}

/* It says the next while the last is listened to. */
static void a_run_survives_some_errors_of_others(void **state)
{
    (void)state;
    struct inbox inbox = {.receiver = {receive}};
    struct gid here;
    struct udp *udp = create_at(77, &here);
    struct path path = path_to(&here);
    told.is_kept = true;
    told.left = 5;
    emit_and_flush(udp, &path, 0, 20);
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 20);
    assert_int_equal(udp_counters(udp)->packets_sent, 20);
    assert_in_range(udp_counters(udp)->segmented_sends, 0, 1);
    assert_int_equal(udp_counters(udp)->unsegmented, !udp_counters(udp)->segmented_sends);
    udp_destroy(udp);
}

static void a_refusal_now_and_then_does_not_end_segmented_sends(void **state)
{
    (void)state;
    struct gid here;
    struct udp *udp = create_at(77, &here);
    struct path path = path_to(&here);
    emit_and_flush(udp, &path, 0, 20);
    if (udp_counters(udp)->segmented_sends == 0) { /* the kernel has no UDP_SEGMENT */
        udp_destroy(udp);
        skip();
    }
    told.is_kept = false; /* twice is what the kernel itself says */
    for (uint32_t i = 1; i <= 20; i++) {
        told.left = 2;
        emit_and_flush(udp, &path, 0, 20);
        assert_int_equal(udp_counters(udp)->segmented_sends, i);
        emit_and_flush(udp, &path, 0, 20);
        assert_int_equal(udp_counters(udp)->segmented_sends, i + 1);
    }
    assert_int_equal(udp_counters(udp)->unsegmented, 20);
    for (uint32_t i = 0; i < 8; i++) { /* what is refused each time is not tried for ever */
        told.left = 2;
        emit_and_flush(udp, &path, 0, 20);
    }
    emit_and_flush(udp, &path, 0, 20);
    assert_int_equal(udp_counters(udp)->unsegmented, 28);
    assert_int_equal(udp_counters(udp)->segmented_sends, 21);
    assert_int_equal(udp_counters(udp)->packets_sent, 50 * 20);
    udp_destroy(udp);
}

/* What other sockets hold is not in the way, and there may be many of them. */
static void only_the_socket_that_failed_is_asked(void **state)
{
    (void)state;
    struct gid here;
    struct udp *udp = create_at(77, &here);
    struct path path = path_to(&here);
    path.flow_label = 1;
    for (uint32_t i = 0; i < 20; i++) {
        path.source_port = (uint16_t)(own_port() + 10000 + i);
        emit_and_flush(udp, &path, i, 1);
    }
    path.local = (struct gid){{[10] = 0xff, 0xff, 203, 0, 113, 77}}; /* none of ours */
    told.asked = 0;
    emit_and_flush(udp, &path, 20, 1);
    assert_int_equal(udp_counters(udp)->dropped_unreachable, 1);
    assert_in_range(told.asked, 1, 2);
    udp_destroy(udp);
}

/* More of it than is taken in one go. */
static void errors_of_others_leave_runs_as_they_are(void **state)
{
    struct inbox inbox = {.receiver = {receive}};
    struct gid here;
    struct udp *udp = create_at(77, &here);
    struct path path = path_to(&here);
    struct sockaddr_in gone = {
        .sin_family = AF_INET, .sin_port = htons(own_port()), .sin_addr.s_addr = htonl(0x7f00004e)};
    for (uint32_t i = 0; i < 99; i++) { /* each second one gets the error of the one before */
        (void)sendto(udp_descriptor(udp, UDP_IPV4), "x", 1, 0, (struct sockaddr *)&gone,
                     sizeof gone);
    }
    for (uint32_t i = 0; i < 40; i++) {
        assert_true(emit(udp, &path, i, 1024));
        assert_true(i % 20 != 19 || udp_flush(udp));
    }
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 40);
    assert_int_equal(udp_counters(udp)->segmented_sends, 2);
    assert_in_range(udp_counters(udp)->icmp_port_unreachable, 33, 100);
    udp_destroy(udp);
}

/* Nobody polls the socket of a source port. */
static void an_error_that_a_lent_run_is_told_of_is_heard(void **state)
{
    struct gid here;
    struct udp *udp = create_at(79, &here);
    struct path path = {.local = here,
                        .remote = {{[10] = 0xff, 0xff, 127, 0, 0, 80}},
                        .flow_label = 1,
                        .source_port = (uint16_t)(own_port() + 10000)};
    emit_train(udp, &path, 0, 2, 1024);
    assert_true(udp_flush(udp));
    emit_train(udp, &path, 2, 61, 1024);
    assert_int_equal(udp_counters(udp)->icmp_port_unreachable, 1);
    udp_destroy(udp);
}

static struct trouble quote(uint8_t opcode)
{
    uint8_t bytes[BTH_LENGTH + DETH_LENGTH] = {opcode, [7] = 5, [11] = 9, [BTH_LENGTH + 7] = 3};
    struct trouble trouble = {.kind = TROUBLE_TOO_LONG};
    udp_quote(&trouble, bytes, sizeof bytes);
    assert_int_equal(trouble.destination.value, 5);
    assert_int_equal(trouble.psn.value, 9);
    return trouble;
}

static void whose_psn_a_packet_has_is_told(void **state)
{
    (void)state;
    assert_false(quote(OPCODE(SERVICE_RC, FORM_WRITE_FIRST)).answers);
    assert_true(quote(OPCODE(SERVICE_RC, FORM_READ_RESPONSE_MIDDLE)).answers);
    assert_true(quote(REPORT_OPCODE).answers);
    assert_false(quote(OPCODE(SERVICE_UD, FORM_SEND_ONLY)).answers);
    assert_int_equal(quote(OPCODE(SERVICE_UD, FORM_SEND_ONLY)).source.value, 3);
}

static uint32_t interface_known(const struct udp *udp, const struct gid *gid)
{
    for (uint32_t i = 0; i < UDP_LINK_LOCAL_MAX; i++) {
        if (gid_equal(&udp->link_local[i].gid, gid) && udp->link_local[i].interface_index != 0) {
            return udp->link_local[i].interface_index;
        }
    }
    return 0;
}

/* As when it is made anew while a process runs. */
static void an_interface_that_has_another_number_is_found_again(void **state)
{
    struct udp *udp = create(NULL);
    if (udp_descriptor(udp, UDP_IPV6) < 0) {
        udp_destroy(udp);
        skip();
    }
    struct path path = path_to(&ipv6_loopback);
    path.remote = (struct gid){{0xff, 0x02, [15] = 1}}; /* no route says where that is */
    udp->link_local[0].gid = ipv6_loopback;
    udp->link_local[0].interface_index = 0x7ffffff0;
    assert_true(emit(udp, &path, 1, 16));
    assert_true(udp_flush(udp));
    assert_int_equal(udp_counters(udp)->dropped_unreachable, 1);
    assert_true(emit(udp, &path, 2, 16));
    assert_true(udp_flush(udp));
    assert_int_equal(interface_known(udp, &ipv6_loopback), if_nametoindex("lo"));
    udp_destroy(udp);
}

/* An address that moves to another interface while the old one stays: that one still sends. */
static void an_address_that_has_moved_is_found_again(void **state)
{
    (void)state;
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv6_loopback);
    path.remote = (struct gid){{0xff, 0x02, [15] = 1}};
    if (udp_descriptor(udp, UDP_IPV6) < 0) {
        udp_destroy(udp);
        skip();
    }
    udp->link_local[0].gid = ipv6_loopback;
    udp->link_local[0].interface_index = 0x7ffffff0;
    udp->link_local[0].asked = clock_now();
    udp_addresses_changed(udp);
    emit_and_flush(udp, &path, 1, 1);
    assert_int_equal(interface_known(udp, &ipv6_loopback), if_nametoindex("lo"));
    udp_destroy(udp);
}

static void what_finds_no_room_is_counted(void **state)
{
    (void)state;
    struct inbox inbox = {.receiver = {receive}};
    struct gid here;
    struct udp *udp = create_at(77, &here);
    struct path path = path_to(&here);
    int least = 1;
    assert_int_equal(
        setsockopt(udp_descriptor(udp, UDP_IPV4), SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
    for (uint32_t i = 0; i < 50; i++) {
        emit_and_flush(udp, &path, i, 1);
    }
    drain(udp, &inbox);
    assert_in_range(udp_dropped_unread(udp), 1, 50);
    assert_int_equal(udp_dropped_unread(udp), 50 - inbox.count);
    udp_destroy(udp);
}

struct cancelled {
    struct udp *udp;
    struct path path;
    bool survived;
};

static void *emit_cancelled(void *argument)
{
    struct cancelled *cancelled = argument;
    pthread_cancel(pthread_self());
    (void)emit(cancelled->udp, &cancelled->path, 1, 16);
    cancelled->survived = true;
    return NULL;
}

/* Who emits has the engine's lock. */
static void a_port_that_is_taken_cancels_nobody(void **state)
{
    (void)state;
    struct cancelled cancelled = {.udp = create(NULL), .path = path_to(&ipv4_loopback)};
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t length = sizeof name;
    pthread_t thread;
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&name, length), 0);
    assert_int_equal(getsockname(other, (struct sockaddr *)&name, &length), 0);
    cancelled.path.flow_label = 1;
    cancelled.path.source_port = ntohs(name.sin_port);
    assert_int_equal(pthread_create(&thread, NULL, emit_cancelled, &cancelled), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(cancelled.survived);
    close(other);
    udp_destroy(cancelled.udp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_only_icmp_says_is_never_certain, tell_no_more),
        cmocka_unit_test_teardown(a_run_survives_some_errors_of_others, tell_no_more),
        cmocka_unit_test_teardown(a_refusal_now_and_then_does_not_end_segmented_sends,
                                  tell_no_more),
        cmocka_unit_test(only_the_socket_that_failed_is_asked),
        cmocka_unit_test(errors_of_others_leave_runs_as_they_are),
        cmocka_unit_test(an_error_that_a_lent_run_is_told_of_is_heard),
        cmocka_unit_test(whose_psn_a_packet_has_is_told),
        cmocka_unit_test(an_interface_that_has_another_number_is_found_again),
        cmocka_unit_test(an_address_that_has_moved_is_found_again),
        cmocka_unit_test(what_finds_no_room_is_counted),
        cmocka_unit_test(a_port_that_is_taken_cancels_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
