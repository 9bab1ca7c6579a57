/* Telling the watcher, where there is one. */
#ifndef WEIR_TRANSPORT_WATCH_H
#define WEIR_TRANSPORT_WATCH_H

#include "rnic/transport/qp_private.h"

static inline void watch_not_ready(const struct qp *qp)
{
    struct watcher *watcher = qp->environment->watcher;
    if (watcher != NULL) {
        watcher->not_ready(watcher, qp);
    }
}

static inline void watch_too_long(const struct qp *qp, uint64_t length, uint64_t room)
{
    struct watcher *watcher = qp->environment->watcher;
    if (watcher != NULL) {
        watcher->too_long(watcher, qp, length, room);
    }
}

static inline void watch_refused(const struct qp *qp, const struct memory_request *request,
                                 enum memory_verdict verdict, unsigned rights)
{
    struct watcher *watcher = qp->environment->watcher;
    if (watcher != NULL) {
        watcher->refused(watcher, qp, request, verdict, rights);
    }
}

static inline void watch_write_begins(const struct qp *qp, uint8_t *bytes, uint32_t length)
{
    struct watcher *watcher = qp->environment->watcher;
    if (watcher != NULL) {
        watcher->write_begins(watcher, qp, bytes, length);
    }
}

/* False: nobody takes them, the caller puts them where they belong. */
static inline bool watch_write_data(const struct qp *qp, uint32_t offset, const uint8_t *data,
                                    uint32_t length)
{
    struct watcher *watcher = qp->environment->watcher;
    return watcher != NULL && watcher->write_data(watcher, qp, offset, data, length);
}

static inline void watch_write_ends(const struct qp *qp, uint8_t *place)
{
    struct watcher *watcher = qp->environment->watcher;
    if (watcher != NULL) {
        watcher->write_ends(watcher, qp, place);
    }
}

static inline void watch_send_ends(const struct qp *qp, const struct send_slot *slot)
{
    struct watcher *watcher = qp->environment->watcher;
    if (watcher != NULL) {
        watcher->send_ends(watcher, qp, slot);
    }
}

#endif
