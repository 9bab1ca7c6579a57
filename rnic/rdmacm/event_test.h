/* For tests: the events of a channel, one after the other. Header only: each test that includes it
 * gets its own copy. */
#ifndef WEIR_RDMACM_EVENT_TEST_H
#define WEIR_RDMACM_EVENT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <rdma/rdma_cma.h>

/* The next event, within twenty seconds; of that kind. The caller acknowledges it. */
static inline struct rdma_cm_event *expect(struct rdma_event_channel *channel,
                                           enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20000), 1);
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type) {
        fail_msg("%s instead of %s (status %d)", rdma_event_str(event->event), rdma_event_str(type),
                 event->status);
    }
    return event;
}

static inline void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    assert_int_equal(rdma_ack_cm_event(expect(channel, type)), 0);
}

#endif
