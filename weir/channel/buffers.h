/* The registered buffers of one connection: one for each receive posted, and a pool to send from.
 */
#ifndef WEIR_CHANNEL_BUFFERS_H
#define WEIR_CHANNEL_BUFFERS_H

#include <stdint.h>

#include "weir/domain.h"

#define BUFFER_NONE UINT32_MAX

struct buffers {
    struct weir_memory *memory;
    uint8_t *bytes;
    uint32_t size; /* of each */
    uint32_t receive_count, send_count;
    uint32_t free_count;
    uint32_t *free; /* stack of send buffers */
};

enum weir_status buffers_init(struct buffers *buffers, struct domain *domain, uint32_t size,
                              uint32_t receive_count, uint32_t send_count,
                              struct weir_error *ret_error);
void buffers_fini(struct buffers *buffers);

uint8_t *buffers_receive(const struct buffers *buffers, uint32_t index);
uint8_t *buffers_send(const struct buffers *buffers, uint32_t index);
/* BUFFER_NONE if all are taken. */
uint32_t buffers_take(struct buffers *buffers);
void buffers_give(struct buffers *buffers, uint32_t index);

#endif
