/* The word that two ends of a tour have beside the RDMA device: a TCP connection. Each call ends
 * the program with a message where the other end is gone or silent. */
#ifndef WEIR_TOUR_LINK_H
#define WEIR_TOUR_LINK_H

#include <netinet/in.h>
#include <stddef.h>

#define LINK_PORT 18600

struct link {
    int socket;
    struct sockaddr_in6 local, remote; /* IPv4 as ::ffff:a.b.c.d, which is also the GID */
};

struct link link_accept(const char *address);
struct link link_connect(const char *address);

/* Both send `size` bytes, both receive as many. */
void link_swap(const struct link *link, const void *mine, void *ret_theirs, size_t size);
/* Returns when both have come here. */
void link_meet(const struct link *link);

/* Ends the program: what could not be done, and errno if it is not 0. */
_Noreturn void tour_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Milliseconds of a clock that only goes forward. */
long tour_now_ms(void);

#endif
