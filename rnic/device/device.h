/* The RNIC as one object: its tables, its two packet seams, its timers.
 *
 * Sans-I/O. In: device_receive, device_advance, work posted to queues and a rung doorbell. Out:
 * packets to the sink, completions, events, the next deadline. One thread at a time (the engine's
 * lock), except device_ring, which any thread may call at any time. */
#ifndef WEIR_DEVICE_DEVICE_H
#define WEIR_DEVICE_DEVICE_H

#include "rnic/base/allocator.h"
#include "rnic/base/siphash.h"
#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/base/timers.h"
#include "rnic/memory/memory.h"
#include "rnic/queue/event.h"
#include "rnic/transport/counters.h"
#include "rnic/transport/direct.h"
#include "rnic/transport/follow.h"
#include "rnic/transport/port.h"
#include "rnic/transport/qp.h"
#include "rnic/transport/relay.h"
#include "rnic/transport/trouble.h"
#include "rnic/transport/watcher.h"
#include "rnic/transport/xrc.h"

struct device;

/* What arrives for QP1, at the `now` of device_receive. `mad` is borrowed for the call. */
struct management_handler {
    void (*receive)(struct management_handler *handler, struct instant now,
                    const struct arrival *arrival, struct qpn source, const uint8_t *mad,
                    uint32_t length);
};

struct device_config {
    struct allocator *allocator; /* outlives the device, as do all pointers here */
    struct packet_sink *sink;
    struct event_sink *events;     /* may be NULL */
    struct relay_link *relay_link; /* to other processes of the host; may be NULL */
    bool (*heavy_fence)(void);     /* see environment; may be NULL */
    struct siphash_key key;        /* of all that peers must not guess: QPNs, memory keys */
    struct direct_link *direct;    /* to their memory; may be NULL */
    /* Numbers first_qpn .. first_qpn + qpn_count - 1 are ours, of queue pairs and of shared receive
     * queues of XRC. */
    struct qpn first_qpn;
    uint32_t qpn_count;
    uint32_t max_regions;
    uint32_t max_reads_in;   /* per queue pair, at most 255 */
    uint32_t max_qps;        /* 0: a default */
    uint32_t window_max;     /* bytes a queue pair may have in flight; 0 stands for 256 KiB */
    uint32_t max_xrc_queues; /* 0: a default */
    uint32_t datagram_max;   /* payload of a UD message; 0 stands for 4096 */
    /* Selective repeat with peers that speak it: of so many queue pairs at once, which keep so many
     * packets that came early. 0: none, all is go-back-N. */
    uint32_t selective_qps;
    uint32_t selective_packets;
};

enum status device_create(const struct device_config *config, struct device **ret_device) MUST_USE;
/* All queue pairs, regions and domains are gone; CHECKed. */
void device_destroy(struct device *device);

/* One packet, from the BTH to before the ICRC, whose ICRC the link has verified or does not need.
 * Bytes are borrowed for the call. Never fails: the packet is handled, or dropped and counted.
 * True: it is surely of whom it names as its sender, for it carries a PSN that a reliable queue
 * pair expects of its peer. */
bool device_receive(struct device *device, struct instant now, const struct arrival *arrival,
                    const uint8_t *bytes, uint32_t length);
/* The same where others that came with it are to be received next: tells which of them may then be
 * received by follow_receive instead, as long as nothing else is done with the device. */
bool device_receive_in_row(struct device *device, struct instant now, const struct arrival *arrival,
                           const uint8_t *bytes, uint32_t length, struct follow *ret_follow);
/* The same of one whose payload is to be read elsewhere, as long as the call lasts; `bytes` are its
 * headers. */
bool device_receive_reference(struct device *device, struct instant now,
                              const struct arrival *arrival, const uint8_t *bytes, uint32_t length,
                              const struct payload_reference *reference);
/* A packet that comes after the next one, where a link knows: what it will touch is fetched. Of its
 * bytes, BTH_LENGTH at least, nothing is believed. */
void device_expect(struct device *device, const uint8_t *bytes);

/* The link refused a packet itself (ICRC, framing): counted here, so that one table holds all. */
void device_refuse(struct device *device, enum packet_refusal refusal);

/* The link heard that a packet did not get through. Returns the queue pair whose packet it was;
 * NULL: nobody's. Looks at all queue pairs. */
const struct qp *device_hear(struct device *device, struct instant now,
                             const struct trouble *trouble);

/* Processes have died: their queue pairs are those that `is_of_dead` names, as seen from a peer.
 * All that they had sent has been received. See trouble.h; looks at all queue pairs. */
struct device_death {
    bool (*is_of_dead)(struct device_death *death, const struct path *path, struct qpn destination);
};
void device_mourn(struct device *device, struct instant now, struct device_death *death);
/* Of the queue pair of that number, if there is one: see trouble.h. */
void device_await_goodbye(struct device *device, struct qpn qpn);
void device_say_goodbye(struct device *device, struct qpn qpn);

/* A message of process `from` of this host, through the relay link. Like a packet it is handled, or
 * dropped and counted. */
void device_receive_relayed(struct device *device, struct instant now, uint32_t from,
                            const struct relay_message *message, const uint8_t *bytes,
                            uint32_t length);

/* Runs what is due: doorbells, timers, then transmission, fair between queue pairs, until nothing
 * is left to send, the sink is full, or `budget` packets went out. True: there is more to
 * send now, call again (after making room in the sink). */
bool device_advance(struct device *device, struct instant now, uint32_t budget);
/* How well device_advance_one needs to know the time. */
enum device_time {
    DEVICE_TIME_ANY,   /* that of the latest call will do */
    DEVICE_TIME_VAGUE, /* that of long ago, if it is called vague */
    DEVICE_TIME_EXACT,
};
enum device_time device_wants_time(const struct qp *qp);
/* Says who holds the device and has just posted to this queue pair, when device_advance had nothing
 * more to send: it is done if that takes no more than a copy, and no clock (transport/direct.h).
 * False: it is to have a turn, now or later, done or not. */
bool device_advance_alone(struct device *device, struct qp *qp);
/* Says who holds the device and has just posted to this queue pair, when device_advance had nothing
 * more to send: it is done if that takes no more than a short packet to who is near, for which
 * `now`, which may be of long ago, will do. False: likewise. */
bool device_post_short(struct device *device, struct instant now, struct qp *qp);
/* Says who holds the device and has just posted to this queue pair, whose turn comes later. */
void device_put_off(struct qp *qp);
/* Says who holds the device and has just posted to this queue pair, when device_advance had nothing
 * more to send: its turn. True: device_advance comes next. */
bool device_advance_one(struct device *device, struct instant now, bool is_vague, struct qp *qp);
/* Whether what is owed to peers may leave some milliseconds after the application has been told of
 * what they have sent. */
bool device_may_hold(const struct device *device);
/* What is received until device_end_vague comes at a time that was long ago, maybe. False: it is
 * not to, for an application reads when its completions were made. */
bool device_begin_vague(struct device *device);
void device_end_vague(struct device *device);
/* From now on an application reads when its completions were made. */
void device_tell_exact_times(struct device *device);
/* When device_advance is to be called at the latest, given that no doorbell rings, no packet
 * arrives and no control call is made: those want an advance soon after. */
struct instant device_next_deadline(const struct device *device);

/* Any thread: this queue pair has new work. True if the doorbell was not already rung. */
bool device_ring(struct device *device, struct qp *qp);
/* This queue pair has new work, says who holds the device anyway; device_advance comes next. */
void device_look(struct device *device, struct qp *qp);
/* Any thread: a doorbell was rung that no device_advance has seen. */
bool device_has_doorbell(const struct device *device);

/* NULL: nobody. Outlives the device. */
void device_set_watcher(struct device *device, struct watcher *watcher);

/* Somebody outside who wants to be called at a time: by device_advance, under the engine's lock. */
struct device_alarm {
    struct timer timer; /* zeroed: not set */
    void (*expire)(struct device_alarm *alarm, struct instant now);
};
/* Sets an alarm or moves one that is set; INSTANT_NEVER cancels it. Notifiers may call this. */
void device_set_alarm(struct device *device, struct device_alarm *alarm, struct instant deadline);

struct memory *device_memory(struct device *device);
const struct counters *device_counters(const struct device *device);

/* Queue pairs. The completion queues and the shared receive queue are the caller's and outlive it.
 */
enum status device_create_qp(struct device *device, const struct qp_init *init,
                             struct qp **ret_qp) MUST_USE;
/* Outstanding work vanishes without completions, as in verbs. */
void device_destroy_qp(struct device *device, struct qp *qp);
enum status device_modify_qp(struct device *device, struct instant now, struct qp *qp,
                             const struct qp_attributes *attributes, unsigned mask,
                             unsigned *ret_offending) MUST_USE;
struct qp *device_find_qp(const struct device *device, struct qpn qpn);

/* Processes of the host may touch memory by themselves (transport/direct.h). To take something back
 * from them: hold it, then, where that says so, device_settle, then change or end it. What is held
 * is reached by packets: a region until it ends, a queue pair until it is let go of. */
bool device_hold_region(struct device *device, struct memory_key key);
/* ... and when it has settled. */
void device_withdraw_region(struct device *device, struct memory_key key);
bool device_hold_qp(struct device *device, struct qp *qp, struct qpn *ret_peer);
/* `settled`: device_settle has said so since. */
void device_let_go_qp(struct device *device, struct qp *qp, bool settled);
/* Any thread: whether nobody is at what was held; `peer` not 0: nobody of that queue pair's
 * process. `waits`: until it is so, without the engine's lock; then false says that seconds have
 * passed. */
bool device_settle(struct device *device, struct qpn peer, bool waits) MUST_USE;

/* Payloads of READ responses may be read from where they are (port.h), also when their region has
 * ended. Whether some of these bytes may still be, of responses made until then; and that they
 * never are. */
bool device_responds_with(struct device *device, const uint8_t *bytes, uint64_t length,
                          struct instant until);
void device_revoke(struct device *device, const uint8_t *bytes, uint64_t length,
                   struct instant until);

/* Extended reliable connections. A domain of this device's own; none is given twice. */
struct xrc_domain device_allocate_xrc_domain(struct device *device);
/* Gives `queue` its number; what it points to is the caller's. FULL; INVALID: receives of more than
 * XRC_SGE_MAX SGEs. */
enum status device_add_xrc_queue(struct device *device, struct xrc_queue *queue) MUST_USE;
/* Requests for it are refused from now on, those of messages under way too. */
void device_remove_xrc_queue(struct device *device, struct xrc_queue *queue);

/* Multicast: datagrams to QPN_MULTICAST and the group's address reach every queue pair attached to
 * it, each of which spends a receive of its own; the sender too, if it is attached. That such
 * packets come at all is the link's business.
 *
 * INVALID: the queue pair is not UD, or no multicast address. IN_USE: it is attached already. FULL:
 * the table holds no more groups, or the group no more queue pairs. NOT_FOUND: it is not attached.
 * A queue pair that is destroyed is detached. */
#define MULTICAST_GROUPS_MAX  1024u
#define MULTICAST_MEMBERS_MAX 1024u /* of one group */
enum status device_attach_multicast(struct device *device, struct qp *qp,
                                    const struct gid *group) MUST_USE;
enum status device_detach_multicast(struct device *device, struct qp *qp,
                                    const struct gid *group) MUST_USE;
/* A queue pair is attached to it. */
bool device_has_group(const struct device *device, const struct gid *group);

/* The general service interface. FULL: too many MADs wait for the sink. Copies the bytes. */
void device_set_management(struct device *device, struct management_handler *handler);
enum status device_send_management(struct device *device, const struct path *path,
                                   const uint8_t *mad, uint32_t length) MUST_USE;

#endif
