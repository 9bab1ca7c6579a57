/* Wills: what each connection owes its peer is told to whoever keeps wills, whenever that changes;
 * a process of the host that outlives us does it in our place, as a kernel does for the processes
 * that die under it. Executed, a will is a connection whose owner has just let go of it: so the
 * messages, their repetitions and the answers to the peer's are those of any other.
 *
 * What a resolution of a service owes is told by its repetition. */
#include "rnic/cm/cm_private.h"

static enum cm_debt debt_of(const struct cm_connection *connection)
{
    switch (connection->state) {
    case CM_REQ_SENT:
        return CM_DEBT_TIMEOUT;
    case CM_REQ_RECEIVED:
        return CM_DEBT_REJECT_REQUEST;
    case CM_REP_RECEIVED:
        return CM_DEBT_REJECT_REPLY;
    case CM_REP_SENT:
    case CM_ESTABLISHED:
    case CM_DREQ_SENT:
        return CM_DEBT_DISCONNECT;
    default:
        return CM_DEBT_NONE;
    }
}

void cm_will_keep(struct cm_connection *connection)
{
    const struct cm_config *config = &connection->cm->config;
    struct cm_will will = {
        .debt = debt_of(connection),
        .local_id = connection->local_id,
        .remote_id = connection->remote_id,
        .transaction = connection->transaction,
        .path = connection->path,
        .local_qpn = connection->local_qpn,
        .remote_qpn = connection->remote_qpn,
        .ack_timeout = connection->ack_timeout,
    };
    if (config->keep_will != NULL && will.debt != connection->kept_debt) {
        uint32_t index = (uint32_t)(connection - connection->cm->connections);
        config->keep_will(config->keep_will_context, index,
                          will.debt != CM_DEBT_NONE ? &will : NULL);
        connection->kept_debt = will.debt;
    }
}

static enum cm_state state_for(enum cm_debt debt)
{
    switch (debt) {
    case CM_DEBT_TIMEOUT:
        return CM_REQ_SENT;
    case CM_DEBT_REJECT_REQUEST:
        return CM_REQ_RECEIVED;
    case CM_DEBT_REJECT_REPLY:
        return CM_REP_RECEIVED;
    case CM_DEBT_DISCONNECT:
        return CM_ESTABLISHED;
    default:
        return CM_OVER;
    }
}

enum status cm_execute_will(struct cm *cm, struct instant now, const struct cm_will *will)
{
    cm->now = now;
    if (state_for(will->debt) == CM_OVER || will->local_id == 0 ||
        (will->remote_id == 0 && will->debt != CM_DEBT_TIMEOUT)) {
        return STATUS_INVALID;
    }
    if (cm_table_find(cm, will->local_id) != NULL) {
        return STATUS_IN_USE;
    }
    struct cm_connection *connection = cm_table_take_as(cm, will->local_id);
    if (connection == NULL) {
        return STATUS_FULL;
    }
    connection->active = will->debt == CM_DEBT_TIMEOUT || will->debt == CM_DEBT_REJECT_REPLY;
    connection->transaction = will->transaction;
    connection->request_transaction = will->transaction;
    connection->path = will->path;
    connection->local_qpn = will->local_qpn;
    connection->ack_timeout = will->ack_timeout;
    if (will->debt != CM_DEBT_TIMEOUT) {
        cm_table_name_by_id(connection, will->remote_id);
        cm_table_name_by_qpn(connection, will->remote_qpn);
    }
    cm_enter(connection, state_for(will->debt));
    cm_release(connection, now);
    return STATUS_OK;
}
