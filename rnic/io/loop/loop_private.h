/* What loop.c (the engine's table), loop_life.c (creating and ending), loop_receive.c (what is read
 * when), loop_thread.c (the background thread) and loop_statistics.c share.
 *
 * Invariant: after the mutex is released by whoever, a doorbell rung meanwhile is looked for again
 * (loop_after_unlock), so a poster that could not take the mutex may go away; at once, or when the
 * next takes the mutex, or when the thread's doze ends (give in loop.c). */
#ifndef WEIR_IO_LOOP_PRIVATE_H
#define WEIR_IO_LOOP_PRIVATE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "rnic/base/time.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/apart.h"
#include "rnic/io/loop/ingress.h"
#include "rnic/io/loop/loop.h"
#include "rnic/io/loop/stay.h"
#include "rnic/io/registry/burial.h"
#include "rnic/io/registry/relays.h"
#include "rnic/io/same_host/same_host.h"
#include "rnic/io/same_host/stream.h"
#include "rnic/io/same_host/tarry.h"
#include "rnic/io/system/cancel.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/lock.h"
#include "rnic/io/system/processor.h"
#include "rnic/io/udp/groups.h"

#define LOOP_PATIENCE_NS    100000u /* who drives for so long may poll, */
#define LOOP_POLLING_GAP_NS 200000u /* and who drove so long ago does not */
#define LOOP_LOCAL_BUDGET   256u
#define LOOP_LOCAL_NS       100000u /* packets come through memory: so lately has one */

enum loop_thread_state {
    THREAD_AWAKE,
    THREAD_WATCHING, /* sleeps until a packet, `sleeping_until_ns`, or a wake-up */
    THREAD_DOZING,   /* sleeps a moment: application threads drive */
};

struct loop_counters {
    _Atomic uint64_t turns;          /* by anybody */
    _Atomic uint64_t thread_wakeups; /* of the background thread */
    _Atomic uint64_t thread_moves;   /* it left its processor to a sender, see apart.h */
    _Atomic uint64_t waits;          /* for more requests of a kind, see tarry.h */
    _Atomic uint64_t thread_signals; /* it was woken for a deadline or by about_to_sleep */
};

/* Mutex held: nobody else writes, so no atomic addition is needed. */
static inline void loop_count(_Atomic uint64_t *counter)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

struct loop {
    struct engine engine;
    uint32_t users; /* under the house's mutex in loop_life.c */

    struct lock lock;         /* the engine's: device, cm, links; below "the mutex" */
    _Atomic uint32_t waiting; /* threads that block for it: drivers keep out of their way */
    int cancel;               /* of who has it for a control call, see cancel.h */

    struct registry *registry;
    struct steering steering;
    struct groups *groups;
    bool is_bound; /* to the addresses of WEIR_BIND: */
    struct gid bind[UDP_FAMILY_COUNT];
    struct handoff *handoff;
    struct same_host *same_host;
    struct inbox_receiver local;   /* from same_host to the device */
    struct instant local_received; /* when it last had something */
    struct instant tidied;
    struct ingress ingress;
    struct burial burial; /* the thread's */
    struct relays relays;
    struct instant sockets_read, sockets_heard; /* when they were read, when one had something */
    struct instant quiet_read, quiet_heard;     /* likewise, all but the busy family's */
    _Atomic bool sockets_named;    /* they woke the thread: early or not, they are read */
    _Atomic bool sockets_can_wait; /* silent, beside packets through memory: a doze watches them, */
    _Atomic bool sockets_watched;  /* and does */
    enum udp_family busy_family;
    bool blocked; /* the last flush left packets because the kernel was full */
    bool stalled; /* it left packets because a peer's lane was full */
    bool more;    /* the device has more to send */
    bool held;    /* the last turn brought completions and sent nothing: the next sends */
    bool owes;    /* no turn has sent everything since one held something back, at held_since */
    struct instant held_since;
    uint64_t held_from; /* completions that had been made when the last turns began to hold */
    _Atomic bool posters_meet; /* one has found the mutex taken: from then on */
    struct tarry tarry;
    bool rests; /* the last turn left nothing to do before a deadline or a packet */
    struct instant looked, polled; /* by whoever received last; by an application */
    struct stream stream;          /* through memory, to this process */
    _Atomic uint32_t glances_left; /* polls that may do without the mutex, see finds_nothing */
    struct quick_clock clock;

    char complaint[256]; /* the last that concerned a queue pair, in words */
    struct instant complained;
    uint64_t complaints_ignored;
    _Atomic bool has_errors; /* poll(2) said so of the link's sockets */

    struct event_sink events; /* the device's; passes on to event_target */
    struct event_sink *event_target;
    void (*_Atomic addresses_changed)(void);
    void (*cm_wake)(void *context);
    void *cm_wake_context;

    struct instant turn_began, turn_ended; /* the latest */

    /* Application threads' driving, as the background thread sees it. Time that they spend sending
     * is left out: it is no gap in their polling. */
    _Atomic bool driving;              /* they are at it */
    _Atomic uint64_t driven_ns;        /* the last time */
    _Atomic uint64_t polling_since_ns; /* without a gap and without about_to_sleep; 0: not */
    _Atomic uint64_t patience_ns;      /* the thread's: how long they must have polled for a doze */
    uint64_t doze_ns;                  /* the thread's: how long the next one lasts, at most */
    uint64_t waits_seen;               /* the thread's: of `counters`, when the last one began */
    struct stay stay;                  /* the thread's, */
    struct apart apart;                /* likewise, */
    struct processor_absence absence;  /* and this */

    pthread_t thread;
    sem_t is_alive; /* the thread holds our life, see same_host_live */
    int wake_descriptor;
    int address_descriptor; /* see address_watch.h */
    _Atomic int thread_state;
    _Atomic uint64_t sleeping_until_ns;
    _Atomic bool stopping;
    struct loop_counters counters;
};

static inline struct loop *loop_of(struct engine *engine)
{
    return (struct loop *)engine;
}

/* Packets come through memory, and the sockets are the quiet ones. */
static inline bool loop_is_local(const struct loop *loop, struct instant now)
{
    return instant_elapsed_ns(loop->local_received, now) < LOOP_LOCAL_NS;
}

/* How long they must have polled for the thread to doze. What has been learned of those who stop
 * polling without a word does not count for who has promised. */
static inline uint64_t loop_patience_ns(const struct loop *loop)
{
    return engine_is_promised(&loop->engine)
               ? LOOP_PATIENCE_NS
               : atomic_load_explicit(&loop->patience_ns, memory_order_relaxed);
}

extern const struct engine_operations loop_operations;
extern const struct engine_operations loop_dead_operations; /* of who is a child of a fork */

enum loop_turn {
    TURN_SEND,
    TURN_RECEIVE, /* and send */
    TURN_POLL,    /* receive, and let an application that got something go on; or send */
};

/* Mutex held. Receives if asked to or if a timer is due, advances device and cm, sends. Tells when
 * it is needed again. */
struct instant loop_turn(struct loop *loop, enum loop_turn kind);
/* Mutex held. What a poller's turn has held back leaves, and what waits for more of its kind. */
void loop_send_held(struct loop *loop);

enum loop_share {
    SHARE_NEXT, /* what one may expect, see inbox_receive_next */
    SHARE_SOME,
    SHARE_ALL, /* from everywhere */
};

/* Mutex held. Gives the device what has arrived, or that share of it. */
void loop_receive(struct loop *loop, struct instant now, enum loop_share share);
/* Mutex not held: serves doorbells that nobody has seen; then sees to it that the background
 * thread is awake at `deadline`. */
void loop_serve_after_unlock(struct loop *loop, struct instant deadline);
static inline void loop_after_unlock(struct loop *loop, struct instant deadline)
{
    if (device_has_doorbell(loop->engine.device) ||
        deadline.ns < atomic_load(&loop->sleeping_until_ns)) {
        loop_serve_after_unlock(loop, deadline);
    }
}
/* False: somebody holds the mutex or is about to. */
static inline bool loop_try_lock(struct loop *loop)
{
    return atomic_load(&loop->waiting) == 0 && lock_try(&loop->lock, LOCK_INNER);
}

/* Mutex held. Tells the device what the link has heard of packets that did not get through. */
void loop_hear_complaints(struct loop *loop, struct instant now);
/* When the next one is due. */
struct instant loop_complaints_deadline(const struct loop *loop);
/* The functions of `local`. */
void loop_expect_local(struct inbox_receiver *receiver, const uint8_t *bytes);
void loop_receive_local(struct inbox_receiver *receiver, const struct arrival *arrival,
                        const uint8_t *bytes, uint32_t length,
                        const struct payload_reference *reference);

void loop_wake_thread(struct loop *loop);
/* For a second. False: whoever has the lock may never give it. */
bool loop_lock_with_patience(struct loop *loop);
/* Starts the background thread, which holds our life by then: 0, or an errno value. */
int loop_start_thread(struct loop *loop);
/* By the thread: others have wished for memory of ours to be made common. */
void loop_grant_wishes(struct loop *loop);
/* It is ours alone, and stays so until after the fork; the lock is not waited for without end: who
 * forks may be a signal handler of its holder's. NULL is allowed. */
void loop_before_fork(struct loop *loop);
void loop_after_fork(struct loop *loop); /* in the parent */

/* As long as it takes until who was connected has heard that we end, if nobody else tells it then.
 */
#define LOOP_GOODBYE_NS UINT64_C(2000000000) /* at most: cm gives up sooner */
void loop_take_leave(struct loop *loop);

/* Writes all counters where WEIR_STATISTICS says; nothing if it is unset. */
void loop_report(struct loop *loop);

#endif
