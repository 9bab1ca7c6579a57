/* A pool of equal pieces of one registered region. */
#include "weir/channel/buffers.h"

#include <stdlib.h>

#include "weir/error_private.h"

enum weir_status buffers_init(struct buffers *buffers, struct domain *domain, uint32_t size,
                              uint32_t receive_count, uint32_t send_count,
                              struct weir_error *ret_error)
{
    size = (size + 63) & ~63u;
    *buffers =
        (struct buffers){.size = size, .receive_count = receive_count, .send_count = send_count};
    buffers->free = calloc(send_count, sizeof(*buffers->free));
    if (buffers->free == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    enum weir_status status =
        memory_allocate_in(domain, (size_t)size * (receive_count + send_count), WEIR_LOCAL,
                           &buffers->memory, ret_error);
    if (status != WEIR_OK) {
        free(buffers->free);
        *buffers = (struct buffers){0};
        return status;
    }
    buffers->bytes = weir_memory_bytes(buffers->memory);
    for (uint32_t i = 0; i < send_count; i++) {
        buffers_give(buffers, send_count - 1 - i);
    }
    return WEIR_OK;
}

void buffers_fini(struct buffers *buffers)
{
    weir_memory_deregister(buffers->memory);
    free(buffers->free);
    *buffers = (struct buffers){0};
}

uint8_t *buffers_receive(const struct buffers *buffers, uint32_t index)
{
    return buffers->bytes + (size_t)buffers->size * index;
}

uint8_t *buffers_send(const struct buffers *buffers, uint32_t index)
{
    return buffers->bytes + (size_t)buffers->size * (buffers->receive_count + index);
}

uint32_t buffers_take(struct buffers *buffers)
{
    return buffers->free_count == 0 ? BUFFER_NONE : buffers->free[--buffers->free_count];
}

void buffers_give(struct buffers *buffers, uint32_t index)
{
    buffers->free[buffers->free_count++] = index;
}
