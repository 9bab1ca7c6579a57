/* A routing socket that has joined the groups of links and addresses. What its messages say is not
 * looked at: they come in bursts, and the table is read anew anyway. */
#include "rnic/io/udp/address_watch.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rnic/io/system/raw_socket.h"

int address_watch_open(void)
{
    int descriptor = raw_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    const struct sockaddr_nl groups = {
        .nl_family = AF_NETLINK,
        .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR,
    };
    if (descriptor >= 0 && bind(descriptor, (const struct sockaddr *)&groups, sizeof groups) != 0) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

bool address_watch_take(int descriptor)
{
    char message[8192];
    bool taken = false;
    for (;;) {
        ssize_t length = recv(descriptor, message, sizeof message, MSG_DONTWAIT);
        /* ENOBUFS: messages were lost, so there were some. */
        if (length < 0 && errno != EINTR && errno != ENOBUFS) {
            return taken;
        }
        taken |= length >= 0 || errno == ENOBUFS;
    }
}
