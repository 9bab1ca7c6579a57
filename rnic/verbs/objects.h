/* What stands behind the public structs of libibverbs: each of ours but the queue pair begins with
 * the public one, so that a pointer converts both ways, and ends in zeroed padding for code that
 * believes it holds the structs of another implementation.
 *
 * Here: the structs and how to get from public to ours. What happens to them stands in the file of
 * each object. Lock order: an object's own mutex, then the engine's lock, then `mutex` of the
 * public struct (which only guards counts of events). */
#ifndef WEIR_VERBS_OBJECTS_H
#define WEIR_VERBS_OBJECTS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rnic/base/list.h"
#include "rnic/base/prefetch.h"
#include "rnic/device/device.h"
#include "rnic/device/engine.h"
#include "rnic/io/system/lock.h"
#include "rnic/io/system/notify.h"
#include "rnic/memory/memory.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/queue/event.h"
#include "rnic/queue/receive_queue.h"
#include "rnic/transport/qp.h"
#include "rnic/verbs/devices.h"
#include "rnic/verbs/vector.h"
#include "rnic/verbs/wr.h"

#define PUBLIC __attribute__((visibility("default")))

#define SGE_MAX           32u
#define INLINE_MAX        1024u
#define QUEUE_LENGTH_MAX  16384u
#define CQ_LENGTH_MAX     (1u << 20)
#define READS_MAX         128u
#define DEVICE_MEMORY_MAX (1u << 20) /* bytes, of all contexts of the process */
#define TAGS_OFFERED      1024u
#define TAG_SGES_OFFERED  4u
#define FOREIGN_TAIL      128u /* bytes of zeroes behind what we use */

struct soft_device {
    struct ibv_device ibv;
    const void *provider; /* vendor libraries compare it with their own: none of them */
    unsigned char tail[FOREIGN_TAIL];
    uint32_t index;
    uint32_t port_count;
    struct gid_table *gids[PORTS_MAX];
};

struct open_file;

/* What a port was like when somebody last looked. */
struct port_state {
    bool up;
    uint32_t generation;
};

struct soft_context {
    struct engine *engine;
    struct open_file *file; /* what it shares with those imported from it */
    struct notify *async;   /* record: the object, NULL for the port; enum ibv_event_type */
    struct list_node node;
    struct port_state ports[PORTS_MAX]; /* under event.c's lock */
    _Atomic uint32_t objects; /* of the core's that live in it: an engine is not ended under them */
    struct verbs_context verbs;
    unsigned char tail[FOREIGN_TAIL];
};

struct soft_pd {
    struct ibv_pd ibv;
    struct domain domain;
    struct soft_pd *base;  /* of a parent domain, else NULL */
    struct list_node node; /* in its file, unless it is a parent domain or imported */
    /* Of a parent domain only, see parent_domain.c. */
    struct pd_allocator *allocator; /* the application's, NULL: none */
    struct soft_td *td;
    _Atomic uint32_t users; /* queue pairs, queues, address handles, parent domains; an imported
                               handle itself */
    bool is_imported;       /* unimporting it leaves it to its last user */
    unsigned char tail[FOREIGN_TAIL];
};

struct soft_td {
    struct ibv_td ibv;
    _Atomic uint32_t users; /* parent domains */
};

struct device_memory;

struct soft_mr {
    struct ibv_mr ibv;
    struct region_attributes attributes;
    bool is_pinned;               /* counted against the limit of locked memory */
    bool is_fixed;                /* cannot be registered anew: not the application's memory */
    struct device_memory *device; /* whose part it is; may be NULL */
    void *mapped;                 /* of a dma-buf: to be unmapped; may be NULL */
    size_t mapped_length;
    unsigned char tail[FOREIGN_TAIL];
};

struct soft_mw {
    struct ibv_mw ibv;
    unsigned char tail[FOREIGN_TAIL];
};

struct soft_dm {
    struct ibv_dm ibv;
    struct device_memory *memory;
    struct list_node node; /* in its file, unless imported */
    unsigned char tail[FOREIGN_TAIL];
};

struct soft_channel {
    struct ibv_comp_channel ibv;
    struct notify *notify; /* record: the CQ */
};

struct soft_cq {
    union {
        struct ibv_cq_ex extended;
        struct ibv_cq ibv;
    };
    struct engine *engine;
    struct completion_queue *queue;
    struct completion_queue_notifier notifier;
    struct lock lock;          /* the consumer's */
    struct lock_holder *taker; /* of it, from start_poll to end_poll */
    bool single_threaded;      /* start_poll takes no lock */
    atomic_bool is_ending;     /* arming it raises nothing any more */
    struct completion current;
    struct ibv_pd *parent;     /* NULL: none was named */
    struct device_alarm alarm; /* the end of a moderation period */
    uint64_t period_ns;        /* 0: none; under the engine's lock, like the alarm */
    uint32_t events_delivered; /* by ibv_get_cq_event; under ibv.mutex */
    uint32_t async_delivered;
    unsigned char tail[FOREIGN_TAIL];
};

struct soft_srq {
    struct ibv_srq ibv;
    struct engine *engine;
    struct receive_queue *queue;
    struct receive_queue_notifier notifier;
    pthread_mutex_t lock;           /* the producer's */
    struct ibv_srq_attr attributes; /* the limit under the engine's lock */
    uint32_t users;                 /* queue pairs, under the engine's lock */
    struct soft_xrcd *xrcd;         /* NULL: not of XRC */
    struct xrc_queue xrc;
    struct tag_matcher *matcher; /* NULL: not of tag matching */
    struct ibv_cq *cq;           /* of tag matching: where receives complete */
    uint32_t async_delivered;
    unsigned char tail[FOREIGN_TAIL];
};

struct shared_domain;

struct soft_xrcd {
    struct ibv_xrcd ibv;
    struct shared_domain *shared;
    uint32_t users; /* shared receive queues and targets, under the engine's lock */
    unsigned char tail[FOREIGN_TAIL];
};

/* What a queue pair has room for: struct ibv_qp_cap in eight bytes. */
struct granted {
    uint16_t send_wr, receive_wr;
    uint16_t inline_data; /* bytes */
    uint8_t send_sge, receive_sge;
};

_Static_assert(QUEUE_LENGTH_MAX <= UINT16_MAX && INLINE_MAX <= UINT16_MAX && SGE_MAX <= UINT8_MAX,
               "struct granted");

/* The public struct stands last, for there are many of these: one made without SEND_OPS_FLAGS has
 * memory up to the end of `extended.qp_base` only. Behind either is the core's queue pair, see
 * qp_memory.c. */
struct soft_qp {
    struct engine *engine;
    struct qp *qp;
    struct lock send_lock;
    struct lock receive_lock;
    struct granted granted;
    bool signal_all;
    bool has_send_operations; /* created with SEND_OPS_FLAGS */
    bool drain_notify; /* under the engine's lock: the application wants IBV_EVENT_SQ_DRAINED */
    bool draining;     /* likewise: SQD was entered, and what was begun is not finished */
    uint32_t async_delivered;
    struct vector vector;
    struct ibv_qp_ex extended; /* its head is the struct ibv_qp */
    struct wr_batch batch;     /* between wr_start and wr_complete */
    unsigned char tail[FOREIGN_TAIL];
};

#define SOFT_QP_BYTES (offsetof(struct soft_qp, extended) + sizeof(struct ibv_qp))

/* A handle of a target of XRC. */
struct soft_target {
    struct soft_xrcd *xrcd;
    struct list_node node; /* in its domain's list */
    struct soft_qp qp;
};

struct soft_ah {
    struct ibv_ah ibv;
    struct path path;
};

static inline struct soft_context *soft_context(struct ibv_context *context)
{
    return CONTAINER_OF(context, struct soft_context, verbs.context);
}

static inline struct engine *context_engine(struct ibv_context *context)
{
    return soft_context(context)->engine;
}

static inline struct soft_pd *soft_pd(struct ibv_pd *pd)
{
    return (struct soft_pd *)pd;
}

static inline struct soft_cq *soft_cq(struct ibv_cq *cq)
{
    return (struct soft_cq *)cq;
}

static inline struct soft_srq *soft_srq(struct ibv_srq *srq)
{
    return (struct soft_srq *)srq;
}

static inline struct soft_qp *soft_qp(struct ibv_qp *qp)
{
    return CONTAINER_OF(qp, struct soft_qp, extended.qp_base);
}

/* NULL: it is none. */
static inline struct soft_target *soft_target(struct soft_qp *qp)
{
    bool is_target = qp->extended.qp_base.qp_type == IBV_QPT_XRC_RECV;
    return is_target ? CONTAINER_OF(qp, struct soft_target, qp) : NULL;
}

/* Its application posts to it: all its lines are asked for at once, unless they were lately. `own`:
 * SOFT_QP_BYTES, or those of one with SEND_OPS_FLAGS. */
static inline void soft_qp_prefetch(const struct soft_qp *qp, size_t own)
{
    if (engine_begins_post(qp->engine, qp)) {
        prefetch(qp, own + QP_USUAL_BYTES + SEND_QUEUE_PREFETCH);
    }
}

static inline struct soft_xrcd *soft_xrcd(struct ibv_xrcd *domain)
{
    return (struct soft_xrcd *)domain;
}

static inline struct soft_channel *soft_channel(struct ibv_comp_channel *channel)
{
    return (struct soft_channel *)channel;
}

/* device.c: the engine, which device.c alone opens and closes. NULL and errno. */
struct engine *device_open(void);
void device_close(struct engine *engine);

/* context.c: fills the tables of calls. */
void context_fill_operations(struct verbs_context *verbs);

static inline void context_hold(struct ibv_context *context)
{
    atomic_fetch_add(&soft_context(context)->objects, 1);
}

static inline void context_drop(struct ibv_context *context)
{
    atomic_fetch_sub(&soft_context(context)->objects, 1);
}

/* event.c */
void event_attach(struct soft_context *context);
void event_detach(struct soft_context *context);
/* multicast.c: addresses have changed. */
void multicast_look_again(void);
/* Forgets waiting async events of an object that goes away and waits, for a bounded time, until
 * those that were delivered are acknowledged. `acknowledged` is under `mutex`. False: they are not,
 * and may still be: the memory of the object is to stay. */
bool event_drain(struct ibv_context *context, void *object, pthread_mutex_t *mutex,
                 pthread_cond_t *condition, const uint32_t *acknowledged,
                 const uint32_t *delivered);
bool event_wait_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *condition,
                             const uint32_t *acknowledged, const uint32_t *delivered);

/* import.c: what contexts of one command descriptor have in common: their objects' handles. */
struct open_file *file_create(struct ibv_device *opened, struct engine *engine,
                              int *ret_descriptor);
void file_drop(struct open_file *file);
void file_add_pd(struct open_file *file, struct soft_pd *pd);
void file_add_dm(struct open_file *file, struct soft_dm *dm);
/* False: it was not in it any more. */
bool file_remove(struct open_file *file, struct list_node *node);
/* The domain that `pd` names is no more: nor can it be imported. */
void file_forget_pd(struct open_file *file, struct soft_pd *pd);
/* context.c: a context on `engine`, which it takes over, with `file` and its descriptor. NULL and
 * errno: nothing is taken. */
struct ibv_context *context_open(struct ibv_device *device, struct engine *engine,
                                 struct open_file *file, int command_descriptor);

/* dm.c: a part of device memory is registered, or no longer. */
struct device_memory;
void device_memory_use(struct device_memory *memory, int change);
struct device_memory *device_memory_hold(struct device_memory *memory);
struct soft_dm *dm_wrap(struct ibv_context *context, struct device_memory *memory);
void dm_unwrap(struct soft_dm *dm);

/* mr.c: registers a region and makes the object; or the object alone. NULL and errno. */
struct soft_mr *mr_create(struct ibv_pd *pd, const struct region_attributes *attributes);
struct soft_mr *mr_wrap(struct ibv_pd *pd, const struct region_attributes *attributes,
                        struct memory_key key);
/* The region is no more: nor is its handle, and what memory that holds. */
void mr_end(struct soft_mr *mr);

/* Calls that only the tables of a context name, each in the file of its object. */
int port_query(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret_attributes,
               size_t length);
int device_query_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                    struct ibv_device_attr_ex *ret_attributes, size_t length);
int device_query_clock(struct ibv_context *context, struct ibv_values_ex *values);
/* Where a domain's queues get their memory. Not to be asked under the engine's lock, for it may
 * call the application; what is released goes back with the next pd_collect. A NULL domain is
 * allowed. */
struct allocator *pd_allocator(struct ibv_pd *pd);
void pd_collect(struct ibv_pd *pd);
/* A queue, queue pair or address handle is made in a domain, or is gone. */
void pd_hold(struct ibv_pd *pd);
void pd_drop(struct ibv_pd *pd);
/* pd.c: counts one in the core that is made there and is neither a region nor a queue pair. False
 * and errno: another handle has destroyed the domain. */
bool pd_use_domain(struct ibv_pd *pd);
/* It is gone. */
void pd_leave_domain(struct ibv_pd *pd);
/* The part of ibv_dealloc_pd that concerns parent domains. */
int pd_free_parent(struct soft_pd *pd);
struct ibv_pd *pd_allocate_parent(struct ibv_context *context,
                                  struct ibv_parent_domain_init_attr *attributes);
struct ibv_td *pd_allocate_thread_domain(struct ibv_context *context,
                                         struct ibv_td_init_attr *attributes);
int pd_free_thread_domain(struct ibv_td *td);
struct ibv_mr *mr_register_null(struct ibv_pd *pd);
int mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
              struct ibv_sge *list, uint32_t count);
struct ibv_mw *mw_allocate(struct ibv_pd *pd, enum ibv_mw_type type);
int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int mw_free(struct ibv_mw *mw);
struct ibv_dm *dm_allocate(struct ibv_context *context, struct ibv_alloc_dm_attr *attributes);
int dm_free(struct ibv_dm *dm);
struct ibv_mr *dm_register(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
                           unsigned access);
struct ibv_cq_ex *cq_create_extended(struct ibv_context *context,
                                     struct ibv_cq_init_attr_ex *attributes);
int cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *ret_completions);
int cq_arm(struct ibv_cq *cq, int solicited_only);
int cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attributes);
void cq_extended_fill(struct ibv_cq_ex *cq);
struct ibv_srq *srq_create_extended(struct ibv_context *context,
                                    struct ibv_srq_init_attr_ex *attributes);
/* Parts of making a shared receive queue. NULL and errno. */
struct soft_srq *srq_make(struct ibv_pd *pd, struct ibv_srq_attr *attributes, void *context);
struct ibv_srq *srq_create_matching(struct ibv_srq_init_attr_ex *attributes);
int srq_operate(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **ret_bad);
int srq_number(struct ibv_srq *srq, uint32_t *ret_number);
/* A queue pair is made, or gone: its shared receive queue, if it has one, stays as long. With the
 * engine's lock held. */
void srq_use(struct soft_qp *qp, int change);
int srq_post_receive(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);
struct ibv_qp *qp_create_extended(struct ibv_context *context,
                                  struct ibv_qp_init_attr_ex *attributes);
/* Parts of making and ending a queue pair. `pd` is NULL for a target of XRC. NULL and errno. */
/* Memory for both, and their calls; lends `core` what of it is the core's. A target's core is not
 * in it, and `core` may be NULL. */
struct soft_qp *qp_allocate(struct ibv_context *context, struct ibv_pd *pd,
                            const struct ibv_qp_init_attr *init, bool has_send_operations,
                            struct qp_init *core);
/* The core's queue pair is there: fills in its number. */
void qp_announce(struct soft_qp *qp);
void qp_free(struct soft_qp *qp);
struct ibv_xrcd *xrc_open_domain(struct ibv_context *context,
                                 struct ibv_xrcd_init_attr *attributes);
int xrc_close_domain(struct ibv_xrcd *domain);
struct ibv_qp *xrc_open_target(struct ibv_context *context, struct ibv_qp_open_attr *attributes);
/* With the engine's lock. */
struct xrc_domain xrc_domain_of(const struct soft_xrcd *handle);
void xrc_add_target(struct soft_qp *qp, struct soft_xrcd *handle);
/* Each handle of that target hears of an event. */
void xrc_tell_all(struct soft_qp *qp, void (*tell)(struct soft_qp *handle, enum event_kind kind),
                  enum event_kind kind);
/* True: it was the last handle, so the core's queue pair is to go too. */
bool xrc_remove_target(struct soft_qp *qp);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int post_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);

#endif
