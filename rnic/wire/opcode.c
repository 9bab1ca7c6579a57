/* The table of opcodes. A row is written once, as its place and its headers; everything else in
 * struct opcode_info follows from that. [IBA 9.2.1 table 38; XRC: annex A14; atomic write: annex
 * A19; CNP: A17.9.3] */
#include "rnic/wire/opcode.h"

#include <stddef.h>

#include "rnic/wire/packet.h"

enum {
    MIDDLE = 0,
    FIRST = 1 << 0,
    LAST = 1 << 1,
    ONLY = FIRST | LAST,
    REQUEST = 1 << 2,
    PAYLOAD = 1 << 3,
    XRCETH = 1 << 4,
    DETH = 1 << 5,
    RETH = 1 << 6,
    ATOMIC = 1 << 7,
    AETH = 1 << 8,
    ATOMIC_ACK = 1 << 9,
    IMMEDIATE = 1 << 10,
    INVALIDATE = 1 << 11,
    RESERVED_16 = 1 << 12, /* the 16 reserved bytes of a CNP */
};

#define LENGTH_IF(traits, trait, length) (((traits) & (trait)) != 0 ? (length) : 0)

#define HEADER_LENGTH(traits)                                                                      \
    (BTH_LENGTH + LENGTH_IF(traits, XRCETH, XRCETH_LENGTH) +                                       \
     LENGTH_IF(traits, DETH, DETH_LENGTH) + LENGTH_IF(traits, RETH, RETH_LENGTH) +                 \
     LENGTH_IF(traits, ATOMIC, ATOMIC_ETH_LENGTH) + LENGTH_IF(traits, AETH, AETH_LENGTH) +         \
     LENGTH_IF(traits, ATOMIC_ACK, ATOMIC_ACK_ETH_LENGTH) +                                        \
     LENGTH_IF(traits, IMMEDIATE, IMMDT_LENGTH) + LENGTH_IF(traits, INVALIDATE, IETH_LENGTH) +     \
     LENGTH_IF(traits, RESERVED_16, CNP_RESERVED_LENGTH))

#define INFO(row_name, row_service, row_operation, traits)                                         \
    {                                                                                              \
        .name = row_name, .service = row_service, .operation = row_operation,                      \
        .first = ((traits)&FIRST) != 0, .last = ((traits)&LAST) != 0,                              \
        .has_xrceth = ((traits)&XRCETH) != 0, .has_reth = ((traits)&RETH) != 0,                    \
        .has_aeth = ((traits)&AETH) != 0, .has_atomic = ((traits)&ATOMIC) != 0,                    \
        .has_atomic_ack = ((traits)&ATOMIC_ACK) != 0, .has_immediate = ((traits)&IMMEDIATE) != 0,  \
        .has_invalidate = ((traits)&INVALIDATE) != 0, .has_deth = ((traits)&DETH) != 0,            \
        .has_payload = ((traits)&PAYLOAD) != 0, .is_request = ((traits)&REQUEST) != 0,             \
        .header_length = HEADER_LENGTH(traits),                                                    \
    }

#define ROW(service, form, operation, traits)                                                      \
    [OPCODE(service, FORM_##form)] = INFO(#form, service, OPERATION_##operation, traits)

/* `r`: the traits that every request of the service has. */
#define SEND_ROWS(s, r)                                                                            \
    ROW(s, SEND_FIRST, SEND, (r) | FIRST | PAYLOAD),                                               \
        ROW(s, SEND_MIDDLE, SEND, (r) | MIDDLE | PAYLOAD),                                         \
        ROW(s, SEND_LAST, SEND, (r) | LAST | PAYLOAD),                                             \
        ROW(s, SEND_LAST_IMMEDIATE, SEND, (r) | LAST | IMMEDIATE | PAYLOAD)

#define SEND_ONLY_ROWS(s, r)                                                                       \
    ROW(s, SEND_ONLY, SEND, (r) | ONLY | PAYLOAD),                                                 \
        ROW(s, SEND_ONLY_IMMEDIATE, SEND, (r) | ONLY | IMMEDIATE | PAYLOAD)

#define WRITE_ROWS(s, r)                                                                           \
    ROW(s, WRITE_FIRST, WRITE, (r) | FIRST | RETH | PAYLOAD),                                      \
        ROW(s, WRITE_MIDDLE, WRITE, (r) | MIDDLE | PAYLOAD),                                       \
        ROW(s, WRITE_LAST, WRITE, (r) | LAST | PAYLOAD),                                           \
        ROW(s, WRITE_LAST_IMMEDIATE, WRITE, (r) | LAST | IMMEDIATE | PAYLOAD),                     \
        ROW(s, WRITE_ONLY, WRITE, (r) | ONLY | RETH | PAYLOAD),                                    \
        ROW(s, WRITE_ONLY_IMMEDIATE, WRITE, (r) | ONLY | RETH | IMMEDIATE | PAYLOAD)

#define RELIABLE_ROWS(s, r)                                                                        \
    ROW(s, READ_REQUEST, READ_REQUEST, (r) | ONLY | RETH),                                         \
        ROW(s, READ_RESPONSE_FIRST, READ_RESPONSE, FIRST | AETH | PAYLOAD),                        \
        ROW(s, READ_RESPONSE_MIDDLE, READ_RESPONSE, MIDDLE | PAYLOAD),                             \
        ROW(s, READ_RESPONSE_LAST, READ_RESPONSE, LAST | AETH | PAYLOAD),                          \
        ROW(s, READ_RESPONSE_ONLY, READ_RESPONSE, ONLY | AETH | PAYLOAD),                          \
        ROW(s, ACKNOWLEDGE, ACKNOWLEDGE, ONLY | AETH),                                             \
        ROW(s, ATOMIC_ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, ONLY | AETH | ATOMIC_ACK),                  \
        ROW(s, COMPARE_SWAP, COMPARE_SWAP, (r) | ONLY | ATOMIC),                                   \
        ROW(s, FETCH_ADD, FETCH_ADD, (r) | ONLY | ATOMIC),                                         \
        ROW(s, SEND_LAST_INVALIDATE, SEND, (r) | LAST | INVALIDATE | PAYLOAD),                     \
        ROW(s, SEND_ONLY_INVALIDATE, SEND, (r) | ONLY | INVALIDATE | PAYLOAD)

static const struct opcode_info table[256] = {
    SEND_ROWS(SERVICE_RC, REQUEST),
    SEND_ONLY_ROWS(SERVICE_RC, REQUEST),
    WRITE_ROWS(SERVICE_RC, REQUEST),
    RELIABLE_ROWS(SERVICE_RC, REQUEST),
    ROW(SERVICE_RC, ATOMIC_WRITE, ATOMIC_WRITE, REQUEST | ONLY | RETH | PAYLOAD),

    SEND_ROWS(SERVICE_UC, REQUEST),
    SEND_ONLY_ROWS(SERVICE_UC, REQUEST),
    WRITE_ROWS(SERVICE_UC, REQUEST),

    SEND_ONLY_ROWS(SERVICE_UD, REQUEST | DETH),

    SEND_ROWS(SERVICE_XRC, REQUEST | XRCETH),
    SEND_ONLY_ROWS(SERVICE_XRC, REQUEST | XRCETH),
    WRITE_ROWS(SERVICE_XRC, REQUEST | XRCETH),
    RELIABLE_ROWS(SERVICE_XRC, REQUEST | XRCETH),

    [OPCODE_CNP] = INFO("CNP", SERVICE_CNP, OPERATION_CONGESTION, ONLY | RESERVED_16),
};

const struct opcode_info *opcode_lookup(uint8_t opcode)
{
    const struct opcode_info *info = &table[opcode];
    return info->operation == OPERATION_NONE ? NULL : info;
}

uint8_t opcode_of(const struct opcode_info *info)
{
    return (uint8_t)(info - table);
}
