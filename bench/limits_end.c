#include "limits_end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BUFFER    (16 << 20)
#define RUN_PLACE 65536
#define RUNS      42         /* twice what is in flight */
#define LENT      (48 << 10) /* bytes of a run, from which on the kernel has no copy of it */
#define COPIED    64u        /* of a run that is lent: what takes the address along */

double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void fail(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(1);
}

static void set(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
        fail("setsockopt");
    }
}

struct end *open_end(const char *address, int serves)
{
    struct end *end = calloc(1, sizeof(*end));
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    uint8_t covered[36];
    if (end == NULL ||
        inet_pton(AF_INET, address, serves ? &name.sin_addr : &end->peer.sin_addr) != 1) {
        fail(address);
    }
    end->peer.sin_family = AF_INET;
    end->peer.sin_port = htons(PORT);
    end->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (end->fd < 0 || (serves && bind(end->fd, (struct sockaddr *)&name, sizeof(name)) != 0)) {
        fail("bind");
    }
    set(end->fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    set(end->fd, IPPROTO_IP, IP_PKTINFO, 1);
    set(end->fd, IPPROTO_IP, IP_RECVTOS, 1);
    set(end->fd, IPPROTO_IP, IP_RECVTTL, 1);
    set(end->fd, IPPROTO_UDP, UDP_GRO, 1);
    (void)setsockopt(end->fd, SOL_SOCKET, SO_RCVBUFFORCE, &(int){BUFFER}, sizeof(int));
    (void)setsockopt(end->fd, SOL_SOCKET, SO_SNDBUFFORCE, &(int){BUFFER}, sizeof(int));
    end->places_of_runs = mmap(NULL, (size_t)RUNS * RUN_PLACE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (end->places_of_runs == MAP_FAILED || pipe2(end->pipe, O_CLOEXEC) != 0) {
        fail("memory and a pipe");
    }
    end->run = end->places_of_runs;
    memset(covered, 0xff, sizeof(covered));
    end->prefix = crc32_gzip_refl(0, covered, sizeof(covered));
    return end;
}

static uint32_t crc(const struct end *end, const uint8_t *bytes, size_t length)
{
    uint32_t found = crc32_gzip_refl(end->prefix, bytes, length);
#if defined(__x86_64__)
    /* ISA-L leaves wide registers in use, for which the next narrow instruction would wait. */
    if (__builtin_cpu_supports("avx")) {
        __asm__ volatile("vzeroupper" ::: "memory");
    }
#endif
    return found;
}

uint8_t *put_packet(const struct end *end, uint8_t *at, const struct header *header, size_t length,
                    const uint8_t *payload)
{
    memcpy(at, header, sizeof(*header));
    memcpy(at + sizeof(*header), payload, header->payload);
    uint32_t seal = crc(end, at, length);
    memcpy(at + length, &seal, SEAL);
    return at + length + SEAL;
}

static void tell(struct msghdr *message, int level, int type, const void *value, size_t length)
{
    struct cmsghdr *control =
        (struct cmsghdr *)((uint8_t *)message->msg_control + message->msg_controllen);
    control->cmsg_level = level;
    control->cmsg_type = type;
    control->cmsg_len = CMSG_LEN(length);
    memcpy(CMSG_DATA(control), value, length);
    message->msg_controllen += CMSG_SPACE(length);
}

static void send_message(const struct end *end, const struct msghdr *message, int flags)
{
    while (sendmsg(end->fd, message, flags) < 0) {
        if (errno != EAGAIN) {
            fail("sendmsg");
        }
    }
}

static void lend(struct end *end, struct msghdr message, struct iovec run)
{
    struct iovec head = {run.iov_base, COPIED};
    struct iovec rest = {(uint8_t *)run.iov_base + COPIED, run.iov_len - COPIED};
    ssize_t length = (ssize_t)rest.iov_len;
    message.msg_iov = &head;
    send_message(end, &message, MSG_MORE);
    if (vmsplice(end->pipe[1], &rest, 1, 0) != length ||
        splice(end->pipe[0], NULL, end->fd, NULL, rest.iov_len, 0) != length) {
        fail("splice");
    }
    end->run += RUN_PLACE;
    if (end->run == end->places_of_runs + (size_t)RUNS * RUN_PLACE) {
        end->run = end->places_of_runs;
    }
}

void send_run(struct end *end, const uint8_t *stop, uint16_t segment)
{
    union {
        struct cmsghdr aligned;
        uint8_t bytes[256];
    } control = {.bytes = {0}};
    struct iovec place = {end->run, (size_t)(stop - end->run)};
    struct msghdr message = {.msg_name = &end->peer,
                             .msg_namelen = sizeof(end->peer),
                             .msg_iov = &place,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes};
    struct in_pktinfo info = {.ipi_spec_dst = end->here};
    int traffic_class = 0, hop_limit = 64;
    tell(&message, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
    tell(&message, IPPROTO_IP, IP_TOS, &traffic_class, sizeof(traffic_class));
    tell(&message, IPPROTO_IP, IP_TTL, &hop_limit, sizeof(hop_limit));
    if (place.iov_len > segment) {
        tell(&message, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
    }
    if (end->lends && place.iov_len >= LENT) {
        lend(end, message, place);
    } else {
        send_message(end, &message, 0);
    }
}

void acknowledge(struct end *end)
{
    struct header header = {ACK, 0, end->expected};
    send_run(end, put_packet(end, end->run, &header, ACK_BYTES, NULL), ACK_BYTES + SEAL);
}

void expect(struct end *end, const struct header *header)
{
    if (header->number != end->expected++) {
        fail("a packet is lost");
    }
}

static struct header take_one(struct end *end, const uint8_t *bytes, size_t length,
                              take_packet *take, void *context)
{
    struct header header;
    uint32_t seal;
    if (length < sizeof(header) + SEAL) {
        fail("a stranger's packet");
    }
    memcpy(&header, bytes, sizeof(header));
    memcpy(&seal, bytes + length - SEAL, SEAL);
    if (crc(end, bytes, length - SEAL) != seal || header.payload > length - sizeof(header) - SEAL) {
        fail("damaged");
    }
    take(end, &header, bytes + sizeof(header), context);
    return header;
}

/* The packets of a read; returns the last one's header. */
static struct header take_read(struct end *end, int index, take_packet *take, void *context)
{
    struct msghdr *message = &end->reads[index].msg_hdr;
    size_t length = end->reads[index].msg_len, segment = length;
    struct header header = {0};
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL;
         control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
            int joined;
            memcpy(&joined, CMSG_DATA(control), sizeof(joined));
            segment = (size_t)joined;
        } else if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(control), sizeof(info));
            end->here = info.ipi_addr;
        }
    }
    end->peer = end->names[index];
    for (size_t at = 0; at < length; at += segment) {
        size_t left = length - at;
        header =
            take_one(end, end->bytes[index] + at, left < segment ? left : segment, take, context);
    }
    return header;
}

int receive(struct end *end, unsigned most, take_packet *take, void *context,
            struct header *ret_last)
{
    for (unsigned i = 0; i < most; i++) {
        end->places[i] = (struct iovec){end->bytes[i], READ_BYTES};
        end->reads[i].msg_hdr = (struct msghdr){.msg_name = &end->names[i],
                                                .msg_namelen = sizeof(end->names[i]),
                                                .msg_iov = &end->places[i],
                                                .msg_iovlen = 1,
                                                .msg_control = end->control[i].bytes,
                                                .msg_controllen = sizeof(end->control[i])};
    }
    ssize_t one = most == 1 ? recvmsg(end->fd, &end->reads[0].msg_hdr, 0) : 0;
    end->reads[0].msg_len = one > 0 ? (unsigned)one : 0;
    int count = most > 1 ? recvmmsg(end->fd, end->reads, most, 0, NULL) : one > 0;
    for (int i = 0; i < count; i++) {
        *ret_last = take_read(end, i, take, context);
    }
    return count > 0;
}

uint32_t packets_of_run(size_t packet)
{
    uint32_t fit = (uint32_t)(RUN_BYTES / packet);
    return fit < RUN_PACKETS ? fit : RUN_PACKETS;
}
