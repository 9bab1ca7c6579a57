#include "test/interop/tour/script.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rnic/wire/packet.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/roce.h"
#include "test/interop/tour/tap.h"

#define QPN_NOBODY   0xfffffd
#define ANSWER_MS    5000
#define BTH_FLAGS    1 /* byte of the BTH: solicited, migration, pad count, version */
#define PAD_SHIFT    4
#define DATAGRAM_MAX (PACKET_HEADER_MAX + 2 * PACKET_PAYLOAD_MAX + ICRC_LENGTH)

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

static struct packet describe(const struct step *step, const struct tour_case *row,
                              const struct introduction *peer, const struct end *end)
{
    uint64_t address = peer->address + (row->aim == AIM_MISALIGNED ? 4 : 0);
    return (struct packet){
        .opcode = step->opcode,
        .ack_request = !step->silent,
        .pkey = {step->flaw == FLAW_PKEY ? (uint16_t)step->value : PKEY_DEFAULT.value},
        .destination = {peer->qpn + (step->flaw == FLAW_QPN ? 1 : 0)},
        .psn = psn_make(end->psn + (uint32_t)step->psn),
        .remote_address = address,
        .remote_key = {peer->rkey},
        .dma_length = step->dma_length != 0 ? step->dma_length : step->payload,
        .swap_or_add = 1,
        .qkey = {TOUR_QKEY},
        .source = {end->qp->qp_num},
        .payload_length = step->payload,
    };
}

/* From the BTH to the ICRC; the length. */
static size_t build(const struct step *step, const struct packet *packet, const struct path *path,
                    uint8_t *ret_bytes)
{
    size_t length = packet_build(packet, ret_bytes);
    size_t body = packet->payload_length + packet_pad(packet->payload_length);
    memset(ret_bytes + length, 0xcc, body + PACKET_PAYLOAD_MAX);
    length += body;
    switch (step->flaw) {
    case FLAW_CUT:
        length -= step->value;
        break;
    case FLAW_LONGER:
        length += step->value;
        break;
    case FLAW_PAD:
        ret_bytes[BTH_FLAGS] = (uint8_t)(ret_bytes[BTH_FLAGS] | step->value << PAD_SHIFT);
        break;
    case FLAW_OPCODE:
        ret_bytes[0] = (uint8_t)step->value;
        break;
    case FLAW_VERSION:
        ret_bytes[BTH_FLAGS] = (uint8_t)(ret_bytes[BTH_FLAGS] | step->value);
        break;
    default:
        break;
    }
    struct roce_ip ip = {.dont_fragment = true};
    uint32_t icrc = roce_icrc(path, &ip, ret_bytes, length);
    roce_icrc_store(ret_bytes + length, step->flaw == FLAW_ICRC ? icrc ^ 0x10 : icrc);
    return length + ICRC_LENGTH;
}

static void await_answer(struct tap *tap)
{
    long deadline = tour_now_ms() + ANSWER_MS;
    unsigned before = tap->answers;
    while (tap->answers == before && tour_now_ms() < deadline) {
        poll(NULL, 0, 1);
        tap_read(tap);
    }
}

static void send_step(int socket, const struct path *path, const struct packet *packet,
                      const struct step *step, const struct link *link)
{
    static uint8_t bytes[DATAGRAM_MAX];
    struct sockaddr_in6 there = link->remote;
    there.sin6_port = htons(ROCE_UDP_PORT);
    size_t length = build(step, packet, path, bytes);
    if (sendto(socket, bytes, length, 0, (struct sockaddr *)&there, sizeof there) < 0) {
        tour_die("a packet of %zu bytes", length);
    }
}

/* A receiver that cannot see IPv4 identifications may know those that our device uses, and take a
 * socket's for damage until they come again. */
static void introduce(int socket, const struct path *path, const struct link *link)
{
    static const struct step nothing;
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = {QPN_NOBODY}};
    for (int i = 0; i < 2; i++) {
        send_step(socket, path, &packet, &nothing, link);
    }
}

void script_play(const struct tour_case *row, const struct end *end,
                 const struct introduction *peer, const struct link *link, struct tap *tap)
{
    struct path path = {.hop_limit = 64};
    memcpy(path.local.bytes, end->gid.raw, sizeof path.local.bytes);
    memcpy(path.remote.bytes, peer->gid.raw, sizeof path.remote.bytes);
    int socket = open_socket(link, &path.source_port);
    introduce(socket, &path, link);
    for (const struct step *step = row->script; step < row->script + STEPS_MAX && step->used;
         step++) {
        struct packet packet = describe(step, row, peer, end);
        send_step(socket, &path, &packet, step, link);
        if (step->awaited) {
            await_answer(tap);
        }
    }
    close(socket);
}
