/* What stands behind the public structs of librdmacm, and what its files share.
 *
 * Locks: the engine's lock covers cm and the routing of its events; `cma_lock` covers the queues of
 * channels and the counts of events. Who needs both takes the engine's first. Neither is held
 * while something blocks.
 *
 * An event belongs to its channel's queue until rdma_get_cm_event takes it, then to the
 * application until it is acknowledged; `owner` counts those on their way back. A channel's notify
 * has a record for each queued event, but the queue is what counts: a record whose event has gone
 * with its id is skipped. */
#ifndef WEIR_RDMACM_CMA_H
#define WEIR_RDMACM_CMA_H

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>

#include "rnic/base/list.h"
#include "rnic/verbs/seam.h"

#define PUBLIC __attribute__((visibility("default")))

#define ACK_TIMEOUT 17u /* 4.096 us * 2^17: 0.54 s */
#define MIN_RNR_TIMER                                                                              \
    0u /* 655.36 ms [IBA table 45], as the kernel has it: few retries are still a long time */
#define SERVICE_TIMEOUT 20u /* 4.096 us * 2^20: 4.3 s, and again, for over a minute in all */
#define NO_CLAIM        UINT32_MAX

/* An answer is waited for 4.096 us * 2^17 = 0.54 s, 15 times: 8.6 s until a peer is unreachable. */
#define RESPONSE_TIMEOUT 17u
#define RESPONSE_RETRIES 15u

struct cma_channel {
    struct rdma_event_channel ibv;
    struct notify *notify; /* record: the owner, or the group of a join */
    struct list events;
    /* Under cma_lock, see channel.c. */
    bool is_destroyed;
    bool blocked;        /* who waited, when it was destroyed, */
    pthread_t destroyer; /* by him */
    unsigned waiters;    /* inside rdma_get_cm_event */
    unsigned ids;        /* whose events go here */
    struct cma_channel *next_spare;
};

enum cma_state {
    CMA_IDLE,
    CMA_BOUND,
    CMA_ADDRESS_RESOLVED,
    CMA_ROUTE_RESOLVED,
    CMA_LISTENING,
    CMA_CONNECTING, /* active: REQ sent */
    CMA_REQUESTED,  /* passive: REQ received */
    CMA_ACCEPTED,   /* passive: REP sent; active: REP received */
    CMA_CONNECTED,
    CMA_ENDED,
};

/* What the queue pair needs to know of the connection. */
struct cma_terms {
    struct qpn remote_qpn;
    struct psn remote_psn; /* the peer wants to receive this first: our first to send */
    struct psn local_psn;  /* the first we want to receive */
    enum path_mtu path_mtu;
    uint8_t responder_resources; /* READs and atomics the peer may have outstanding here */
    uint8_t initiator_depth;     /* those we may have there */
    uint8_t retry_count;
    uint8_t rnr_retry_count;
    uint8_t ack_timeout;
};

struct cma_id {
    struct rdma_cm_id ibv;
    enum cma_state state;
    bool is_synchronous; /* its channel is its own */
    bool reuse_address;
    bool one_family;
    bool owns_queues;   /* rdma_create_qp made its completion queues */
    bool is_unanswered; /* a request not yet accepted; under the engine's lock */
    bool has_disconnected;
    bool has_failed; /* CONNECT_ERROR was told: of the connection's end nothing more is */
    uint8_t traffic_class;
    struct cm_connection *connection;
    struct cma_port *listening; /* listen.c */
    struct list_node listening_node;
    uint32_t backlog;
    uint32_t claim;          /* in the registry */
    struct cma_device *home; /* whose engine and registry know the id */
    enum registry_scope scope;
    struct cm_connect_request *request; /* active: as sent, until it is answered */
    struct list_node retry_node;        /* retry.c */
    struct instant retry_at;
    uint32_t refusals;
    struct path path;
    uint32_t interface_index;
    struct cma_terms terms;
    struct cm_ece local_ece, remote_ece;
    struct cma_group *groups;               /* under cma_lock */
    struct ibv_qp_init_attr *endpoint_init; /* of a passive rdma_create_ep */
    struct ibv_sa_path_rec path_record;
    /* Under cma_lock. */
    bool is_ending; /* rdma_destroy_id: nobody hears of what happens to it any more */
    uint32_t events_delivered, events_acknowledged;
};

struct cma_event {
    struct rdma_cm_event ibv;
    struct list_node node;
    struct cma_id *owner;
    struct cma_group *group; /* of a join; else NULL */
    bool is_cm;              /* `cm` is to be acted upon when the application takes it */
    struct cm_event cm;
};

extern pthread_mutex_t cma_lock;
extern pthread_cond_t cma_acknowledged;

static inline struct cma_id *cma_id(struct rdma_cm_id *id)
{
    return (struct cma_id *)id;
}

static inline bool cma_is_datagram(const struct cma_id *id)
{
    return id->ibv.qp_type == IBV_QPT_UD;
}

static inline struct cma_channel *cma_channel(struct rdma_event_channel *channel)
{
    return (struct cma_channel *)channel;
}

/* channel.c: a thread looks for events. Not 0, an errno value: the channel is destroyed; who may
 * have meant to wait for it in time waits here, some seconds. A cancellation point. */
int cma_channel_enter(struct cma_channel *channel);
/* It has looked; with cma_lock held. False: the channel was destroyed meanwhile. */
bool cma_channel_leave(struct cma_channel *channel);
/* An id more, or one less, has this channel; with cma_lock held. NULL is allowed. */
void cma_channel_count(struct rdma_event_channel *channel, int change);

/* errno and -1; 0 for no error. */
int cma_error(int error);
int cma_status(enum status status);

/* device.c: the devices that ids are bound to, which share one engine; opened when first needed and
 * then kept. */
struct cma_device {
    const struct weir_seam *core;
    struct ibv_context *verbs[DEVICES_MAX];
    struct ibv_pd *pds[DEVICES_MAX];     /* the default ones */
    struct ibv_xrcd *xrcds[DEVICES_MAX]; /* opened when first needed; under cma_lock */
    uint32_t count;
    uint8_t max_reads; /* READs and atomics at once, of each */
    struct engine *engine;
    struct notify *wake;
};
/* NULL and errno. */
struct cma_device *cma_device_open(void);
/* What is open; CHECKed. */
struct cma_device *cma_device(void);
/* False in a forked child for what its parent made: of that only the destruction is allowed. */
bool cma_is_ours(const struct cma_id *id);
/* Fills in the default XRC domain of a device where the mask does not name one. False and errno. */
bool cma_name_xrc_domain(struct ibv_context *verbs, uint32_t *mask, uint32_t bit,
                         struct ibv_xrcd **domain);
/* Binds an id to the device and port that have its local address. */
void cma_attach(struct cma_id *id);

/* dispatch.c: routes what cm has to say until there is nothing more; returns when to come back
 * without being woken. */
struct instant cma_dispatch(struct cma_device *device);

/* retry.c, all with the engine's lock held. */
/* False: the refusal is to be told, as one of a request that has been answered before is. */
bool cma_retry_later(struct cma_device *device, struct cma_id *id, const struct cm_event *event);
void cma_retry_forget(struct cma_id *id);
/* In a forked child: those were the parent's. */
void cma_retry_forget_all(void);
/* Sends what is due again; returns when the next one is. */
struct instant cma_retry_advance(struct cma_device *device, struct instant now);

/* event.c */
struct cma_event *cma_event_new(struct cma_id *owner, enum rdma_cm_event_type type, int status);
/* To its owner's channel, with cma_lock held. False: its owner ends; it is freed. */
bool cma_event_queue(struct cma_event *event);
/* Says something about an id from within: address and route resolution. */
int cma_event_local(struct cma_id *id, enum rdma_cm_event_type type, int status);
/* Takes the queued events of an owner out, into `ret_events`. */
void cma_event_collect(struct cma_id *owner, struct list *ret_events);
/* A synchronous id waits for the answer to what it asked for. Whether an id is one is to be asked
 * before it asks: of another one a second thread may have had the answer, and destroyed it. */
int cma_complete(struct cma_id *id);
/* Until as many are acknowledged as were delivered. Under cma_lock, which is let go meanwhile. */
void cma_wait_for_all(const uint32_t *acknowledged, const uint32_t *delivered);
/* A synchronous id's latest event, if it still has one. */
void cma_acknowledge_previous(struct cma_id *id);

/* id.c */
/* With cma_lock held. */
struct cma_id *cma_id_new(struct rdma_event_channel *channel, void *context,
                          enum rdma_port_space space, enum ibv_qp_type type);
/* Another thread destroys it; asked under the engine's lock, that has not left cm yet. */
bool cma_is_ending(const struct cma_id *id);
/* Frees what the application has not seen yet. */
void cma_id_discard(struct cma_id *id);
int cma_id_make_synchronous(struct cma_id *id);
/* The application has acknowledged all that it has taken. */
void cma_wait_acknowledged(struct cma_id *id);

/* resolve.c */
int cma_bind(struct cma_id *id, const struct sockaddr *address);
void cma_set_addresses(struct cma_id *id, uint16_t local_port, uint16_t remote_port);
void cma_fill_path_record(struct cma_id *id);
void cma_unbind(struct cma_id *id);
/* 0: no address, or of a family that we have not. */
size_t cma_address_length(const struct sockaddr *address);

/* multicast.c */
/* A join that the application is about to be told of. */
void cma_group_process(struct cma_event *event);
/* With cma_lock held. */
void cma_group_delivered(struct cma_group *group);
void cma_group_acknowledged(struct cma_group *group);
/* Of an id that ends; its events have gone. */
void cma_leave_groups(struct cma_id *id);

/* listen.c */
struct cma_id *cma_listener_of(void *cm_context, const struct gid *address);
void cma_unlisten(struct cma_id *id);
/* In a forked child: those were the parent's. */
void cma_forget_listeners(void);

/* connect.c */
void cma_take_request(struct cma_id *id, const struct cm_event *event);
/* Acts on a cm event for an application that is about to be told. False: say nothing. */
bool cma_process(struct cma_event *event);
/* How long the private data is; without data its length says nothing. */
uint8_t cma_data_length(const struct rdma_conn_param *param);
/* A new `id->request`, without parameters. NULL and errno. */
struct cm_connect_request *cma_request_new(struct cma_id *id);
/* The private data of `id->request`, `whole` bytes: rdma_cm's header, then the application's. */
void cma_set_request_data(struct cma_id *id, const void *data, uint8_t length, uint8_t whole);
/* It was answered, or will not be. With the engine's lock held, unless nobody else knows the id. */
void cma_request_forget(struct cma_id *id);

/* datagram.c: what connect.c does, for ids of type UD. */
int cma_datagram_connect(struct cma_id *id, const struct rdma_conn_param *param);
int cma_datagram_accept(struct cma_id *id, const struct rdma_conn_param *param);
/* With the engine's lock held. */
enum status cma_datagram_reject(struct cma_id *id, const void *data, uint8_t length);
/* A SERVICE_REQUEST or SERVICE_REPLY. */
void cma_datagram_process(struct cma_event *event);

/* qp.c */
int cma_modify(struct cma_id *id, enum ibv_qp_state state);
int cma_modify_error(struct cma_id *id);
/* The way to the peer. */
void cma_fill_vector(struct cma_id *id, struct ibv_ah_attr *ret_vector);
/* The same along any path; `port`: where none has its local address. */
void cma_fill_vector_along(const struct path *path, uint8_t port, struct ibv_ah_attr *ret_vector);

#endif
