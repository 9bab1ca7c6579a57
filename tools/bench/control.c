#include "tools/bench/control.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/clock.h"
#include "tools/stop.h"

#define CONNECT_TIMEOUT_MS 5000
#define SILENCE_MS         (2 * PATIENCE_S * 1000)
#define PROBE_S            5

bool control_error(struct weir_error *ret_error, enum weir_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    ret_error->status = status;
    vsnprintf(ret_error->message, sizeof(ret_error->message), format, arguments);
    va_end(arguments);
    return false;
}

/* "HOST:PORT", "[V6]:PORT", "*:PORT" to addresses, of "*" each family's; NULL: ret_error says why
 * not. */
static struct addrinfo *resolve(const char *address, bool is_passive, struct weir_error *ret_error)
{
    char host[CONTROL_ADDRESS_MAX];
    snprintf(host, sizeof(host), "%s", address);
    char *colon = strrchr(host, ':');
    if (colon == NULL) {
        control_error(ret_error, WEIR_INVALID, "%s: not HOST:PORT", address);
        return NULL;
    }
    *colon = '\0';
    char *name = host;
    if (name[0] == '[' && colon > name && colon[-1] == ']') {
        colon[-1] = '\0';
        name++;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = is_passive ? AI_PASSIVE : 0};
    struct addrinfo *list;
    bool is_any = is_passive && (name[0] == '\0' || strcmp(name, "*") == 0);
    int error = getaddrinfo(is_any ? NULL : name, colon + 1, &hints, &list);
    if (error != 0) {
        control_error(ret_error, WEIR_ADDRESS, "%s: %s", address, gai_strerror(error));
        return NULL;
    }
    return list;
}

/* "127.0.0.1", "[::1]" */
static void host_text(const struct sockaddr_storage *address, char ret_host[CONTROL_ADDRESS_MAX])
{
    char name[NI_MAXHOST] = "?";
    getnameinfo((const struct sockaddr *)address, sizeof(*address), name, sizeof(name), NULL, 0,
                NI_NUMERICHOST);
    bool is_v6 = strchr(name, ':') != NULL;
    snprintf(ret_host, CONTROL_ADDRESS_MAX, is_v6 ? "[%.250s]" : "%.250s", name);
}

static unsigned port_of(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

/* -1: errno says why not. */
static int listen_at(const struct addrinfo *at)
{
    int on = 1, off = 0;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->ai_family == AF_INET6) { /* of all addresses, IPv4's are among them */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 8) == 0) {
        return fd;
    }
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int control_listen(const char *address, char ret_bound[CONTROL_ADDRESS_MAX],
                   struct weir_error *ret_error)
{
    struct addrinfo *list = resolve(address, true, ret_error);
    bool is_any = address[0] == ':' || address[0] == '*';
    int fd = -1;
    for (struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        fd = is_any && at->ai_family != AF_INET6 ? -1 : listen_at(at);
    }
    for (struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        fd = listen_at(at);
    }
    if (list != NULL && fd < 0) {
        control_error(ret_error, WEIR_ADDRESS, "%s: cannot listen: %s", address, strerror(errno));
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
    if (fd >= 0) {
        struct sockaddr_storage bound = {0};
        socklen_t length = sizeof(bound);
        char host[CONTROL_ADDRESS_MAX];
        getsockname(fd, (struct sockaddr *)&bound, &length);
        host_text(&bound, host);
        snprintf(ret_bound, CONTROL_ADDRESS_MAX, "%.280s:%u", host, port_of(&bound));
    }
    return fd;
}

/* A host that is gone is noticed, and who takes nothing holds no sender. */
static void tune(int fd)
{
    int on = 1, seconds = PROBE_S, probes = PATIENCE_S / PROBE_S - 1;
    const struct timeval limit = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

void control_begin(struct control *control, int fd)
{
    *control = (struct control){.fd = fd, .is_server = true, .silence_ms = SILENCE_MS};
    tune(fd);
}

/* Connects within the time; errno says why not. */
static bool connect_in_time(int fd, const struct addrinfo *target)
{
    struct timeval limit = {.tv_sec = CONNECT_TIMEOUT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, target->ai_addr, target->ai_addrlen) == 0) {
        return true;
    }
    errno = errno == EINPROGRESS ? ETIMEDOUT : errno;
    return false;
}

bool control_connect(struct control *control, const char *address, struct weir_error *ret_error)
{
    control->fd = -1;
    control->length = 0;
    control->is_server = control->is_answer_due = false;
    struct addrinfo *list = resolve(address, false, ret_error);
    for (struct addrinfo *at = list; at != NULL && control->fd < 0; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect_in_time(fd, at)) {
            tune(fd);
            control->fd = fd;
            continue;
        }
        bool is_refused = errno == ECONNREFUSED;
        control_error(ret_error, is_refused ? WEIR_REFUSED : WEIR_UNREACHABLE, "%s: %s%s", address,
                      strerror(errno),
                      is_refused ? "; is 'weir bench --serve' running there?" : "");
        if (fd >= 0) {
            close(fd);
        }
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
    return control->fd >= 0;
}

void control_close(struct control *control)
{
    if (control->fd >= 0) {
        close(control->fd);
    }
    control->fd = -1;
}

bool control_send(struct control *control, json_t *object, struct weir_error *ret_error)
{
    char *line = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    size_t length = line != NULL ? strlen(line) : 0;
    if (line == NULL || length + 1 >= CONTROL_LINE_MAX) {
        free(line);
        return control_error(ret_error, WEIR_NO_MEMORY, "a line of control too long");
    }
    line[length++] = '\n';
    size_t sent = 0;
    while (sent < length) {
        ssize_t count = send(control->fd, line + sent, length - sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            break;
        }
        sent += (size_t)count;
    }
    int error = errno;
    free(line);
    if (sent < length && error == EAGAIN) {
        return control_error(ret_error, WEIR_TIMED_OUT, "the other end takes nothing");
    }
    return sent == length ||
           control_error(ret_error, WEIR_PEER_LOST, "the other end is gone: %s", strerror(error));
}

/* Takes the first line of what was read; NULL: there is none, or it is no object. */
static json_t *take_line(struct control *control, size_t length, struct weir_error *ret_error)
{
    json_t *object = json_loadb(control->line, length, JSON_REJECT_DUPLICATES, NULL);
    memmove(control->line, control->line + length + 1, control->length - length - 1);
    control->length -= length + 1;
    const char *failure = json_string_value(json_object_get(object, "error"));
    if (!json_is_object(object)) {
        control_error(ret_error, WEIR_PROTOCOL, "the other end does not speak this protocol");
    } else if (failure != NULL) {
        control_error(ret_error, WEIR_PROTOCOL, "the other end: %.300s", failure);
    } else {
        return object;
    }
    json_decref(object);
    return NULL;
}

json_t *control_receive(struct control *control, unsigned timeout_ms, struct weir_error *ret_error)
{
    uint64_t end_ms = clock_now_ns() / 1000000 + timeout_ms; /* of the whole line */
    for (;;) {
        char *end = memchr(control->line, '\n', control->length);
        if (end != NULL) {
            return take_line(control, (size_t)(end - control->line), ret_error);
        }
        if (stop_asked()) { /* in the midst of what was measured, too */
            control_error(ret_error, WEIR_CANCELED, "interrupted");
            return NULL;
        }
        if (control->length == sizeof(control->line)) {
            control_error(ret_error, WEIR_PROTOCOL, "the other end sent a line that has no end");
            return NULL;
        }
        struct pollfd wait = {.fd = control->fd, .events = POLLIN};
        uint64_t at_ms = clock_now_ns() / 1000000, left_ms = at_ms < end_ms ? end_ms - at_ms : 0;
        int ready = poll(&wait, 1, left_ms < STOP_LOOK_MS ? (int)left_ms : STOP_LOOK_MS);
        if (ready == 0 && left_ms > STOP_LOOK_MS) {
            continue;
        }
        if (ready == 0 || (ready > 0 && at_ms > end_ms)) {
            control_error(ret_error, WEIR_TIMED_OUT, "the other end said nothing for %u s",
                          timeout_ms / 1000);
            return NULL;
        }
        ssize_t count = ready < 0 ? -1
                                  : recv(control->fd, control->line + control->length,
                                         sizeof(control->line) - control->length, 0);
        if (count < 0 && errno == EINTR) {
            control_error(ret_error, WEIR_CANCELED, "interrupted");
            return NULL;
        }
        if (count <= 0) {
            control_error(ret_error, WEIR_DISCONNECTED, "the other end closed the connection");
            return NULL;
        }
        control->length += (size_t)count;
    }
}

json_t *control_ask(struct control *control, json_t *question, unsigned timeout_ms,
                    struct weir_error *ret_error)
{
    return control_send(control, question, ret_error)
               ? control_receive(control, timeout_ms, ret_error)
               : NULL;
}

bool control_interrupts(const struct control *control)
{
    char byte;
    ssize_t count = recv(control->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count > 0) {
        return !control->is_server && !control->is_answer_due;
    }
    return count == 0 || (errno != EAGAIN && errno != EINTR);
}

/* False: there is none. An IPv4 address in the form of IPv6's becomes what it is. */
static bool name_end(const struct control *control, bool is_peer,
                     struct sockaddr_storage *ret_address, char ret_host[CONTROL_ADDRESS_MAX])
{
    socklen_t length = sizeof(*ret_address);
    memset(ret_address, 0, sizeof(*ret_address));
    struct sockaddr *address = (struct sockaddr *)ret_address;
    if ((is_peer ? getpeername(control->fd, address, &length)
                 : getsockname(control->fd, address, &length)) != 0) {
        return false;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ret_address;
    if (v6->sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};
        memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, sizeof(v4.sin_addr));
        memset(ret_address, 0, sizeof(*ret_address));
        memcpy(ret_address, &v4, sizeof(v4));
    }
    host_text(ret_address, ret_host);
    return true;
}

bool control_local(const struct control *control, struct sockaddr_storage *ret_address,
                   char ret_host[CONTROL_ADDRESS_MAX])
{
    return name_end(control, false, ret_address, ret_host);
}

bool control_peer(const struct control *control, char ret_host[CONTROL_ADDRESS_MAX])
{
    struct sockaddr_storage address;
    return name_end(control, true, &address, ret_host);
}
