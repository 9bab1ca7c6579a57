/* Posted work that ends. */
#ifndef WEIR_STRICT_SENDS_H
#define WEIR_STRICT_SENDS_H

#include "rnic/memory/memory.h"
#include "rnic/queue/send_queue.h"

/* The oldest send of the queue pair is done or given up. Engine's lock. */
void sends_ended(const struct memory *memory, struct domain domain, struct qpn qpn,
                 const struct send_slot *slot);

#endif
