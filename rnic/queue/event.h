/* Asynchronous events of a device: what happened to an object outside of any work request. */
#ifndef WEIR_QUEUE_EVENT_H
#define WEIR_QUEUE_EVENT_H

#include <stdbool.h>

enum event_kind {
    EVENT_CQ_ERROR,
    EVENT_QP_FATAL,
    EVENT_QP_REQUEST_ERROR,          /* the responder met an invalid request */
    EVENT_QP_ACCESS_ERROR,           /* the responder met an access violation */
    EVENT_PATH_ERROR,                /* somebody on the way says that packets are too long for it */
    EVENT_COMMUNICATION_ESTABLISHED, /* first packet while ready to receive only */
    EVENT_SQ_DRAINED,
    EVENT_QP_LAST_RECEIVE_REACHED,
    EVENT_SRQ_LIMIT_REACHED,
    EVENT_SRQ_ERROR,
    EVENT_PORT_ACTIVE,
    EVENT_PORT_ERROR,
    EVENT_GID_CHANGE,
    EVENT_KIND_COUNT,
};

struct event {
    enum event_kind kind;
    void *object; /* the `context` that the object was created with */
};

/* Takes events out of the engine. Must not call back into the core. */
struct event_sink {
    void (*raise)(struct event_sink *sink, const struct event *event);
};

/* "qp_fatal", static. */
const char *event_kind_name(enum event_kind kind);

#endif
