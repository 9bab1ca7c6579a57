/* The simulated network: one packet sink per host, one link per ordered pair of hosts.
 *
 * Here: what happens to a frame between emit and delivery: rate, delay, a bounded queue, loss,
 * burst loss, duplication, reordering, corruption, partition. A frame carries a real ICRC, made
 * when it is sent and verified when it arrives; a frame that fails is refused, never delivered.
 * Where a link says so payloads go by reference, and are read when the frame is used, or are
 * brought along in one piece however long they are. Not here: what frames mean (monitor.h) and how
 * they are written down (describe.h).
 *
 * All chances are per million, drawn from the network's own dice. */
#ifndef WEIR_SIM_NETWORK_H
#define WEIR_SIM_NETWORK_H

#include "rnic/transport/port.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"
#include "sim/dice.h"
#include "sim/simulator.h"

#define HOST_MAX        4u
#define NETWORK_NUMBERS 4096u

struct link_config {
    uint64_t bits_per_second; /* 0: no serialisation time */
    uint64_t delay_ns;
    uint32_t queue_limit; /* frames that wait for the wire or are on it; 0: no limit */
    uint32_t queue_bytes; /* ... and bytes, of a queue that drops */
    bool drop_tail;       /* a full queue loses the frame; else the sink says "full" */
    uint32_t refuse;      /* the sink says "full" for no visible reason, */
    uint32_t hold;        /* or that a stream had better wait */
    uint32_t loss;
    uint32_t burst_begin, burst_end, burst_loss; /* Gilbert-Elliott */
    uint32_t duplicate;
    uint32_t reorder; /* delays a frame by up to reorder_ns, so that others overtake it */
    uint64_t reorder_ns;
    uint32_t mark;       /* ECN, of frames whose sender is capable */
    uint32_t mark_above; /* always with so many frames queued; 0: never */
    uint32_t corrupt;    /* flips one to three bits */
    uint32_t takes;      /* bytes of an IPv4 packet that the sender's interface takes; 0: any */
    uint32_t reach;      /* bytes that a frame may have by reference; 0: none has any */
    bool carried;        /* ... and brings along as they are when it is sent */
    uint32_t unreadable; /* of those by reference that do not */
    bool carries;        /* requests bring acknowledgements */
    bool direct;         /* the memory of the host there is reached without frames, see direct.h, */
    uint32_t breaks;     /* which may stop in the middle, */
    uint32_t taken_back; /* and of what its owner takes back at one of the steps */
};

/* What becomes of one frame. */
enum fate {
    FATE_PASS,
    FATE_LOST,
    FATE_OVERFLOWED, /* lost too, and never on the wire */
    FATE_CORRUPTED,
    FATE_DUPLICATED,
    FATE_DELAYED,
    FATE_MARKED, /* congestion experienced */
    FATE_UNREADABLE,
    FATE_REFUSED, /* the sink says "full": there is no frame yet */
};

struct network;

struct frame {
    struct network *network;
    unsigned from, to;
    struct path path; /* as the sender sees it */
    struct roce_ip ip;
    uint32_t icrc;
    bool corrupted;    /* in bits that the ICRC covers */
    uint32_t length;   /* from the BTH to before the ICRC */
    unsigned receiver; /* the receiving host's life when it was sent */

    /* By reference: where the payload lies in the sender's memory, and whether it may be read. */
    uint32_t referred; /* bytes; 0: it is among `bytes` */
    uint32_t carried;  /* ... so many of them all the same, behind `length` */
    uint8_t segment_shift;
    bool is_response;
    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    uint32_t fragment_count;
    unsigned sender;     /* the sending host's life */
    uint32_t withdrawal; /* how many there had been */
    bool unreadable;
    bool near;         /* the link carries acknowledgements, */
    bool acknowledges; /* and here is one */
    struct psn acknowledged;
    uint8_t bytes[];
};

/* A host's end of the network. */
struct network_end {
    void (*deliver)(struct network_end *end, const struct arrival *arrival, const uint8_t *bytes,
                    uint32_t length);
    void (*deliver_reference)(struct network_end *end, const struct arrival *arrival,
                              const uint8_t *bytes, uint32_t length,
                              const struct payload_reference *reference);
    void (*refuse)(struct network_end *end, enum packet_refusal refusal);
    /* The sink has said "full" and has room again. */
    void (*room)(struct network_end *end);
};

/* Sees every frame that was taken, with its fate; every delivery; every harm done. */
struct network_observer {
    void (*sent)(struct network_observer *observer, const struct frame *frame, enum fate fate);
    void (*delivered)(struct network_observer *observer, const struct frame *frame);
};

struct network_link {
    struct link_config config;
    struct instant free_at;
    uint32_t queued, queued_bytes;
    bool in_burst;
    struct instant cut_from, cut_until; /* partition */
};

struct network_port {
    struct packet_sink sink; /* first */
    struct network *network;
    unsigned index;
    struct network_end *end; /* NULL: the host is dead */
    bool waits_for_room;
    unsigned life;
    unsigned addresses; /* bit per host whose address it may send from */
    /* Of what goes to a queue pair here, by its number: of requests, of responses. */
    uint32_t withdrawals[NETWORK_NUMBERS][2];
};

struct network {
    struct simulator *simulator;
    struct dice dice;
    struct dice holds;
    struct dice ways;                              /* of short packets, see short_emit.h: */
    uint32_t short_full;                           /* so many of a hundred are refused there */
    struct network_link links[HOST_MAX][HOST_MAX]; /* [from][to] */
    struct network_port ports[HOST_MAX];
    struct network_observer *observer; /* may be NULL */
    /* A scenario's own choice of a frame's fate; FATE_PASS leaves it to the link. May be NULL. */
    enum fate (*script)(void *context, unsigned from, unsigned to, const uint8_t *bytes,
                        uint32_t length);
    void *script_context;

    uint64_t held;             /* streams that had to wait */
    uint64_t referred, unread; /* frames sent by reference, and that could not be read */
    uint64_t shorts;           /* ... and by the way of short packets, */
    uint64_t posted;           /* ... of those as they were posted */
    uint64_t sent, marked, lost, corrupted, duplicated, delayed, refusals, unroutable,
        refused_too_long;
    uint64_t corrupted_delivered[HOST_MAX]; /* corrupted frames that reached a living host */
    uint32_t in_flight;
};

void network_init(struct network *network, struct simulator *simulator, uint64_t seed);
void network_set_link(struct network *network, unsigned from, unsigned to,
                      const struct link_config *config);
/* All links alike. */
void network_set_links(struct network *network, const struct link_config *config);
/* Nothing passes between the two in either direction from `from` to `until`. */
void network_cut(struct network *network, unsigned a, unsigned b, struct instant from,
                 struct instant until);
/* `end` NULL: frames to the host vanish. Frames sent before an attach do not reach it after. */
void network_attach(struct network *network, unsigned host, struct network_end *end);
/* The two send from each other's addresses, too. What arrives goes to an address's own host. */
void network_share(struct network *network, unsigned a, unsigned b);
struct packet_sink *network_sink(struct network *network, unsigned host);

/* The host of that address, if its memory is reached directly from `from` now; else NULL. */
struct network_end *network_neighbour(const struct network *network, unsigned from,
                                      const struct gid *gid);
bool network_breaks(struct network *network, unsigned from, unsigned to);

/* `length` bytes of something else take the link, to which `arrive` happens at the other end;
 * unless they are lost, by the link's own chance or because its queue is full. */
void network_pass(struct network *network, unsigned from, unsigned to, uint32_t length,
                  void (*arrive)(void *context, uint64_t argument), void *context,
                  uint64_t argument);

/* Host `index`'s address of the family, and the path from one host to another. */
struct gid network_gid(unsigned index, bool ipv6);
struct path network_path(unsigned from, unsigned to, bool ipv6, uint16_t source_port);
/* What a frame holds. */
enum packet_refusal network_parse(const struct frame *frame, struct packet *ret_packet);
/* HOST_MAX if it is nobody's. */
unsigned network_host_of(const struct gid *gid);
/* As a packet_sink's is_here. */
bool network_is_here(struct packet_sink *sink, const struct gid *gid);

#endif
