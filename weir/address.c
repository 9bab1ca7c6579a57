/* Parsing, resolving and printing of addresses. */
#include "weir/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weir/error_private.h"

/* Splits at the last colon; brackets around the host are taken off. */
static bool split(const char *text, char ret_host[256], char ret_port[8])
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon[1] == '\0' || strlen(colon + 1) >= 6 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strtoul(colon + 1, NULL, 10) > UINT16_MAX) { /* getaddrinfo takes what is left of it */
        return false;
    }
    size_t length = (size_t)(colon - text);
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    } else if (memchr(text, ':', length) != NULL) {
        return false;
    }
    if (length >= 256) {
        return false;
    }
    memcpy(ret_host, text, length);
    ret_host[length] = '\0';
    strcpy(ret_port, colon + 1);
    return true;
}

static void take_family(const struct addrinfo *list, int family,
                        struct sockaddr_storage ret_addresses[ADDRESSES_MAX], unsigned *count)
{
    for (const struct addrinfo *each = list; each != NULL; each = each->ai_next) {
        if (each->ai_family == family && *count < ADDRESSES_MAX) {
            memset(&ret_addresses[*count], 0, sizeof(ret_addresses[0]));
            memcpy(&ret_addresses[(*count)++], each->ai_addr, each->ai_addrlen);
        }
    }
}

/* A listener at every address of IPv6 takes IPv4's connections, too, as far as the system knows
 * IPv6. */
static int family_of_all(void)
{
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno == EAFNOSUPPORT ? AF_INET : AF_INET6;
    }
    close(fd);
    return AF_INET6;
}

enum weir_status address_resolve(const char *text, bool is_passive,
                                 struct sockaddr_storage ret_addresses[ADDRESSES_MAX],
                                 unsigned *ret_count, struct weir_error *ret_error)
{
    char host[256];
    char port[8];
    if (text == NULL || !split(text, host, port)) {
        return error_set(ret_error, WEIR_INVALID, "address \"%.200s\": not HOST:PORT or [V6]:PORT",
                         text != NULL ? text : "");
    }
    bool is_any = host[0] == '\0' || strcmp(host, "*") == 0;
    if (is_any && !is_passive) {
        return error_set(ret_error, WEIR_INVALID, "address \"%.200s\": no host", text);
    }
    struct addrinfo hints = {
        .ai_family = is_any ? family_of_all() : AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (is_passive ? AI_PASSIVE : 0),
    };
    struct addrinfo *list = NULL;
    int error = getaddrinfo(is_any ? NULL : host, port, &hints, &list);
    if (error == EAI_SYSTEM || error == EAI_MEMORY) {
        return error_set(ret_error, error == EAI_MEMORY ? WEIR_NO_MEMORY : WEIR_SYSTEM,
                         "%.200s: %s", text, error == EAI_MEMORY ? "no memory" : strerror(errno));
    }
    if (error != 0) {
        return error_set(ret_error, WEIR_ADDRESS, "%.200s: %s", text, gai_strerror(error));
    }
    unsigned count = 0;
    take_family(list, AF_INET, ret_addresses, &count);
    take_family(list, AF_INET6, ret_addresses, &count);
    freeaddrinfo(list);
    if (count == 0) {
        return error_set(ret_error, WEIR_ADDRESS, "%.200s: no address of IP", text);
    }
    *ret_count = count;
    return WEIR_OK;
}

bool address_is_all_of_v6(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* "%eth0": an address of one link is none without it. */
static void format_scope(const struct sockaddr_in6 *address, char ret_scope[IF_NAMESIZE + 1])
{
    char name[IF_NAMESIZE];
    ret_scope[0] = '\0';
    if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) || address->sin6_scope_id == 0) {
        return;
    }
    if (if_indextoname(address->sin6_scope_id, name) != NULL) {
        snprintf(ret_scope, IF_NAMESIZE + 1, "%%%s", name);
    } else {
        snprintf(ret_scope, IF_NAMESIZE + 1, "%%%u", address->sin6_scope_id);
    }
}

void address_format(const struct sockaddr *address, char ret_text[ADDRESS_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in6 *mapped = (const struct sockaddr_in6 *)address;
    struct sockaddr_in plain = {.sin_family = AF_INET};
    if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&mapped->sin6_addr)) {
        plain.sin_port = mapped->sin6_port;
        memcpy(&plain.sin_addr, mapped->sin6_addr.s6_addr + 12, sizeof(plain.sin_addr));
        address = (const struct sockaddr *)&plain;
    }
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(ret_text, ADDRESS_TEXT_MAX, "%s:%u", host, ntohs(v4->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        char scope[IF_NAMESIZE + 1];
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        format_scope(v6, scope);
        snprintf(ret_text, ADDRESS_TEXT_MAX, "[%s%s]:%u", host, scope, ntohs(v6->sin6_port));
    } else {
        snprintf(ret_text, ADDRESS_TEXT_MAX, "?");
    }
}

socklen_t address_length(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}
