/* What a peer of a channel may send: messages, hellos, endpoints. What parses is within the limits
 * and packs to the same bytes again; limits of credit never let more than a window pass. The first
 * byte chooses the parser. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "weir/channel/credit.h"
#include "weir/channel/hello.h"
#include "weir/channel/message.h"

static void check_message(const uint8_t *data, size_t size)
{
    static const struct message_limits limits = {.eager_length = 512, .length_max = 1 << 20};
    struct message message;
    if (message_parse(data, size, &limits, &message) != NULL) {
        return;
    }
    uint8_t bytes[MESSAGE_ANNOUNCE_LENGTH];
    size_t header = message_pack(&message, bytes);
    CHECK(header <= size && memcmp(bytes, data, header) == 0);
    if (message.kind == MESSAGE_EAGER || message.kind == MESSAGE_ABORT) {
        CHECK(message.payload + message.length == data + size);
    }
    CHECK(message.kind == MESSAGE_NOTICE || message.length <= limits.length_max);
}

static void check_hello(const uint8_t *data, size_t size)
{
    struct hello hello;
    if (hello_parse(data, size, &hello) != NULL) {
        return;
    }
    uint8_t bytes[HELLO_LENGTH];
    struct hello again;
    hello_pack(&hello, bytes);
    CHECK(hello_parse(bytes, sizeof bytes, &again) == NULL);
    CHECK(again.token == hello.token && again.window == hello.window);
    CHECK(hello.lane <= LANES_MAX);
    if (hello.purpose == HELLO_CONNECT || hello.purpose == HELLO_ACCEPT) {
        CHECK(hello.lanes <= LANES_MAX && hello.window >= 1 && hello.window <= WINDOW_MAX);
    }
}

static void check_endpoint(const uint8_t *data, size_t size)
{
    struct endpoint endpoint;
    if (size < ENDPOINT_LENGTH || endpoint_parse(data, &endpoint) != NULL) {
        return;
    }
    uint8_t bytes[ENDPOINT_LENGTH];
    struct endpoint again;
    endpoint_pack(&endpoint, bytes);
    CHECK(endpoint_parse(bytes, &again) == NULL);
    CHECK(memcmp(endpoint.qpn, again.qpn, sizeof endpoint.qpn) == 0);
}

/* Each byte is a step: send, or a limit near to what is true. */
static void check_credit(const uint8_t *data, size_t size)
{
    struct credit credit;
    uint32_t window = size > 0 ? 1 + data[0] % 64u : 1;
    credit_init(&credit, 8, window);
    for (size_t i = 1; i < size; i++) {
        if ((data[i] & 1) != 0) {
            if (credit_can_send(&credit)) {
                credit_spend(&credit);
            }
        } else {
            credit_learn(&credit, credit.limit + (uint32_t)(int8_t)data[i] / 2u);
        }
        CHECK(credit.limit - credit.sent <= window);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    static void (*const checks[])(const uint8_t *, size_t) = {check_message, check_hello,
                                                              check_endpoint, check_credit};
    checks[data[0] % 4](data + 1, size - 1);
    return 0;
}
