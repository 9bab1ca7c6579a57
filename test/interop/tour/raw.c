#include "test/interop/tour/raw.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rnic/wire/roce.h"
#include "test/interop/tour/link.h"

#define QPN_NOBODY 0xfffffd

/* An unconnected socket with DF: identification 0, as the ICRC has it. */
static int open_socket(const struct link *link, uint16_t *ret_port)
{
    struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = link->local.sin6_addr};
    socklen_t size = sizeof here;
    int never_cut = IP_PMTUDISC_DO;
    int opened = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    setsockopt(opened, IPPROTO_IP, IP_MTU_DISCOVER, &never_cut, sizeof never_cut);
    setsockopt(opened, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &never_cut, sizeof never_cut);
    if (bind(opened, (struct sockaddr *)&here, sizeof here) != 0 ||
        getsockname(opened, (struct sockaddr *)&here, &size) != 0) {
        tour_die("a UDP socket");
    }
    *ret_port = ntohs(here.sin6_port);
    return opened;
}

/* A receiver that cannot see IPv4 identifications may know those that our device uses, and take a
 * socket's for damage until they come again. */
static void introduce(const struct raw *raw)
{
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .ack_request = true,
                            .pkey = PKEY_DEFAULT,
                            .destination = {QPN_NOBODY}};
    uint8_t bytes[PACKET_HEADER_MAX + ICRC_LENGTH];
    for (int i = 0; i < 2; i++) {
        raw_send(raw, bytes, packet_build(&packet, bytes), 0);
    }
}

struct raw raw_open(const struct link *link)
{
    struct raw raw = {.path.hop_limit = 64, .link = link};
    memcpy(raw.path.local.bytes, &link->local.sin6_addr, sizeof raw.path.local.bytes);
    memcpy(raw.path.remote.bytes, &link->remote.sin6_addr, sizeof raw.path.remote.bytes);
    raw.socket = open_socket(link, &raw.path.source_port);
    introduce(&raw);
    return raw;
}

void raw_send(const struct raw *raw, uint8_t *bytes, size_t length, uint32_t flaw)
{
    struct roce_ip ip = {.dont_fragment = true};
    struct sockaddr_in6 there = raw->link->remote;
    there.sin6_port = htons(ROCE_UDP_PORT);
    roce_icrc_store(bytes + length, roce_icrc(&raw->path, &ip, bytes, length) ^ flaw);
    if (sendto(raw->socket, bytes, length + ICRC_LENGTH, 0, (struct sockaddr *)&there,
               sizeof there) < 0) {
        tour_die("a packet of %zu bytes", length + ICRC_LENGTH);
    }
}

void raw_close(struct raw *raw)
{
    close(raw->socket);
    raw->socket = -1;
}
