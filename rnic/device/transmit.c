/* Time and packets out: doorbells, timers, then turns.
 *
 * Fair: queue pairs with something to send stand in one line; each in turn sends a burst, or finds
 * no room towards its peer, and goes to the end. Management comes first, it is rare and short. */
#include "rnic/base/container.h"
#include "rnic/device/device_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/short_way.h"
#include "rnic/transport/succession.h"

#define BURST_PACKETS 16u

bool device_ring(struct device *device, struct qp *qp)
{
    return doorbell_ring(&device->doorbell, &qp->doorbell);
}

void device_look(struct device *device, struct qp *qp)
{
    if (qp_state_sends(qp_state_now(qp))) {
        qp_schedule(qp);
    } else {
        (void)device_ring(device, qp); /* to be flushed, if anything, at the time of the advance */
    }
}

bool device_has_doorbell(const struct device *device)
{
    return doorbell_is_rung(&device->doorbell);
}

void device_answer_doorbells(struct device *device)
{
    struct doorbell_link *link = doorbell_take(&device->doorbell);
    while (link != NULL) {
        struct qp *qp = CONTAINER_OF(link, struct qp, doorbell);
        link = doorbell_answer(link);
        qp_look(qp);
    }
}

static void expire_timers(struct device *device, struct instant now)
{
    struct timer *timer;
    while ((timer = timers_pop_due(&device->environment.timers, now)) != NULL) {
        struct qp *qp = CONTAINER_OF(timer, struct qp, timer);
        qp_expire(qp, now);
        if (qp->is_deputy) {
            deputies_expire(&device->deputies, qp);
        }
    }
    while ((timer = timers_pop_due(&device->alarms, now)) != NULL) {
        struct device_alarm *alarm = CONTAINER_OF(timer, struct device_alarm, timer);
        alarm->expire(alarm, now);
    }
}

/* Those whose turns come after the next: the next itself is near already. */
static void prefetch_turns(const struct list *active)
{
    const struct list_node *next = list_first(active);
    const struct list_node *second = next == NULL ? NULL : list_next(active, next);
    if (second != NULL) {
        qp_prefetch_sends(CONTAINER_OF(next, struct qp, active));
        qp_prefetch(CONTAINER_OF(second, struct qp, active));
    }
}

/* What is left of the queue pair's turn, in packets. */
static uint32_t turn_of(struct device *device, const struct qp *qp)
{
    if (device->interrupted != qp) {
        device->interrupted = qp;
        device->interrupted_after = 0;
    }
    return BURST_PACKETS - device->interrupted_after;
}

/* The sink was full. Where its turn is not over, it goes on with it. */
static void interrupt_turn(struct device *device, struct qp *qp, uint32_t packets)
{
    device->interrupted_after += packets;
    if (device->interrupted_after >= BURST_PACKETS) {
        device->interrupted = NULL;
        qp_schedule(qp);
    } else if (!list_node_is_linked(&qp->active)) {
        list_prepend(&device->environment.active, &qp->active);
    }
}

/* True: more is to be sent. */
static bool take_turns(struct device *device, struct instant now, uint32_t budget)
{
    struct list *active = &device->environment.active;
    const struct qp *first_refused = NULL; /* since something was sent */
    uint32_t sent = 0;
    if (!management_transmit(&device->management, &device->environment, &sent)) {
        return true;
    }
    while (sent < budget && !list_is_empty(active)) {
        struct qp *qp = CONTAINER_OF(list_pop_first(active), struct qp, active);
        if (qp == first_refused) {
            list_prepend(active, &qp->active);
            return true; /* all that are left were refused */
        }
        prefetch_turns(active);
        uint32_t left = budget - sent, turn = turn_of(device, qp);
        uint32_t packets;
        enum step step = qp_transmit(qp, now, left < turn ? left : turn, &packets);
        sent += packets;
        first_refused = packets > 0 ? NULL : first_refused;
        if (step == STEP_FULL && device->environment.sink->others_may_go) {
            qp_schedule(qp);
            first_refused = first_refused == NULL ? qp : first_refused;
        } else if (step == STEP_FULL) {
            interrupt_turn(device, qp, packets);
            return true;
        }
        device->interrupted = NULL;
        if (step == STEP_SENT) {
            qp_schedule(qp);
        }
    }
    return !list_is_empty(active);
}

bool device_advance(struct device *device, struct instant now, uint32_t budget)
{
    device->environment.now = now;
    device_answer_doorbells(device);
    expire_timers(device, now);
    return take_turns(device, now, budget);
}

static bool is_alone(const struct list *active, const struct qp *qp)
{
    const struct list_node *first = list_first(active);
    return first == NULL || (first == &qp->active && list_next(active, first) == NULL);
}

/* A retransmission is timed by the oldest packet, a round trip by one of a flight. */
enum device_time device_wants_time(const struct qp *qp)
{
    const struct retransmit *retransmit = &qp->retransmit;
    if (qp->service != SERVICE_RC || qp->rate != NULL || qp->selective != NULL ||
        qp->environment->wants_exact_times) {
        return DEVICE_TIME_EXACT;
    }
    if (!instant_is_never(retransmit->deadline) && retransmit->sampling) {
        return DEVICE_TIME_ANY;
    }
    return qp->peer_is_near && retransmit_is_patient(retransmit) ? DEVICE_TIME_VAGUE
                                                                 : DEVICE_TIME_EXACT;
}

void device_tell_exact_times(struct device *device)
{
    device->environment.wants_exact_times = true;
}

bool device_may_hold(const struct device *device)
{
    return !device->environment.has_hasty_peers;
}

bool device_begin_vague(struct device *device)
{
    device->environment.is_vague = !device->environment.wants_exact_times;
    return device->environment.is_vague;
}

void device_end_vague(struct device *device)
{
    device->environment.is_vague = false;
}

void device_put_off(struct qp *qp)
{
    succession_goes_on(qp, SUCCESSION_POSTS);
}

bool device_advance_alone(struct device *device, struct qp *qp)
{
    struct environment *environment = &device->environment;
    if (!qp->went_directly || environment->wants_exact_times ||
        !list_is_empty(&environment->active)) {
        return false;
    }
    succession_goes_on(qp, SUCCESSION_POSTS);
    environment->is_vague = true;
    bool done = direct_transmit_alone(qp);
    environment->is_vague = false;
    return done && environment->direct->stores && list_is_empty(&environment->active);
}

bool device_post_short(struct device *device, struct instant now, struct qp *qp)
{
    struct environment *environment = &device->environment;
    if (environment->wants_exact_times || !is_alone(&environment->active, qp)) {
        return false;
    }
    succession_goes_on(qp, SUCCESSION_POSTS);
    environment->now = now;
    environment->is_vague = true;
    bool done = short_way_post(qp, now);
    environment->is_vague = false;
    if (done) {
        list_remove(&qp->active);
    }
    return done;
}

bool device_advance_one(struct device *device, struct instant now, bool is_vague, struct qp *qp)
{
    struct list *active = &device->environment.active;
    if (!qp_state_sends(qp_state_now(qp))) {
        device_look(device, qp);
        return true;
    }
    device->environment.now = now;
    device->environment.is_vague = is_vague;
    succession_goes_on(qp, SUCCESSION_POSTS);
    if (!is_alone(active, qp)) {
        /* Those in line have answers to give, as a rule; somebody waits for the request. */
        (void)short_way_transmit(qp, now);
        device->environment.is_vague = false;
        device_look(device, qp);
        return true;
    }
    enum step step;
    bool has_requests;
    do {
        step = short_way_transmit(qp, now);
        has_requests = qp_has_requests(qp);
    } while (step == STEP_SENT && has_requests);
    list_remove(&qp->active);
    bool has_turn = step != STEP_FULL && (has_requests || qp_owes_answer(qp));
    if (has_turn) {
        uint32_t packets;
        step = qp_transmit(qp, now, BURST_PACKETS, &packets);
        has_turn = step == STEP_SENT && qp_has_turn(qp);
    }
    if (step == STEP_FULL || has_turn) {
        qp_schedule(qp);
    }
    device->environment.is_vague = false;
    return !list_is_empty(active);
}

void device_set_alarm(struct device *device, struct device_alarm *alarm, struct instant deadline)
{
    timers_set(&device->alarms, &alarm->timer, deadline);
}

struct instant device_next_deadline(const struct device *device)
{
    return instant_earlier(timers_earliest(&device->environment.timers),
                           timers_earliest(&device->alarms));
}
