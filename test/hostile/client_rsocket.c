/* The honest client of an rsocket. */
#include <rdma/rsocket.h>
#include <stddef.h>

#include "test/hostile/client.h"
#include "test/hostile/message.h"

static int receive_all(int descriptor, uint8_t *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t part = rrecv(descriptor, bytes + done, length - done, 0);
        if (part <= 0) {
            return -1;
        }
        done += (size_t)part;
    }
    return 0;
}

void serve_socket(const struct client *client)
{
    struct result *result = &results[client - clients];
    struct sockaddr_storage from = address_of(client->from, 0);
    struct sockaddr_storage to = address_of(client->to, SOCKET_PORT);
    uint8_t sent[512], received[512];
    int descriptor = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rbind(descriptor, (struct sockaddr *)&from, sizeof(struct sockaddr_in)) != 0 ||
        rconnect(descriptor, (struct sockaddr *)&to, sizeof(struct sockaddr_in)) != 0) {
        result->refused++;
        rclose(descriptor);
        pause_ms(20);
        return;
    }
    result->connections++;
    for (uint64_t sequence = 0; !stopping; sequence++) {
        message_fill(sent, sizeof sent, sequence);
        if (rsend(descriptor, sent, sizeof sent, 0) != sizeof sent ||
            receive_all(descriptor, received, sizeof received) != 0) {
            fault(client, "an rsocket broke");
            result->broken++;
            break;
        }
        if (memcmp(sent, received, sizeof sent) != 0) {
            fault(client, "the echo is not what was said");
        }
        result->exchanges++;
        pause_ms(1);
    }
    rclose(descriptor);
}
