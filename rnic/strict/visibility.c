/* The watcher: bytes of a WRITE wait in a buffer and appear when the message ends, from the last to
 * the first, with the pages guarded meanwhile; so a program that looks at memory instead of waiting
 * for a completion is seen, and named. Also: peers' requests that were refused, and messages that
 * found no receive.
 *
 * Everything here is under the engine's lock. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rnic/io/system/cancel.h"
#include "rnic/strict/guard.h"
#include "rnic/strict/keys.h"
#include "rnic/strict/receives.h"
#include "rnic/strict/sends.h"
#include "rnic/strict/strict.h"

#define LOOK_NS 50000 /* how long a whole message is held back for somebody to look */

struct staged {
    struct staged *next;
    const struct qp *qp;
    const uint8_t *bytes; /* where they belong as the message begins */
    uint32_t length;
    bool guarded;
    uint8_t data[];
};

static struct staged *stages;

/* A child has none of the parent's queue pairs, but may have others where they were. */
static void after_fork(void)
{
    stages = NULL;
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static struct staged **find(const struct qp *qp)
{
    struct staged **link = &stages;
    while (*link != NULL && (*link)->qp != qp) {
        link = &(*link)->next;
    }
    return link;
}

/* Atoms of 8 bytes and less become visible at once on any adapter. */
#define ATOM 8u

static void write_begins(struct watcher *watcher, const struct qp *qp, uint8_t *bytes,
                         uint32_t length)
{
    struct staged *staged = malloc(sizeof *staged + length);
    if (staged == NULL) {
        return; /* the data will be put in place as they come */
    }
    *staged = (struct staged){.next = stages, .qp = qp, .bytes = bytes, .length = length};
    stages = staged;
    staged->guarded = length > ATOM && guard_raise(bytes, length);
}

static bool write_data(struct watcher *watcher, const struct qp *qp, uint32_t offset,
                       const uint8_t *data, uint32_t length)
{
    struct staged *staged = *find(qp);
    if (staged == NULL) {
        return false;
    }
    if (offset <= staged->length && length <= staged->length - offset) {
        memcpy(staged->data + offset, data, length);
    }
    return true;
}

static void lower(struct staged *staged)
{
    struct trace where;
    if (staged->guarded && guard_lower(&where)) {
        pitfall_warn(PITFALL_WRITE_ORDER, &where, "read at",
                     "QP 0x%x: bytes that a peer's RDMA WRITE of %" PRIu32 " bytes was still "
                     "bringing were looked at",
                     qp_number(staged->qp).value, staged->length);
    }
    staged->guarded = false;
}

/* From the last byte to the first, in pieces that appear at once. */
static void reveal(const struct staged *staged, uint8_t *place)
{
    uint32_t left = staged->length;
    while (left > 0) {
        uint32_t piece = left % ATOM != 0 ? left % ATOM : ATOM;
        left -= piece;
        memcpy(place + left, staged->data + left, piece);
    }
}

static void write_ends(struct watcher *watcher, const struct qp *qp, uint8_t *place)
{
    struct staged **link = find(qp);
    struct staged *staged = *link;
    if (staged == NULL) {
        return;
    }
    *link = staged->next;
    if (staged->guarded) {
        const struct timespec look = {.tv_nsec = LOOK_NS};
        int cancel = cancel_hold();
        nanosleep(&look, NULL);
        cancel_restore(cancel);
    }
    lower(staged);
    if (place != NULL) {
        reveal(staged, place);
    }
    free(staged);
}

/* `length` may be that of a region that covers all addresses. */
static bool overlaps(const struct staged *staged, const void *bytes, uint64_t length)
{
    uintptr_t first = (uintptr_t)bytes, place = (uintptr_t)staged->bytes;
    return staged->bytes != NULL &&
           (place >= first ? place - first < length : first - place < staged->length);
}

void strict_open(const void *bytes, uint64_t length)
{
    for (struct staged *staged = stages; staged != NULL; staged = staged->next) {
        if (overlaps(staged, bytes, length)) {
            lower(staged);
        }
    }
}

static void refused(struct watcher *watcher, const struct qp *qp,
                    const struct memory_request *request, enum memory_verdict verdict,
                    unsigned rights)
{
    char peer[SENDS_PEER], what[SENDS_PEER + 32];
    sends_peer(qp_number(qp), peer);
    snprintf(what, sizeof what, "a peer's %s%s",
             (rights & ACCESS_REMOTE_WRITE) != 0  ? "RDMA WRITE"
             : (rights & ACCESS_REMOTE_READ) != 0 ? "RDMA READ"
                                                  : "atomic",
             peer);
    keys_explain(request, verdict, rights, what);
}

static void not_ready(struct watcher *watcher, const struct qp *qp)
{
    const struct receive_queue *queue = qp_receive_queue(qp);
    bool may_be_lost = qp_service(qp) == SERVICE_UD || qp_service(qp) == SERVICE_UC;
    if (may_be_lost && queue != NULL && receive_queue_was_used(queue)) {
        return; /* programs count on such losses; only before the first receive they are a mistake
                 */
    }
    receives_missing(queue, qp_number(qp), may_be_lost);
}

static void too_long(struct watcher *watcher, const struct qp *qp, uint64_t length, uint64_t room)
{
    bool is_datagram = qp_service(qp) == SERVICE_UD;
    pitfall_warn(PITFALL_SHORT_RECEIVE, NULL, "met at",
                 "QP 0x%x: a %s of %" PRIu64
                 " bytes%s came, and the receive that it found has room "
                 "for %" PRIu64,
                 qp_number(qp).value, is_datagram ? "datagram" : "message", length,
                 is_datagram ? " with its GRH" : " or more", room);
}

static struct memory *watched_memory;

static void send_ends(struct watcher *watcher, const struct qp *qp, const struct send_slot *slot)
{
    sends_ended(watched_memory, qp_domain(qp), qp_number(qp), slot,
                qp_current_state(qp) != QP_ERROR);
}

static struct watcher the_watcher = {
    .not_ready = not_ready,
    .too_long = too_long,
    .refused = refused,
    .write_begins = write_begins,
    .write_data = write_data,
    .write_ends = write_ends,
    .send_ends = send_ends,
};

static struct memory_probe *asked;

static bool open_and_ask(struct memory_probe *probe, uint8_t *bytes, uint64_t length, bool write)
{
    strict_open(bytes, length);
    return asked->is_mapped(asked, bytes, length, write);
}

static struct memory_probe the_probe = {open_and_ask};

void strict_watch(struct device *device, struct memory_probe *probe)
{
    asked = probe;
    watched_memory = device_memory(device);
    memory_set_probe(watched_memory, &the_probe);
    device_set_watcher(device, &the_watcher);
}
