/* Showing memory and taking it back. */
#include "weir/rpc/shown.h"

enum weir_status shown_set(struct shown *shown, const struct weir_bulk *bulk, unsigned count)
{
    shown->count = 0;
    if (count > WEIR_BULK_MAX || (count > 0 && bulk == NULL)) {
        return WEIR_INVALID;
    }
    for (unsigned i = 0; i < count; i++) {
        bool has_right = (bulk[i].rights & (WEIR_REMOTE_READ | WEIR_REMOTE_WRITE)) != 0 &&
                         (bulk[i].rights & ~(unsigned)(WEIR_REMOTE_READ | WEIR_REMOTE_WRITE)) == 0;
        if (!has_right || bulk[i].bytes == NULL || bulk[i].length == 0) {
            return WEIR_INVALID;
        }
        shown->bulk[i] = bulk[i];
        shown->memory[i] = NULL;
    }
    shown->count = count;
    return WEIR_OK;
}

enum weir_status shown_begin(struct shown *shown, struct weir_connection *connection,
                             struct rpc_message *message, struct weir_error *ret_error)
{
    for (unsigned i = 0; i < shown->count; i++) {
        const struct weir_bulk *bulk = &shown->bulk[i];
        enum weir_status status = weir_memory_register_for(
            connection, bulk->bytes, bulk->length, bulk->rights, &shown->memory[i], ret_error);
        if (status != WEIR_OK) {
            shown_end(shown);
            return status;
        }
        message->bulk[i] =
            (struct rpc_bulk){weir_memory_remote(shown->memory[i]), shown->bulk[i].rights};
    }
    message->bulk_count = shown->count;
    return WEIR_OK;
}

void shown_end(struct shown *shown)
{
    for (unsigned i = 0; i < shown->count; i++) {
        weir_memory_deregister(shown->memory[i]);
        shown->memory[i] = NULL;
    }
}
