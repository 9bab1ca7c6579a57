/* From the link's complaints to the queue pairs that they concern, and into words. */
#include <arpa/inet.h>
#include <stdio.h>

#include "rnic/device/device.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/complaints.h"
#include "rnic/io/udp/address.h"
#include "rnic/wire/roce.h"

#define COMPLAINT_NS UINT64_C(100000) /* each is a look at all queue pairs: so often at most */
#define HEADERS_IPV4 (20u + 8u)
#define HEADERS_IPV6 (40u + 8u)

struct printed {
    char text[INET6_ADDRSTRLEN];
};

static struct printed print(const struct gid *gid)
{
    struct printed printed = {""};
    bool ipv4 = gid_is_ipv4(gid);
    inet_ntop(ipv4 ? AF_INET : AF_INET6, gid->bytes + (ipv4 ? 12 : 0), printed.text,
              sizeof printed.text);
    return printed;
}

/* The host's own interface refuses: when it was asked to send, or later, by ICMP to itself. */
static bool is_said_here(const struct complaint *complaint)
{
    struct address_table table;
    return complaint->trouble.certain || (address_read(&table) == STATUS_OK &&
                                          address_find(&table, &complaint->reporter) != NULL);
}

/* `qp` is NULL for a datagram of QP1's that our own interface does not take. */
static void explain(struct loop *loop, const struct qp *qp, const struct complaint *complaint)
{
    const struct trouble *trouble = &complaint->trouble;
    struct printed remote = print(&trouble->remote), reporter = print(&complaint->reporter);
    if (qp != NULL && trouble->kind == TROUBLE_REFUSED) {
        snprintf(loop->complaint, sizeof loop->complaint,
                 "queue pair %u: %s says that nobody listens at UDP port %u of %s (queue pair %u): "
                 "is its process, or rxe, gone?",
                 qp_number(qp).value, reporter.text, ROCE_UDP_PORT, remote.text,
                 trouble->destination.value);
        return;
    }
    uint32_t headers = gid_is_ipv4(&trouble->remote) ? HEADERS_IPV4 : HEADERS_IPV6;
    char subject[64] = "datagrams", length[32] = "";
    if (qp != NULL) {
        snprintf(subject, sizeof subject, "queue pair %u: packets", qp_number(qp).value);
    }
    if (complaint->length != 0) {
        snprintf(length, sizeof length, " of %u bytes", complaint->length + headers);
    }
    snprintf(loop->complaint, sizeof loop->complaint,
             "%s%s to %s (queue pair %u) do not fit the way there: %s takes %u bytes. "
             "Path MTU %u would do, or an MTU of 4200 all the way",
             subject, length, remote.text, trouble->destination.value,
             is_said_here(complaint) ? "the interface here" : reporter.text, trouble->mtu,
             path_mtu_bytes(address_path_mtu(trouble->mtu)));
}

static void hear(struct loop *loop, struct instant now, const struct complaint *complaint)
{
    const struct qp *qp = device_hear(loop->engine.device, now, &complaint->trouble);
    bool datagram = complaint->trouble.certain && loop->complaint[0] == '\0';
    if (qp != NULL || datagram) {
        explain(loop, qp, complaint);
    } else if (complaint->trouble.certain || complaint->handed_on) {
        loop->complaints_ignored++; /* nobody's, or of a queue pair that has failed already */
    } else {
        ingress_hand_on_complaint(&loop->ingress, now, complaint);
    }
}

void loop_hear_complaints(struct loop *loop, struct instant now)
{
    struct complaint complaint;
    while (instant_elapsed_ns(loop->complained, now) >= COMPLAINT_NS &&
           complaints_take(udp_complaints(loop->steering.udp), &complaint)) {
        loop->complained = now;
        hear(loop, now, &complaint);
    }
}

struct instant loop_complaints_deadline(const struct loop *loop)
{
    bool waits = complaints_wait(udp_complaints(loop->steering.udp));
    return waits ? instant_after(loop->complained, COMPLAINT_NS) : INSTANT_NEVER;
}
