#include "tools/location.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "tools/transfer/wire/protocol.h"

#define SCHEME "weir://"

static bool port_is_valid(const char *text)
{
    size_t length = strlen(text);
    return length >= 1 && length <= 5 && strspn(text, "0123456789") == length &&
           atol(text) <= 65535;
}

static bool join(const char *host, size_t host_length, const char *port,
                 char ret_address[LOCATION_ADDRESS_LENGTH])
{
    if (!port_is_valid(port) || host_length > 253 || memchr(host, '/', host_length) != NULL) {
        return false;
    }
    bool bare_v6 = host_length > 0 && host[0] != '[' && memchr(host, ':', host_length) != NULL;
    snprintf(ret_address, LOCATION_ADDRESS_LENGTH, bare_v6 ? "[%.*s]:%s" : "%.*s:%s",
             (int)host_length, host, port);
    return true;
}

bool location_parse_address(const char *text, char ret_address[LOCATION_ADDRESS_LENGTH])
{
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (end == NULL || end == text + 1 || (end[1] != 0 && end[1] != ':')) {
            return false;
        }
        return join(text, (size_t)(end + 1 - text), end[1] == ':' ? end + 2 : LOCATION_PORT_DEFAULT,
                    ret_address);
    }
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return text[0] != 0 && join(text, strlen(text), LOCATION_PORT_DEFAULT, ret_address);
    }
    if (strchr(colon + 1, ':') != NULL) { /* two colons: all of it is a V6 */
        return join(text, strlen(text), LOCATION_PORT_DEFAULT, ret_address);
    }
    return join(text, (size_t)(colon - text), colon + 1, ret_address);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    }
    return false;
}

void location_host(const char *address, char ret_host[LOCATION_ADDRESS_LENGTH])
{
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : strlen(address);
    if (length >= 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    snprintf(ret_host, LOCATION_ADDRESS_LENGTH, "%.*s", (int)length, address);
}

bool location_is_loopback(const char *address)
{
    char name[LOCATION_ADDRESS_LENGTH];
    location_host(address, name);
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (name[0] == 0 || strcmp(name, "*") == 0 || getaddrinfo(name, NULL, &hints, &list) != 0) {
        return false;
    }
    bool loopback = list != NULL;
    for (const struct addrinfo *one = list; one != NULL; one = one->ai_next) {
        loopback = loopback && is_loopback(one->ai_addr);
    }
    freeaddrinfo(list);
    return loopback;
}

bool location_is_numeric(const char *address)
{
    char name[LOCATION_ADDRESS_LENGTH];
    location_host(address, name);
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    if (name[0] == 0 || getaddrinfo(name, NULL, &hints, &list) != 0) {
        return false;
    }
    freeaddrinfo(list);
    return true;
}

bool location_is_url(const char *text)
{
    return strncmp(text, SCHEME, strlen(SCHEME)) == 0;
}

bool location_parse_url(const char *text, char ret_address[LOCATION_ADDRESS_LENGTH],
                        const char **ret_path)
{
    if (!location_is_url(text)) {
        return false;
    }
    const char *host = text + strlen(SCHEME);
    size_t length = strcspn(host, "/");
    char address[LOCATION_ADDRESS_LENGTH];
    if (length == 0 || length >= sizeof(address) || host[0] == ':' || host[0] == '*' ||
        memchr(host, '@', length) != NULL) { /* who one is a key says */
        return false;
    }
    memcpy(address, host, length);
    address[length] = 0;
    if (!location_parse_address(address, ret_address)) {
        return false;
    }
    *ret_path = host[length] == '/' ? host + length : "/";
    return true;
}

static void wrong(struct location *location, const char *why)
{
    location->kind = LOCATION_WRONG;
    location->why = why;
}

/* The colon behind the host, if there is one before any slash; brackets hide those of a V6. */
static const char *host_end(const char *text)
{
    for (const char *at = text; *at != 0 && *at != '/'; at++) {
        bool begins = at == text || at[-1] == '@';
        if (*at == '[' && begins && strchr(at, ']') != NULL) {
            at = strchr(at, ']');
        }
        if (*at == ':') {
            return at > text ? at : NULL;
        }
    }
    return NULL;
}

/* "~" is where one arrives anyway. */
static const char *without_home(const char *path)
{
    if (path[0] == '~' && (path[1] == '/' || path[1] == 0)) {
        path += 1 + strspn(path + 1, "/");
    }
    return path[0] != 0 ? path : ".";
}

/* Takes [USER@]HOST as ssh is to have it: without the brackets of a V6 address. False: it is not of
 * that form. What ssh would take for an option is not, wherever the brackets stand. */
static bool take_host(const char *text, size_t whole, char ret_address[LOCATION_ADDRESS_LENGTH])
{
    const char *end = text + whole;
    const char *at = memchr(text, '@', whole);
    const char *host = at != NULL ? at + 1 : text;
    bool in_brackets = end - host >= 2 && host[0] == '[' && end[-1] == ']';
    size_t user = (size_t)(host - text), length = (size_t)(end - host) - (in_brackets ? 2 : 0);
    if (whole >= LOCATION_ADDRESS_LENGTH || at == text) {
        return false;
    }
    memcpy(ret_address, text, user);
    memcpy(ret_address + user, host + in_brackets, length);
    ret_address[user + length] = 0;
    return length > 0 && ret_address[0] != '-' && ret_address[user] != '-' &&
           strpbrk(ret_address, "[]/") == NULL;
}

/* A URL of another program's, or ours mistyped, and no host with a path from the root on. */
static bool is_foreign_url(const char *text, const char *colon)
{
    static const char *const schemes[] = {"rsync", "ssh", "scp", "sftp", "http",
                                          "https", "rsh", "ftp", "file", "weir"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t length = strlen(schemes[i]);
        if (length == (size_t)(colon - text) && strncasecmp(text, schemes[i], length) == 0) {
            return strncmp(colon, "://", 3) == 0;
        }
    }
    return false;
}

static void parse_shell(const char *text, const char *colon, struct location *location)
{
    if (is_foreign_url(text, colon)) {
        wrong(location, "a URL of another kind; through ssh it is [USER@]HOST:PATH, and "
                        "weir://HOST/PATH at weir serve");
    } else if (colon[1] == ':') {
        wrong(location, "two colons name a module of rsync's daemon; a server of ours is "
                        "weir://HOST/PATH");
    } else if (!take_host(text, (size_t)(colon - text), location->address)) {
        wrong(location, "not of the form [USER@]HOST:PATH (a local name with a colon is ./NAME)");
    } else if (colon[1] == '~' && colon[2] != '/' && colon[2] != 0) {
        wrong(location, "the homes of others are not known here; give their path from / on");
    } else {
        location->kind = LOCATION_SHELL;
        location->path = without_home(colon + 1);
    }
}

void location_parse(const char *text, struct location *ret_location)
{
    struct location location = {.kind = LOCATION_LOCAL, .path = text};
    const char *colon = host_end(text);
    if (location_is_url(text)) {
        location.kind = LOCATION_SERVER;
        if (!location_parse_url(text, location.address, &location.path)) {
            wrong(&location, "not of the form weir://HOST[:PORT]/PATH");
        }
    } else if (colon != NULL) {
        parse_shell(text, colon, &location);
    }
    bool is_elsewhere = location.kind == LOCATION_SERVER || location.kind == LOCATION_SHELL;
    if (is_elsewhere && strlen(location.path) > PATH_LENGTH_MAX) { /* no message has room for it */
        wrong(&location, "its path has more than 4095 bytes");
    }
    *ret_location = location;
}
