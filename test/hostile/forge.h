/* What an attacker sends: packet `number` is a function of the seed and of what was overheard, so
 * any packet of a run can be made again. No sockets here (attack.c).
 *
 * Of sheltered connections (client.c) the attacker may know addresses and queue pair numbers, but
 * neither PSNs nor communication ids: what claims to come from there is never within 2^20 PSNs of
 * the truth. Of exposed ones it knows all. */
#ifndef WEIR_TEST_HOSTILE_FORGE_H
#define WEIR_TEST_HOSTILE_FORGE_H

#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

#define FLOWS_MAX      128u
#define SAMPLES_MAX    16u
#define SAMPLE_BYTES   1152u
#define IDS_MAX        16u
#define SHOT_BYTES_MAX 8900u /* of UDP payload */
#define FRAME_MAX      (14u + 40u + 8u + SHOT_BYTES_MAX)

/* Packets of one sender to one queue pair. */
struct flow {
    struct gid from, to;
    uint32_t qpn, psn; /* the last one seen */
    uint32_t key;
    uint32_t xrc_srq; /* as its packets name it */
    uint64_t address; /* what the last RETH named */
    uint16_t source_port;
    uint8_t service;
    bool toward_server, sheltered;
};

struct sample {
    uint32_t flow, length; /* from the BTH, with the ICRC */
    uint8_t bytes[SAMPLE_BYTES];
};

struct ids {
    struct gid from, to;
    uint32_t local, remote;
    uint64_t transaction;
};

/* What was overheard up to a moment. */
struct scene {
    uint32_t flow_count, sample_count, id_count;
    struct flow flows[FLOWS_MAX];
    struct sample samples[SAMPLES_MAX];
    struct ids ids[IDS_MAX];
};

enum shot_kind {
    SHOT_REPLAY,   /* as overheard */
    SHOT_DAMAGED,  /* bits flipped, the ICRC as it was */
    SHOT_FLIPPED,  /* bits flipped, and a right ICRC */
    SHOT_EDITED,   /* opcode, PSN, queue pair or length changed, and a right ICRC */
    SHOT_GRAMMAR,  /* made up, near the truth, from an exposed peer's address */
    SHOT_ANSWER,   /* ACK, NAK, RNR NAK, responses, near the truth */
    SHOT_STRANGER, /* made up, from an address that has nothing to do with it */
    SHOT_OFF_PATH, /* from a sheltered peer's address, without its PSNs, or without its tag */
    SHOT_CNP,
    SHOT_MAD,       /* of an exposed peer or a stranger, every attribute */
    SHOT_MAD_BLIND, /* of a sheltered peer, with guessed ids */
    SHOT_REQUEST,   /* well-formed connection and service requests, of many sources */
    SHOT_STALE,     /* a request that names a sheltered peer's queue pair */
    SHOT_TRUNCATED,
    SHOT_OVERSIZED,
    SHOT_NOISE,
    SHOT_ADDRESS, /* to rsockets' UDP ports: not RoCE, and not counted by the engine */
    SHOT_GROUP,   /* to multicast groups and broadcast addresses */
    SHOT_KINDS,
};

const char *shot_kind_name(enum shot_kind kind);

/* Who gets it: of what is not for one process alone, the kernel gives each its copy. */
enum audience {
    AUDIENCE_ONE,
    AUDIENCE_BROADCAST,  /* every process */
    AUDIENCE_GROUP_IPV4, /* both, */
    AUDIENCE_GROUP_IPV6, /* the first alone, */
    AUDIENCE_OTHER,      /* and nobody: the kernel says that it ignored it */
    AUDIENCES,
};

struct shot {
    enum shot_kind kind;
    struct path path; /* as its sender sees it */
    uint16_t port;    /* where to */
    uint16_t identification;
    uint32_t length;
    uint8_t bytes[SHOT_BYTES_MAX];
};

void forge(uint64_t seed, uint64_t number, const struct scene *scene, struct shot *ret_shot);
/* The same, all of one kind. */
void forge_kind(uint64_t seed, uint64_t number, const struct scene *scene, enum shot_kind kind,
                struct shot *ret_shot);
enum audience shot_audience(const struct shot *shot);
/* Ethernet, IP and UDP around it; returns the frame's length. */
uint32_t forge_frame(const struct shot *shot, const uint8_t from[6], const uint8_t to[6],
                     uint8_t ret_frame[FRAME_MAX]);
/* Learns from a frame that passed by. */
void scene_hear(struct scene *scene, const uint8_t *frame, uint32_t length);

#endif
