/* What a program asks of a connection, and what it keeps with one. Nothing here changes its state.
 */
#include "weir/bytes.h"
#include "weir/channel/connection.h"

enum weir_status weir_memory_register_for(struct weir_connection *connection, void *bytes,
                                          size_t length, unsigned rights,
                                          struct weir_memory **ret_memory,
                                          struct weir_error *ret_error)
{
    return memory_register_in(connection->domain, bytes, length, rights, ret_memory, ret_error);
}

enum weir_status weir_memory_allocate_for(struct weir_connection *connection, size_t length,
                                          unsigned rights, struct weir_memory **ret_memory,
                                          struct weir_error *ret_error)
{
    return memory_allocate_in(connection->domain, length, rights, ret_memory, ret_error);
}

void weir_connection_parameters(const struct weir_connection *connection,
                                uint8_t ret_bytes[WEIR_PARAMETERS_LENGTH])
{
    const struct hello *client = connection->is_server ? &connection->peer : &connection->local;
    const struct hello *server = connection->is_server ? &connection->local : &connection->peer;
    put_u32(ret_bytes, client->eager_length);
    put_u32(ret_bytes + 4, client->window);
    put_u32(ret_bytes + 8, client->message_length_max);
    put_u32(ret_bytes + 12, server->eager_length);
    put_u32(ret_bytes + 16, server->window);
    put_u32(ret_bytes + 20, server->message_length_max);
    put_u64(ret_bytes + 24, connection->token);
}

const char *weir_peer_name(const struct weir_connection *connection)
{
    return connection->peer_name;
}

const char *weir_local_name(const struct weir_connection *connection)
{
    return connection->local_name;
}

void weir_set_user(struct weir_connection *connection, void *user)
{
    connection->user = user;
}

void *weir_user(const struct weir_connection *connection)
{
    return connection->user;
}

struct weir_poller *weir_connection_poller(const struct weir_connection *connection)
{
    return connection->poller;
}

void weir_connection_statistics(const struct weir_connection *connection,
                                struct weir_connection_statistics *ret_statistics)
{
    *ret_statistics = connection->statistics;
}
