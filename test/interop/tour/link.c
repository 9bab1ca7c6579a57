#include "test/interop/tour/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S  60
#define CONNECTS_MS 30000

_Noreturn void tour_die(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "tour: ");
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, error != 0 ? ": %s\n" : "\n", strerror(error));
    exit(2);
}

long tour_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct sockaddr_in6 parse(const char *text)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(LINK_PORT)};
    char mapped[64];
    snprintf(mapped, sizeof mapped, "%s%s", strchr(text, ':') == NULL ? "::ffff:" : "", text);
    errno = 0;
    if (inet_pton(AF_INET6, mapped, &address.sin6_addr) != 1) {
        tour_die("%s is no address", text);
    }
    return address;
}

static struct link established(int socket)
{
    struct link link = {.socket = socket};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int one = 1;
    socklen_t size = sizeof link.local;
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (getsockname(socket, (struct sockaddr *)&link.local, &size) != 0 ||
        getpeername(socket, (struct sockaddr *)&link.remote, &size) != 0) {
        tour_die("the addresses of the TCP connection");
    }
    return link;
}

struct link link_accept(const char *text)
{
    struct sockaddr_in6 address = parse(text);
    int one = 1;
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0) {
        tour_die("listen at %s", text);
    }
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) {
        tour_die("accept at %s", text);
    }
    close(listener);
    return established(socket);
}

struct link link_connect(const char *text)
{
    struct sockaddr_in6 address = parse(text);
    long deadline = tour_now_ms() + CONNECTS_MS;
    for (;;) {
        int tried = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(tried, (struct sockaddr *)&address, sizeof address) == 0) {
            return established(tried);
        }
        if (tour_now_ms() > deadline) {
            tour_die("connect to %s", text);
        }
        close(tried);
        usleep(50000); /* the other end is being started */
    }
}

void link_swap(const struct link *link, const void *mine, void *ret_theirs, size_t size)
{
    if (send(link->socket, mine, size, MSG_NOSIGNAL) != (ssize_t)size) {
        tour_die("the other end is gone");
    }
    errno = 0;
    if (recv(link->socket, ret_theirs, size, MSG_WAITALL) != (ssize_t)size) {
        tour_die("the other end has left or is silent");
    }
}

void link_meet(const struct link *link)
{
    char mine = 'm', theirs;
    link_swap(link, &mine, &theirs, 1);
    errno = 0;
    if (theirs != 'm') {
        tour_die("the two ends have lost step");
    }
}
