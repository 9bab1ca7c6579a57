/* Two links joined in memory, for tests: what one sends the other receives when memory_link_run is
 * called, in order. Nothing is lost unless memory_link_cut says so. */
#ifndef TOOLS_TRANSFER_MEMORY_LINK_H
#define TOOLS_TRANSFER_MEMORY_LINK_H

#include <stdbool.h>

#include "tools/transfer/wire/link.h"

struct memory_pair;

struct memory_pair *memory_pair_create(void);
void memory_pair_destroy(struct memory_pair *pair);
struct link *memory_pair_link(struct memory_pair *pair, unsigned side);
/* What is sent goes by a device, which says that it has sent something again so often. */
void memory_pair_retransmitted(struct memory_pair *pair, uint64_t count);
/* Before both are opened: their sessions are pumped again and again, so that threads may work for
 * them meanwhile. */
void memory_pair_go_on_pumping(struct memory_pair *pair);
/* Tells both sides that they are connected. */
void memory_pair_open(struct memory_pair *pair);
/* Delivers one event to either side. False: there is none. */
bool memory_pair_step(struct memory_pair *pair);
/* What is under way is lost, and both sides see the peer lost. */
void memory_pair_cut(struct memory_pair *pair);
/* Sends raw bytes as `side`, for tests of what a peer must refuse. */
void memory_pair_inject(struct memory_pair *pair, unsigned side, const void *bytes, size_t length);
void memory_pair_inject_notice(struct memory_pair *pair, unsigned side, uint32_t notice,
                               size_t length);
/* The last message that `side` sent, not only injected; NULL before. */
const void *memory_pair_last_message(const struct memory_pair *pair, unsigned side,
                                     size_t *ret_length);
/* What `side` has allocated, for a peer that writes to it out of turn; NULL before. */
uint8_t *memory_pair_memory(const struct memory_pair *pair, unsigned side);
/* What `side` has been told at its end; NULL before. */
const char *memory_pair_last_abort(const struct memory_pair *pair);

#endif
