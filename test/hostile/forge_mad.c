/* Management datagrams: what an attacker says to QP1. */
#include "rnic/base/bytes.h"
#include "rnic/wire/psn.h"
#include "test/hostile/forge_private.h"
#include "test/hostile/message.h"

#define PORT_SPACE_TCP 0x0106u
#define PORT_SPACE_UDP 0x0111u

/* Of one process or the other. */
static uint16_t a_port(struct forger *forger, uint32_t port)
{
    return (uint16_t)(port + (one_in(forger, 3) ? NEIGHBOUR : 0));
}

static void send_mad(struct forger *forger, const uint8_t mad[MAD_LENGTH])
{
    struct packet packet = {
        .opcode = OPCODE(SERVICE_UD, FORM_SEND_ONLY),
        .pkey = PKEY_DEFAULT,
        .destination = QPN_MANAGEMENT,
        .psn = psn_make(any(forger)),
        .qkey = QKEY_MANAGEMENT,
        .source = QPN_MANAGEMENT,
        .payload_length = MAD_LENGTH,
    };
    struct shot *shot = forger->shot;
    uint32_t header = packet_build(&packet, shot->bytes);
    memcpy(shot->bytes + header, mad, MAD_LENGTH);
    shot->length = header + MAD_LENGTH;
    add_icrc(forger);
}

static struct cm_message any_message(struct forger *forger)
{
    return (struct cm_message){
        .kind = (enum cm_message_kind)(CM_MESSAGE_REQ + below(forger, 9)),
        .transaction = random_u64(&forger->random),
        .local_id = any(forger),
        .remote_id = one_in(forger, 4) ? 0 : any(forger),
        .service_id =
            rdma_cm_service_id(PORT_SPACE_TCP, a_port(forger, STREAM_PORT + below(forger, 4))),
        .local_qpn = {any(forger) & PSN_MASK},
        .starting_psn = psn_make(any(forger)),
        .responder_resources = (uint8_t)any(forger),
        .initiator_depth = (uint8_t)any(forger),
        .path_mtu = (enum path_mtu)below(forger, 8),
        .max_cm_retries = 15,
        .local_response_timeout = (uint8_t)below(forger, 32),
        .remote_response_timeout = (uint8_t)below(forger, 32),
        .ack_timeout = (uint8_t)below(forger, 32),
        .transport_service = (uint8_t)below(forger, 4),
        .extended_transport = (uint8_t)below(forger, 3),
        .pkey = PKEY_DEFAULT,
        .path = forger->shot->path,
        .service_timeout = (uint8_t)below(forger, 32),
        .answered = (uint8_t)below(forger, 4),
        .reject_reason = (uint16_t)below(forger, 40),
        .reject_info_length = (uint8_t)any(forger),
    };
}

static void know_ids(struct forger *forger, struct cm_message *message)
{
    const struct scene *scene = forger->scene;
    if (scene->id_count > 0) {
        const struct ids *ids = &scene->ids[below(forger, scene->id_count)];
        forger->shot->path = (struct path){.local = ids->from, .remote = ids->to};
        message->path = forger->shot->path;
        message->local_id = ids->local;
        message->remote_id = ids->remote;
        message->transaction = one_in(forger, 2) ? ids->transaction : message->transaction;
    }
}

void shoot_mad(struct forger *forger)
{
    uint8_t mad[MAD_LENGTH];
    forger->shot->path = from_peer(forger, false);
    if (one_in(forger, 3)) {
        forger->shot->path = from_anywhere(forger);
    }
    struct cm_message message = any_message(forger);
    if (one_in(forger, 2)) {
        know_ids(forger, &message);
    }
    cm_message_build(&message, mad);
    while (one_in(forger, 2)) {
        mad[below(forger, MAD_LENGTH)] = (uint8_t)any(forger);
    }
    send_mad(forger, mad);
}

void shoot_mad_blind(struct forger *forger)
{
    uint8_t mad[MAD_LENGTH];
    forger->shot->path = from_peer(forger, true);
    struct cm_message message = any_message(forger);
    cm_message_build(&message, mad);
    send_mad(forger, mad);
}

static void request(struct forger *forger, const struct path *path, uint32_t qpn)
{
    static const char wants[] = {WANTS_RELIABLE, WANTS_UNRELIABLE, WANTS_WINDOW, WANTS_EXTENDED};
    uint8_t mad[MAD_LENGTH];
    forger->shot->path = *path;
    struct cm_message message = any_message(forger);
    message.kind = one_in(forger, 4) ? CM_MESSAGE_SIDR_REQ : CM_MESSAGE_REQ;
    message.path_mtu = PATH_MTU_1024;
    message.transport_service = (uint8_t)(one_in(forger, 4) ? 3 : below(forger, 2));
    message.extended_transport = 1; /* XRC */
    message.local_qpn.value = qpn & PSN_MASK;
    if (message.kind == CM_MESSAGE_SIDR_REQ) {
        message.service_id = rdma_cm_service_id(PORT_SPACE_UDP, a_port(forger, DATAGRAM_PORT));
    }
    struct rdma_cm_header header = {.ip_version = gid_is_ipv4(&path->local) ? 4 : 6,
                                    .port = (uint16_t)any(forger),
                                    .source = path->local,
                                    .destination = path->remote};
    rdma_cm_header_build(&header, message.private_data);
    message.private_data[RDMA_CM_HEADER_LENGTH] = (uint8_t)wants[below(forger, sizeof wants)];
    cm_message_build(&message, mad);
    send_mad(forger, mad);
}

void shoot_request(struct forger *forger)
{
    struct path path = from_anywhere(forger);
    request(forger, &path, any(forger));
}

/* The peer's queue pair is where the server's packets to it go. */
void shoot_stale(struct forger *forger)
{
    const struct scene *scene = forger->scene;
    for (uint32_t i = 0; i < scene->flow_count; i++) {
        const struct flow *flow = &scene->flows[below(forger, scene->flow_count)];
        if (!flow->toward_server && flow->sheltered && flow->service == SERVICE_RC) {
            struct path path = {.local = flow->to, .remote = flow->from};
            request(forger, &path, flow->qpn);
            return;
        }
    }
}
