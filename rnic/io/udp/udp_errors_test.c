/* What the kernel says of packets that did not get through, and what it does to those that do. */
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "rnic/io/udp/udp_private.h"
#include "rnic/io/udp/udp_self_test.h"
#include "rnic/wire/report.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_others_leave_runs_as_they_are),
        cmocka_unit_test(an_error_that_a_lent_run_is_told_of_is_heard),
        cmocka_unit_test(whose_psn_a_packet_has_is_told),
        cmocka_unit_test(an_interface_that_has_another_number_is_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
