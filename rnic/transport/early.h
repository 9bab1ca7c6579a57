/* Packets that came before their turn, kept until it comes: copies, in a stock that all queue pairs
 * of a device share. What is taken out is handled as if it had just arrived, so everything that a
 * packet does is done in order; reordering is undone here and nowhere else.
 *
 * Bounded twice: a tray holds packets less than REPORT_SPAN behind the one that is due, the
 * stock so many of all. What finds no place is as if it had been lost. */
#ifndef WEIR_TRANSPORT_EARLY_H
#define WEIR_TRANSPORT_EARLY_H

#include "rnic/base/allocator.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"

struct early_packet {
    struct packet packet; /* its payload is the one below */
    uint32_t next_free;
    uint8_t payload[PACKET_PAYLOAD_MAX];
};

struct early_stock {
    struct early_packet *packets;
    uint32_t capacity;
    uint32_t touched;    /* those beyond were never used, nor is their memory */
    uint32_t first_free; /* capacity: none of the touched ones */
};

enum status early_stock_init(struct early_stock *stock, struct allocator *allocator,
                             uint32_t capacity) MUST_USE;
void early_stock_fini(struct early_stock *stock, struct allocator *allocator);

/* What one receiver holds, by PSN modulo REPORT_SPAN. All zero: nothing. */
struct early_tray {
    uint32_t count;
    uint64_t held[REPORT_SPAN / 64];
    uint32_t place[REPORT_SPAN]; /* in the stock */
};

/* `psn` lies less than REPORT_SPAN behind the one that is due. */
static inline bool early_has(const struct early_tray *tray, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    return tray->count > 0 && (tray->held[index / 64] >> index % 64 & 1) != 0;
}

/* False: there is no room, or it comes by reference. Nothing happens if it is held already. */
bool early_keep(struct early_tray *tray, struct early_stock *stock, const struct packet *packet);
/* Out of the tray; the packet is the caller's until early_release. NULL: it is not held. */
struct early_packet *early_take(struct early_tray *tray, struct early_stock *stock, struct psn psn);
void early_release(struct early_stock *stock, struct early_packet *packet);
/* Of the `count` PSNs from `psn` on; REPORT_SPAN are all. */
void early_forget(struct early_tray *tray, struct early_stock *stock, struct psn psn,
                  uint32_t count);
/* For a report: what is held of the PSNs from `due` on. Returns bytes up to the last that says
 * something, a multiple of 4. */
uint32_t early_describe(const struct early_tray *tray, struct psn due,
                        uint8_t ret_bitmap[REPORT_BITMAP_MAX]);

#endif
