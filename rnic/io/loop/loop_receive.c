/* What is read when: the lanes of memory each time, sockets as often as something comes by them. */
#include "rnic/base/container.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/loop_private.h"

#define OTHERS_NS         20000u    /* how often the sources that have been quiet are read, */
#define SILENT_NS         100000u   /* where they have been so for longer, */
#define WATCHED_NS        1000000u  /* and where the thread dozes with an eye on them */
#define HEARD_NS          10000000u /* so long is longer */
#define LOCAL_ARREARS_MAX 16384u
#define ARREARS_MAX       64u /* reads for the sake of a timer that is due */

void loop_receive_local(struct inbox_receiver *receiver, const struct arrival *arrival,
                        const uint8_t *bytes, uint32_t length,
                        const struct payload_reference *reference)
{
    struct loop *loop = CONTAINER_OF(receiver, struct loop, local);
    struct device *device = loop->engine.device;
    stream_goes_on(&loop->stream);
    if (reference == NULL) {
        device_receive(device, loop->ingress.now, arrival, bytes, length);
    } else {
        device_receive_reference(device, loop->ingress.now, arrival, bytes, length, reference);
    }
}

void loop_expect_local(struct inbox_receiver *receiver, const uint8_t *bytes)
{
    device_expect(CONTAINER_OF(receiver, struct loop, local)->engine.device, bytes);
}

static bool is_silent(struct instant heard, struct instant now)
{
    return instant_elapsed_ns(heard, now) >= HEARD_NS;
}

/* Whether it is too early to ask again what was read and heard of at those times. */
static bool is_early(struct loop *loop, struct instant read, struct instant heard,
                     struct instant now)
{
    uint64_t interval_ns = OTHERS_NS;
    if (is_silent(heard, now)) {
        bool watched = atomic_load_explicit(&loop->sockets_watched, memory_order_relaxed);
        interval_ns = watched ? WATCHED_NS : SILENT_NS;
    }
    return instant_elapsed_ns(read, now) < interval_ns;
}

/* From processes of this host. True: so lately that the sockets can wait. */
static bool receive_local(struct loop *loop, struct instant now, enum loop_share share)
{
    struct same_host *same_host = loop->same_host;
    uint32_t budget = share == SHARE_ALL ? LOCAL_ARREARS_MAX : LOOP_LOCAL_BUDGET;
    uint32_t count = share == SHARE_NEXT ? same_host_receive_next(same_host, &loop->local, budget)
                                         : same_host_receive(same_host, &loop->local, budget);
    if (count > 0) {
        loop->local_received = now;
    } else {
        stream_pauses(&loop->stream);
    }
    return loop_is_local(loop, now) && is_early(loop, loop->sockets_read, loop->sockets_heard, now);
}

/* The busy family each time; the other and the hand-on socket now and then, for a system call each
 * is what polling costs. */
void loop_receive(struct loop *loop, struct instant now, enum loop_share share)
{
    bool named = atomic_load_explicit(&loop->sockets_named, memory_order_relaxed);
    bool all = share == SHARE_ALL;
    struct udp *udp = loop->steering.udp;
    struct udp_receiver *receiver = &loop->ingress.receiver;
    loop->ingress.now = now;
    if (receive_local(loop, now, share) && !all && !named) {
        return;
    }
    uint32_t count = udp_receive(udp, loop->busy_family, receiver);
    for (uint32_t more = count; all && more > 0 && count < ARREARS_MAX; count += more) {
        more = udp_receive(udp, loop->busy_family, receiver);
    }
    if (all || named || !is_early(loop, loop->quiet_read, loop->quiet_heard, now)) {
        enum udp_family other = loop->busy_family == UDP_IPV4 ? UDP_IPV6 : UDP_IPV4;
        uint32_t handed = handoff_receive(loop->handoff, receiver);
        uint32_t others = udp_receive(udp, other, receiver);
        loop->quiet_read = now;
        loop->quiet_heard = handed + others > 0 ? now : loop->quiet_heard;
        loop->busy_family = others > count ? other : loop->busy_family;
        count += handed + others;
    }
    if (named) {
        atomic_store_explicit(&loop->sockets_named, false, memory_order_relaxed);
    }
    loop->sockets_read = now;
    loop->sockets_heard = count > 0 ? now : loop->sockets_heard;
    /* Who waits for nothing but sockets reads them each time: to wake the thread would delay it. */
    bool can_wait = is_silent(loop->sockets_heard, now) && loop_is_local(loop, now);
    atomic_store_explicit(&loop->sockets_can_wait, can_wait, memory_order_relaxed);
}
