/* The attacker: listens to what passes, shoots at the server, and keeps what each shot was made of.
 *
 *   attack INTERFACE SERVER_PID SEED COUNT TRACE    as root of the peers' network namespace
 *   attack --print SEED TRACE NUMBER                the packet of that number of an earlier run
 *   attack --flood INTERFACE SECONDS SEED           connection requests of many sources
 *
 * It waits while the server's receive queues are half full, so that most shots reach the engine
 * and not only the kernel's counter of lost datagrams. A flood waits for nobody. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "rnic/wire/roce.h"
#include "test/hostile/forge.h"

#define EPOCH      4096u /* shots from one scene; a trace has a scene for each */
#define BATCH      64u
#define QUEUE_HALF (2u << 20) /* bytes, as the kernel counts them */

static struct scene scene;
static uint8_t frames[BATCH][FRAME_MAX];
static uint64_t sent[SHOT_KINDS], heard_by[AUDIENCES], waits;

static void need(bool truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "attack: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

static int open_packets(const char *interface, uint8_t ret_own[6])
{
    int descriptor = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    need(descriptor >= 0, "a packet socket");
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    need(ioctl(descriptor, SIOCGIFHWADDR, &request) == 0, "the interface's address");
    memcpy(ret_own, request.ifr_hwaddr.sa_data, 6);
    struct sockaddr_ll name = {.sll_family = AF_PACKET,
                               .sll_protocol = htons(ETH_P_ALL),
                               .sll_ifindex = (int)if_nametoindex(interface)};
    need(bind(descriptor, (struct sockaddr *)&name, sizeof name) == 0, "binding to the interface");
    int bytes = 8 << 20, on = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    /* Then our own shots do not pass our ears. */
    need(setsockopt(descriptor, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) == 0, "a bypass");
    return descriptor;
}

/* Everything that has passed since; tells the server's link address from the first IP frame. */
static void listen_in(int descriptor, const uint8_t own[6], uint8_t ret_peer[6])
{
    uint8_t frame[65536];
    for (int heard = 0; heard < 20000; heard++) {
        ssize_t length = recv(descriptor, frame, sizeof frame, MSG_DONTWAIT);
        if (length < 14) {
            return;
        }
        bool is_ours = memcmp(frame + 6, own, 6) == 0;
        if ((frame[0] & 1) == 0) {
            memcpy(ret_peer, is_ours ? frame : frame + 6, 6);
        }
        scene_hear(&scene, frame, (uint32_t)length);
    }
}

/* Bytes that wait in the server's sockets of the port. */
static uint64_t queued(const char *process)
{
    uint64_t most = 0;
    for (int family = 0; family < 2; family++) {
        char path[64], line[512];
        snprintf(path, sizeof path, "/proc/%s/net/udp%s", process, family == 0 ? "" : "6");
        FILE *file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            const char *port = strstr(line, ":12B7 ");
            unsigned long waiting = 0;
            if (port != NULL && sscanf(port, ":%*x %*x:%*x %*x %*x:%lx", &waiting) == 1) {
                most = waiting > most ? waiting : most;
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    return most;
}

static void let_it_read(const char *process)
{
    while (queued(process) > QUEUE_HALF) {
        waits++;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void aim(const struct shot *shot, const uint8_t own[6], const uint8_t peer[6],
                struct mmsghdr *message, struct iovec *place, unsigned at)
{
    *place = (struct iovec){frames[at], forge_frame(shot, own, peer, frames[at])};
    *message = (struct mmsghdr){.msg_hdr = {.msg_iov = place, .msg_iovlen = 1}};
}

static void send_batch(int descriptor, struct mmsghdr *messages, unsigned count)
{
    for (unsigned done = 0; done < count;) {
        int result = sendmmsg(descriptor, messages + done, count - done, 0);
        if (result > 0) {
            done += (unsigned)result;
        } else {
            need(errno == ENOBUFS || errno == EAGAIN || errno == EINTR, "sending");
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
    }
}

static void attack(const char *interface, const char *process, uint64_t seed, uint64_t count,
                   const char *trace_path)
{
    static struct shot shot;
    struct mmsghdr messages[BATCH] = {0};
    struct iovec places[BATCH];
    uint8_t own[6], peer[6] = {0};
    int descriptor = open_packets(interface, own);
    int trace = open(trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    need(trace >= 0, trace_path);
    while (scene.sample_count < SAMPLES_MAX) {
        listen_in(descriptor, own, peer);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    for (uint64_t number = 0; number < count;) {
        if (number % EPOCH == 0) {
            listen_in(descriptor, own, peer);
            need(write(trace, &scene, sizeof scene) == sizeof scene, trace_path);
        }
        unsigned batch = 0;
        for (; batch < BATCH && number < count; batch++, number++) {
            forge(seed, number, &scene, &shot);
            sent[shot.kind]++;
            heard_by[shot_audience(&shot)]++;
            aim(&shot, own, peer, &messages[batch], &places[batch], batch);
        }
        send_batch(descriptor, messages, batch);
        if (number / BATCH % 4 == 0) {
            let_it_read(process);
        }
    }
    close(trace);
    close(descriptor);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void flood(const char *interface, uint64_t seconds, uint64_t seed)
{
    static struct shot shot;
    struct mmsghdr messages[BATCH];
    struct iovec places[BATCH];
    uint8_t own[6], peer[6] = {0};
    int descriptor = open_packets(interface, own);
    while ((peer[0] | peer[1] | peer[2] | peer[3] | peer[4] | peer[5]) == 0) {
        listen_in(descriptor, own, peer);
    }
    uint64_t end = now_ms() + seconds * 1000, number = 0;
    while (now_ms() < end) {
        for (unsigned batch = 0; batch < BATCH; batch++, number++) {
            forge_kind(seed, number, &scene, SHOT_REQUEST, &shot);
            aim(&shot, own, peer, &messages[batch], &places[batch], batch);
        }
        send_batch(descriptor, messages, BATCH);
    }
    sent[SHOT_REQUEST] = number;
    close(descriptor);
}

static void report(void)
{
    uint64_t roce = 0;
    for (int kind = 0; kind < SHOT_KINDS; kind++) {
        printf("attack: %10" PRIu64 " %s\n", sent[kind], shot_kind_name((enum shot_kind)kind));
        roce += kind == SHOT_ADDRESS ? 0 : sent[kind];
    }
    printf("attack: %" PRIu64 " broadcast, %" PRIu64 " to the group of both, %" PRIu64
           " to that of the first, %" PRIu64 " to those of nobody\n",
           heard_by[AUDIENCE_BROADCAST], heard_by[AUDIENCE_GROUP_IPV4],
           heard_by[AUDIENCE_GROUP_IPV6], heard_by[AUDIENCE_OTHER]);
    printf("attack: %" PRIu64 " to the RoCE port, %" PRIu64 " elsewhere, %" PRIu64 " waits\n", roce,
           sent[SHOT_ADDRESS], waits);
}

static void print(uint64_t seed, const char *trace_path, uint64_t number)
{
    static struct shot shot;
    struct packet packet;
    char text[256] = "not a packet";
    int trace = open(trace_path, O_RDONLY | O_CLOEXEC);
    need(trace >= 0 && pread(trace, &scene, sizeof scene, (off_t)(number / EPOCH * sizeof scene)) ==
                           sizeof scene,
         trace_path);
    close(trace);
    forge(seed, number, &scene, &shot);
    if (shot.length > ICRC_LENGTH &&
        packet_parse(shot.bytes, shot.length - ICRC_LENGTH, &packet) == REFUSED_NOT) {
        packet_describe(&packet, text, sizeof text);
    }
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, shot.path.local.bytes, from, sizeof from);
    inet_ntop(AF_INET6, shot.path.remote.bytes, to, sizeof to);
    printf("%s: %s.%u > %s.%u, %u bytes: %s\n", shot_kind_name(shot.kind), from,
           shot.path.source_port, to, shot.port, shot.length, text);
    for (uint32_t i = 0; i < shot.length; i++) {
        printf("%02x%s", shot.bytes[i], i % 32 == 31 || i + 1 == shot.length ? "\n" : "");
    }
}

int main(int count, char **arguments)
{
    if (count == 5 && strcmp(arguments[1], "--print") == 0) {
        print(strtoull(arguments[2], NULL, 10), arguments[3], strtoull(arguments[4], NULL, 10));
        return 0;
    }
    if (count == 5 && strcmp(arguments[1], "--flood") == 0) {
        flood(arguments[2], strtoull(arguments[3], NULL, 10), strtoull(arguments[4], NULL, 10));
        report();
        return 0;
    }
    if (count != 6) {
        fputs("usage: attack INTERFACE SERVER_PID SEED COUNT TRACE | --print SEED TRACE NUMBER |"
              " --flood INTERFACE SECONDS SEED\n",
              stderr);
        return 2;
    }
    attack(arguments[1], arguments[2], strtoull(arguments[3], NULL, 10),
           strtoull(arguments[4], NULL, 10), arguments[5]);
    report();
    return 0;
}
