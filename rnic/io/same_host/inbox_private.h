/* The memory of an inbox, as inbox.c (its owner) and outbox.c (its senders) see it.
 *
 * Owner and senders are processes of one user and one registry, hence of one layout. Each may die
 * between any two writes, and what it wrote is read with care: an index is checked, a word is read
 * once. The file behind it has a fixed size (sealed), so touching it never faults. */
#ifndef WEIR_IO_INBOX_PRIVATE_H
#define WEIR_IO_INBOX_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rnic/base/check.h"
#include "rnic/io/direct/direct.h"
#include "rnic/io/same_host/ring.h"
#include "rnic/io/system/pull.h"
#include "rnic/io/system/sealed_file.h"
#include "rnic/transport/port.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

#define INBOX_MAGIC      UINT64_C(0x57656972496e4239) /* "WeirInB9" */
#define INBOX_LANES      1024u
#define INBOX_RING_BYTES (512u * 1024)
#define INBOX_ROUTES     64u    /* of one lane */
#define INBOX_PAGE       65536u /* the largest that kernels map by */
#define INBOX_NAME       "weir-inbox"
#define INBOX_LINK       SEALED_FILE_LINK(INBOX_NAME)
#define INBOX_HEAD_BYTES INBOX_PAGE
#define INBOX_SHOWN_NAME "weir-shown"
#define INBOX_SHOWN_LINK SEALED_FILE_LINK(INBOX_SHOWN_NAME)

#define INBOX_WORDS (INBOX_LANES / 64u)

#define INBOX_WITHDRAWALS 256u

/* What is long and common to many packets of a lane; the rest of a path stands in each record. */
struct inbox_route {
    struct gid local, remote; /* as the sender sees them */
};

/* A lane's first page: what its sender tells once, and one word of the owner's. */
struct inbox_lane {
    _Alignas(RING_LINE) _Atomic uint32_t route_count; /* of `routes`, written before it is raised */
    struct inbox_route routes[INBOX_ROUTES];
    struct pull_identity sender; /* written before the first record */
    /* The owner's: it looks here by itself; it has read the sender's memory, so payloads may stay
     * there. */
    _Alignas(RING_LINE) _Atomic uint32_t watched;
    _Atomic uint32_t pulls;
    /* What refers to a payload says how high the count at its place was; if that has changed, the
     * payload is not to be read any more. Some queue pairs share a place. */
    _Alignas(RING_LINE) _Atomic uint32_t withdrawals[INBOX_WITHDRAWALS];
    /* The sender's: it has found no room, and wants to be told of some. The owner clears it. */
    _Alignas(RING_LINE) _Atomic uint32_t waits;
};

/* The first pages: what concerns all lanes. */
struct inbox_head {
    uint64_t magic;
    uint64_t incarnation; /* random, of the owner; never 0 */
    int32_t bell;         /* the owner's, see bell.h */
    int32_t shown;        /* likewise, of what it shows (direct.h); -1: nothing */
    /* Not 0: the owner wants a wake-up for the next record; which of its sleeps it is. Who has
     * woken it clears that. */
    _Alignas(RING_LINE) _Atomic uint32_t asleep;
    /* The owner's: it has a heavy fence before it falls asleep, so senders need none. */
    _Atomic uint32_t fences_for_all;
    _Atomic uint32_t rung_on; /* the processor of who has woken the owner */
    _Alignas(
        RING_LINE) _Atomic uint64_t rung[INBOX_WORDS]; /* lanes not watched that have records */
    _Alignas(RING_LINE) _Atomic uint32_t lane_end;     /* no lane from here on was ever taken */
    _Atomic uint32_t wishes;               /* how often a sender has left one in its announcement */
    _Atomic uint64_t senders[INBOX_LANES]; /* whose lane it is, by incarnation; 0: free */
};

/* Before the packet, from the BTH to before the ICRC, in each record. */
struct inbox_record {
    uint8_t route; /* index in the lane's */
    uint8_t traffic_class;
    uint8_t hop_limit;
    uint8_t flow_label_high; /* bits 16 to 19, and flags */
    uint16_t flow_label_low;
    uint16_t source_port;
    uint32_t acknowledged; /* a PSN */
};

#define INBOX_REFERS       0x80u
#define INBOX_ACKNOWLEDGES 0x40u

/* ... then, where the packet stands for several: this; the pieces of its payload, which stays in
 * the sender's memory; and the packet's headers. Or no pieces, and the payload stands in the record
 * behind the headers, from where a line begins. */
struct inbox_reference {
    uint32_t length;     /* of the payload */
    uint32_t withdrawal; /* the count, */
    uint8_t place;       /* and its place */
    uint8_t segment_shift;
    uint8_t piece_count; /* 0: the payload stands in the record */
    uint8_t header_length;
    uint8_t reserved[4];
};

/* Where it stands in a record with headers of that length. */
#define INBOX_CARRIED(header_length)                                                               \
    ((RING_HEADER + (uint32_t)(sizeof(struct inbox_record) + sizeof(struct inbox_reference)) +     \
      (header_length) + RING_LINE - 1) /                                                           \
         RING_LINE * RING_LINE -                                                                   \
     RING_HEADER)

#define INBOX_CARRIED_MAX 65536u /* bytes of payload in one record */
#define INBOX_RECORD_MAX  (INBOX_CARRIED(PACKET_HEADER_MAX) + INBOX_CARRIED_MAX)

BUILD_CHECK(INBOX_RECORD_MAX >= sizeof(struct inbox_record) + sizeof(struct inbox_reference) +
                                    PULL_PIECES_MAX * sizeof(struct pull_piece) +
                                    PACKET_HEADER_MAX);
BUILD_CHECK(INBOX_RECORD_MAX >=
            sizeof(struct inbox_record) + PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 3u);
BUILD_CHECK(INBOX_RECORD_MAX <= INBOX_RING_BYTES / 4 - RING_HEADER);
BUILD_CHECK(PACKET_HEADER_MAX <= UINT8_MAX);
BUILD_CHECK(sizeof(struct inbox_head) <= INBOX_HEAD_BYTES);
BUILD_CHECK(sizeof(struct inbox_lane) <= INBOX_PAGE);
BUILD_CHECK(sizeof(struct inbox_record) == 12);
BUILD_CHECK(RING_HEADER % _Alignof(struct inbox_record) == 0);
BUILD_CHECK(sizeof(struct inbox_reference) == 16);
BUILD_CHECK(sizeof(struct pull_piece) == 16);
BUILD_CHECK(INBOX_ROUTES <= 256 && INBOX_WITHDRAWALS <= 256);
BUILD_CHECK(OUTGOING_FRAGMENT_MAX <= PULL_PIECES_MAX);
BUILD_CHECK(INBOX_PAGE % sizeof(struct direct_announcement) == 0);
BUILD_CHECK(INBOX_LANES * sizeof(struct direct_announcement) % INBOX_PAGE == 0);
BUILD_CHECK(INBOX_RING_BYTES % INBOX_PAGE == 0);

/* A lane lies on pages of its own: its first page, then the ring. */
#define INBOX_LANE_BYTES (2u * INBOX_PAGE + INBOX_RING_BYTES)
#define INBOX_FILE_BYTES ((uint64_t)INBOX_HEAD_BYTES + (uint64_t)INBOX_LANES * INBOX_LANE_BYTES)
/* Behind the lanes, where the owner's memory may be touched directly: one announcement for each of
 * them. What the owner shows (direct.h) lies in a file of its own, to which nobody else can write:
 * the owner makes common what stands there. */
#define INBOX_ANNOUNCED       INBOX_FILE_BYTES
#define INBOX_ANNOUNCED_BYTES (INBOX_LANES * sizeof(struct direct_announcement))
#define INBOX_DIRECT_BYTES    (INBOX_ANNOUNCED + INBOX_ANNOUNCED_BYTES) /* of such a file */
#define INBOX_SHOWN_BYTES     ((sizeof(struct direct_shown) + INBOX_PAGE - 1) / INBOX_PAGE * INBOX_PAGE)

static inline uint64_t inbox_lane_offset(uint32_t lane)
{
    return INBOX_HEAD_BYTES + (uint64_t)lane * INBOX_LANE_BYTES;
}

static inline struct ring_memory *inbox_ring(void *lane_memory)
{
    return (struct ring_memory *)(void *)((uint8_t *)lane_memory + INBOX_PAGE);
}

/* Bytes of a mapping that will be written soon: their pages come all at once. */
void inbox_touch(void *bytes, size_t length);
/* A part of an inbox's file; NULL: no memory. Neither is a forked child to have it, nor a core
 * file. */
void *inbox_map(int file, uint64_t offset, size_t length);
/* NULL is allowed. */
void inbox_unmap(const void *memory, size_t length);
/* What an owner shows, zeroed, and its file; NULL: no memory. */
struct direct_shown *inbox_make_shown(int *ret_file);
/* The same as others see it. NULL: it is not there. */
const struct direct_shown *inbox_find_shown(pid_t thread, int descriptor);

#endif
