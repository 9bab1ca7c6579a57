#include "sim/contact.h"

#include <string.h>

#include "rnic/base/check.h"
#include "sim/workload.h"

#define SERVICE_BASE UINT64_C(0x1060000)
#define PRIVATE_SIZE 16u
/* Longer than any way through a sound network, shorter than a repetition of the DREQ. */
#define ANSWER_MOST_NS  UINT64_C(500000000)
#define REASON_CONSUMER CM_REJECT_CONSUMER

static void wrong(struct contact_side *side, const char *what)
{
    simulator_violate(&side->contact->world->simulator, "cm", "%c qp %u: %s (phase %u)",
                      side->end->host->name, side->end->qpn.value, what, side->phase);
}

static bool side_lives(const struct contact_side *side)
{
    return side->end->life == side->end->host->life && host_is_alive(side->end->host);
}

static struct instant now_of(const struct contact_side *side)
{
    return side->contact->world->simulator.now;
}

static bool is_orderly(const struct contact *contact)
{
    return contact->world->profile.strict;
}

static void release(struct contact_side *side)
{
    if (side->connection != NULL && side_lives(side)) {
        cm_release(side->connection, now_of(side));
        host_wake(side->end->host, 0);
    }
    side->connection = NULL;
    side->phase = CONTACT_OVER;
}

static struct cm_parameters parameters_of(const struct contact_side *side)
{
    const struct end *end = side->end;
    struct cm_parameters parameters = {
        .qpn = end->qpn,
        .starting_psn = end->attributes.receive_psn,
        .responder_resources = end->attributes.max_reads_in,
        .initiator_depth = end->attributes.max_reads_out,
        .retry_count = end->attributes.retry_count,
        .rnr_retry_count = end->peer->attributes.rnr_retry_count,
        .ack_timeout = end->attributes.timeout,
        .path_mtu = end->mtu,
        .transport_service = end->service == SERVICE_UC,
        .private_length = PRIVATE_SIZE,
    };
    memcpy(parameters.private_data, side->contact->private_data, PRIVATE_SIZE);
    return parameters;
}

/* What came is what the other side gave. */
static void compare(struct contact_side *side, const struct contact_side *other,
                    const struct cm_parameters *came)
{
    struct cm_parameters gave = parameters_of(other);
    bool same = came->qpn.value == gave.qpn.value &&
                came->starting_psn.value == gave.starting_psn.value &&
                came->responder_resources == gave.responder_resources &&
                came->initiator_depth == gave.initiator_depth &&
                came->rnr_retry_count == gave.rnr_retry_count &&
                memcmp(came->private_data, gave.private_data, PRIVATE_SIZE) == 0;
    bool request = other == &side->contact->active;
    same &= !request ||
            (came->retry_count == gave.retry_count && came->ack_timeout == gave.ack_timeout &&
             came->path_mtu == gave.path_mtu && came->transport_service == gave.transport_service);
    if (!same) {
        wrong(side, "the parameters are not what the peer gave");
    }
}

static void to_ready(struct contact_side *side, bool send)
{
    struct world *world = side->contact->world;
    if (side->end->gone || qp_current_state(side->end->qp) == QP_ERROR) {
        return; /* the peer's first packet may have been one that must be refused */
    }
    enum status status =
        send ? workload_to_rts(world, side->end) : workload_to_rtr(world, side->end);
    if (status != STATUS_OK) {
        wrong(side, "its queue pair could not be made ready");
    }
    if (send) {
        workload_start(world, side->end);
    }
}

static void part(struct contact_side *side)
{
    if (!side_lives(side) || side->phase != CONTACT_CONNECTED || side->connection == NULL) {
        return;
    }
    workload_fail(side->contact->world, side->end);
    if (cm_disconnect(side->connection, now_of(side)) != STATUS_OK) {
        wrong(side, "a connected side could not disconnect");
    }
    side->phase = CONTACT_LEAVING;
    side->left_at = now_of(side);
    side->contact->world->coverage->disconnects++;
    host_wake(side->end->host, 0);
}

static void part_event(void *context, uint64_t unused)
{
    (void)unused;
    part(context);
}

static void connected(struct contact_side *side)
{
    struct world *world = side->contact->world;
    side->phase = CONTACT_CONNECTED;
    world->coverage->connects++;
    if (dice_percent(&world->play, 40)) {
        simulator_after(&world->simulator, dice_below(&world->play, 1000000), part_event, side, 0);
    }
}

/* The passive side's decision. */
static void decide(void *context, uint64_t unused)
{
    (void)unused;
    struct contact_side *side = context;
    struct contact *contact = side->contact;
    if (!side_lives(side) || side->phase != CONTACT_ANSWERING) {
        return;
    }
    struct dice *dice = &contact->world->play;
    if (dice_percent(dice, 12) || side->end->gone || side->end->moved_to_error) {
        contact->rejected = true;
        if (cm_reject(side->connection, now_of(side), REASON_CONSUMER, contact->private_data,
                      PRIVATE_SIZE) != STATUS_OK) {
            wrong(side, "a request could not be rejected");
        }
        release(side);
        return;
    }
    to_ready(side, false);
    contact->accepted = true;
    struct cm_parameters parameters = parameters_of(side);
    if (cm_accept(side->connection, now_of(side), &parameters) != STATUS_OK) {
        wrong(side, "a request could not be accepted");
    }
    side->phase = CONTACT_ACCEPTED;
    host_wake(side->end->host, 0);
}

static void request_came(struct contact_side *side, const struct cm_event *event)
{
    struct contact *contact = side->contact;
    struct world *world = contact->world;
    if (contact->requests++ > 0 || contact->active.phase == CONTACT_NOTHING) {
        wrong(side, "a request came that was not made, or was shown before");
        return;
    }
    if (event->service_id != contact->service_id) {
        wrong(side, "it came to another service");
    }
    side->connection = event->connection;
    cm_set_context(event->connection, side);
    side->phase = CONTACT_ANSWERING;
    compare(side, &contact->active, &event->parameters);
    if (dice_percent(&world->play, 20)) {
        if (cm_delay(side->connection, now_of(side), 14) != STATUS_OK) {
            wrong(side, "the peer could not be told to wait");
        }
        simulator_after(&world->simulator, dice_below(&world->play, 30000000), decide, side, 0);
    } else {
        simulator_after(&world->simulator, dice_below(&world->play, 20000), decide, side, 0);
    }
}

static void reply_came(struct contact_side *side, const struct cm_event *event)
{
    struct contact *contact = side->contact;
    struct world *world = contact->world;
    if (side->phase != CONTACT_ASKING || !contact->accepted) {
        wrong(side, "a reply came that was not given");
        return;
    }
    compare(side, &contact->passive, &event->parameters);
    if (dice_percent(&world->play, 8) || side->end->gone || side->end->moved_to_error) {
        contact->rejected = true;
        if (cm_reject(side->connection, now_of(side), REASON_CONSUMER, NULL, 0) != STATUS_OK) {
            wrong(side, "a reply could not be rejected");
        }
        release(side);
        return;
    }
    to_ready(side, false);
    to_ready(side, true);
    if (cm_confirm(side->connection, now_of(side)) != STATUS_OK) {
        wrong(side, "a reply could not be confirmed");
    }
    connected(side);
}

static void established(struct contact_side *side)
{
    if (side->phase != CONTACT_ACCEPTED) {
        wrong(side, "established, but not accepted");
        return;
    }
    to_ready(side, true);
    connected(side);
}

static void refused(struct contact_side *side, const struct cm_event *event)
{
    struct contact *contact = side->contact;
    bool active = side == &contact->active;
    bool fits = event->kind == CM_EVENT_UNREACHABLE
                    ? !is_orderly(contact)
                    : contact->rejected || !contact->listens || !is_orderly(contact);
    if (active && side->phase != CONTACT_ASKING) {
        wrong(side, "refused, but nothing was asked");
    } else if (!active && side->phase != CONTACT_ACCEPTED && side->phase != CONTACT_ANSWERING) {
        wrong(side, "refused, but nothing was answered");
    } else if (!fits) {
        wrong(side, "refused, and nobody has refused it");
    } else if (event->kind == CM_EVENT_REJECTED && contact->rejected && is_orderly(contact) &&
               event->reject_reason != REASON_CONSUMER) {
        wrong(side, "refused for another reason than was given");
    }
    workload_fail(contact->world, side->end);
    release(side);
}

static void disconnected(struct contact_side *side)
{
    struct contact *contact = side->contact;
    struct contact_side *other = side == &contact->active ? &contact->passive : &contact->active;
    if (side->phase != CONTACT_CONNECTED && side->phase != CONTACT_LEAVING &&
        side->phase != CONTACT_ACCEPTED) {
        wrong(side, "disconnected, but not connected");
        return;
    }
    if (is_orderly(contact) && side->phase != CONTACT_LEAVING && other->phase != CONTACT_LEAVING &&
        other->phase != CONTACT_LEFT && other->phase != CONTACT_OVER) {
        wrong(side, "disconnected, and nobody asked for it");
    }
    if (is_orderly(contact) && side->phase == CONTACT_LEAVING &&
        instant_elapsed_ns(side->left_at, now_of(side)) > ANSWER_MOST_NS) {
        wrong(side, "the answer to its disconnect never came");
    }
    side->phase = CONTACT_LEFT;
    workload_fail(contact->world, side->end);
    if (dice_percent(&contact->world->play, 30)) {
        release(side);
    }
}

void contact_event(struct world *world, struct host *host, const struct cm_event *event)
{
    struct contact_side *side = event->context;
    simulator_note(&world->simulator, "%c cm event %u for qp %u", host->name, event->kind,
                   side->end->qpn.value);
    if (side->end->host != host ||
        (event->kind != CM_EVENT_REQUEST &&
         (side->connection == NULL || side->connection != event->connection))) {
        wrong(side, "an event of a connection that was released");
        return;
    }
    switch (event->kind) {
    case CM_EVENT_REQUEST:
        request_came(side, event);
        break;
    case CM_EVENT_REPLY:
        reply_came(side, event);
        break;
    case CM_EVENT_ESTABLISHED:
        established(side);
        break;
    case CM_EVENT_REJECTED:
    case CM_EVENT_UNREACHABLE:
        refused(side, event);
        break;
    case CM_EVENT_DISCONNECTED:
        disconnected(side);
        break;
    case CM_EVENT_TIME_WAIT_OVER:
        if (side->phase != CONTACT_LEFT) {
            wrong(side, "time-wait is over that never began");
        }
        release(side);
        break;
    case CM_EVENT_SERVICE_REQUEST:
    case CM_EVENT_SERVICE_REPLY:
        wrong(side, "it has asked for a connection, not for a service");
        break;
    }
    host_wake(host, 0);
}

static void listen_event(void *context, uint64_t unused)
{
    (void)unused;
    struct contact *contact = context;
    struct contact_side *side = &contact->passive;
    if (!side_lives(side)) {
        return;
    }
    contact->listens = contact->active.phase == CONTACT_NOTHING;
    if (cm_listen(side->end->host->cm, contact->service_id, NULL, 0, side, &contact->listener) !=
        STATUS_OK) {
        wrong(side, "could not listen");
    }
}

static void connect_event(void *context, uint64_t unused)
{
    (void)unused;
    struct contact *contact = context;
    struct contact_side *side = &contact->active;
    struct world *world = contact->world;
    if (!side_lives(side) || side->end->gone) {
        return;
    }
    struct cm_connect_request request = {
        .path = side->end->attributes.path,
        .service_id = contact->service_id,
        .parameters = parameters_of(side),
        .context = side,
        .response_timeout = (uint8_t)dice_range(&world->play, 10, 14),
        .max_retries = (uint8_t)dice_range(&world->play, 3, 15),
    };
    side->phase = CONTACT_ASKING;
    if (cm_connect(side->end->host->cm, world->simulator.now, &request, &side->connection) !=
        STATUS_OK) {
        wrong(side, "could not connect");
    }
    host_wake(side->end->host, 0);
}

void contact_start(struct world *world, struct pair *pair)
{
    struct contact *contact = scratch_take(&world->scratch, sizeof *contact);
    *contact = (struct contact){
        .world = world,
        .service_id = SERVICE_BASE + world->contact_count,
        .active = {.contact = contact, .end = &pair->ends[0]},
        .passive = {.contact = contact, .end = &pair->ends[1]},
    };
    dice_fill(&world->play, contact->private_data, PRIVATE_SIZE);
    world->contacts[world->contact_count++] = contact;
    simulator_after(&world->simulator, dice_below(&world->play, 4000), listen_event, contact, 0);
    simulator_after(&world->simulator,
                    dice_percent(&world->play, 85) ? 5000 + dice_below(&world->play, 100000)
                                                   : dice_below(&world->play, 4000),
                    connect_event, contact, 0);
}

void contact_host_died(struct world *world, struct host *host)
{
    for (uint32_t i = 0; i < world->contact_count; i++) {
        struct contact *contact = world->contacts[i];
        if (contact->active.end->host == host) {
            contact->active.connection = NULL;
            contact->active.phase = CONTACT_OVER;
        }
        if (contact->passive.end->host == host) {
            contact->passive.connection = NULL;
            contact->passive.phase = CONTACT_OVER;
            contact->listener = NULL;
        }
    }
}

void contact_part_all(struct world *world)
{
    for (uint32_t i = 0; i < world->contact_count; i++) {
        part(&world->contacts[i]->active);
        if (dice_percent(&world->play, 50)) {
            part(&world->contacts[i]->passive); /* both at once: the DREQs cross */
        }
    }
}

static void check_side(struct contact_side *side)
{
    struct contact *contact = side->contact;
    bool at_rest = side->phase == CONTACT_NOTHING || side->phase == CONTACT_CONNECTED ||
                   side->phase == CONTACT_OVER;
    if (side_lives(side) && !at_rest) {
        wrong(side, "nothing moves, and it still waits");
    }
    const struct contact_side *other =
        side == &contact->active ? &contact->passive : &contact->active;
    if (is_orderly(contact) && side->phase == CONTACT_CONNECTED &&
        other->phase != CONTACT_CONNECTED && !contact->rejected) {
        wrong(side, "only one side is connected");
    }
}

void contact_check(struct world *world)
{
    for (uint32_t i = 0; i < world->contact_count; i++) {
        check_side(&world->contacts[i]->active);
        check_side(&world->contacts[i]->passive);
    }
}

void contact_release_all(struct world *world)
{
    for (uint32_t i = 0; i < world->contact_count; i++) {
        struct contact *contact = world->contacts[i];
        release(&contact->active);
        release(&contact->passive);
        if (contact->listener != NULL && side_lives(&contact->passive)) {
            cm_unlisten(contact->listener);
        }
        contact->listener = NULL;
    }
}
