/* The loop of one thread: completion queues, rdma_cm's events, sockets, timers; and when to spin
 * and when to sleep. What an event means is the business of those who registered for it.
 *
 * Invariant: user callbacks run under weir_poll only, and nothing is freed while events of the
 * same round may still name it: ends are collected and reaped at the end of the round. */
#ifndef WEIR_CHANNEL_POLLER_H
#define WEIR_CHANNEL_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/channel/timer.h"
#include "weir/channel/user_timer.h"
#include "weir/fabric_private.h"

struct lane;

/* Something that epoll watches. */
struct source {
    int fd;
    void (*ready)(struct source *source, uint32_t events);
};

/* A completion queue shared by as many queue pairs as it has room for. */
struct queue_share {
    struct queue_share *next;
    struct ibv_cq *queue;
    uint32_t capacity, used;
    bool is_armed;
};

struct lane_slot {
    struct lane *lane;
    uint32_t generation;
};

struct weir_poller {
    struct weir_fabric *fabric;
    int epoll_fd;
    struct source timer_source;
    uint64_t timer_armed_ns;
    struct timers timers;
    struct source wake_source;
    struct source channel_source;
    struct ibv_comp_channel *channel;
    struct queue_share *queues;
    struct source cm_source;
    struct rdma_event_channel *cm_channel; /* NULL: no rdma_cm here */
    struct lane_slot *slots;
    uint32_t slot_count;
    struct weir_connection *connections, *ended;
    struct weir_listener *listeners;
    struct user_timers user_timers;
    uint64_t now_ns;  /* of this round or, if `is_late`, the one before */
    uint64_t spin_ns; /* before sleeping: shorter, the less it has led to */
    uint64_t looked_ns;
    bool is_late;
    bool is_slept_on;  /* by the program's own event loop, see weir_poller_fd */
    bool is_polling;   /* within weir_poll, which looks at everything before it is slept on */
    int callbacks;     /* in this weir_poll */
    bool has_ended;    /* something waits to be reaped */
    bool is_destroyed; /* no callbacks any more */
};

bool poller_watch(struct weir_poller *poller, struct source *source, uint32_t events);
void poller_rewatch(struct weir_poller *poller, struct source *source, uint32_t events);
void poller_unwatch(struct weir_poller *poller, struct source *source);

/* Something waits to be reaped. */
void poller_note_end(struct weir_poller *poller);

/* Sets a timer `delay_ms` from now. */
bool poller_set_timer(struct weir_poller *poller, struct timer *timer, uint64_t delay_ms);

/* A completion queue with `entries` to spare; NULL: none to be had. */
struct queue_share *poller_reserve(struct weir_poller *poller, uint32_t entries);
void poller_unreserve(struct queue_share *share, uint32_t entries);

/* A number for work request ids, so that completions find their lane and those of a lane that is
 * gone find nobody. False: no memory. */
bool poller_add_lane(struct weir_poller *poller, struct lane *lane);
void poller_remove_lane(struct weir_poller *poller, struct lane *lane);

/* Handles the completions that are there, about `budget` of them at most. Returns how many. */
unsigned poller_drain(struct weir_poller *poller, unsigned budget);

#endif
