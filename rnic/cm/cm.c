/* The communication manager as one object: create and destroy, which machine a message belongs to,
 * timers, and the MRA, which both sides send and receive alike.
 *
 * A message is believed where it comes from the connection's peer GID and carries both ids; REP,
 * MRA and REJ, which may come before the peer's id is known, also the request's transaction. So who
 * does not see our packets has to guess 64 random bits, or two ids of 22 random bits each (of what
 * a Weir host draws, the slot being known). What is not believed is counted and ignored, but for
 * two that are answered without a state behind: a DREQ (so that the peer can end) and a REP (so
 * that it need not wait). A SIDR_REP carries one id,
 * which must be that of a resolution, and the transaction of its request. */
#include "rnic/cm/cm_private.h"

#include "rnic/base/check.h"

#define PREFIX_BITS_MAX       24u
#define RETRIES_AFTER_STRETCH 3u

static void receive_management(struct management_handler *handler, struct instant now,
                               const struct arrival *arrival, struct qpn source, const uint8_t *mad,
                               uint32_t length);

static enum status create_tables(struct cm *cm)
{
    struct allocator *allocator = cm->config.allocator;
    uint32_t count = cm->config.max_connections;
    cm->connections = allocator->allocate(allocator, count * sizeof(struct cm_connection));
    if (cm->connections == NULL) {
        return STATUS_NO_MEMORY;
    }
    struct hash *tables[] = {&cm->by_id, &cm->by_remote_id, &cm->by_remote_qpn, &cm->by_request_id};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == STATUS_OK; i++) {
        status = hash_init(tables[i], allocator, count);
    }
    if (status == STATUS_OK) {
        status = pool_init(&cm->mads, allocator, MAD_LENGTH, count);
    }
    if (status == STATUS_OK) {
        status = pool_init(&cm->pending, allocator, sizeof(struct cm_pending_event),
                           CM_PENDING_MAX * count);
    }
    return status;
}

static void free_all(struct cm *cm)
{
    struct allocator *allocator = cm->config.allocator;
    hash_fini(&cm->by_id);
    hash_fini(&cm->by_remote_id);
    hash_fini(&cm->by_remote_qpn);
    hash_fini(&cm->by_request_id);
    pool_fini(&cm->mads);
    pool_fini(&cm->pending);
    allocator->release(allocator, cm->connections);
    allocator->release(allocator, cm);
}

enum status cm_create(const struct cm_config *config, struct cm **ret_cm)
{
    /* Half of the ids stay free, so that drawing one at random ends soon. */
    if (config->id_prefix_bits > PREFIX_BITS_MAX ||
        config->id_prefix >> config->id_prefix_bits != 0 || config->max_connections == 0 ||
        config->max_connections > UINT32_C(1) << (31 - config->id_prefix_bits)) {
        return STATUS_INVALID;
    }
    struct cm *cm = config->allocator->allocate(config->allocator, sizeof *cm);
    if (cm == NULL) {
        return STATUS_NO_MEMORY;
    }
    cm->config = *config;
    enum status status = create_tables(cm);
    if (status != STATUS_OK) {
        free_all(cm);
        return status;
    }
    cm->secret = secret_init(&config->key);
    cm->hash_key = secret_key(&cm->secret);
    list_init(&cm->unused);
    list_init(&cm->rejected);
    for (uint32_t i = 0; i < CM_LISTENER_CHAINS; i++) {
        list_init(&cm->listeners[i]);
    }
    list_init(&cm->events);
    list_init(&cm->unsent);
    timers_init(&cm->timers);
    cm->handler.receive = receive_management;
    device_set_management(config->device, &cm->handler);
    *ret_cm = cm;
    return STATUS_OK;
}

void cm_destroy(struct cm *cm)
{
    if (cm == NULL) {
        return;
    }
    device_set_management(cm->config.device, NULL);
    for (uint32_t i = 0; i < CM_LISTENER_CHAINS; i++) {
        struct list_node *node;
        while ((node = list_pop_first(&cm->listeners[i])) != NULL) {
            cm->config.allocator->release(cm->config.allocator,
                                          CONTAINER_OF(node, struct cm_listener, node));
        }
    }
    free_all(cm);
}

uint64_t cm_timeout_ns(uint8_t exponent, uint8_t least, uint8_t most)
{
    exponent = exponent < least ? least : exponent;
    exponent = exponent > most ? most : exponent;
    return UINT64_C(4096) << exponent;
}

bool cm_copy_private(struct cm_message *message, const void *data, uint8_t length)
{
    if (length > cm_message_private_max(message->kind)) {
        return false;
    }
    if (length > 0) {
        memcpy(message->private_data, data, length);
    }
    return true;
}

/* Its queue pair may carry data. */
static bool stands(const struct cm_connection *connection)
{
    return connection->state == CM_REP_SENT || connection->state == CM_REP_RECEIVED ||
           connection->state == CM_ESTABLISHED;
}

void cm_await_goodbyes(struct cm *cm)
{
    for (uint32_t i = 0; i < cm->connections_touched; i++) {
        if (stands(&cm->connections[i])) {
            device_await_goodbye(cm->config.device, cm->connections[i].local_qpn);
        }
    }
}

void cm_enter(struct cm_connection *connection, enum cm_state state)
{
    bool stood = stands(connection);
    timers_cancel(&connection->cm->timers, &connection->timer);
    list_remove(&connection->node);
    if (state != CM_OVER) { /* there, the peer took its request back, and the caller holds it yet */
        cm_listener_remove(connection);
    }
    /* An ended connection does not stand in the way of a new one to the same queue pair; whether
     * the peer may use that again is for the peer's own time-wait to say. */
    if (state == CM_OVER || state == CM_REJ_SENT || state == CM_TIME_WAIT) {
        cm_table_forget_qpn(connection);
    }
    connection->cm->half_open -= connection->state == CM_REP_SENT;
    connection->cm->half_open += state == CM_REP_SENT;
    connection->state = state;
    if (state == CM_ESTABLISHED) {
        cm_send_settled(connection);
    }
    cm_will_keep(connection);
    if (stood && !stands(connection)) {
        device_say_goodbye(connection->cm->config.device, connection->local_qpn);
    }
}

void cm_start_timer(struct cm_connection *connection, uint64_t duration_ns)
{
    struct cm *cm = connection->cm;
    timers_set(&cm->timers, &connection->timer, instant_after(cm->now, duration_ns));
}

static void give_up(struct cm_connection *connection)
{
    switch (connection->state) {
    case CM_REQ_SENT:
        cm_active_give_up(connection);
        break;
    case CM_REP_SENT:
        cm_passive_give_up(connection);
        break;
    case CM_SIDR_REQ_SENT:
        cm_service_give_up(connection);
        break;
    default:
        cm_close_give_up(connection);
        break;
    }
}

static void receive_timeout(struct cm_connection *connection)
{
    switch (connection->state) {
    case CM_REQ_SENT:
    case CM_REP_SENT:
    case CM_DREQ_SENT:
    case CM_DREQ_UNHEARD:
    case CM_SIDR_REQ_SENT:
        if (connection->retries_left == 0) {
            give_up(connection);
            break;
        }
        connection->retries_left--;
        cm_start_timer(connection, connection->timeout_ns);
        if (connection->state == CM_REP_SENT) {
            cm_passive_repeat(connection);
        } else {
            cm_send_again(connection);
        }
        break;
    case CM_REJ_SENT:
    case CM_SIDR_REP_SENT:
        cm_close_finish(connection);
        break;
    case CM_TIME_WAIT:
        cm_close_wait_over(connection);
        break;
    case CM_REP_RECEIVED: /* the peer has not asked, see cm_delay */
        cm_send_again(connection);
        break;
    default:
        CHECK(!"a timer in a state that has none");
    }
}

void cm_advance(struct cm *cm, struct instant now)
{
    cm->now = now;
    struct timer *timer;
    while ((timer = timers_pop_due(&cm->timers, now)) != NULL) {
        receive_timeout(CONTAINER_OF(timer, struct cm_connection, timer));
    }
    cm_send_unsent(cm);
}

struct instant cm_next_deadline(const struct cm *cm)
{
    struct instant deadline = timers_earliest(&cm->timers);
    return list_is_empty(&cm->unsent) ? deadline : instant_earlier(deadline, cm->retry_sending);
}

/* The wait that a peer asks for stands in place of the tries that would fill it: one that dies
 * meanwhile is given up as soon as one that never answered. Some are left after any wait, since
 * one may be lost. */
static uint8_t retries_after(const struct cm_connection *connection, uint64_t stretch_ns)
{
    uint8_t max = connection->max_retries;
    uint8_t least = max < RETRIES_AFTER_STRETCH ? max : RETRIES_AFTER_STRETCH;
    uint64_t replaced = stretch_ns / connection->timeout_ns;
    return replaced + least < max ? (uint8_t)(max - replaced) : least;
}

/* [IBA 12.9.8.1.1] The stretch begins anew with each MRA, and so does our own patience after it;
 * how often is bounded, or a peer could hold us for ever. */
static void receive_delay(struct cm_connection *connection, const struct cm_message *message)
{
    bool expected = (connection->state == CM_REQ_SENT && message->answered == CM_ANSWERED_REQ) ||
                    (connection->state == CM_REP_SENT && message->answered == CM_ANSWERED_REP);
    if (expected && connection->stretches_left > 0) {
        uint64_t stretch_ns = cm_timeout_ns(message->service_timeout, 0, CM_STRETCH_MOST);
        connection->stretches_left--;
        connection->retries_left = retries_after(connection, stretch_ns);
        cm_start_timer(connection, stretch_ns + connection->timeout_ns);
    }
}

enum status cm_delay(struct cm_connection *connection, struct instant now, uint8_t service_timeout)
{
    connection->cm->now = now;
    if (service_timeout > CM_EXPONENT_MAX) {
        return STATUS_INVALID;
    }
    if (connection->state != CM_REQ_RECEIVED && connection->state != CM_REP_RECEIVED) {
        return STATUS_STATE;
    }
    struct cm_message message = {
        .kind = CM_MESSAGE_MRA,
        .service_timeout = service_timeout,
        .answered = connection->state == CM_REQ_RECEIVED ? CM_ANSWERED_REQ : CM_ANSWERED_REP,
    };
    connection->granted_ns = cm_timeout_ns(service_timeout, 0, CM_STRETCH_MOST);
    cm_send_if_asked(connection, &message);
    if (connection->state == CM_REP_RECEIVED) {
        cm_start_timer(connection, connection->timeout_ns + connection->timeout_ns / 2);
    } else if (connection->max_retries == 0) {
        cm_send_again(connection);
    }
    return STATUS_OK;
}

void cm_set_context(struct cm_connection *connection, void *context)
{
    connection->context = context;
}

bool cm_knows_peer(const struct cm *cm, const struct gid *peer, uint32_t peer_id)
{
    return cm_table_find_by_remote_id(cm, peer, peer_id) != NULL;
}

uint32_t cm_connection_count(const struct cm *cm)
{
    return cm->connections_alive;
}

static bool is_ours_to_answer(const struct cm *cm, uint32_t id)
{
    return cm_table_is_ours(cm, id) || (cm->config.is_nobodys != NULL &&
                                        cm->config.is_nobodys(cm->config.is_nobodys_context, id));
}

/* A REP that nobody waits for, or a DREQ of a connection that nobody has. The id shows that it was
 * meant for us, or for a process of this host that is gone, and not for another one that lives. */
static void receive_unknown(struct cm *cm, const struct arrival *arrival,
                            const struct cm_message *message)
{
    bool ours = is_ours_to_answer(cm, message->remote_id);
    if (ours && message->kind == CM_MESSAGE_DREQ) {
        cm_close_answer_stray(cm, arrival, message);
    } else if (ours && message->kind == CM_MESSAGE_REP) {
        cm_send_stray_reject(cm, arrival, message, CM_REJECT_INVALID_COMMUNICATION_ID);
    } else {
        device_refuse(cm->config.device, REFUSED_MANAGEMENT);
    }
}

static struct cm_connection *find_addressed(const struct cm *cm, const struct arrival *arrival,
                                            const struct cm_message *message)
{
    /* Who gave up before it heard from us cannot name our id. */
    if (message->kind == CM_MESSAGE_REJ && message->remote_id == 0) {
        struct cm_connection *connection =
            cm_table_find_by_remote_id(cm, &arrival->path.remote, message->local_id);
        return connection != NULL && !connection->active ? connection : NULL;
    }
    struct cm_connection *connection = cm_table_find(cm, message->remote_id);
    bool fits = connection != NULL &&
                (!connection->remote_known || connection->remote_id == message->local_id);
    return fits ? connection : NULL;
}

static bool is_believable(const struct cm_connection *connection, const struct arrival *arrival,
                          const struct cm_message *message)
{
    if (!gid_equal(&connection->path.remote, &arrival->path.remote)) {
        return false;
    }
    if (connection->is_resolution != (message->kind == CM_MESSAGE_SIDR_REP)) {
        return false;
    }
    bool of_request = message->transaction == connection->request_transaction;
    switch (message->kind) {
    case CM_MESSAGE_REP:
        return connection->active && of_request;
    case CM_MESSAGE_MRA:
    case CM_MESSAGE_REJ:
        return of_request;
    case CM_MESSAGE_SIDR_REP:
        return connection->active && connection->transaction == message->transaction;
    case CM_MESSAGE_RTU:
        return !connection->active;
    case CM_MESSAGE_DREQ: /* it names our queue pair */
        return qpn_equal(message->local_qpn, connection->local_qpn);
    default:
        return true;
    }
}

static void dispatch(struct cm_connection *connection, const struct arrival *arrival,
                     const struct cm_message *message)
{
    switch (message->kind) {
    case CM_MESSAGE_MRA:
        receive_delay(connection, message);
        break;
    case CM_MESSAGE_REJ:
        cm_close_receive_reject(connection, message);
        break;
    case CM_MESSAGE_REP:
        cm_active_receive_reply(connection, arrival, message);
        break;
    case CM_MESSAGE_RTU:
        cm_passive_receive_ready(connection, message);
        break;
    case CM_MESSAGE_DREQ:
        cm_close_receive_request(connection, arrival, message);
        break;
    case CM_MESSAGE_DREP:
        cm_close_receive_reply(connection, message);
        break;
    case CM_MESSAGE_SIDR_REP:
        cm_service_receive_reply(connection, message);
        break;
    case CM_MESSAGE_REQ:
    case CM_MESSAGE_SIDR_REQ:
        CHECK(!"a request belongs to no connection");
    }
}

static void receive_request(struct cm *cm, const struct arrival *arrival,
                            const struct cm_message *message)
{
    if (gid_equal(&message->path.local, &arrival->path.remote) && message->local_id != 0) {
        cm_passive_receive_request(cm, arrival, message);
    } else {
        device_refuse(cm->config.device, REFUSED_MANAGEMENT);
    }
}

static void receive_management(struct management_handler *handler, struct instant now,
                               const struct arrival *arrival, struct qpn source, const uint8_t *mad,
                               uint32_t length)
{
    struct cm *cm = CONTAINER_OF(handler, struct cm, handler);
    struct cm_message message;
    cm->now = now;
    if (!qpn_equal(source, QPN_MANAGEMENT) ||
        cm_message_parse(mad, length, &message) != STATUS_OK) {
        device_refuse(cm->config.device, REFUSED_MANAGEMENT);
        return;
    }
    if (message.kind == CM_MESSAGE_REQ) {
        receive_request(cm, arrival, &message);
        return;
    }
    if (message.kind == CM_MESSAGE_SIDR_REQ) {
        cm_service_receive_request(cm, arrival, &message);
        return;
    }
    struct cm_connection *connection = find_addressed(cm, arrival, &message);
    if (connection == NULL) {
        receive_unknown(cm, arrival, &message);
    } else if (is_believable(connection, arrival, &message)) {
        dispatch(connection, arrival, &message);
    } else {
        device_refuse(cm->config.device, REFUSED_MANAGEMENT);
    }
}
