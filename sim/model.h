/* The reference model: what was asked for, what memory must hold, which status each work request
 * may end with.
 *
 * A host's application memory exists twice: `bytes`, which the core works on, and `shadow`, which
 * changes only when the model is certain of an effect. Every target of an operation belongs to one
 * queue pair, or, shared by many, to an atomic's cell; so what must be there follows from the order
 * of that queue pair's requests. At the end uncertain effects are settled (either the old bytes or
 * the new) and the two copies must be equal to the last byte, guards and all.
 *
 * Here: the data and its rules. Not here: choosing work (plan.h), doing it (workload.h), judging
 * what came of it (checker.h). */
#ifndef WEIR_SIM_MODEL_H
#define WEIR_SIM_MODEL_H

#include "rnic/queue/work.h"
#include "sim/host.h"

#define SGE_MAX         4u
#define END_MAX         24u
#define OP_MAX          48u
#define RECEIVE_MAX     56u
#define CELL_MAX        6u
#define TERRITORY_MAX   96u
#define FROZEN_MAX      16u
#define OPENING_MAX     24u
#define SPACE_SIZE      (4u << 20)
#define GUARD_BYTES     64u
#define GRH_BYTES       40u
#define MESSAGE_TAG_MIN 8u

/* A registered piece of a host's application memory. */
struct territory {
    struct space *space;
    uint32_t offset, length; /* in the space */
    uint32_t used;           /* handed out so far */
    uint64_t address;        /* as keys' users name it */
    struct memory_key key;
    unsigned access;
    bool foreign; /* of another domain than the queue pairs */
    bool alive;   /* registered */
};

/* A memory window. */
struct opening {
    struct memory_key key;
    const struct territory *territory;
};

struct frozen {
    uint32_t offset, length;
    const uint8_t *copy;
};

struct space {
    struct host *host;
    uint32_t life;
    uint8_t *bytes;
    uint8_t *shadow;
    uint32_t used;
    struct domain domain, foreign_domain;
    struct xrc_domain xrc_domain, foreign_xrc_domain;
    struct territory *territories[TERRITORY_MAX];
    uint32_t territory_count;
    struct opening openings[OPENING_MAX];
    uint32_t opening_count;
    struct frozen frozen[FROZEN_MAX]; /* must stay as they were: nobody has a key any more */
    uint32_t frozen_count;
};

struct span {
    struct territory *territory;
    uint32_t offset, length; /* in the space */
};

/* Eight bytes that atomics of any queue pair change. */
struct cell {
    struct span span;
    uint64_t initial;
};

#define MAY(status) (1u << (status))

enum op_phase {
    OP_PLANNED,
    OP_POSTED,
    OP_DONE,   /* success, said or implied */
    OP_FAILED, /* said by an error completion; see status */
    OP_VOID,   /* vanished with its queue pair or host */
};

struct end;

/* A send work request. */
struct op {
    enum work_kind kind;
    bool signaled, solicited, fence, inline_data;
    uint32_t length;
    uint32_t span_count;
    struct span spans[SGE_MAX]; /* local */
    struct sge sges[SGE_MAX];   /* the same as posted; may be wrong on purpose */
    uint64_t remote_address;
    struct memory_key remote_key;
    bool through_window; /* the key is of a window over exactly the target */
    bool has_target;     /* `target` is what it may change or, for a READ, look at */
    struct span target;
    const uint8_t *data; /* `length` bytes: the message, or what a READ must bring */
    uint32_t immediate;
    struct memory_key invalidate;
    struct window_bind bind; /* BIND_WINDOW: of a window of its own */
    uint64_t compare, swap_or_add, original;
    struct cell *cell;
    struct end *destination; /* UD */
    struct qkey qkey;
    uint32_t xrc_srq;  /* XRC: the wrong one; 0: the peer's */
    uint32_t consumer; /* its place among those that use up receives; ~0: none */
    unsigned may;      /* statuses that are right if nobody disturbs; of MAY() */

    enum op_phase phase;
    enum completion_status status;
    struct instant posted_at;
    bool received;          /* its receive has completed with success */
    bool took_no_psn;       /* it was done on the peer's memory, without a packet */
    uint32_t receive_count; /* UD */
};

/* A receive work request. */
struct intake {
    uint32_t length;
    uint32_t span_count;
    struct span spans[SGE_MAX];
    struct sge sges[SGE_MAX];
    unsigned may; /* statuses right for the message that it meets */
    enum op_phase phase;
    enum completion_status status;
    struct op *met; /* the message that filled it */
};

struct pair;
struct application_queue;

struct intakes {
    struct intake *list;
    uint32_t count, posted, resolved;
    uint32_t quota;                  /* posted and not resolved at most */
    bool lost_key;                   /* one that some of them name may be gone */
    struct receive_queue *shared;    /* NULL: of one queue pair */
    struct application_queue *queue; /* XRC: where its receives complete; else NULL */
    struct xrc_queue xrc,
        elsewhere;     /* the same receives in the targets' XRC domain and in another */
    struct end *owner; /* whose number its ids carry */
    uint32_t users;    /* ends that share it: there are receives for two only */
};

/* One queue pair and the application behind it. */
struct end {
    unsigned number;   /* in world->ends */
    struct pair *pair; /* NULL: UD */
    struct end *peer;  /* NULL: UD */
    struct host *host;
    struct space *space;
    uint32_t life;
    enum service service;
    bool is_target; /* XRC */
    struct qp *qp;  /* NULL: not created or destroyed */
    struct qpn qpn;
    struct qkey qkey;
    struct application_queue *send_cq, *receive_cq;
    struct send_queue_limits limits;
    bool signal_all;
    enum path_mtu mtu;
    struct qp_attributes attributes; /* as it is to be connected */

    struct op *ops;
    uint32_t op_count, posted, resolved;
    uint32_t send_quota;
    uint32_t consumers[OP_MAX]; /* ops that use up a receive of the peer, in order */
    uint32_t consumer_count;
    struct intakes own;
    struct intakes *intakes; /* &own, or one that is shared */
    uint32_t messages_in;    /* receives completed with success */
    uint32_t message_next;   /* UC: the least consumer of the peer that may still come */

    bool started;                   /* may post */
    bool draining;                  /* in SQD, and the event has not come */
    bool failed;                    /* a send has failed: the others are flushed */
    enum completion_status failure; /* of that send */
    uint32_t failed_index;
    bool intake_failed;
    bool moved_to_error;    /* by its application */
    uint32_t early_intakes; /* receives posted before anything was sent */
    bool lost;              /* a completion queue of it has overrun: nothing is known any more */
    bool gone;              /* destroyed, reset or dead: what was outstanding is void */
    bool stopped;           /* posts no more */
    uint32_t idle;          /* turns without a post */
    uint64_t pause_ns;

    /* WRITEs and READs that meet each other: bytes of the peer in the order of this queue. */
    struct span hot;
    uint8_t *hot_image;
    bool hot_read_unfenced;
    struct memory_key bound;   /* a window that it binds and has not invalidated; 0: none */
    struct span former_window; /* was open until the queue pair was reset; of no length: none was */
    struct memory_key former_window_key;
};

/* Why others than the request itself may have failed it. */
enum cause {
    CAUSE_LOSS = 1 << 0,     /* the network does not always deliver */
    CAUSE_PEER = 1 << 1,     /* an end was destroyed, reset, moved to error, or died */
    CAUSE_ILLEGAL = 1 << 2,  /* some work of the pair is illegal: an end goes to error */
    CAUSE_RECEIVES = 1 << 3, /* receives come late or never */
    CAUSE_OVERRUN = 1 << 4,  /* a completion queue of the pair has overrun */
};

struct pair {
    struct end ends[2];
    unsigned causes; /* of enum cause */
    uint32_t illegal_count;
    const struct op *illegal_op; /* the one, where illegal_count is 1 */
    struct instant harms[256];   /* when packets of this pair were harmed */
    uint32_t harm_count;
    struct pair *successor; /* that has its queue pairs now, see reuse.h; NULL: none */
};

/* Bump memory for one run. */
struct scratch {
    uint8_t *bytes;
    size_t size, used;
};
void *scratch_take(struct scratch *scratch, size_t size);

/* Memory of `length` bytes with a guard behind it, filled from `dice`, registered with `access`.
 * NULL if the space or the table is full. */
struct territory *model_claim(struct scratch *scratch, struct space *space, struct dice *dice,
                              uint32_t length, unsigned access, bool foreign);
/* The next `length` bytes of a territory; false if it is used up. */
bool model_take(struct territory *territory, uint32_t length, uint32_t align,
                struct span *ret_span);
static inline uint64_t model_address(const struct span *span)
{
    return span->territory->address + (span->offset - span->territory->offset);
}
static inline uint8_t *model_bytes(const struct span *span)
{
    return span->territory->space->bytes + span->offset;
}
static inline uint8_t *model_shadow(const struct span *span)
{
    return span->territory->space->shadow + span->offset;
}

/* A window of either type, bound to nothing yet, and what opens it over a span with these rights.
 * False: no room. */
bool model_prepare_bind(const struct span *span, unsigned type, unsigned access,
                        struct window_bind *ret_bind);
/* Opens a window of either type over a span for `qpn`, with these rights. False: no room. */
bool model_open(const struct span *span, struct qpn qpn, unsigned type, unsigned access,
                struct memory_key *ret_key);
/* Shuts the windows over a territory; NULL: all. */
void model_shut(struct space *space, const struct territory *territory);
/* Deregisters: from now on nobody may change these bytes. */
void model_deregister(struct scratch *scratch, struct territory *territory);
/* Freezes the whole space: its host has died. */
void model_freeze_space(struct scratch *scratch, struct space *space);

/* Copies between `length` bytes in a row and spans; model_equal compares what the core made of
 * them. Return false, with the place in *ret_at, at the first difference. */
void model_gather(const struct span *spans, uint32_t count, uint8_t *ret_bytes, uint32_t length);
bool model_scattered_equal(const struct span *spans, uint32_t count, uint32_t skip,
                           const uint8_t *bytes, uint32_t length, uint32_t *ret_at);
/* The shadow of the spans becomes `bytes`, from `skip` on. */
void model_apply(const struct span *spans, uint32_t count, uint32_t skip, const uint8_t *bytes,
                 uint32_t length);
/* Where memory holds exactly `bytes`, so may the shadow: byte by byte. */
void model_allow(const struct span *spans, uint32_t count, uint32_t skip, const uint8_t *bytes,
                 uint32_t length);
/* The shadow takes over whatever memory holds. */
void model_accept(const struct span *spans, uint32_t count);

#endif
