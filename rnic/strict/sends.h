/* Posted work that ends. */
#ifndef WEIR_STRICT_SENDS_H
#define WEIR_STRICT_SENDS_H

#include "rnic/memory/memory.h"
#include "rnic/queue/send_queue.h"

/* The oldest send of the queue pair is done or given up. `in_order`: it did not end because another
 * had failed. Engine's lock. */
void sends_ended(const struct memory *memory, struct domain domain, struct qpn qpn,
                 const struct send_slot *slot, bool in_order);
/* " (192.0.2.2, QP 0x12)": to whom the queue pair is connected; empty where that is not known. */
#define SENDS_PEER 64
void sends_peer(struct qpn qpn, char ret_text[SENDS_PEER]);

#endif
