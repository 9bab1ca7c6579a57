/* The stock is a free list behind a mark that rises: memory that no loss ever needed is never
 * touched. */
#include "rnic/transport/early.h"

#include <string.h>

#include "rnic/base/check.h"

enum status early_stock_init(struct early_stock *stock, struct allocator *allocator,
                             uint32_t capacity)
{
    *stock = (struct early_stock){.capacity = capacity, .first_free = capacity};
    stock->packets = allocator->allocate(allocator, capacity * sizeof *stock->packets);
    return stock->packets != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

void early_stock_fini(struct early_stock *stock, struct allocator *allocator)
{
    allocator->release(allocator, stock->packets);
    stock->packets = NULL;
}

static struct early_packet *stock_take(struct early_stock *stock)
{
    if (stock->first_free != stock->capacity) {
        struct early_packet *packet = &stock->packets[stock->first_free];
        stock->first_free = packet->next_free;
        return packet;
    }
    return stock->touched < stock->capacity ? &stock->packets[stock->touched++] : NULL;
}

void early_release(struct early_stock *stock, struct early_packet *packet)
{
    packet->next_free = stock->first_free;
    stock->first_free = (uint32_t)(packet - stock->packets);
}

bool early_keep(struct early_tray *tray, struct early_stock *stock, const struct packet *packet)
{
    if (early_has(tray, packet->psn)) {
        return true;
    }
    if (packet->reader != NULL) {
        return false; /* its payload is with its sender, and only now */
    }
    struct early_packet *copy = stock_take(stock);
    if (copy == NULL) {
        return false;
    }
    CHECK(packet->payload_length <= PACKET_PAYLOAD_MAX);
    copy->packet = *packet;
    copy->packet.payload = copy->payload;
    if (packet->payload_length > 0) {
        memcpy(copy->payload, packet->payload, packet->payload_length);
    }
    uint32_t index = packet->psn.value % REPORT_SPAN;
    tray->held[index / 64] |= UINT64_C(1) << index % 64;
    tray->place[index] = (uint32_t)(copy - stock->packets);
    tray->count++;
    return true;
}

struct early_packet *early_take(struct early_tray *tray, struct early_stock *stock, struct psn psn)
{
    if (!early_has(tray, psn)) {
        return NULL;
    }
    uint32_t index = psn.value % REPORT_SPAN;
    tray->held[index / 64] &= ~(UINT64_C(1) << index % 64);
    tray->count--;
    return &stock->packets[tray->place[index]];
}

void early_forget(struct early_tray *tray, struct early_stock *stock, struct psn psn,
                  uint32_t count)
{
    count = count < REPORT_SPAN ? count : REPORT_SPAN;
    for (uint32_t i = 0; i < count && tray->count > 0; i++) {
        struct early_packet *packet = early_take(tray, stock, psn_add(psn, i));
        if (packet != NULL) {
            early_release(stock, packet);
        }
    }
}

uint32_t early_describe(const struct early_tray *tray, struct psn due,
                        uint8_t ret_bitmap[REPORT_BITMAP_MAX])
{
    uint32_t length = 0, found = 0;
    memset(ret_bitmap, 0, REPORT_BITMAP_MAX);
    for (uint32_t i = 0; i < REPORT_SPAN && found < tray->count; i++) {
        if (early_has(tray, psn_add(due, i))) {
            ret_bitmap[i / 8] |= (uint8_t)(1u << i % 8);
            length = (i / 32 + 1) * 4;
            found++;
        }
    }
    return length;
}
