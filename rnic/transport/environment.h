/* What queue pairs share and what stands around them: the device owns one and hands it to each. */
#ifndef WEIR_TRANSPORT_ENVIRONMENT_H
#define WEIR_TRANSPORT_ENVIRONMENT_H

#include <stdatomic.h>

#include "rnic/base/allocator.h"
#include "rnic/base/list.h"
#include "rnic/base/map.h"
#include "rnic/base/timers.h"
#include "rnic/memory/memory.h"
#include "rnic/queue/event.h"
#include "rnic/transport/counters.h"
#include "rnic/transport/cursors.h"
#include "rnic/transport/direct.h"
#include "rnic/transport/port.h"
#include "rnic/transport/reads.h"
#include "rnic/transport/relay.h"
#include "rnic/transport/selective.h"
#include "rnic/transport/watcher.h"

struct qp;

/* See succession.h. */
enum succession {
    SUCCESSION_POSTS,
    SUCCESSION_PACKETS,
    SUCCESSION_COUNT,
};

/* A queue pair's lines take longer to come than another's message to be dealt with: with one ahead
 * 10,000 queue pairs sent 4.2 M/s, with three 4.8, with four to eight 5.3. */
#define SUCCESSION_AHEAD 4u

struct environment {
    struct allocator *allocator;
    struct memory *memory;
    struct packet_sink *sink;
    struct event_sink *events;              /* may be NULL */
    struct watcher *watcher;                /* may be NULL, and is */
    struct relay_link *relay_link;          /* to other processes of the host; may be NULL */
    struct direct_link *direct;             /* to their memory; may be NULL */
    struct memory_observer memory_observer; /* ... which shows them keys */
    /* Puts in order what all threads of this process have written and will read. False: it may not
     * do so again. Without one, those who post receives have a fence each. */
    bool (*heavy_fence)(void);
    _Atomic bool posters_fence;
    bool memory_may_fault;  /* there have been regions whose pages come on demand */
    uint32_t extra_packets; /* that the last one stands for in its turn; then it is 0 again */
    uint64_t relay_lives;   /* given out to connections of targets */
    struct counters counters;
    struct timers timers;
    struct cursors cursors;
    struct selective_stock selective; /* of no queue pairs: nothing but go-back-N */
    struct reads no_reads;            /* room for none; of all queue pairs that need none */
    struct map xrc_queues;            /* number -> struct xrc_queue */
    struct instant now;               /* of the entry point that runs, or ran last */
    bool is_vague;                    /* it was long ago, maybe: nothing is timed by it */
    bool wants_exact_times;           /* an application reads when its completions were made */
    bool has_hasty_peers;             /* see retransmit_is_hasty */
    struct list active; /* queue pairs that have something to send, in the order of turns */
    /* At work, the latest first; NULL: it is gone, or there was none. */
    struct qp *latest[SUCCESSION_COUNT][SUCCESSION_AHEAD];
    uint32_t max_reads_in; /* per queue pair */
    uint32_t window_max;   /* bytes that one queue pair has in flight at most */
    uint32_t datagram_max; /* payload bytes of a UD message */
};

static inline void environment_count(struct environment *environment, enum counter counter)
{
    environment->counters.values[counter]++;
}

static inline void environment_refuse(struct environment *environment, enum packet_refusal refusal)
{
    environment->counters.refused[refusal]++;
}

#endif
