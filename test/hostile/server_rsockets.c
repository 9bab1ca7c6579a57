/* The victim's rsockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stddef.h>

#include "test/hostile/message.h"
#include "test/hostile/server.h"

static int open_rsocket(int type, uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int descriptor = rsocket(AF_INET6, type, 0);
    need(descriptor >= 0 && rbind(descriptor, (struct sockaddr *)&any, sizeof any) == 0, "rsocket");
    rfcntl(descriptor, F_SETFL, O_NONBLOCK);
    return descriptor;
}

/* Echoes what the latest client of the stream says, and every datagram. */
void *serve_rsockets(void *unused)
{
    int stream = open_rsocket(SOCK_STREAM, own_port(SOCKET_PORT)), client = -1;
    int packets = open_rsocket(SOCK_DGRAM, own_port(SOCKET_DATAGRAMS));
    need(rlisten(stream, 4) == 0, "listening rsocket");
    while (!stopping) {
        uint8_t bytes[2048];
        struct pollfd polled[3] = {{stream, POLLIN, 0}, {packets, POLLIN, 0}, {client, POLLIN, 0}};
        rpoll(polled, client >= 0 ? 3 : 2, 100);
        int next = raccept(stream, NULL, NULL);
        if (next >= 0) {
            if (client >= 0) {
                rclose(client);
            }
            client = next;
            rfcntl(client, F_SETFL, O_NONBLOCK);
            seen.accepted_streams++;
        }
        ssize_t length = client >= 0 ? rrecv(client, bytes, sizeof bytes, 0) : -1;
        if (length > 0) {
            (void)!rsend(client, bytes, (size_t)length, 0);
        } else if (length == 0 || (client >= 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
            rclose(client);
            client = -1;
        }
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        length = rrecvfrom(packets, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size);
        if (length > 0) {
            (void)!rsendto(packets, bytes, (size_t)length, MSG_DONTWAIT, (struct sockaddr *)&from,
                           size);
        }
    }
    rclose(stream);
    rclose(packets);
    if (client >= 0) {
        rclose(client);
    }
    return NULL;
}
