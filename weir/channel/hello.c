/* Packing and parsing of hellos and endpoints. */
#include "weir/channel/hello.h"

#include <string.h>

#include "weir/bytes.h"
#include "weir/channel/message.h"

#define MAGIC              0x57656972 /* "Weir" */
#define LACKS_IMMEDIATE    1
#define AT_WORDS           12
#define EAGER_LENGTH_LEAST 64
#define EAGER_LENGTH_MOST  ((uint32_t)16 << 20)

void hello_pack(const struct hello *hello, uint8_t ret_bytes[HELLO_LENGTH])
{
    memset(ret_bytes, 0, HELLO_LENGTH);
    put_u32(ret_bytes, MAGIC);
    put_u16(ret_bytes + 4, HELLO_VERSION);
    ret_bytes[6] = (uint8_t)hello->purpose;
    ret_bytes[7] = hello->lane;
    ret_bytes[8] = hello->lanes;
    ret_bytes[9] = hello->status;
    ret_bytes[10] = hello->lacks_immediate ? LACKS_IMMEDIATE : 0;
    if (hello->purpose == HELLO_REFUSE) {
        memcpy(ret_bytes + AT_WORDS, hello->words, strnlen(hello->words, HELLO_WORDS));
        return;
    }
    put_u32(ret_bytes + 12, hello->eager_length);
    put_u32(ret_bytes + 16, hello->window);
    put_u32(ret_bytes + 20, hello->message_length_max);
    put_u64(ret_bytes + 24, hello->token);
}

static bool offers_are_sane(const struct hello *hello)
{
    return hello->eager_length >= EAGER_LENGTH_LEAST && hello->eager_length <= EAGER_LENGTH_MOST &&
           hello->window >= 1 && hello->window <= WINDOW_MAX &&
           hello->message_length_max <= MESSAGE_LENGTH_MAX && hello->lanes <= LANES_MAX;
}

/* A stranger's text goes to terminals and logs. */
static void take_words(const uint8_t *at, struct hello *hello)
{
    for (unsigned i = 0; i < HELLO_WORDS && at[i] != 0; i++) {
        hello->words[i] = at[i] >= ' ' && at[i] <= '~' ? (char)at[i] : '?';
    }
}

static bool is_hello(const uint8_t *at, size_t length)
{
    return at != NULL && length >= HELLO_LENGTH && get_u32(at) == MAGIC;
}

bool hello_is_of_another_version(const void *bytes, size_t length)
{
    return is_hello(bytes, length) && get_u16((const uint8_t *)bytes + 4) != HELLO_VERSION;
}

const char *hello_parse(const void *bytes, size_t length, struct hello *ret_hello)
{
    const uint8_t *at = bytes;
    if (!is_hello(at, length)) {
        return "it is not a Weir channel";
    }
    if (hello_is_of_another_version(at, length)) {
        return "it speaks another version of the channel protocol";
    }
    if (at[6] < HELLO_CONNECT || at[6] >= HELLO_PURPOSE_END || at[7] > LANES_MAX) {
        return "its hello makes no sense";
    }
    struct hello hello = {
        .purpose = (enum hello_purpose)at[6],
        .lane = at[7],
        .lanes = at[8],
        .status = at[9],
        .lacks_immediate = (at[10] & LACKS_IMMEDIATE) != 0,
    };
    if (hello.purpose == HELLO_REFUSE) {
        take_words(at + AT_WORDS, &hello);
        *ret_hello = hello;
        return NULL;
    }
    hello.eager_length = get_u32(at + 12);
    hello.window = get_u32(at + 16);
    hello.message_length_max = get_u32(at + 20);
    hello.token = get_u64(at + 24);
    if ((hello.purpose == HELLO_CONNECT || hello.purpose == HELLO_ACCEPT) &&
        !offers_are_sane(&hello)) {
        return "its hello offers what cannot be";
    }
    *ret_hello = hello;
    return NULL;
}

void endpoint_pack(const struct endpoint *endpoint, uint8_t ret_bytes[ENDPOINT_LENGTH])
{
    memset(ret_bytes, 0, ENDPOINT_LENGTH);
    memcpy(ret_bytes, endpoint->gid, 16);
    put_u16(ret_bytes + 16, endpoint->lid);
    ret_bytes[18] = endpoint->mtu;
    ret_bytes[19] = endpoint->is_infiniband;
    ret_bytes[20] = endpoint->reads_max;
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        put_u32(ret_bytes + 24 + 8 * i, endpoint->qpn[i]);
        put_u32(ret_bytes + 28 + 8 * i, endpoint->psn[i]);
    }
}

const char *endpoint_parse(const uint8_t bytes[ENDPOINT_LENGTH], struct endpoint *ret_endpoint)
{
    struct endpoint endpoint = {
        .lid = get_u16(bytes + 16),
        .mtu = bytes[18],
        .is_infiniband = bytes[19] != 0,
        .reads_max = bytes[20],
    };
    memcpy(endpoint.gid, bytes, 16);
    if (endpoint.mtu < 1 || endpoint.mtu > 5) {
        return "its path MTU is none";
    }
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        endpoint.qpn[i] = get_u32(bytes + 24 + 8 * i);
        endpoint.psn[i] = get_u32(bytes + 28 + 8 * i);
        if (endpoint.qpn[i] >> 24 != 0 || endpoint.psn[i] >> 24 != 0) {
            return "its queue pair's number is none";
        }
    }
    *ret_endpoint = endpoint;
    return NULL;
}
