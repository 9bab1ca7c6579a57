/* What two rsocket ends say to each other, as bytes: the private data of the connection's set-up,
 * the messages in immediate data, the entries that one end writes into the other's memory, and the
 * headers of datagrams.
 *
 * Here: bytes <-> structs, pure functions; nothing a peer sends is taken for granted. Not here:
 * what a message does (rsocket_queue.c), who may send one when.
 *
 * The layout is that of rdma-core's rsockets, version 1: an end may be a machine with hardware. */
#ifndef WEIR_RDMACM_RSOCKET_CODEC_H
#define WEIR_RDMACM_RSOCKET_CODEC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of memory. So it lies in a peer's table, in the byte order of the end that reads it. */
struct rsocket_place {
    uint64_t address;
    uint32_t key;
    uint32_t length;
};

/* Where offsets of riowrite lie. The same holds. */
struct rsocket_mapping {
    uint64_t offset;
    struct rsocket_place place;
};

#define RSOCKET_HELLO_LENGTH   40u
#define RSOCKET_TARGETS        2u /* entries of the table of targets that an end offers */
#define RSOCKET_PLACE_LENGTH   16u
#define RSOCKET_MAPPING_LENGTH 24u

/* What both ends tell when they connect. */
struct rsocket_hello {
    bool is_big_endian;
    bool has_mappings;           /* a table of mappings follows that of the targets */
    uint16_t credits;            /* messages that may be sent at first */
    uint32_t mappings;           /* entries of that table; a scale of 8 bits on the wire */
    struct rsocket_place table;  /* the table of targets; its length counts entries */
    struct rsocket_place buffer; /* the first target */
};

void rsocket_hello_build(const struct rsocket_hello *hello, uint8_t *ret_bytes);
/* False: too short, another version, or a table without entries. */
bool rsocket_hello_parse(const uint8_t *bytes, size_t length, struct rsocket_hello *ret_hello);

/* The number of mappings as the wire can say it: small numbers exactly, larger ones rounded. */
uint32_t rsocket_round_mappings(uint32_t mappings);

enum rsocket_operation {
    RSOCKET_DATA = 0, /* value: bytes written to the current target */
    RSOCKET_CREDITS =
        4, /* value: how far the other end may count; a target may have been written */
    RSOCKET_MAPPING = 6, /* value: the entry that was written */
    RSOCKET_CONTROL = 7, /* value: enum rsocket_control */
};

enum rsocket_control {
    RSOCKET_DISCONNECT,
    RSOCKET_KEEPALIVE,
    RSOCKET_SHUTDOWN,
};

#define RSOCKET_VALUE_MAX ((1u << 29) - 1)

struct rsocket_message {
    unsigned operation; /* enum rsocket_operation, or one that is reserved */
    uint32_t value;
};

/* The immediate data in host order. */
uint32_t rsocket_message_encode(enum rsocket_operation operation, uint32_t value);
struct rsocket_message rsocket_message_decode(uint32_t immediate);

/* For the memory of a peer; `swap` where its byte order is not ours. */
void rsocket_place_encode(const struct rsocket_place *place, bool swap, uint8_t *ret_bytes);
void rsocket_mapping_encode(const struct rsocket_mapping *mapping, bool swap, uint8_t *ret_bytes);

/* Datagrams over a queue pair begin with the sender's address. */
#define RSOCKET_DATAGRAM_HEADER_MAX 24u
/* Returns the header's length. */
size_t rsocket_datagram_build(const struct sockaddr *source, uint8_t *ret_bytes);
/* Returns the header's length; 0: not a datagram of ours. */
size_t rsocket_datagram_parse(const uint8_t *bytes, size_t length,
                              struct sockaddr_storage *ret_source);

/* Where the peer's queue pair is not yet known, the same travels over UDP behind this header. */
#define RSOCKET_UDP_HEADER_MAX 28u

struct rsocket_udp_header {
    unsigned
        operation; /* RSOCKET_DATA with data, or RSOCKET_CONTROL: the answer that names a qpn */
    uint32_t qpn;
};

/* `local` is the sender's address; returns the header's length. */
size_t rsocket_udp_build(const struct rsocket_udp_header *header, const struct sockaddr *local,
                         uint8_t *ret_bytes);
/* `source` is where the packet came from; returns the header's length, 0: none of ours. */
size_t rsocket_udp_parse(const uint8_t *bytes, size_t length, const struct sockaddr *source,
                         struct rsocket_udp_header *ret_header);

#endif
