/* CM messages to and from their 256 bytes, field by field in the order of the specification's
 * tables; a reserved or unused field is a skip of the same length in both directions. */
#include "rnic/wire/mad.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/base/check.h"

#define MAD_BASE_VERSION   1
#define MAD_CLASS_CM       0x07
#define MAD_CLASS_VERSION  2
#define MAD_METHOD_SEND    0x03
#define LID_PERMISSIVE     0xffff
#define HOP_LIMIT_DEFAULT  64
#define ALTERNATE_LENGTH   44u /* the alternate path of a REQ */
#define HOP_LIMIT_ONE_LINK 1   /* up to here a path stays in its subnet */

/* `width` bits of `value` that begin at bit `shift`. */
static uint8_t bits(uint32_t value, unsigned shift, unsigned width)
{
    return (uint8_t)(value >> shift & ((1u << width) - 1));
}

static uint8_t place(uint32_t value, unsigned shift, unsigned width)
{
    return (uint8_t)((value & ((1u << width) - 1)) << shift);
}

/* What a message of each kind is made of. [IBA 12.6.5 to 12.6.12, 12.6.7 for REJ, 12.11 for
 * SIDR] */
struct kind_row {
    enum cm_message_kind kind;
    const char *name;
    uint32_t private_max;
    void (*parse)(struct bytes_reader *reader, struct cm_message *message);
    void (*build)(struct bytes_writer *writer, const struct cm_message *message);
};

static void parse_primary_path(struct bytes_reader *reader, struct cm_message *message)
{
    bytes_skip(reader, 4); /* local and remote LID */
    bytes_get_copy(reader, message->path.local.bytes, 16);
    bytes_get_copy(reader, message->path.remote.bytes, 16);
    uint32_t flow_label_rate = bytes_get_u32(reader);
    message->path.flow_label = flow_label_rate >> 12;
    message->packet_rate = bits(flow_label_rate, 0, 6);
    message->path.traffic_class = bytes_get_u8(reader);
    message->path.hop_limit = bytes_get_u8(reader);
    message->service_level = bits(bytes_get_u8(reader), 4, 4);
    message->ack_timeout = bits(bytes_get_u8(reader), 3, 5);
}

static void build_primary_path(struct bytes_writer *writer, const struct cm_message *message)
{
    const struct path *path = &message->path;
    uint8_t hop_limit = path->hop_limit == 0 ? HOP_LIMIT_DEFAULT : path->hop_limit;
    bool subnet_local = hop_limit <= HOP_LIMIT_ONE_LINK;
    bytes_put_u16(writer, subnet_local ? 0 : LID_PERMISSIVE);
    bytes_put_u16(writer, subnet_local ? 0 : LID_PERMISSIVE);
    bytes_put_copy(writer, path->local.bytes, 16);
    bytes_put_copy(writer, path->remote.bytes, 16);
    bytes_put_u32(writer, path->flow_label << 12 | place(message->packet_rate, 0, 6));
    bytes_put_u8(writer, path->traffic_class);
    bytes_put_u8(writer, hop_limit);
    bytes_put_u8(writer, place(message->service_level, 4, 4) | place(subnet_local, 3, 1));
    bytes_put_u8(writer, place(message->ack_timeout, 3, 5));
}

static void parse_req(struct bytes_reader *reader, struct cm_message *message)
{
    bytes_skip(reader, 1);
    message->ece.vendor_id = bytes_get_u24(reader);
    message->service_id = bytes_get_u64(reader);
    message->local_ca_guid = bytes_get_u64(reader);
    bytes_skip(reader, 4);
    message->local_qkey.value = bytes_get_u32(reader);
    message->local_qpn.value = bytes_get_u24(reader);
    message->responder_resources = bytes_get_u8(reader);
    bytes_skip(reader, 3); /* local EECN */
    message->initiator_depth = bytes_get_u8(reader);
    bytes_skip(reader, 3); /* remote EECN */
    uint8_t service = bytes_get_u8(reader);
    message->remote_response_timeout = bits(service, 3, 5);
    message->transport_service = bits(service, 1, 2);
    message->flow_control = bits(service, 0, 1) != 0;
    message->starting_psn.value = bytes_get_u24(reader);
    uint8_t timeout = bytes_get_u8(reader);
    message->local_response_timeout = bits(timeout, 3, 5);
    message->retry_count = bits(timeout, 0, 3);
    message->pkey.value = bytes_get_u16(reader);
    uint8_t mtu = bytes_get_u8(reader);
    message->path_mtu = (enum path_mtu)bits(mtu, 4, 4);
    message->rnr_retry_count = bits(mtu, 0, 3);
    uint8_t retries = bytes_get_u8(reader);
    message->max_cm_retries = bits(retries, 4, 4);
    message->shared_receive_queue = bits(retries, 3, 1) != 0;
    message->extended_transport = bits(retries, 0, 3);
    parse_primary_path(reader, message);
    bytes_skip(reader, ALTERNATE_LENGTH);
}

static void build_req(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_zeroes(writer, 1);
    bytes_put_u24(writer, message->ece.vendor_id);
    bytes_put_u64(writer, message->service_id);
    bytes_put_u64(writer, message->local_ca_guid);
    bytes_put_zeroes(writer, 4);
    bytes_put_u32(writer, message->local_qkey.value);
    bytes_put_u24(writer, message->local_qpn.value);
    bytes_put_u8(writer, message->responder_resources);
    bytes_put_zeroes(writer, 3);
    bytes_put_u8(writer, message->initiator_depth);
    bytes_put_zeroes(writer, 3);
    bytes_put_u8(writer, place(message->remote_response_timeout, 3, 5) |
                             place(message->transport_service, 1, 2) |
                             place(message->flow_control, 0, 1));
    bytes_put_u24(writer, message->starting_psn.value);
    bytes_put_u8(writer,
                 place(message->local_response_timeout, 3, 5) | place(message->retry_count, 0, 3));
    bytes_put_u16(writer, message->pkey.value);
    bytes_put_u8(writer, place(message->path_mtu, 4, 4) | place(message->rnr_retry_count, 0, 3));
    bytes_put_u8(writer, place(message->max_cm_retries, 4, 4) |
                             place(message->shared_receive_queue, 3, 1) |
                             place(message->extended_transport, 0, 3));
    build_primary_path(writer, message);
    bytes_put_zeroes(writer, ALTERNATE_LENGTH);
}

static void parse_mra(struct bytes_reader *reader, struct cm_message *message)
{
    message->remote_id = bytes_get_u32(reader);
    message->answered = bits(bytes_get_u8(reader), 6, 2);
    message->service_timeout = bits(bytes_get_u8(reader), 3, 5);
}

static void build_mra(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u32(writer, message->remote_id);
    bytes_put_u8(writer, place(message->answered, 6, 2));
    bytes_put_u8(writer, place(message->service_timeout, 3, 5));
}

static void parse_info(struct bytes_reader *reader, struct cm_message *message)
{
    bytes_get_copy(reader, message->reject_info, sizeof message->reject_info);
    if (message->reject_info_length > sizeof message->reject_info) {
        message->reject_info_length = sizeof message->reject_info;
    }
}

static void parse_rej(struct bytes_reader *reader, struct cm_message *message)
{
    message->remote_id = bytes_get_u32(reader);
    message->answered = bits(bytes_get_u8(reader), 6, 2);
    message->reject_info_length = bits(bytes_get_u8(reader), 1, 7);
    message->reject_reason = bytes_get_u16(reader);
    parse_info(reader, message);
}

static void build_rej(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u32(writer, message->remote_id);
    bytes_put_u8(writer, place(message->answered, 6, 2));
    bytes_put_u8(writer, place(message->reject_info_length, 1, 7));
    bytes_put_u16(writer, message->reject_reason);
    bytes_put_copy(writer, message->reject_info, sizeof message->reject_info);
}

static void parse_rep(struct bytes_reader *reader, struct cm_message *message)
{
    message->remote_id = bytes_get_u32(reader);
    message->local_qkey.value = bytes_get_u32(reader);
    message->local_qpn.value = bytes_get_u24(reader);
    message->ece.vendor_id = (uint32_t)bytes_get_u8(reader) << 16;
    message->local_eecn.value = bytes_get_u24(reader);
    message->ece.vendor_id |= (uint32_t)bytes_get_u8(reader) << 8;
    message->starting_psn.value = bytes_get_u24(reader);
    message->ece.vendor_id |= bytes_get_u8(reader);
    message->responder_resources = bytes_get_u8(reader);
    message->initiator_depth = bytes_get_u8(reader);
    uint8_t delay = bytes_get_u8(reader);
    message->target_ack_delay = bits(delay, 3, 5);
    message->failover_accepted = bits(delay, 1, 2);
    message->flow_control = bits(delay, 0, 1) != 0;
    uint8_t retries = bytes_get_u8(reader);
    message->rnr_retry_count = bits(retries, 5, 3);
    message->shared_receive_queue = bits(retries, 4, 1) != 0;
    message->local_ca_guid = bytes_get_u64(reader);
}

static void build_rep(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u32(writer, message->remote_id);
    bytes_put_u32(writer, message->local_qkey.value);
    bytes_put_u24(writer, message->local_qpn.value);
    bytes_put_u8(writer, bits(message->ece.vendor_id, 16, 8));
    bytes_put_u24(writer, message->local_eecn.value);
    bytes_put_u8(writer, bits(message->ece.vendor_id, 8, 8));
    bytes_put_u24(writer, message->starting_psn.value);
    bytes_put_u8(writer, bits(message->ece.vendor_id, 0, 8));
    bytes_put_u8(writer, message->responder_resources);
    bytes_put_u8(writer, message->initiator_depth);
    bytes_put_u8(writer, place(message->target_ack_delay, 3, 5) |
                             place(message->failover_accepted, 1, 2) |
                             place(message->flow_control, 0, 1));
    bytes_put_u8(writer, place(message->rnr_retry_count, 5, 3) |
                             place(message->shared_receive_queue, 4, 1));
    bytes_put_u64(writer, message->local_ca_guid);
}

/* RTU and DREP: nothing but the two ids. */
static void parse_ids(struct bytes_reader *reader, struct cm_message *message)
{
    message->remote_id = bytes_get_u32(reader);
}

static void build_ids(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u32(writer, message->remote_id);
}

static void parse_dreq(struct bytes_reader *reader, struct cm_message *message)
{
    message->remote_id = bytes_get_u32(reader);
    message->local_qpn.value = bytes_get_u24(reader);
    bytes_skip(reader, 1);
}

static void build_dreq(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u32(writer, message->remote_id);
    bytes_put_u24(writer, message->local_qpn.value);
    bytes_put_zeroes(writer, 1);
}

static void parse_sidr_req(struct bytes_reader *reader, struct cm_message *message)
{
    message->pkey.value = bytes_get_u16(reader);
    bytes_skip(reader, 2);
    message->service_id = bytes_get_u64(reader);
}

static void build_sidr_req(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u16(writer, message->pkey.value);
    bytes_put_zeroes(writer, 2);
    bytes_put_u64(writer, message->service_id);
}

/* Its one id is that of the request, which is the receiver's. */
static void parse_sidr_rep(struct bytes_reader *reader, struct cm_message *message)
{
    message->remote_id = message->local_id;
    message->local_id = 0;
    message->sidr_status = bytes_get_u8(reader);
    message->reject_info_length = bytes_get_u8(reader);
    message->ece.vendor_id = (uint32_t)bytes_get_u16(reader) << 8;
    message->local_qpn.value = bytes_get_u24(reader);
    message->ece.vendor_id |= bytes_get_u8(reader);
    message->service_id = bytes_get_u64(reader);
    message->local_qkey.value = bytes_get_u32(reader);
    parse_info(reader, message);
}

static void build_sidr_rep(struct bytes_writer *writer, const struct cm_message *message)
{
    bytes_put_u8(writer, message->sidr_status);
    bytes_put_u8(writer, message->reject_info_length);
    bytes_put_u16(writer, (uint16_t)(message->ece.vendor_id >> 8));
    bytes_put_u24(writer, message->local_qpn.value);
    bytes_put_u8(writer, bits(message->ece.vendor_id, 0, 8));
    bytes_put_u64(writer, message->service_id);
    bytes_put_u32(writer, message->local_qkey.value);
    bytes_put_copy(writer, message->reject_info, sizeof message->reject_info);
}

static const struct kind_row *find_row(uint32_t kind)
{
    static const struct kind_row rows[] = {
        {CM_MESSAGE_REQ, "REQ", CM_REQ_PRIVATE_MAX, parse_req, build_req},
        {CM_MESSAGE_MRA, "MRA", CM_MRA_PRIVATE_MAX, parse_mra, build_mra},
        {CM_MESSAGE_REJ, "REJ", CM_REJ_PRIVATE_MAX, parse_rej, build_rej},
        {CM_MESSAGE_REP, "REP", CM_REP_PRIVATE_MAX, parse_rep, build_rep},
        {CM_MESSAGE_RTU, "RTU", CM_RTU_PRIVATE_MAX, parse_ids, build_ids},
        {CM_MESSAGE_DREQ, "DREQ", CM_DREQ_PRIVATE_MAX, parse_dreq, build_dreq},
        {CM_MESSAGE_DREP, "DREP", CM_DREP_PRIVATE_MAX, parse_ids, build_ids},
        {CM_MESSAGE_SIDR_REQ, "SIDR_REQ", CM_SIDR_REQ_PRIVATE_MAX, parse_sidr_req, build_sidr_req},
        {CM_MESSAGE_SIDR_REP, "SIDR_REP", CM_SIDR_REP_PRIVATE_MAX, parse_sidr_rep, build_sidr_rep},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((uint32_t)rows[i].kind == kind) {
            return &rows[i];
        }
    }
    return NULL;
}

enum status cm_message_parse(const uint8_t *mad, size_t length, struct cm_message *ret_message)
{
    if (length != MAD_LENGTH) {
        return STATUS_MALFORMED;
    }
    struct bytes_reader reader = bytes_reader(mad, length);
    bool is_cm = bytes_get_u8(&reader) == MAD_BASE_VERSION;
    is_cm &= bytes_get_u8(&reader) == MAD_CLASS_CM;
    is_cm &= bytes_get_u8(&reader) == MAD_CLASS_VERSION;
    is_cm &= bytes_get_u8(&reader) == MAD_METHOD_SEND;
    bytes_skip(&reader, 4); /* status, class specific */
    uint64_t transaction = bytes_get_u64(&reader);
    const struct kind_row *row = find_row(bytes_get_u16(&reader));
    bytes_skip(&reader, 2);
    uint32_t modifier = bytes_get_u32(&reader);
    if (!is_cm || row == NULL) {
        return STATUS_MALFORMED;
    }

    *ret_message =
        (struct cm_message){.kind = row->kind, .transaction = transaction, .ece.options = modifier};
    ret_message->local_id = bytes_get_u32(&reader);
    row->parse(&reader, ret_message);
    bytes_get_copy(&reader, ret_message->private_data, row->private_max);
    CHECK(!reader.failed && bytes_left(&reader) == 0);
    return STATUS_OK;
}

void cm_message_build(const struct cm_message *message, uint8_t ret_mad[MAD_LENGTH])
{
    const struct kind_row *row = find_row(message->kind);
    CHECK(row != NULL);
    struct bytes_writer writer = bytes_writer(ret_mad, MAD_LENGTH);
    bytes_put_u8(&writer, MAD_BASE_VERSION);
    bytes_put_u8(&writer, MAD_CLASS_CM);
    bytes_put_u8(&writer, MAD_CLASS_VERSION);
    bytes_put_u8(&writer, MAD_METHOD_SEND);
    bytes_put_zeroes(&writer, 4);
    bytes_put_u64(&writer, message->transaction);
    bytes_put_u16(&writer, (uint16_t)row->kind);
    bytes_put_zeroes(&writer, 2);
    bytes_put_u32(&writer, message->ece.options);
    bool answers_request = row->kind == CM_MESSAGE_SIDR_REP;
    bytes_put_u32(&writer, answers_request ? message->remote_id : message->local_id);
    row->build(&writer, message);
    bytes_put_copy(&writer, message->private_data, row->private_max);
    CHECK(!writer.failed && writer.position == writer.end);
}

const char *cm_message_kind_name(enum cm_message_kind kind)
{
    const struct kind_row *row = find_row(kind);
    return row == NULL ? "unknown" : row->name;
}

uint32_t cm_message_private_max(enum cm_message_kind kind)
{
    const struct kind_row *row = find_row(kind);
    return row == NULL ? 0 : row->private_max;
}

/* An IPv4 address stands in the last four bytes of its field, the others zero. */
static void parse_address(struct bytes_reader *reader, uint8_t ip_version, struct gid *gid)
{
    bytes_get_copy(reader, gid->bytes, sizeof gid->bytes);
    if (ip_version == 4) {
        memset(gid->bytes, 0, 10);
        memset(gid->bytes + 10, 0xff, 2);
    }
}

static void build_address(struct bytes_writer *writer, uint8_t ip_version, const struct gid *gid)
{
    if (ip_version == 4) {
        bytes_put_zeroes(writer, 12);
        bytes_put_copy(writer, gid->bytes + 12, 4);
    } else {
        bytes_put_copy(writer, gid->bytes, sizeof gid->bytes);
    }
}

enum status rdma_cm_header_parse(const uint8_t *private_data, struct rdma_cm_header *ret_header)
{
    struct bytes_reader reader = bytes_reader(private_data, RDMA_CM_HEADER_LENGTH);
    uint8_t version = bytes_get_u8(&reader);
    uint8_t ip_version = bits(bytes_get_u8(&reader), 4, 4);
    if (version != 0 || (ip_version != 4 && ip_version != 6)) {
        return STATUS_MALFORMED;
    }
    ret_header->ip_version = ip_version;
    ret_header->port = bytes_get_u16(&reader);
    parse_address(&reader, ip_version, &ret_header->source);
    parse_address(&reader, ip_version, &ret_header->destination);
    CHECK(!reader.failed && bytes_left(&reader) == 0);
    return STATUS_OK;
}

void rdma_cm_header_build(const struct rdma_cm_header *header,
                          uint8_t ret_private_data[RDMA_CM_HEADER_LENGTH])
{
    struct bytes_writer writer = bytes_writer(ret_private_data, RDMA_CM_HEADER_LENGTH);
    bytes_put_u8(&writer, 0);
    bytes_put_u8(&writer, place(header->ip_version, 4, 4));
    bytes_put_u16(&writer, header->port);
    build_address(&writer, header->ip_version, &header->source);
    build_address(&writer, header->ip_version, &header->destination);
    CHECK(!writer.failed && writer.position == writer.end);
}
