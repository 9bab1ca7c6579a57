/* The pool of connections and the ways to find one: by the id we gave it, and by the two names its
 * peer gave it, the communication id and the QPN, both at the peer's GID. Request ids of
 * resolutions are a world of their own: to a peer of another kind they may be what its
 * communication ids are.
 *
 * The peer's names are hashed with a secret, so a stranger cannot aim at one chain. Ids are drawn
 * at random: who cannot read our packets cannot guess one.
 */
#include "rnic/base/check.h"
#include "rnic/cm/cm_private.h"

static uint32_t draw_id(struct cm *cm)
{
    uint32_t bits = 32 - cm->config.id_prefix_bits;
    uint32_t prefix = bits == 32 ? 0 : cm->config.id_prefix << bits;
    for (;;) { /* at most half of the ids are taken, see cm_create */
        uint32_t id = prefix | (uint32_t)secret_below(&cm->secret, UINT64_C(1) << bits);
        if (id != 0 && cm_table_find(cm, id) == NULL) {
            return id;
        }
    }
}

static struct cm_connection *find_room(struct cm *cm)
{
    struct list_node *node = list_pop_first(&cm->unused);
    if (node == NULL && cm->connections_touched < cm->config.max_connections) {
        return &cm->connections[cm->connections_touched++];
    }
    if (node == NULL && !list_is_empty(&cm->rejected)) {
        cm_table_give(CONTAINER_OF(list_first(&cm->rejected), struct cm_connection, node));
        node = list_pop_first(&cm->unused);
    }
    return node == NULL ? NULL : CONTAINER_OF(node, struct cm_connection, node);
}

static struct cm_connection *take(struct cm *cm, uint32_t local_id)
{
    struct cm_connection *connection = find_room(cm);
    if (connection == NULL) {
        return NULL;
    }
    *connection = (struct cm_connection){.cm = cm, .state = CM_OVER, .local_id = local_id};
    connection->by_id.hash = local_id; /* random enough */
    hash_insert(&cm->by_id, &connection->by_id);
    cm->connections_alive++;
    return connection;
}

struct cm_connection *cm_table_take(struct cm *cm)
{
    return take(cm, draw_id(cm));
}

struct cm_connection *cm_table_take_as(struct cm *cm, uint32_t local_id)
{
    return cm_table_find(cm, local_id) == NULL ? take(cm, local_id) : NULL;
}

struct cm_connection *cm_table_find(const struct cm *cm, uint32_t local_id)
{
    struct hash_node *node = hash_find(&cm->by_id, local_id);
    return node == NULL ? NULL : CONTAINER_OF(node, struct cm_connection, by_id);
}

bool cm_table_is_ours(const struct cm *cm, uint32_t local_id)
{
    uint32_t bits = 32 - cm->config.id_prefix_bits;
    return bits == 32 || local_id >> bits == cm->config.id_prefix;
}

static uint32_t hash_name(const struct cm *cm, const struct gid *peer, uint32_t value)
{
    uint8_t name[sizeof peer->bytes + sizeof value];
    memcpy(name, peer->bytes, sizeof peer->bytes);
    memcpy(name + sizeof peer->bytes, &value, sizeof value);
    return (uint32_t)siphash(&cm->hash_key, name, sizeof name);
}

static struct hash *ids_of_peers(struct cm_connection *connection)
{
    struct cm *cm = connection->cm;
    return connection->is_resolution ? &cm->by_request_id : &cm->by_remote_id;
}

void cm_table_forget_id(struct cm_connection *connection)
{
    if (connection->named_by_id) {
        hash_remove(ids_of_peers(connection), &connection->by_remote_id);
        connection->named_by_id = false;
    }
}

void cm_table_name_by_id(struct cm_connection *connection, uint32_t remote_id)
{
    cm_table_forget_id(connection);
    connection->remote_id = remote_id;
    connection->remote_known = true;
    connection->by_remote_id.hash = hash_name(connection->cm, &connection->path.remote, remote_id);
    hash_insert(ids_of_peers(connection), &connection->by_remote_id);
    connection->named_by_id = true;
}

void cm_table_name_by_qpn(struct cm_connection *connection, struct qpn remote_qpn)
{
    struct cm *cm = connection->cm;
    cm_table_forget_qpn(connection);
    connection->remote_qpn = remote_qpn;
    connection->by_remote_qpn.hash = hash_name(cm, &connection->path.remote, remote_qpn.value);
    hash_insert(&cm->by_remote_qpn, &connection->by_remote_qpn);
    connection->named_by_qpn = true;
}

void cm_table_forget_qpn(struct cm_connection *connection)
{
    if (connection->named_by_qpn) {
        hash_remove(&connection->cm->by_remote_qpn, &connection->by_remote_qpn);
        connection->named_by_qpn = false;
    }
}

static struct cm_connection *find_by_id(const struct cm *cm, const struct hash *ids,
                                        const struct gid *peer, uint32_t id)
{
    struct hash_node *node = hash_find(ids, hash_name(cm, peer, id));
    for (; node != NULL; node = hash_find_next(node)) {
        struct cm_connection *connection = CONTAINER_OF(node, struct cm_connection, by_remote_id);
        if (connection->remote_id == id && gid_equal(&connection->path.remote, peer)) {
            return connection;
        }
    }
    return NULL;
}

struct cm_connection *cm_table_find_by_remote_id(const struct cm *cm, const struct gid *peer,
                                                 uint32_t remote_id)
{
    return find_by_id(cm, &cm->by_remote_id, peer, remote_id);
}

struct cm_connection *cm_table_find_by_request_id(const struct cm *cm, const struct gid *peer,
                                                  uint32_t request_id)
{
    return find_by_id(cm, &cm->by_request_id, peer, request_id);
}

struct cm_connection *cm_table_find_by_remote_qpn(const struct cm *cm, const struct gid *peer,
                                                  struct qpn remote_qpn)
{
    struct hash_node *node = hash_find(&cm->by_remote_qpn, hash_name(cm, peer, remote_qpn.value));
    for (; node != NULL; node = hash_find_next(node)) {
        struct cm_connection *connection = CONTAINER_OF(node, struct cm_connection, by_remote_qpn);
        if (qpn_equal(connection->remote_qpn, remote_qpn) &&
            gid_equal(&connection->path.remote, peer)) {
            return connection;
        }
    }
    return NULL;
}

void cm_table_give(struct cm_connection *connection)
{
    struct cm *cm = connection->cm;
    cm_event_withdraw(connection);
    cm_listener_remove(connection);
    timers_cancel(&cm->timers, &connection->timer);
    cm_table_forget_id(connection);
    cm_table_forget_qpn(connection);
    list_remove(&connection->unsent);
    cm_send_settled(connection);
    list_remove(&connection->node);
    hash_remove(&cm->by_id, &connection->by_id);
    list_prepend(&cm->unused, &connection->node);
    cm->connections_alive--;
}
