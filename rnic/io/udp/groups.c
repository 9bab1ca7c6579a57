#include "rnic/io/udp/groups.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"
#include "rnic/io/system/raw_socket.h"

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

struct membership {
    struct gid group;
    uint32_t interface_index;
    uint32_t users;
    int descriptor; /* the socket that carries it */
};

/* A socket that has joined what the link's own could not. It is bound to nothing: nothing reaches
 * it. */
struct carrier {
    struct carrier *next;
    int descriptor;
    enum udp_family family;
    uint32_t memberships;
};

struct groups {
    pthread_mutex_t mutex;
    struct udp *udp;
    struct membership *memberships;
    uint32_t count, capacity;
    struct carrier *carriers;
};

static enum udp_family family_of(const struct gid *group)
{
    return gid_is_ipv4(group) ? UDP_IPV4 : UDP_IPV6;
}

/* 0, or an errno value. */
static int change(int descriptor, const struct gid *group, uint32_t interface_index, bool join)
{
    int result;
    if (gid_is_ipv4(group)) {
        struct ip_mreqn request = {.imr_ifindex = (int)interface_index};
        memcpy(&request.imr_multiaddr, group->bytes + 12, sizeof request.imr_multiaddr);
        result = setsockopt(descriptor, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP,
                            &request, sizeof request);
    } else {
        struct ipv6_mreq request = {.ipv6mr_interface = interface_index};
        memcpy(&request.ipv6mr_multiaddr, group->bytes, sizeof request.ipv6mr_multiaddr);
        result = setsockopt(descriptor, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP,
                            &request, sizeof request);
    }
    return result == 0 ? 0 : errno;
}

/* Whether the link's socket gets every group that somebody on the host has joined. */
static void hear_all(struct groups *groups, enum udp_family family, int all)
{
    bool ipv4 = family == UDP_IPV4;
    int result = setsockopt(udp_descriptor(groups->udp, family), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                            ipv4 ? IP_MULTICAST_ALL : IPV6_MULTICAST_ALL, &all, sizeof all);
    (void)result; /* a kernel without it lets hear all: the device drops what is not for it */
}

struct groups *groups_create(struct udp *udp)
{
    struct groups *groups = calloc(1, sizeof *groups);
    if (groups == NULL) {
        return NULL;
    }
    pthread_mutex_init(&groups->mutex, NULL);
    groups->udp = udp;
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        if (udp_descriptor(udp, family) >= 0) {
            hear_all(groups, family, 0);
        }
    }
    return groups;
}

void groups_abandon(struct groups *groups)
{
    for (struct carrier *one = groups->carriers; one != NULL; one = one->next) {
        close(one->descriptor);
    }
}

void groups_destroy(struct groups *groups)
{
    if (groups == NULL) {
        return;
    }
    groups_abandon(groups);
    while (groups->carriers != NULL) {
        struct carrier *next = groups->carriers->next;
        free(groups->carriers);
        groups->carriers = next;
    }
    for (uint32_t i = 0; i < groups->count; i++) {
        const struct membership *one = &groups->memberships[i];
        if (one->descriptor == udp_descriptor(groups->udp, family_of(&one->group))) {
            change(one->descriptor, &one->group, one->interface_index, false);
        }
    }
    free(groups->memberships);
    pthread_mutex_destroy(&groups->mutex);
    free(groups);
}

static struct membership *find(const struct groups *groups, const struct gid *group,
                               uint32_t interface_index)
{
    for (uint32_t i = 0; i < groups->count; i++) {
        struct membership *one = &groups->memberships[i];
        if (one->interface_index == interface_index && gid_equal(&one->group, group)) {
            return one;
        }
    }
    return NULL;
}

/* 0, or an errno value: joins by a socket made for it. */
static int carry(struct groups *groups, const struct gid *group, uint32_t interface_index,
                 int *ret_descriptor)
{
    enum udp_family family = family_of(group);
    struct carrier *carrier = calloc(1, sizeof *carrier);
    if (carrier == NULL) {
        return ENOMEM;
    }
    int domain = family == UDP_IPV4 ? AF_INET : AF_INET6;
    *carrier = (struct carrier){.next = groups->carriers, .family = family, .memberships = 1};
    carrier->descriptor = raw_socket(domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = carrier->descriptor < 0 ? errno : 0;
    if (error == 0) {
        error = change(carrier->descriptor, group, interface_index, true);
    }
    if (error != 0) {
        if (carrier->descriptor >= 0) {
            close(carrier->descriptor);
        }
        free(carrier);
        return error;
    }
    groups->carriers = carrier;
    hear_all(groups, family, 1);
    *ret_descriptor = carrier->descriptor;
    return 0;
}

/* The link's own socket first, then those that carry others, then a new one. */
static int join(struct groups *groups, const struct gid *group, uint32_t interface_index,
                int *ret_descriptor)
{
    enum udp_family family = family_of(group);
    int own = udp_descriptor(groups->udp, family);
    int error = change(own, group, interface_index, true);
    if (error == 0) {
        *ret_descriptor = own;
        return 0;
    }
    for (struct carrier *one = groups->carriers;
         one != NULL && (error == ENOBUFS || error == ENOMEM); one = one->next) {
        if (one->family == family) {
            error = change(one->descriptor, group, interface_index, true);
            if (error == 0) {
                one->memberships++;
                *ret_descriptor = one->descriptor;
                return 0;
            }
        }
    }
    return error == ENOBUFS || error == ENOMEM
               ? carry(groups, group, interface_index, ret_descriptor)
               : error;
}

static bool make_place(struct groups *groups)
{
    if (groups->count < groups->capacity) {
        return true;
    }
    uint32_t capacity = groups->capacity == 0 ? 16 : 2 * groups->capacity;
    struct membership *more = realloc(groups->memberships, capacity * sizeof *more);
    if (more == NULL) {
        return false;
    }
    groups->memberships = more;
    groups->capacity = capacity;
    return true;
}

static enum status join_locked(struct groups *groups, const struct gid *group,
                               uint32_t interface_index)
{
    struct membership *known = find(groups, group, interface_index);
    if (known != NULL) {
        known->users++;
        return STATUS_OK;
    }
    if (udp_descriptor(groups->udp, family_of(group)) < 0) {
        return STATUS_UNSUPPORTED;
    }
    if (!make_place(groups)) {
        return STATUS_NO_MEMORY;
    }
    int descriptor = -1;
    int error = join(groups, group, interface_index, &descriptor);
    if (error != 0) {
        return error == ENOBUFS || error == ENOMEM || error == EMFILE ? STATUS_FULL
                                                                      : STATUS_NOT_FOUND;
    }
    groups->memberships[groups->count++] = (struct membership){
        .group = *group,
        .interface_index = interface_index,
        .users = 1,
        .descriptor = descriptor,
    };
    return STATUS_OK;
}

enum status groups_join(struct groups *groups, const struct gid *group, uint32_t interface_index)
{
    int cancel = cancel_hold(); /* carriers are closed */
    pthread_mutex_lock(&groups->mutex);
    enum status status = join_locked(groups, group, interface_index);
    pthread_mutex_unlock(&groups->mutex);
    cancel_restore(cancel);
    return status;
}

/* The last carrier's end: the link's socket has room again for what comes. */
static void lighten(struct groups *groups, int descriptor, enum udp_family family)
{
    bool is_last = true;
    struct carrier **place = &groups->carriers;
    while (*place != NULL) {
        struct carrier *one = *place;
        if (one->descriptor == descriptor && --one->memberships == 0) {
            *place = one->next;
            close(one->descriptor);
            free(one);
            continue;
        }
        is_last &= one->family != family;
        place = &one->next;
    }
    if (is_last) {
        hear_all(groups, family, 0);
    }
}

static void leave_locked(struct groups *groups, const struct gid *group, uint32_t interface_index)
{
    struct membership *known = find(groups, group, interface_index);
    if (known == NULL || --known->users > 0) {
        return;
    }
    int descriptor = known->descriptor;
    change(descriptor, group, interface_index, false);
    *known = groups->memberships[--groups->count];
    if (descriptor != udp_descriptor(groups->udp, family_of(group))) {
        lighten(groups, descriptor, family_of(group));
    }
}

void groups_leave(struct groups *groups, const struct gid *group, uint32_t interface_index)
{
    int cancel = cancel_hold();
    pthread_mutex_lock(&groups->mutex);
    leave_locked(groups, group, interface_index);
    pthread_mutex_unlock(&groups->mutex);
    cancel_restore(cancel);
}
