#include "rnic/transport/direct.h"

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "rnic/memory/scatter.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"

#define WAIT_LEAST                                                                                 \
    16384u /* a shorter WRITE behind a SEND is not held back until it may go this way */
#define PACKET_BYTES (1u << 16) /* a part takes as much of a turn as packets of these */
#define SHORT_BYTES  (1u << 13) /* what costs more by itself than in a batch */
#define BATCH_BYTES  (1u << 17) /* together; at more the call itself costs next to nothing */

/* Windows are not shown: what opens and closes them (requests of either side, in the middle of a
 * queue) could not wait for who is at it. */
static void region_opened(struct memory_observer *observer, struct memory_key key,
                          const struct region_attributes *attributes)
{
    struct environment *environment = CONTAINER_OF(observer, struct environment, memory_observer);
    struct direct_link *link = environment->direct;
    unsigned rights = attributes->access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ);
    environment->memory_may_fault |= (attributes->access & ACCESS_ON_DEMAND) != 0;
    if (link->table == NULL || rights == 0 || (attributes->access & ACCESS_ON_DEMAND) != 0 ||
        (link->lets_show != NULL &&
         !link->lets_show(link, key, attributes->bytes, attributes->length))) {
        return;
    }
    struct direct_key shown = {
        .key = key,
        .domain = attributes->domain.value,
        .address = attributes->address,
        .length = attributes->length,
        .bytes = (uintptr_t)attributes->bytes,
        .rights = rights,
        .common = link->common,
    };
    direct_table_show_key(link->table, &shown);
}

void direct_hide_key(struct environment *environment, struct memory_key key)
{
    const struct direct_link *link = environment->direct;
    if (link != NULL && link->table != NULL) {
        (void)direct_table_hide_key(link->table, key);
    }
}

void direct_withdraw_key(struct environment *environment, struct memory_key key)
{
    struct direct_link *link = environment->direct;
    if (link != NULL && link->table != NULL && link->withdraw != NULL) {
        link->withdraw(link, key);
    }
}

static void region_closed(struct memory_observer *observer, struct memory_key key)
{
    direct_hide_key(CONTAINER_OF(observer, struct environment, memory_observer), key);
}

void direct_init(struct environment *environment)
{
    if (environment->direct != NULL) {
        environment->memory_observer =
            (struct memory_observer){.opened = region_opened, .closed = region_closed};
        memory_set_observer(environment->memory, &environment->memory_observer);
    }
}

/* One whose peer has sent nothing yet is told of it by the first packet. */
static bool is_to_be_shown(const struct qp *qp)
{
    enum qp_state state = qp_state_now(qp);
    return qp->service == SERVICE_RC && !qp->is_deputy && !qp->matches_tags && !qp->is_held &&
           qp->environment->watcher == NULL && qp_state_receives(state) &&
           (state != QP_RTR || qp->established_raised);
}

static void hide(struct qp *qp)
{
    const struct direct_link *link = qp->environment->direct;
    if (link != NULL && link->table != NULL) {
        qp->was_shown |= direct_table_hide_qp(link->table, qp->number);
    }
}

void direct_hold(struct qp *qp)
{
    qp->is_held = true;
    hide(qp);
}

void direct_let_go(struct qp *qp, bool settled)
{
    qp->is_held = false;
    qp->was_shown &= !settled;
    direct_refresh(qp);
}

static unsigned rights_of(const struct qp *qp)
{
    unsigned rights = qp->attributes.access & ACCESS_REMOTE_WRITE;
    return qp->attributes.max_reads_in > 0 ? rights | (qp->attributes.access & ACCESS_REMOTE_READ)
                                           : rights;
}

void direct_refresh(struct qp *qp)
{
    const struct direct_link *link = qp->environment->direct;
    hide(qp);
    if (link == NULL || link->table == NULL || !is_to_be_shown(qp)) {
        return;
    }
    struct direct_qp shown = {
        .number = qp->number,
        .destination = qp->attributes.destination,
        .local = qp->attributes.path.local,
        .remote = qp->attributes.path.remote,
        .domain = qp->domain.value,
        .first_psn = qp->attributes.receive_psn,
        .rights = (uint16_t)rights_of(qp),
        .mtu_shift = qp->mtu_shift,
    };
    direct_table_show_qp(link->table, &shown);
}

static bool goes_directly(const struct qp *qp)
{
    const struct environment *environment = qp->environment;
    return environment->direct != NULL && qp->service == SERVICE_RC && !qp->matches_tags &&
           environment->watcher == NULL;
}

void direct_connect(struct qp *qp)
{
    struct direct_link *link = qp->environment->direct;
    if (goes_directly(qp) && link->table != NULL && link->connect != NULL) {
        link->connect(link, &qp->attributes.path, qp->attributes.destination, rights_of(qp));
    }
}

/* One of no bytes is a question whether the peer is there: its engine answers. */
static bool suits(const struct qp *qp, const struct send_slot *slot)
{
    return (slot->kind == WORK_WRITE ||
            (slot->kind == WORK_READ && qp->attributes.max_reads_out > 0)) &&
           slot->length > 0 && !slot->started && !slot->finished && !slot->by_packets &&
           (qp_state_now(qp) == QP_RTS || slot->moved > 0);
}

/* The request at the cursor, if nothing is outstanding before it and it may go this way. */
static struct send_slot *find_slot(struct qp *qp)
{
    uint64_t head = send_queue_head(qp->sends);
    if (qp->requester.position != head || head == send_queue_tail(qp->sends)) {
        return NULL;
    }
    struct send_slot *slot = send_queue_slot(qp->sends, head);
    return suits(qp, slot) ? slot : NULL;
}

bool direct_is_for_same(const struct qp *one, const struct qp *other)
{
    uint32_t each = one->environment->direct->qpns_each;
    const struct qp_attributes *its = &one->attributes, *others = &other->attributes;
    return its->destination.value / each == others->destination.value / each &&
           gid_equal(&its->path.remote, &others->path.remote);
}

uint32_t direct_may_wait(const struct qp *qp)
{
    uint64_t head = send_queue_head(qp->sends), tail = send_queue_tail(qp->sends);
    if (!qp->went_directly || head == tail || qp->requester.position != head ||
        !goes_directly(qp)) {
        return 0;
    }
    const struct send_slot *slot = send_queue_slot(qp->sends, tail - 1);
    bool gains = suits(qp, slot) && slot->length <= SHORT_BYTES && !qp->environment->direct->stores;
    return gains ? (uint32_t)(tail - head) : 0;
}

bool direct_has_done_all(const struct qp *qp)
{
    return send_queue_head(qp->sends) == send_queue_tail(qp->sends);
}

/* What is moved at once. */
struct batch {
    uint32_t count, place_count;
    uint32_t bytes, most;
    struct qp *qps[DIRECT_BATCH]; /* whose */
    struct direct_access accesses[DIRECT_BATCH];
    struct payload_place places[DIRECT_PLACES];
};

static void begin_batch(struct batch *ret_batch)
{
    ret_batch->count = ret_batch->place_count = ret_batch->bytes = 0;
}

static struct direct_access describe(const struct qp *qp, const struct send_slot *slot,
                                     uint32_t part, const struct payload_place *places,
                                     uint32_t place_count)
{
    return (struct direct_access){
        .path = &qp->attributes.path,
        .initiator = qp->number,
        .target = qp->attributes.destination,
        .first_psn = qp->attributes.send_psn,
        .mtu_shift = qp->mtu_shift,
        .write = slot->kind == WORK_WRITE,
        .key = slot->remote_key,
        .address = slot->remote_address,
        .length = slot->length,
        .offset = slot->moved,
        .part = part,
        .places = places,
        .place_count = place_count,
        .may_fault = qp->environment->memory_may_fault,
    };
}

static unsigned rights_here(const struct send_slot *slot)
{
    return slot->kind == WORK_WRITE ? ACCESS_LOCAL_READ : ACCESS_LOCAL_WRITE;
}

/* Adds the next part of a request. False: there is no room for it, or it is not to be moved so. */
static bool add(struct batch *batch, struct qp *qp, const struct send_slot *slot, uint32_t part)
{
    struct payload_place *places = &batch->places[batch->place_count];
    uint32_t room = DIRECT_PLACES - batch->place_count, place_count;
    struct scatter scatter;
    if (slot->inline_data) {
        scatter_init_inline(&scatter, send_slot_inline(slot), slot->length);
    } else {
        scatter_init(&scatter, qp->environment->memory, qp->domain, send_slot_sges(slot),
                     slot->sge_count);
    }
    scatter_seek(&scatter, slot->moved);
    if (scatter_find(&scatter, part, rights_here(slot), places, room, &place_count) !=
        MEMORY_GRANTED) {
        return false;
    }
    batch->qps[batch->count] = qp;
    batch->accesses[batch->count++] = describe(qp, slot, part, places, place_count);
    batch->place_count += place_count;
    batch->bytes += part;
    return true;
}

/* Whole requests of a queue pair from there on, of one kind and short. False: it has one that is
 * not to go along, or there is no room. */
static bool add_all(struct batch *batch, struct qp *qp, uint64_t position, enum work_kind kind)
{
    uint64_t tail = send_queue_tail(qp->sends);
    for (; position != tail; position++) {
        const struct send_slot *slot = send_queue_slot(qp->sends, position);
        if (batch->count == DIRECT_BATCH || !suits(qp, slot) || slot->kind != kind ||
            slot->moved > 0 || batch->bytes >= batch->most ||
            slot->length > batch->most - batch->bytes || !add(batch, qp, slot, slot->length)) {
            return false;
        }
    }
    return true;
}

/* Its next turn would be to do its first request directly. */
static bool may_join(struct qp *qp)
{
    return goes_directly(qp) && !qp->peer_died && !qp_owes_answer(qp) &&
           instant_is_never(qp->requester.rnr_resume) && find_slot(qp) != NULL;
}

/* Those of the queue pairs whose turns come next. */
static void add_others(struct batch *batch, const struct qp *qp, enum work_kind kind)
{
    const struct list *active = &qp->environment->active;
    struct list_node *node = list_first(active);
    for (; node != NULL; node = list_next(active, node)) {
        struct qp *other = CONTAINER_OF(node, struct qp, active);
        if (other == qp || !may_join(other) || !direct_is_for_same(qp, other) ||
            !add_all(batch, other, send_queue_head(other->sends), kind)) {
            return;
        }
    }
}

/* The next part of the first request; where that is its end, those that follow. */
static void fill(struct batch *batch, struct qp *qp, const struct send_slot *first)
{
    uint32_t rest = first->length - first->moved;
    uint32_t most = qp->environment->direct->part_bytes;
    begin_batch(batch);
    if (!add(batch, qp, first, rest < most ? rest : most) || rest > most) {
        return;
    }
    batch->most = most < BATCH_BYTES ? most : BATCH_BYTES;
    if (add_all(batch, qp, qp->requester.position + 1, first->kind)) {
        add_others(batch, qp, first->kind);
    }
}

static void moved(struct qp *qp, const struct direct_access *access)
{
    struct environment *environment = qp->environment;
    struct send_slot *slot = send_queue_slot(qp->sends, qp->requester.position);
    slot->moved += access->part;
    qp->went_directly = true;
    environment->counters.values[COUNTER_DIRECT_BYTES] += access->part;
    if (slot->moved == slot->length) {
        environment_count(environment,
                          access->write ? COUNTER_DIRECT_WRITES : COUNTER_DIRECT_READS);
        qp->requester.position++;
        qp_complete_send(qp, COMPLETION_SUCCESS);
    }
}

static void give_up(struct qp *qp, struct send_slot *slot)
{
    slot->by_packets = true;
    qp->went_directly = false;
}

/* The usual case: all of it lies in one place. */
static bool find_place(const struct qp *qp, const struct send_slot *slot,
                       struct payload_place *ret_place)
{
    ret_place->length = slot->length;
    if (slot->inline_data) {
        ret_place->bytes = (uint8_t *)(uintptr_t)send_slot_inline(slot);
        return true;
    }
    const struct sge *sge = send_slot_sges(slot);
    struct memory_request request = {
        .domain = qp->domain,
        .key = sge->key,
        .address = sge->address,
        .length = slot->length,
        .rights = rights_here(slot),
    };
    return slot->sge_count == 1 &&
           memory_check(qp->environment->memory, &request, &ret_place->bytes) == MEMORY_GRANTED &&
           ret_place->bytes != NULL;
}

bool direct_transmit_alone(struct qp *qp)
{
    struct environment *environment = qp->environment;
    struct direct_link *link = environment->direct;
    if (!qp->went_directly || link == NULL || !link->stores || qp->peer_died ||
        !goes_directly(qp) || !instant_is_never(qp->requester.rnr_resume)) {
        return false;
    }
    struct send_slot *slot = find_slot(qp);
    struct payload_place place;
    if (slot == NULL || qp->requester.position + 1 != send_queue_tail(qp->sends) ||
        slot->length > link->part_bytes || slot->moved > 0 || !find_place(qp, slot, &place)) {
        return false;
    }
    struct direct_access access = describe(qp, slot, slot->length, &place, 1);
    if (link->access(link, &access, 1) == 0) {
        give_up(qp, slot);
        return false;
    }
    moved(qp, &access);
    return true;
}

enum step direct_transmit(struct qp *qp)
{
    struct environment *environment = qp->environment;
    struct direct_link *link = environment->direct;
    struct batch batch;
    if (!goes_directly(qp)) {
        return STEP_IDLE;
    }
    struct send_slot *slot = find_slot(qp);
    if (slot == NULL) {
        return STEP_IDLE;
    }
    fill(&batch, qp, slot);
    uint32_t count = batch.count > 0 ? link->access(link, batch.accesses, batch.count) : 0;
    if (count == 0) {
        give_up(qp, slot);
        return STEP_IDLE;
    }
    environment->extra_packets = count - 1 + batch.bytes / PACKET_BYTES;
    /* A completion may find its queue full: then the rest has been flushed. */
    for (uint32_t i = 0; i < count; i++) {
        struct qp *its = batch.qps[i];
        if (qp_state_now(its) != QP_ERROR) {
            moved(its, &batch.accesses[i]);
        }
        if (its != qp && !qp_has_turn(its)) {
            list_remove(&its->active); /* it was its turn, too */
        }
    }
    return STEP_SENT;
}

/* What is outstanding ends with one that would have gone directly: once it has ended all do. */
static bool follows_its_like(const struct qp *qp)
{
    const struct send_slot *before = send_queue_slot(qp->sends, qp->requester.position - 1);
    return before->kind == WORK_WRITE || before->kind == WORK_READ;
}

static bool is_granted(struct qp *qp, const struct send_slot *slot)
{
    struct direct_link *link = qp->environment->direct;
    struct batch batch;
    begin_batch(&batch);
    return add(&batch, qp, slot, 0) && link->access(link, batch.accesses, 1) == 1;
}

bool direct_is_worth_waiting(struct qp *qp, const struct send_slot *slot)
{
    return goes_directly(qp) && suits(qp, slot) &&
           qp->requester.position != send_queue_head(qp->sends) &&
           (slot->length >= WAIT_LEAST || slot->kind == WORK_READ || follows_its_like(qp)) &&
           is_granted(qp, slot);
}
