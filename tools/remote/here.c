#include "tools/remote/here.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void here_host(char ret_text[128])
{
    struct stat status;
    char boot[64] = "";
    FILE *stream = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool good = stream != NULL && fscanf(stream, "%63s", boot) == 1 &&
                stat("/proc/self/ns/net", &status) == 0;
    if (stream != NULL) {
        fclose(stream);
    }
    if (good) {
        snprintf(ret_text, 128, "%s/%llu", boot, (unsigned long long)status.st_ino);
    } else {
        strcpy(ret_text, "?");
    }
}

/* The address of ours that the remote shell's connection came to; "" if there is none. */
static void shell_address(char ret_text[INET6_ADDRSTRLEN])
{
    const char *words = getenv("SSH_CONNECTION"); /* CLIENT PORT SERVER PORT */
    char server[INET6_ADDRSTRLEN] = "";
    if (words == NULL || sscanf(words, "%*s %*s %45s", server) != 1) {
        server[0] = 0;
    }
    strcpy(ret_text, server);
}

static bool is_of_device(const struct weir_fabric *fabric, const char *text)
{
    struct weir_fabric_facts facts;
    char gid[WEIR_GID_LENGTH];
    weir_fabric_facts(fabric, &facts);
    for (unsigned i = 0; i < facts.gid_count; i++) {
        if (weir_fabric_gid(fabric, i, gid) && strcmp(gid, text) == 0) {
            return true;
        }
    }
    return false;
}

/* Its text without a port; false: none that another host, or this one, could name. */
static bool print_address(const struct sockaddr *address, char ret_text[INET6_ADDRSTRLEN])
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return inet_ntop(AF_INET, &v4->sin_addr, ret_text, INET6_ADDRSTRLEN) != NULL;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
           inet_ntop(AF_INET6, &v6->sin6_addr, ret_text, INET6_ADDRSTRLEN) != NULL;
}

void here_addresses(const struct weir_fabric *fabric, unsigned port_v4, unsigned port_v6,
                    struct greeting *greeting)
{
    struct ifaddrs *list = NULL;
    char by_shell[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN];
    shell_address(by_shell);
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (const struct ifaddrs *one = list;
         one != NULL && greeting->address_count < GREETING_ADDRESSES_MAX; one = one->ifa_next) {
        if (one->ifa_addr == NULL || (one->ifa_flags & IFF_UP) == 0 ||
            !print_address(one->ifa_addr, text)) {
            continue;
        }
        bool is_v6 = one->ifa_addr->sa_family == AF_INET6;
        unsigned port = is_v6 ? port_v6 : port_v4;
        if (port == 0) {
            continue;
        }
        struct greeting_address *address = &greeting->addresses[greeting->address_count++];
        snprintf(address->text, sizeof(address->text), is_v6 ? "[%s]:%u" : "%s:%u", text, port);
        address->of_device = is_of_device(fabric, text);
        address->of_shell = strcmp(text, by_shell) == 0;
    }
    freeifaddrs(list);
}
