/* What the halves of a replay share: replay.c has the engine and the clock, replay_work.c what the
 * application around it did. */
#ifndef WEIR_TEST_CAPTURES_REPLAY_PRIVATE_H
#define WEIR_TEST_CAPTURES_REPLAY_PRIVATE_H

#include "rnic/device/device.h"
#include "test/captures/replay.h"

#define COMPLETIONS_MAX 512u
#define RECEIVE_IDS     UINT64_C(0x100000000) /* ids of receives begin here */
#define PLACES_MAX      64u
#define NUMBERS_MAX     512u
#define RECEIVE_LENGTH  32768u
#define LOCAL_ADDRESS   UINT64_C(0x100000000)
#define LOCAL_LENGTH    (16u << 20)

/* Memory behind a captured key. */
struct place {
    struct memory_key key;
    struct region_attributes attributes;
    bool is_window; /* the peer has invalidated it */
    struct memory_key parent;
};

/* A number of a key: what stands there. */
struct number {
    struct memory_key key; /* at present */
    bool is_window, bound;
};

struct world {
    const struct replay_capture *capture;
    const struct replay_connection *connection;
    int side;
    struct replay_result *result;

    struct instant now;
    struct packet_sink sink;
    struct event_sink events;
    struct device *device;
    struct memory *memory;
    struct domain domain;
    struct completion_queue *completions;
    struct qp *qp;
    uint32_t reports;    /* that we sent, see rnic/transport/selective.h */
    struct psn expected; /* of the peer, by what the captured side answered */

    struct place places[PLACES_MAX];
    uint32_t place_count;
    struct number numbers[NUMBERS_MAX + 1];
    uint32_t number_count;
    uint8_t *local; /* what work requests point to */
    struct memory_key local_key;
    uint32_t local_used;

    struct psn posted_to; /* behind the last message posted */
    uint64_t receives;    /* posted */
    /* What a completed request or receive must have brought. */
    struct wanted {
        uint64_t id;
        uint32_t at, length; /* in `local` */
        uint8_t *bytes;
    } wanted[2 * COMPLETIONS_MAX];
    uint32_t wanted_count;
};

int frame_side(const struct frame *frame);
bool is_ours(const struct world *world, const struct frame *frame);
bool is_peers(const struct world *world, const struct frame *frame);

/* Numbers that the keys of the replay need. */
uint32_t replay_key_numbers(struct world *world);
void replay_place_keys(struct world *world);
void replay_remove_keys(struct world *world);
/* What the packet names, made reachable; NULL: nothing that was granted. */
uint8_t *replay_memory(struct world *world, const struct packet *packet, uint64_t length);

/* Before a peer's request is fed: the receive, the memory and the window that it found. */
void replay_prepare(struct world *world, uint32_t number);
/* A packet of our side was captured: if it begins a message, the same is posted. */
void replay_post(struct world *world, uint32_t number);
void replay_check_bytes(struct world *world, const struct completion *completion);

#endif
