#include "test/interop/tour/cm_forge.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "test/interop/tour/raw.h"
#include "test/interop/tour/tap.h"

#define PORT_SPACE_TCP 0x0106
#define SOURCE_PORT    40000
#define TIMEOUT_4_S    20  /* 4.096 us * 2^20 */
#define CUT_BEHIND     172 /* bytes of the MAD: eight of the header's */

static void spoil(enum forgery forgery, uint8_t *header)
{
    switch (forgery) {
    case FORGED_MAJOR_VERSION:
        header[0] = 0x10;
        break;
    case FORGED_MINOR_VERSION:
        header[0] = 0x01;
        break;
    case FORGED_IP_VERSION_0:
        header[1] = 0x00;
        break;
    case FORGED_IP_VERSION_5:
        header[1] = 0x50;
        break;
    case FORGED_OTHER_FAMILY:
        header[1] = header[1] == 0x40 ? 0x60 : 0x40;
        break;
    case FORGED_OTHER_ADDRESS:
        header[RDMA_CM_HEADER_LENGTH - 1] ^= 0x55;
        break;
    case FORGED_ZEROS:
        memset(header, 0, RDMA_CM_HEADER_LENGTH);
        break;
    default:
        break;
    }
}

/* No two are of one connection: ids and queue pair numbers are told by the time. */
static struct cm_message request(const struct raw *raw, enum forgery forgery, uint16_t port)
{
    uint32_t now = (uint32_t)tour_now_ms();
    struct cm_message message = {
        .kind = CM_MESSAGE_REQ,
        .transaction = (uint64_t)0x746f7572 << 32 | now,
        .local_id = now,
        .service_id = rdma_cm_service_id(PORT_SPACE_TCP, port),
        .local_ca_guid = 0x746f7572,
        .local_qpn = {0x800000 | (now & 0x7fffff)},
        .responder_resources = 1,
        .initiator_depth = 1,
        .starting_psn = psn_make(7),
        .rnr_retry_count = 7,
        .retry_count = 7,
        .remote_response_timeout = TIMEOUT_4_S,
        .local_response_timeout = TIMEOUT_4_S,
        .max_cm_retries = 3,
        .pkey = PKEY_DEFAULT,
        .path_mtu = PATH_MTU_1024,
        .path = raw->path,
        .packet_rate = 3,
        .ack_timeout = 18,
    };
    struct rdma_cm_header header = {
        .ip_version = IN6_IS_ADDR_V4MAPPED(&raw->link->local.sin6_addr) ? 4 : 6,
        .port = SOURCE_PORT,
        .source = raw->path.local,
        .destination = raw->path.remote,
    };
    rdma_cm_header_build(&header, message.private_data);
    spoil(forgery, message.private_data);
    return message;
}

static void send_request(const struct raw *raw, const struct cm_message *message, size_t length)
{
    struct packet packet = {
        .opcode = OPCODE(SERVICE_UD, FORM_SEND_ONLY),
        .pkey = PKEY_DEFAULT,
        .destination = QPN_MANAGEMENT,
        .qkey = QKEY_MANAGEMENT,
        .source = QPN_MANAGEMENT,
        .payload_length = (uint32_t)length,
    };
    uint8_t bytes[RAW_MAX], mad[MAD_LENGTH];
    uint32_t headers = packet_build(&packet, bytes);
    cm_message_build(message, mad);
    memcpy(bytes + headers, mad, length);
    raw_send(raw, bytes, headers + length, 0);
}

void cm_forge(const struct link *link, enum forgery forgery, uint16_t port, int patience_ms,
              char *ret_text, size_t size)
{
    struct raw raw = raw_open(link);
    struct tap tap = tap_open(link, QPN_MANAGEMENT.value, true);
    struct cm_message message = request(&raw, forgery, port);
    tap.transaction = message.transaction;
    send_request(&raw, &message, forgery == FORGED_CUT ? CUT_BEHIND : MAD_LENGTH);
    long deadline = tour_now_ms() + patience_ms;
    while (tap.answers == 0 && tour_now_ms() < deadline) {
        poll(NULL, 0, 1);
        tap_read(&tap);
    }
    snprintf(ret_text, size, "%s", tap_text(&tap));
    tap_close(&tap);
    raw_close(&raw);
}
