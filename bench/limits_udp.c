/* What the machine allows, by UDP, to who must do what RoCEv2 demands and nothing else: each packet
 * sealed and checked by a CRC-32, its payload copied at both ends, what comes acknowledged. Nothing
 * of Weir is in here; system calls, options and control messages are those that it needs. Both ends
 * spin, and a packet that is lost is the end.
 *
 *   limits_udp serve ADDRESS           the other end of what follows, until it is killed
 *   limits_udp message ADDRESS         8 B and its answer, each behind an acknowledgement that is
 *                                      sent with it: us one way
 *   limits_udp carried ADDRESS         the same, both in one datagram
 *   limits_udp stream ADDRESS PAYLOAD  packets of so many bytes: GB/s
 *
 * Each takes about half a second and prints one number. */
#include <arpa/inet.h>
#include <errno.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECONDS     0.5
#define PATIENCE_S  5
#define PORT        18491
#define BUFFER      (16 << 20)
#define MESSAGE     ((size_t)1 << 20) /* bytes, at both ends: a stream goes round in them */
#define WINDOW      ((size_t)512 << 10)
#define READS       16
#define READ_BYTES  65536
#define RUN_BYTES   64000
#define RUN_PACKETS 64
#define SEAL        4u
#define ACK_BYTES   28u /* what follows it in one send is shorter */
#define SHORT_BYTES 20u

enum kind {
    ACK,
    SHORT,
    CARRIED,
    DATA
};

struct header { /* as long as a BTH */
    uint32_t kind, payload, number;
};

struct end {
    int fd;
    struct sockaddr_in peer;
    struct in_addr here;
    uint32_t prefix; /* the CRC of what it covers before a packet */
    uint8_t *memory;
    uint32_t expected; /* of a stream */
    struct mmsghdr reads[READS];
    struct iovec places[READS];
    struct sockaddr_in names[READS];
    union {
        struct cmsghdr aligned;
        uint8_t bytes[256];
    } control[READS];
    uint8_t bytes[READS][READ_BYTES], run[RUN_BYTES];
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "limits_udp: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void set(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
        fail("setsockopt");
    }
}

static struct end *open_end(const char *address, int serves)
{
    struct end *end = calloc(1, sizeof(*end));
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    uint8_t covered[36];
    if (end == NULL || (end->memory = calloc(1, MESSAGE)) == NULL ||
        inet_pton(AF_INET, address, serves ? &name.sin_addr : &end->peer.sin_addr) != 1) {
        fail(address);
    }
    memset(end->memory, 1, MESSAGE); /* else all that is read would be the one page of zeros */
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

/* A packet of `length` bytes, of which `payload` behind its header; returns its end. */
static uint8_t *put(const struct end *end, uint8_t *at, enum kind kind, uint32_t number,
                    size_t length, const uint8_t *payload, uint32_t payload_length)
{
    struct header header = {(uint32_t)kind, payload_length, number};
    memcpy(at, &header, sizeof(header));
    memcpy(at + sizeof(header), payload, payload_length);
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

/* The run up to `stop`, in packets of `segment` bytes, the last of which may be shorter. */
static void send_run(struct end *end, const uint8_t *stop, uint16_t segment)
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
    while (sendmsg(end->fd, &message, 0) < 0) {
        if (errno != EAGAIN) {
            fail("sendmsg");
        }
    }
}

/* A message, behind or with the acknowledgement of the one before. */
static void send_message(struct end *end, enum kind kind, uint32_t number)
{
    uint64_t word = number;
    uint8_t *at = end->run;
    uint16_t segment = ACK_BYTES + SEAL;
    if (kind == CARRIED) {
        at = put(end, at, CARRIED, number, ACK_BYTES + SHORT_BYTES, (uint8_t *)&word, sizeof(word));
        segment = (uint16_t)(at - end->run);
    } else {
        at = put(end, at, ACK, number - 1, ACK_BYTES, NULL, 0);
        at = put(end, at, SHORT, number, SHORT_BYTES, (uint8_t *)&word, sizeof(word));
    }
    send_run(end, at, segment);
}

static void acknowledge(struct end *end)
{
    send_run(end, put(end, end->run, ACK, end->expected, ACK_BYTES, NULL, 0), ACK_BYTES + SEAL);
}

/* One packet; returns its header. */
static struct header take(struct end *end, const uint8_t *bytes, size_t length)
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
    size_t place = header.kind == DATA ? (size_t)header.number * header.payload % MESSAGE : 0;
    memcpy(end->memory + place, bytes + sizeof(header), header.payload);
    return header;
}

static struct header take_data(struct end *end, const struct header *header)
{
    end->expected = header->number == 0 ? 0 : end->expected; /* another stream begins */
    if (header->number != end->expected++) {
        fail("a packet is lost");
    }
    if (end->expected % (WINDOW / 2 / header->payload) == 0) {
        acknowledge(end);
    }
    return *header;
}

/* The packets of a read; returns the last one's header. */
static struct header take_read(struct end *end, int index)
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
        header = take(end, end->bytes[index] + at, length - at < segment ? length - at : segment);
        if (header.kind == DATA) {
            take_data(end, &header);
        }
    }
    return header;
}

/* What has come: up to `most` reads. False: nothing. */
static int receive(struct end *end, unsigned most, struct header *ret_last)
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
        *ret_last = take_read(end, i);
    }
    return count > 0;
}

static void serve(const char *address)
{
    struct end *end = open_end(address, 1);
    struct header last = {.kind = SHORT};
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (receive(end, last.kind == DATA ? READS : 1, &last) && last.kind != DATA) {
            send_message(end, (enum kind)last.kind, last.number);
        }
    }
}

static void wait_for_one(struct end *end, struct header *ret_last)
{
    double began = now_s();
    while (!receive(end, 1, ret_last)) {
        if (now_s() - began > PATIENCE_S) {
            fail("no answer");
        }
    }
}

static void message(const char *address, enum kind kind)
{
    struct end *end = open_end(address, 0);
    struct header last;
    uint32_t count = 0;
    double began = now_s();
    do {
        send_message(end, kind, ++count);
        do {
            wait_for_one(end, &last);
        } while (last.number != count);
    } while (now_s() - began < SECONDS);
    printf("%.3f\n", (now_s() - began) / count / 2 * 1e6);
}

static void stream(const char *address, uint32_t payload)
{
    struct end *end = open_end(address, 0);
    size_t packet = sizeof(struct header) + payload + SEAL;
    uint32_t run = (uint32_t)(RUN_BYTES / packet);
    uint32_t window = (uint32_t)(WINDOW / payload), sent = 0;
    struct header acknowledged = {.number = 0};
    run = run < RUN_PACKETS ? run : RUN_PACKETS;
    double began = now_s();
    do {
        while (sent + run - acknowledged.number > window) {
            wait_for_one(end, &acknowledged);
        }
        uint8_t *at = end->run;
        for (uint32_t stop = sent + run; sent < stop; sent++) {
            const uint8_t *bytes = end->memory + (size_t)sent * payload % MESSAGE;
            at = put(end, at, DATA, sent, packet - SEAL, bytes, payload);
        }
        send_run(end, at, (uint16_t)packet);
    } while (now_s() - began < SECONDS);
    while (sent - acknowledged.number >= window / 2) {
        wait_for_one(end, &acknowledged);
    }
    printf("%.3f\n", (double)acknowledged.number * payload / (now_s() - began) * 1e-9);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    unsigned long payload = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (strcmp(what, "serve") == 0) {
        serve(argv[2]);
    } else if (strcmp(what, "message") == 0) {
        message(argv[2], SHORT);
    } else if (strcmp(what, "carried") == 0) {
        message(argv[2], CARRIED);
    } else if (strcmp(what, "stream") == 0 && payload > 0 && payload <= 8192 &&
               MESSAGE % payload == 0) {
        stream(argv[2], (uint32_t)payload);
    } else {
        fprintf(stderr, "usage: limits_udp serve ADDRESS | message ADDRESS | carried ADDRESS |"
                        " stream ADDRESS PAYLOAD\n");
        return 2;
    }
    return 0;
}
