/* What honest peers say to each other: bytes that can be recognised, whatever came between. */
#ifndef WEIR_TEST_HOSTILE_MESSAGE_H
#define WEIR_TEST_HOSTILE_MESSAGE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SERVER_IPV4      "10.78.0.1"
#define SERVER_IPV6      "fd78::1"
#define GROUP_IPV4       "239.78.0.1" /* both processes are in it, */
#define GROUP_IPV6       "ff05::78:1" /* and the first is in this one */
#define NEIGHBOUR        10 /* the second process behind the address: each port is so much higher */
#define STREAM_PORT      7001 /* rdma_cm: RC, UC and XRC */
#define DATAGRAM_PORT    7002 /* rdma_cm: UD */
#define SOCKET_PORT      7003 /* rsockets: a stream */
#define SOCKET_DATAGRAMS 7004 /* and datagrams, whose first way is UDP */
#define PLACE_BYTES      16384u
#define MESSAGE_MAX      8192u
#define MESSAGE_MAGIC    UINT64_C(0x686f6e6573747921)
#define ECHO_LENGTH      24u /* of each message of a reliable connection: its head */
#define DATAGRAM_LENGTH  512u
#define COUNTER_AT       (PLACE_BYTES - 8) /* the last eight bytes of a place are counted up */

/* The first byte of a request's private data. */
#define WANTS_RELIABLE   'R'
#define WANTS_UNRELIABLE 'U'
#define WANTS_WINDOW     'W' /* RC; the place is opened by a window, and anew by each message */
#define WANTS_EXTENDED   'X' /* XRC */

/* Private data of an accept: where the client may write. */
struct place_name {
    uint64_t address;
    uint32_t key;
    uint32_t queue; /* XRC: of receives */
};

/* A window's key after it has been bound anew. */
static inline uint32_t message_next_key(uint32_t key)
{
    return (key & 0xffffff00u) | (uint8_t)(key + 1);
}

static inline struct sockaddr_storage address_of(const char *text, uint16_t port)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&storage;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else {
        inet_pton(AF_INET6, text, &v6->sin6_addr);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
    }
    return storage;
}

struct message_head {
    uint64_t magic, sequence;
    uint32_t length, seed; /* of the whole message */
};

static inline uint8_t message_byte(uint32_t seed, uint32_t at)
{
    uint32_t x = (seed ^ at) * UINT32_C(0x9e3779b1);
    return (uint8_t)(x >> 24);
}

static inline void message_fill(uint8_t *bytes, uint32_t length, uint64_t sequence)
{
    struct message_head head = {MESSAGE_MAGIC, sequence, length, (uint32_t)sequence * 7 + length};
    for (uint32_t i = sizeof head; i < length; i++) {
        bytes[i] = message_byte(head.seed, i);
    }
    memcpy(bytes, &head, sizeof head);
}

/* These are `length` bytes of an honest message; tells which. */
static inline bool message_is_whole(const uint8_t *bytes, uint32_t length, uint64_t *ret_sequence)
{
    struct message_head head;
    if (length < sizeof head) {
        return false;
    }
    memcpy(&head, bytes, sizeof head);
    if (head.magic != MESSAGE_MAGIC || head.length != length ||
        head.seed != (uint32_t)head.sequence * 7 + length) {
        return false;
    }
    for (uint32_t i = sizeof head; i < length; i++) {
        if (bytes[i] != message_byte(head.seed, i)) {
            return false;
        }
    }
    *ret_sequence = head.sequence;
    return true;
}

#endif
