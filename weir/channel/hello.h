/* The first words of two ends, before any queue pair is up: private data of rdma_cm, or a frame of
 * the TCP bootstrap. Pure functions of bytes; the checks on what a stranger sent are here. */
#ifndef WEIR_CHANNEL_HELLO_H
#define WEIR_CHANNEL_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELLO_LENGTH  40 /* of the 56 bytes that rdma_cm leaves in a REQ */
#define HELLO_VERSION 2
#define HELLO_WORDS   28 /* of a refusal, in place of what is offered otherwise */
#define LANES_MAX     16
#define WINDOW_MAX    16384

enum hello_purpose {
    HELLO_CONNECT = 1, /* client: a new connection */
    HELLO_LANE,        /* client: one more queue pair of the connection that `token` names */
    HELLO_ACCEPT,      /* server: yes; `token` names the connection */
    HELLO_REFUSE,      /* server: no; `status` and perhaps `words` say why; STATE: not now */
    HELLO_READY,       /* TCP: my queue pairs are up */
    HELLO_PURPOSE_END,
};

struct hello {
    enum hello_purpose purpose;
    uint8_t lane;  /* which one this is about; 0: the message lane */
    uint8_t lanes; /* wished, or granted */
    uint8_t status;
    bool lacks_immediate; /* the device has no WRITE with immediate */
    uint32_t eager_length;
    uint32_t window; /* receives granted at the beginning */
    uint32_t message_length_max;
    uint64_t token;
    char words[HELLO_WORDS + 1]; /* HELLO_REFUSE only, which has none of the numbers above */
};

void hello_pack(const struct hello *hello, uint8_t ret_bytes[HELLO_LENGTH]);
/* `bytes` may be longer (rdma_cm pads). NULL if good, else what is wrong. */
const char *hello_parse(const void *bytes, size_t length, struct hello *ret_hello);
/* True if that is all that is known to be wrong with it. */
bool hello_is_of_another_version(const void *bytes, size_t length);

/* A queue pair's address, for the TCP bootstrap. */
struct endpoint {
    uint8_t gid[16];
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
    bool is_infiniband;
    uint32_t qpn[1 + LANES_MAX];
    uint32_t psn[1 + LANES_MAX];
    uint8_t reads_max; /* READs this side takes at once on a queue pair */
};
#define ENDPOINT_LENGTH (24 + 8 * (1 + LANES_MAX))
#define FRAME_LENGTH    (HELLO_LENGTH + ENDPOINT_LENGTH)

void endpoint_pack(const struct endpoint *endpoint, uint8_t ret_bytes[ENDPOINT_LENGTH]);
const char *endpoint_parse(const uint8_t bytes[ENDPOINT_LENGTH], struct endpoint *ret_endpoint);

#endif
