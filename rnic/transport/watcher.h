/* Who looks over a device's shoulder: strict mode's seam into the transport.
 *
 * A watcher is told what goes wrong between peers without being anyone's failure in particular, and
 * puts the bytes of arriving WRITEs into memory itself, when it thinks fit. A device without one
 * behaves as if these calls did not exist. All under the engine's lock; none calls back into the
 * core. */
#ifndef WEIR_TRANSPORT_WATCHER_H
#define WEIR_TRANSPORT_WATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/memory/memory.h"
#include "rnic/queue/send_queue.h"

struct qp;

struct watcher {
    /* A message came and there was no receive for it. */
    void (*not_ready)(struct watcher *watcher, const struct qp *qp);
    /* A message of `length` bytes or more, a datagram with its GRH, came, and the receive that it
     * found has room for `room`. */
    void (*too_long)(struct watcher *watcher, const struct qp *qp, uint64_t length, uint64_t room);
    /* A peer's request was refused: by what it named, or (request NULL) since the queue pair lacks
     * `rights`, of enum access. */
    void (*refused)(struct watcher *watcher, const struct qp *qp,
                    const struct memory_request *request, enum memory_verdict verdict,
                    unsigned rights);
    /* An RDMA WRITE of `length` bytes to `bytes` begins; its data come in order; then it ends.
     * `place`: all data came and may be written there now, where the key leads by then; NULL: the
     * rest never comes, and nothing may be touched any more. One at a time per queue pair.
     * write_data false: not taken, the transport puts them in place as ever. */
    void (*write_begins)(struct watcher *watcher, const struct qp *qp, uint8_t *bytes,
                         uint32_t length);
    bool (*write_data)(struct watcher *watcher, const struct qp *qp, uint32_t offset,
                       const uint8_t *data, uint32_t length);
    void (*write_ends)(struct watcher *watcher, const struct qp *qp, uint8_t *place);
    /* The oldest posted send is done or given up; its slot is about to be free. */
    void (*send_ends)(struct watcher *watcher, const struct qp *qp, const struct send_slot *slot);
};

#endif
