/* Addresses come from getifaddrs, MTUs from SIOCGIFMTU, routes from the kernel's own choice for a
 * connected UDP socket, which sends nothing. */
#include "rnic/io/udp/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"
#include "rnic/io/system/raw_socket.h"
#include "rnic/io/system/shortage.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

/* IPv6 and UDP, and the longest headers that stand before a payload: RETH and ImmDt. */
#define HEADERS_BEFORE_PAYLOAD (40u + 8u + BTH_LENGTH + 16u + 4u + ICRC_LENGTH)
#define LINK_MTU_DEFAULT       1500u

enum path_mtu address_path_mtu(uint32_t link_mtu)
{
    enum path_mtu mtu = PATH_MTU_4096;
    while (mtu > PATH_MTU_256 && path_mtu_bytes(mtu) + HEADERS_BEFORE_PAYLOAD > link_mtu) {
        mtu--;
    }
    return mtu;
}

static struct gid gid_from_ipv4(const struct in_addr *address)
{
    struct gid gid = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
    memcpy(gid.bytes + 12, address, 4);
    return gid;
}

enum status address_from_socket(const struct sockaddr *socket, struct gid *ret_gid,
                                uint16_t *ret_port)
{
    if (socket->sa_family == AF_INET) {
        struct sockaddr_in ipv4;
        memcpy(&ipv4, socket, sizeof ipv4);
        *ret_gid = gid_from_ipv4(&ipv4.sin_addr);
        *ret_port = ntohs(ipv4.sin_port);
        return STATUS_OK;
    }
    if (socket->sa_family == AF_INET6) {
        struct sockaddr_in6 ipv6;
        memcpy(&ipv6, socket, sizeof ipv6);
        memcpy(ret_gid->bytes, &ipv6.sin6_addr, 16);
        *ret_port = ntohs(ipv6.sin6_port);
        return STATUS_OK;
    }
    return STATUS_UNSUPPORTED;
}

static bool gid_is_link_local(const struct gid *gid)
{
    return gid->bytes[0] == 0xfe && (gid->bytes[1] & 0xc0) == 0x80;
}

static bool gid_is_loopback(const struct gid *gid)
{
    static const struct gid ipv6_loopback = {{[15] = 1}};
    return gid_is_ipv4(gid) ? gid->bytes[12] == 127 : gid_equal(gid, &ipv6_loopback);
}

socklen_t address_to_socket(const struct gid *gid, uint16_t port, uint32_t interface_index,
                            struct sockaddr_storage *ret_socket)
{
    memset(ret_socket, 0, sizeof *ret_socket);
    if (gid_is_ipv4(gid)) {
        struct sockaddr_in *ipv4 = (struct sockaddr_in *)ret_socket;
        ipv4->sin_family = AF_INET;
        ipv4->sin_port = htons(port);
        memcpy(&ipv4->sin_addr, gid->bytes + 12, 4);
        return sizeof *ipv4;
    }
    struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)ret_socket;
    ipv6->sin6_family = AF_INET6;
    ipv6->sin6_port = htons(port);
    ipv6->sin6_scope_id = gid_is_link_local(gid) ? interface_index : 0;
    memcpy(&ipv6->sin6_addr, gid->bytes, 16);
    return sizeof *ipv6;
}

static int rank(const struct address *address)
{
    if (address->loopback) {
        return gid_is_ipv4(&address->gid) ? 3 : 4;
    }
    if (gid_is_ipv4(&address->gid)) {
        return 0;
    }
    return address->link_local ? 2 : 1;
}

static uint32_t link_mtu(int socket, const char *interface)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, interface, strnlen(interface, IF_NAMESIZE - 1));
    if (ioctl(socket, SIOCGIFMTU, &request) != 0 || request.ifr_mtu <= 0) {
        return LINK_MTU_DEFAULT;
    }
    return (uint32_t)request.ifr_mtu;
}

static void read_mac(const struct ifaddrs *list, struct address *address)
{
    for (const struct ifaddrs *one = list; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr != NULL && one->ifa_addr->sa_family == AF_PACKET &&
            strcmp(one->ifa_name, address->interface) == 0) {
            struct sockaddr_ll link;
            memcpy(&link, one->ifa_addr, sizeof link);
            if (link.sll_hatype == ARPHRD_ETHER && link.sll_halen == sizeof address->mac) {
                memcpy(address->mac, link.sll_addr, sizeof address->mac);
            }
            return;
        }
    }
}

/* What costs no system call. False: the interface is down or has no IP address here. */
static bool begin(const struct ifaddrs *one, struct address *ret_address)
{
    struct address address = {0};
    uint16_t port;
    if (one->ifa_addr == NULL || (one->ifa_flags & IFF_UP) == 0 ||
        address_from_socket(one->ifa_addr, &address.gid, &port) != STATUS_OK) {
        return false;
    }
    memcpy(address.interface, one->ifa_name, strnlen(one->ifa_name, IF_NAMESIZE - 1));
    address.loopback = (one->ifa_flags & IFF_LOOPBACK) != 0 || gid_is_loopback(&address.gid);
    address.link_local = gid_is_link_local(&address.gid);
    *ret_address = address;
    return true;
}

static void complete(const struct ifaddrs *list, int socket, struct address *address)
{
    address->interface_index = if_nametoindex(address->interface);
    address->link_mtu = link_mtu(socket, address->interface);
    address->path_mtu = address_path_mtu(address->link_mtu);
    read_mac(list, address);
}

/* Of a host that has more addresses than the table places, those of the first ranks are kept, and
 * what everybody calls himself by. False: there is none for this one. */
static bool make_place(struct address_table *table, const struct address *address)
{
    uint32_t last = table->count;
    if (table->count < ADDRESS_MAX) {
        return true;
    }
    while (last > 0 && gid_is_loopback(&table->entries[last - 1].gid)) {
        last--;
    }
    if (last == 0 ||
        (!gid_is_loopback(&address->gid) && rank(&table->entries[last - 1]) <= rank(address))) {
        return false;
    }
    memmove(&table->entries[last - 1], &table->entries[last],
            (table->count - last) * sizeof table->entries[0]);
    table->count--;
    return true;
}

/* Stable: addresses of one rank stay in the kernel's order. */
static void insert(struct address_table *table, const struct address *address)
{
    uint32_t place = table->count;
    while (place > 0 && rank(&table->entries[place - 1]) > rank(address)) {
        place--;
    }
    memmove(&table->entries[place + 1], &table->entries[place],
            (table->count - place) * sizeof table->entries[0]);
    table->entries[place] = *address;
    table->count++;
}

static bool parse_gid(const char *text, struct gid *ret_gid)
{
    struct in_addr ipv4;
    if (inet_pton(AF_INET, text, &ipv4) == 1) {
        *ret_gid = gid_from_ipv4(&ipv4);
        return true;
    }
    return inet_pton(AF_INET6, text, ret_gid->bytes) == 1;
}

/* All of 127/8 is local, though only 127.0.0.1 is listed. */
static bool find_named(const struct address_table *table, const struct gid *gid,
                       struct address *ret_address)
{
    static const struct gid localhost = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
    const struct address *found = address_find(table, gid);
    if (found == NULL && gid_is_ipv4(gid) && gid_is_loopback(gid)) {
        found = address_find(table, &localhost);
    }
    if (found != NULL) {
        *ret_address = *found;
        ret_address->gid = *gid;
    }
    return found != NULL;
}

static void keep(struct address_table *kept, const struct address *address)
{
    if (address_find(kept, &address->gid) == NULL && kept->count < ADDRESS_MAX) {
        kept->entries[kept->count++] = *address;
    }
}

static void keep_place(const struct address_table *table, const char *place,
                       struct address_table *kept)
{
    struct gid gid;
    struct address found;
    if (parse_gid(place, &gid)) {
        if (find_named(table, &gid, &found)) {
            keep(kept, &found);
        }
        return;
    }
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->entries[i].interface, place) == 0) {
            keep(kept, &table->entries[i]);
        }
    }
}

/* The next of several, "" where it is too long to be one; returns what is behind it. */
static const char *next_place(const char *places, char separator, char ret_place[INET6_ADDRSTRLEN])
{
    const char stop[2] = {separator, '\0'};
    size_t length = strcspn(places, stop), kept = length < INET6_ADDRSTRLEN ? length : 0;
    memcpy(ret_place, places, kept);
    ret_place[kept] = '\0';
    return places + length + (places[length] == separator);
}

void address_keep(struct address_table *table, const char *places, char separator)
{
    struct address_table kept = {.count = 0};
    while (*places != '\0') {
        char place[INET6_ADDRSTRLEN];
        places = next_place(places, separator, place);
        keep_place(table, place, &kept);
    }
    *table = kept;
}

/* Whether address_keep has a use for it. NULL: all are kept. */
static bool is_named(const struct address *address, const char *places)
{
    bool found = places == NULL || *places == '\0';
    while (!found && *places != '\0') {
        char place[INET6_ADDRSTRLEN];
        struct gid gid;
        places = next_place(places, ',', place);
        if (parse_gid(place, &gid)) {
            bool local = gid_is_ipv4(&gid) && gid_is_loopback(&gid);
            found = gid_equal(&gid, &address->gid) || (local && gid_is_loopback(&address->gid));
        } else {
            found = strcmp(address->interface, place) == 0;
        }
    }
    return found;
}

enum status address_read_bind(struct gid ret_addresses[2])
{
    static const struct gid none, any = {{[10] = 0xff, 0xff}};
    const char *wanted = secure_getenv("WEIR_BIND");
    if (wanted == NULL || *wanted == '\0') {
        return STATUS_NOT_FOUND;
    }
    ret_addresses[0] = ret_addresses[1] = none;
    for (;;) {
        struct gid gid = {{[10] = 0xff, 0xff}};
        char place[INET6_ADDRSTRLEN] = "";
        size_t length = strcspn(wanted, ",");
        memcpy(place, wanted, length < sizeof place ? length : 0);
        bool ipv6 = inet_pton(AF_INET, place, gid.bytes + 12) != 1;
        if ((ipv6 && inet_pton(AF_INET6, place, gid.bytes) != 1) || gid_equal(&gid, &none) ||
            gid_equal(&gid, &any) || !gid_equal(&ret_addresses[ipv6], &none)) {
            return STATUS_MALFORMED;
        }
        ret_addresses[ipv6] = gid;
        if (wanted[length] == '\0') {
            return STATUS_OK;
        }
        wanted += length + 1;
    }
}

enum status address_read(struct address_table *ret_table)
{
    const char *bound = secure_getenv("WEIR_BIND"), *wanted = secure_getenv("WEIR_ADDRESS");
    ret_table->count = 0;
    struct ifaddrs *list;
    int cancel = cancel_hold(); /* getifaddrs(3) is a cancellation point */
    int socket_for_mtu = raw_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_for_mtu < 0 || getifaddrs(&list) != 0) {
        bool is_passing = is_shortage(errno);
        if (socket_for_mtu >= 0) {
            close(socket_for_mtu);
        }
        cancel_restore(cancel);
        return is_passing ? STATUS_NO_MEMORY : STATUS_NOT_FOUND;
    }
    for (const struct ifaddrs *one = list; one != NULL; one = one->ifa_next) {
        struct address address;
        if (begin(one, &address) && is_named(&address, bound) && is_named(&address, wanted) &&
            address_find(ret_table, &address.gid) == NULL && make_place(ret_table, &address)) {
            complete(list, socket_for_mtu, &address);
            insert(ret_table, &address);
        }
    }
    freeifaddrs(list);
    close(socket_for_mtu);
    cancel_restore(cancel);

    if (bound != NULL && *bound != '\0') {
        address_keep(ret_table, bound, ',');
    }
    if (wanted != NULL && *wanted != '\0') {
        address_keep(ret_table, wanted, ',');
    }
    return ret_table->count > 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

const struct address *address_find(const struct address_table *table, const struct gid *gid)
{
    for (uint32_t i = 0; i < table->count; i++) {
        if (gid_equal(&table->entries[i].gid, gid)) {
            return &table->entries[i];
        }
    }
    return NULL;
}

enum path_mtu address_port_mtu(const struct address_table *table)
{
    enum path_mtu outside = PATH_MTU_4096, inside = PATH_MTU_4096;
    bool has_outside = false;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct address *address = &table->entries[i];
        enum path_mtu *mtu = address->loopback ? &inside : &outside;
        has_outside |= !address->loopback;
        if (address->path_mtu < *mtu) {
            *mtu = address->path_mtu;
        }
    }
    return has_outside ? outside : inside;
}

/* Asks the kernel: the source address and MTU it would use. */
static enum status ask_kernel(const struct gid *remote, const struct gid *local,
                              uint32_t interface_index, struct address_route *ret_route)
{
    bool ipv4 = gid_is_ipv4(remote);
    int descriptor = raw_socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
        return is_shortage(errno) ? STATUS_NO_MEMORY : STATUS_NOT_FOUND;
    }
    enum status status = STATUS_NOT_FOUND;
    int cancel = cancel_hold(); /* so is connect(2) */
    struct sockaddr_storage name;
    socklen_t length;
    if (local != NULL) {
        length = address_to_socket(local, 0, interface_index, &name);
        if (bind(descriptor, (struct sockaddr *)&name, length) != 0) {
            goto out;
        }
    }
    length = address_to_socket(remote, ROCE_UDP_PORT, interface_index, &name);
    if (connect(descriptor, (struct sockaddr *)&name, length) != 0) {
        goto out;
    }
    int mtu = 0;
    socklen_t mtu_length = sizeof mtu;
    uint16_t port;
    length = sizeof name;
    if (getsockname(descriptor, (struct sockaddr *)&name, &length) == 0 &&
        getsockopt(descriptor, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU : IPV6_MTU, &mtu,
                   &mtu_length) == 0) {
        ret_route->path_mtu = address_path_mtu((uint32_t)mtu);
        status = address_from_socket((struct sockaddr *)&name, &ret_route->local, &port);
    }
out:
    close(descriptor);
    cancel_restore(cancel);
    return status;
}

/* The first address of the table that the kernel takes as a source toward the peer. */
static enum status route_from_table(const struct address_table *table, const struct gid *remote,
                                    uint32_t interface_index, struct address_route *ret_route)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct address *address = &table->entries[i];
        if (gid_is_ipv4(&address->gid) != gid_is_ipv4(remote) ||
            gid_is_loopback(&address->gid) != gid_is_loopback(remote)) {
            continue;
        }
        uint32_t index = interface_index != 0 ? interface_index : address->interface_index;
        enum status status = ask_kernel(remote, &address->gid, index, ret_route);
        if (status == STATUS_OK || status == STATUS_NO_MEMORY) {
            return status;
        }
    }
    return STATUS_NOT_FOUND;
}

enum status address_route(const struct gid *remote, const struct gid *local,
                          uint32_t interface_index, struct address_route *ret_route)
{
    if (local != NULL && gid_is_ipv4(local) != gid_is_ipv4(remote)) {
        return STATUS_NOT_FOUND;
    }
    struct address_table *table = malloc(sizeof *table);
    if (table == NULL) {
        return STATUS_NO_MEMORY;
    }
    enum status status = address_read(table);
    const struct address *demanded = local != NULL ? address_find(table, local) : NULL;
    if (demanded != NULL && interface_index == 0) {
        interface_index = demanded->interface_index;
    }
    struct address_route route = {0};
    if (status == STATUS_OK) {
        status = ask_kernel(remote, local, interface_index, &route);
    }
    const struct address *source = status == STATUS_OK ? address_find(table, &route.local) : NULL;
    if (source == NULL && local == NULL && status != STATUS_NO_MEMORY) {
        /* The kernel's choice is not one of WEIR_ADDRESS. */
        status = route_from_table(table, remote, interface_index, &route);
        source = status == STATUS_OK ? address_find(table, &route.local) : NULL;
    }
    if (source != NULL) {
        route.interface_index = source->interface_index;
        *ret_route = route;
    }
    free(table);
    return source != NULL || status == STATUS_NO_MEMORY ? status : STATUS_NOT_FOUND;
}
