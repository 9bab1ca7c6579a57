/* Strict mode (WEIR_STRICT): a software RNIC that is as unforgiving as an adapter, and says in
 * words what a program did wrong.
 *
 * Here: what the verbs ask and tell. Every call is to be made only if strict_is_on(), costs what it
 * costs, and takes any thread; the engine's lock may be held. Behaviour that needs the transport's
 * help comes through its watcher (visibility.c). */
#ifndef WEIR_STRICT_STRICT_H
#define WEIR_STRICT_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/device/device.h"
#include "rnic/queue/work.h"
#include "rnic/strict/pitfall.h"

/* What WEIR_STRICT asks for. */
struct strict_settings {
    bool on;
    char profile[16]; /* adapter family whose limits hold; see verbs/limits.c */
    bool has_memlock; /* else the process's own RLIMIT_MEMLOCK holds */
    uint64_t memlock_bytes;
};

extern struct strict_settings strict_settings; /* constant after the library was loaded */

static inline bool strict_is_on(void)
{
    return __builtin_expect(strict_settings.on, false);
}

/* Reads a list such as "mlx5,memlock=64K,no-write-order"; "1" alone is all defaults. False: a part
 * of it is not understood; *ret_bad points to it, and no pitfall is switched off. */
bool strict_parse(const char *text, struct strict_settings *ret_settings, const char **ret_bad);

/* The device is watched from now on. `probe` is what tells whether memory is there. Engine's lock.
 */
void strict_watch(struct device *device, struct memory_probe *probe);
/* Engine's lock. What strict mode has closed of these bytes is open again: somebody is about to ask
 * the kernel about them. */
void strict_open(const void *bytes, uint64_t length);

/* Objects that warnings name by their place of birth: completion queues. */
void strict_born(const void *object);
void strict_gone(const void *object);
void strict_cq_overran(const void *cq, uint32_t capacity);

/* Memory. Registering `length` bytes at `bytes` is within the limit of locked memory; else warned
 * of, and to be refused with ENOMEM. Given back with strict_unlock. */
bool strict_lock(const void *bytes, uint64_t length);
void strict_unlock(const void *bytes, uint64_t length);
void strict_registered(uint32_t key, uint64_t address, uint64_t length);
/* Engine's lock. None of these bytes are closed by strict mode afterwards. */
void strict_deregistered(uint32_t key, const void *bytes, uint64_t length);
/* A bind or a local invalidate was posted, by which a window's key begins or ends; or the window is
 * freed. Other work is no matter. */
void strict_window_posted(const struct send_request *request);
void strict_window_freed(uint32_t key);
/* Warns of keys, rights (enum access) and ranges that local work has no claim to. */
void strict_check_sges(const struct memory *memory, struct domain domain, const struct sge *sges,
                       uint32_t count, unsigned rights, const char *what);

/* Send queues give a slot back only when a completion that covers it was polled. */
void strict_sends_begin(struct qpn qpn, uint32_t capacity);
void strict_sends_end(struct qpn qpn);
/* To whom it is connected from now on. */
void strict_sends_connect(struct qpn qpn, const struct gid *peer, struct qpn peer_qpn);
/* Its peer is there: it was heard of by other ways than the queue pair's. */
void strict_sends_answered(struct qpn qpn);
/* How many more may be posted. Warns if there is no room and the program itself is the reason. */
uint32_t strict_sends_room(struct qpn qpn);
/* Before `request` is posted, under the engine's lock, and after it could not be. */
void strict_sends_post(struct qpn qpn, const struct memory *memory, struct domain domain,
                       const struct send_request *request, bool signaled);
void strict_sends_unpost(struct qpn qpn);
void strict_sends_reset(struct qpn qpn);
/* The program itself put the queue pair into error: it does not wait for what fails now. */
void strict_sends_give_up(struct qpn qpn);
/* A queue pair goes, and nobody has seen this completion in error. */
void strict_unseen(const struct completion *completion, const char *status);
void strict_polled(const struct completion *completion);

/* A receive was posted to this queue. */
void strict_receive_posted(const struct receive_queue *queue);
/* The queue goes away, or is emptied. NULL is allowed. */
void strict_receives_end(const struct receive_queue *queue);

/* An object is destroyed, and so many of its events that were got are not acknowledged. */
void strict_unacknowledged(uint32_t events);

#endif
