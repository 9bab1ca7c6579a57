#ifndef WEIR_BENCH_LIMITS_END_H
#define WEIR_BENCH_LIMITS_END_H
/* One end of the bare programs that do what RoCEv2 demands and nothing else: packets sealed by a
 * CRC-32, sent in runs, taken many at a time, and acknowledged. A packet that is lost or damaged
 * ends the program. */
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define PORT        18491
#define PATIENCE_S  5
#define READS       16
#define READ_BYTES  65536
#define RUN_BYTES   64000
#define RUN_PACKETS 64
#define SEAL        4u
#define ACK_BYTES   28u

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
    uint32_t prefix;   /* the CRC of what it covers before a packet */
    uint32_t expected; /* of a stream */
    struct mmsghdr reads[READS];
    struct iovec places[READS];
    struct sockaddr_in names[READS];
    union {
        struct cmsghdr aligned;
        uint8_t bytes[256];
    } control[READS];
    uint8_t bytes[READS][READ_BYTES];
    uint8_t *run, *places_of_runs; /* where the next one is made; one of some, in turn */
    int pipe[2];
    int lends; /* for its owner to set: pays where the other end has a processor of its own */
};

/* What becomes of a packet that is whole. */
typedef void take_packet(struct end *end, const struct header *header, const uint8_t *payload,
                         void *context);

double now_s(void);

/* Says what failed and why, and ends. */
void fail(const char *what) __attribute__((noreturn));

/* Bound to the address, or sends to it. */
struct end *open_end(const char *address, int serves);

/* A packet of `length` bytes, of which `payload` behind its header, and its seal; returns its end.
 */
uint8_t *put_packet(const struct end *end, uint8_t *at, const struct header *header, size_t length,
                    const uint8_t *payload);

/* The run up to `stop`, in packets of `segment` bytes, the last of which may be shorter. Where runs
 * are lent, a long one leaves from where it lies, and the next is made elsewhere. */
void send_run(struct end *end, const uint8_t *stop, uint16_t segment);

/* All that has come of a stream. */
void acknowledge(struct end *end);

/* Counts a packet of a stream, which must be the next one. */
void expect(struct end *end, const struct header *header);

/* What has come: up to `most` reads. Returns the last packet's header in ret_last; false: nothing.
 */
int receive(struct end *end, unsigned most, take_packet *take, void *context,
            struct header *ret_last);

/* How many packets of `packet` bytes leave together. */
uint32_t packets_of_run(size_t packet);

#endif
