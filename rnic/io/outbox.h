/* A lane in the inbox of another process of this host, or of our own; see inbox.h. */
#ifndef WEIR_IO_OUTBOX_H
#define WEIR_IO_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rnic/base/status.h"
#include "rnic/transport/port.h"

struct outbox;

/* Opens the inbox behind `descriptor` of `process` and takes a lane there for the sender
 * `our_incarnation`. NOT_FOUND: no such file, or not the inbox of `its_incarnation` (it died, or
 * lives where we cannot see it). DENIED: it belongs to somebody else. FULL: all lanes are taken. */
enum status outbox_open(pid_t process, int descriptor, uint64_t its_incarnation,
                        uint64_t our_incarnation, struct outbox **ret_outbox) MUST_USE;
/* Gives the lane back when the owner has emptied it. NULL is allowed. */
void outbox_close(struct outbox *outbox);
/* In a forked child: forgets the parent's lane. */
void outbox_abandon(struct outbox *outbox);

/* Puts one packet. FULL: no room now. OUT_OF_RANGE: too many pairs of addresses; another link
 * must carry it. */
enum status outbox_put(struct outbox *outbox, const struct outgoing *outgoing) MUST_USE;
/* After puts: shows the owner where to look. True: it sleeps, and is ours to wake. */
bool outbox_flush(struct outbox *outbox) MUST_USE;

#endif
