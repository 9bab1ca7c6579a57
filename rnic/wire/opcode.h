/* BTH opcodes as one table: what each one is, where it stands in its message, which headers
 * follow. Lengths are derived from the headers, never typed in. [IBA 9.2.1, table of opcodes] */
#ifndef WEIR_WIRE_OPCODE_H
#define WEIR_WIRE_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

/* The upper three bits of an opcode. */
enum service {
    SERVICE_RC = 0,
    SERVICE_UC = 1,
    SERVICE_RD = 2,
    SERVICE_UD = 3,
    SERVICE_CNP = 4,
    SERVICE_XRC = 5,
};

/* Requests are acknowledged and repeated until they are. */
static inline bool service_is_reliable(enum service service)
{
    return service == SERVICE_RC || service == SERVICE_XRC;
}

/* What a packet carries, without its place in the message. */
enum operation {
    OPERATION_NONE, /* not an opcode of ours */
    OPERATION_SEND,
    OPERATION_WRITE,
    OPERATION_READ_REQUEST,
    OPERATION_READ_RESPONSE,
    OPERATION_ACKNOWLEDGE,
    OPERATION_ATOMIC_ACKNOWLEDGE,
    OPERATION_COMPARE_SWAP,
    OPERATION_FETCH_ADD,
    OPERATION_ATOMIC_WRITE,
    OPERATION_CONGESTION, /* CNP */
};

/* The lower five bits. The full opcode byte is service << 5 | form. */
enum opcode_form {
    FORM_SEND_FIRST = 0x00,
    FORM_SEND_MIDDLE = 0x01,
    FORM_SEND_LAST = 0x02,
    FORM_SEND_LAST_IMMEDIATE = 0x03,
    FORM_SEND_ONLY = 0x04,
    FORM_SEND_ONLY_IMMEDIATE = 0x05,
    FORM_WRITE_FIRST = 0x06,
    FORM_WRITE_MIDDLE = 0x07,
    FORM_WRITE_LAST = 0x08,
    FORM_WRITE_LAST_IMMEDIATE = 0x09,
    FORM_WRITE_ONLY = 0x0a,
    FORM_WRITE_ONLY_IMMEDIATE = 0x0b,
    FORM_READ_REQUEST = 0x0c,
    FORM_READ_RESPONSE_FIRST = 0x0d,
    FORM_READ_RESPONSE_MIDDLE = 0x0e,
    FORM_READ_RESPONSE_LAST = 0x0f,
    FORM_READ_RESPONSE_ONLY = 0x10,
    FORM_ACKNOWLEDGE = 0x11,
    FORM_ATOMIC_ACKNOWLEDGE = 0x12,
    FORM_COMPARE_SWAP = 0x13,
    FORM_FETCH_ADD = 0x14,
    FORM_SEND_LAST_INVALIDATE = 0x16,
    FORM_SEND_ONLY_INVALIDATE = 0x17,
    FORM_ATOMIC_WRITE = 0x1d, /* RC only */
};

#define OPCODE(service, form) ((uint8_t)((service) << 5 | (form)))
#define OPCODE_CNP            0x81 /* [RoCEv2 annex A17.9.3] */

struct opcode_info {
    const char *name; /* "WRITE_FIRST"; the service is not part of it */
    enum service service;
    enum operation operation;
    bool first; /* begins a message (also true for ONLY) */
    bool last;  /* ends a message (also true for ONLY) */
    bool has_xrceth, has_deth, has_reth, has_atomic, has_aeth, has_atomic_ack; /* in this order */
    bool has_immediate, has_invalidate;
    bool has_payload;
    bool is_request;       /* goes to the responder; else to the requester's completer */
    uint8_t header_length; /* BTH, all extended headers, the reserved bytes of a CNP */
};

/* The row of an opcode byte; NULL where the byte means nothing to us. */
const struct opcode_info *opcode_lookup(uint8_t opcode);
/* The opcode byte of a row. */
uint8_t opcode_of(const struct opcode_info *info);

#endif
