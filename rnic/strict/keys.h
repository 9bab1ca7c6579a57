/* Why a key was refused, in words. */
#ifndef WEIR_STRICT_KEYS_H
#define WEIR_STRICT_KEYS_H

#include "rnic/memory/memory.h"

/* `what` names the work: "a SEND", "a peer's RDMA WRITE". `request` NULL: the queue pair itself
 * lacks `rights`. */
void keys_explain(const struct memory_request *request, enum memory_verdict verdict,
                  unsigned rights, const char *what);

#endif
