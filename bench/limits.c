/* What the machine itself allows, to hold figures against: nothing of Weir is in here.
 *
 *   limits spin [SECONDS]         a cache line between two spinning processes: ns one way
 *   limits cores [SECONDS]        how long additions take that could be made at once, of as many in
 *                                 a row, on the processor where it is most: 0.3 where a core is
 *                                 ours alone, 0.5 where another thread of it is at work
 *   limits pvm SIZE 4k|huge       process_vm_readv of SIZE bytes: GB/s
 *   limits ring                   1 MiB through a ring in shared memory, in and out: GB/s
 *   limits objects COUNT LINES    messages of a line between two processes, UNDER_WAY at a time,
 *                                 each acknowledged by a line; for each another of COUNT objects is
 *                                 touched at both ends, LINES lines of it, which were asked for
 *                                 AHEAD messages before: M/s
 *   limits udp-serve ADDRESS      answers the next, until it is killed
 *   limits udp ADDRESS            8 B by UDP between two spinning processes: us one way
 *   limits refuse-pvm PROGRAM...  runs it where process_vm_readv and _writev are refused
 *
 * Each takes about half a second, unless it is told, and prints one number. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS  0.5
#define UDP_PORT 18490
#define RING     ((size_t)256 << 10)
#define CHUNK    ((size_t)64 << 10)
#define MESSAGE  ((size_t)1 << 20)

#define UNDER_WAY 64u
#define AHEAD     4u   /* messages */
#define SLOTS     256u /* of a ring of messages */
#define LINE      64u

#define ADDITIONS 20000
#define RATIOS    4096

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *map(size_t length, int kind, int huge)
{
    size_t align = (size_t)2 << 20;
    uint8_t *raw = mmap(NULL, length + align, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        fail("mmap");
    }
    uint8_t *bytes = raw + (align - (uintptr_t)raw % align) % align;
    madvise(bytes, length, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(bytes, 1, length);
    return bytes;
}

/* A process of our own that ends with us. */
static pid_t begin_child(void)
{
    pid_t child = fork();
    if (child < 0) {
        fail("fork");
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void wait_for(_Atomic uint64_t *word, uint64_t value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
    }
}

static void spin(double seconds)
{
    struct {
        _Alignas(128) _Atomic uint64_t ping;
        _Alignas(128) _Atomic uint64_t pong;
    } *line = map(4096, MAP_SHARED, 0);
    atomic_store(&line->ping, 0);
    atomic_store(&line->pong, 0);
    pid_t child = begin_child();
    for (uint64_t i = 1; child == 0; i++) {
        wait_for(&line->ping, i);
        atomic_store_explicit(&line->pong, i, memory_order_release);
    }
    double began = now_s();
    uint64_t count = 0;
    do {
        for (int i = 0; i < 1000; i++) {
            atomic_store_explicit(&line->ping, ++count, memory_order_release);
            wait_for(&line->pong, count);
        }
    } while (now_s() - began < seconds);
    printf("%.1f\n", (now_s() - began) / (double)count / 2 * 1e9);
    end_child(child);
}

#define ADD(sum)                                                                                   \
    (sum) += 1;                                                                                    \
    __asm__ volatile("" : "+r"(sum)) /* else the compiler adds them up */

#define ADD_TO_EIGHT(a, b, c, d, e, f, g, h)                                                       \
    for (int i = 0; i < ADDITIONS; i++) {                                                          \
        ADD(a);                                                                                    \
        ADD(b);                                                                                    \
        ADD(c);                                                                                    \
        ADD(d);                                                                                    \
        ADD(e);                                                                                    \
        ADD(f);                                                                                    \
        ADD(g);                                                                                    \
        ADD(h);                                                                                    \
    }

static double add_in_a_row(void)
{
    uint64_t a = 0;
    double began = now_s();
    ADD_TO_EIGHT(a, a, a, a, a, a, a, a)
    return now_s() - began;
}

static double add_at_once(void)
{
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    double began = now_s();
    ADD_TO_EIGHT(a, b, c, d, e, f, g, h)
    return now_s() - began;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* The median of some: who is interrupted in the middle of one says nothing. */
static double add_on(int processor, double seconds)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    if (sched_setaffinity(0, sizeof only, &only) != 0) {
        fail("sched_setaffinity");
    }
    double ratios[RATIOS], until = now_s() + seconds;
    size_t count = 0;
    do {
        double row = add_in_a_row();
        ratios[count++] = add_at_once() / row;
    } while (now_s() < until && count < RATIOS);
    qsort(ratios, count, sizeof *ratios, compare);
    return ratios[count / 2];
}

/* All at the same time: two of ours may be threads of one core. */
static void cores(double seconds)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        fail("sched_getaffinity");
    }
    double *shares = map(CPU_SETSIZE * sizeof *shares, MAP_SHARED, 0), most = 0;
    pid_t children[CPU_SETSIZE] = {0};
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all) && (children[i] = begin_child()) == 0) {
            shares[i] = add_on(i, seconds);
            _exit(0);
        }
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all) && waitpid(children[i], NULL, 0) == children[i]) {
            most = shares[i] > most ? shares[i] : most;
        }
    }
    printf("%.3f\n", most);
}

static void pvm(size_t size, int huge)
{
    uint8_t *here = map(size, MAP_PRIVATE, huge);
    pid_t child = begin_child(); /* which has the same addresses */
    if (child == 0) {
        memset(here, 2, size);
        raise(SIGSTOP);
        pause();
    }
    waitpid(child, NULL, WUNTRACED);
    double began = now_s();
    uint64_t moved = 0;
    do {
        struct iovec local = {here, size}, remote = {here, size};
        ssize_t count = process_vm_readv(child, &local, 1, &remote, 1, 0);
        if (count <= 0) {
            fail("process_vm_readv");
        }
        moved += (uint64_t)count;
    } while (now_s() - began < SECONDS);
    if (here[size - 1] != 2) {
        fail("nothing arrived");
    }
    printf("%.3f\n", (double)moved / (now_s() - began) * 1e-9);
    end_child(child);
}

struct ring {
    _Alignas(128) _Atomic uint64_t filled;
    _Alignas(128) _Atomic uint64_t emptied;
    _Alignas(4096) uint8_t bytes[RING];
};

static void drain(struct ring *ring, uint8_t *target)
{
    for (uint64_t at = 0;; at += CHUNK) {
        while (atomic_load_explicit(&ring->filled, memory_order_acquire) == at) {
        }
        memcpy(target + at % MESSAGE, ring->bytes + at % RING, CHUNK);
        atomic_store_explicit(&ring->emptied, at + CHUNK, memory_order_release);
    }
}

static void two_copies(void)
{
    struct ring *ring = map(sizeof(*ring), MAP_SHARED, 0);
    uint8_t *source = map(MESSAGE, MAP_PRIVATE, 0);
    atomic_store(&ring->filled, 0);
    atomic_store(&ring->emptied, 0);
    pid_t child = begin_child();
    if (child == 0) {
        drain(ring, map(MESSAGE, MAP_PRIVATE, 0));
    }
    double began = now_s();
    uint64_t at = 0;
    while (at % MESSAGE != 0 || now_s() - began < SECONDS) {
        while (at - atomic_load_explicit(&ring->emptied, memory_order_acquire) >= RING) {
        }
        memcpy(ring->bytes + at % RING, source + at % MESSAGE, CHUNK);
        at += CHUNK;
        atomic_store_explicit(&ring->filled, at, memory_order_release);
    }
    wait_for(&ring->emptied, at);
    printf("%.3f\n", (double)at / (now_s() - began) * 1e-9);
    end_child(child);
}

static int udp_socket(const char *address, struct sockaddr_in *ret_address)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(UDP_PORT)};
    if (fd < 0 || inet_pton(AF_INET, address, &ret_address->sin_addr) != 1) {
        fail(address);
    }
    return fd;
}

static void udp_serve(const char *address)
{
    struct sockaddr_in local, peer;
    int fd = udp_socket(address, &local);
    if (bind(fd, (struct sockaddr *)&local, sizeof(local)) != 0) {
        fail("bind");
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t word;
        socklen_t length = sizeof(peer);
        if (recvfrom(fd, &word, sizeof(word), 0, (struct sockaddr *)&peer, &length) > 0) {
            sendto(fd, &word, sizeof(word), 0, (struct sockaddr *)&peer, length);
        }
    }
}

static void udp(const char *address)
{
    struct sockaddr_in peer;
    int fd = udp_socket(address, &peer);
    if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) != 0) {
        fail("connect");
    }
    double began = now_s();
    uint64_t count = 0;
    do {
        uint64_t word = ++count, answer = 0;
        if (send(fd, &word, sizeof(word), 0) < 0) {
            fail("send");
        }
        double sent = now_s();
        while (recv(fd, &answer, sizeof(answer), 0) < 0 || answer != word) {
            if (now_s() - sent > 5) {
                fail("no answer");
            }
        }
    } while (now_s() - began < SECONDS);
    printf("%.3f\n", (now_s() - began) / (double)count / 2 * 1e6);
}

struct slot {
    _Alignas(LINE) _Atomic uint64_t number; /* of the message that is there, from 1 on */
};

struct objects {
    uint8_t *bytes;
    uint64_t count, lines;
};

/* Another each time, far from the last. */
static uint8_t *object_of(const struct objects *objects, uint64_t message)
{
    return objects->bytes + message * 7919 % objects->count * objects->lines * LINE;
}

static void touch(const struct objects *objects, uint64_t message)
{
    const uint8_t *soon = object_of(objects, message + AHEAD);
    uint8_t *now = object_of(objects, message);
    for (uint64_t i = 0; i < objects->lines; i++) {
        __builtin_prefetch(soon + i * LINE, 1);
    }
    for (uint64_t i = 0; i < objects->lines; i++) {
        now[i * LINE]++;
    }
}

static void put(struct slot *ring, uint64_t message)
{
    atomic_store_explicit(&ring[message % SLOTS].number, message + 1, memory_order_release);
}

static bool has_come(struct slot *ring, uint64_t message)
{
    return atomic_load_explicit(&ring[message % SLOTS].number, memory_order_acquire) == message + 1;
}

static void send_for_objects(uint64_t count, uint64_t lines)
{
    struct slot *there = map(2 * SLOTS * sizeof(struct slot), MAP_SHARED, 0);
    struct slot *back = there + SLOTS;
    pid_t child = begin_child();
    struct objects objects = {map(count * lines * LINE, MAP_PRIVATE, 1), count, lines};
    for (uint64_t taken = 0; child == 0; taken++) {
        while (!has_come(there, taken)) {
        }
        touch(&objects, taken);
        put(back, taken);
    }
    double began = now_s();
    uint64_t sent = 0, done = 0;
    do {
        for (uint64_t until = done + 1000; done < until;) {
            for (; sent - done < UNDER_WAY; sent++) {
                touch(&objects, sent);
                put(there, sent);
            }
            for (; done < sent && has_come(back, done); done++) {
                touch(&objects, done);
            }
        }
    } while (now_s() - began < SECONDS);
    printf("%.2f\n", (double)done / (now_s() - began) * 1e-6);
    end_child(child);
}

static void refuse_pvm(char **command)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(program) / sizeof(program[0]), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        fail("seccomp");
    }
    execvp(command[0], command);
    fail(command[0]);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 0; /* of those that take them */
    seconds = seconds > 0 ? seconds : SECONDS;
    if (strcmp(what, "spin") == 0) {
        spin(seconds);
    } else if (strcmp(what, "cores") == 0) {
        cores(seconds);
    } else if (strcmp(what, "pvm") == 0 && argc == 4 && strtoul(argv[2], NULL, 10) > 0) {
        pvm(strtoul(argv[2], NULL, 10), strcmp(argv[3], "huge") == 0);
    } else if (strcmp(what, "ring") == 0) {
        two_copies();
    } else if (strcmp(what, "objects") == 0 && argc == 4 && strtoul(argv[2], NULL, 10) > 0 &&
               strtoul(argv[3], NULL, 10) > 0) {
        send_for_objects(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    } else if (strcmp(what, "udp-serve") == 0 && argc == 3) {
        udp_serve(argv[2]);
    } else if (strcmp(what, "udp") == 0 && argc == 3) {
        udp(argv[2]);
    } else if (strcmp(what, "refuse-pvm") == 0 && argc > 2) {
        refuse_pvm(argv + 2);
    } else {
        fprintf(stderr,
                "usage: limits spin [SECONDS] | cores [SECONDS] | pvm SIZE 4k|huge | ring |"
                " objects COUNT LINES | udp-serve ADDRESS | udp ADDRESS | refuse-pvm PROGRAM...\n");
        return 2;
    }
    return 0;
}
