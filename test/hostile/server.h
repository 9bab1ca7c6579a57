/* What the parts of the victim (server.c) share. */
#ifndef WEIR_TEST_HOSTILE_SERVER_H
#define WEIR_TEST_HOSTILE_SERVER_H

#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

extern volatile sig_atomic_t stopping;
extern struct seen {
    uint64_t requests, turned_away, messages, sheltered_messages, forged, errors;
    uint64_t datagrams, group_datagrams, extended, windows, accepted_streams;
} seen;

void fault(const char *what, uint64_t value);
/* Ends the program if it is not so. */
void need(bool truth, const char *what);
/* The number of a port of ours (message.h). */
uint16_t own_port(uint16_t port);

/* server_shared.c: what has one receive queue for all who send: datagrams, those to groups, and
 * XRC. */
void shared_set_up(struct rdma_event_channel *channel, struct ibv_context *context,
                   struct ibv_cq *queue);
void shared_tear_down(void);
/* False: it is of no such queue. */
bool shared_take(const struct ibv_wc *wc);
/* A request for datagrams. */
void shared_answer(const struct rdma_cm_event *event);
/* At most so many completions of theirs wait. */
uint32_t shared_receives(void);
/* Gives the id a target of XRC. */
int shared_make_target(struct rdma_cm_id *id, bool sheltered);
/* The number that is to stand in the requests of its initiator, and the domain of what they may
 * touch. The sheltered have others than the exposed: who sends in the name of an exposed initiator
 * may name each queue of its XRC domain, and through that the queue's memory. */
uint32_t shared_target_queue(bool sheltered);
struct ibv_pd *shared_target_domain(bool sheltered);

/* server_rsockets.c: echoes, until `stopping`. */
void *serve_rsockets(void *unused);

#endif
