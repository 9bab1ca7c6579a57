/* A lane in the inbox of another process of this host, or of our own; see inbox.h. */
#ifndef WEIR_IO_OUTBOX_H
#define WEIR_IO_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/io/system/pull.h"
#include "rnic/transport/direct_table.h"
#include "rnic/transport/port.h"

struct outbox;

/* `identity`: ours, for who may read our memory; NULL: nobody may. `direct`: outbox_access is
 * wanted. Opens the inbox behind `descriptor` of the process of `thread` and takes a lane there for
 * the sender `our_incarnation`. NOT_FOUND: no such file, or not the inbox of `its_incarnation` (it
 * died, or lives where we cannot see it). DENIED: it belongs to somebody else. NO_MEMORY: or no
 * descriptor, now. FULL: all lanes are taken. */
enum status outbox_open(pid_t thread, int descriptor, uint64_t its_incarnation,
                        uint64_t our_incarnation, const struct pull_identity *identity, bool direct,
                        struct outbox **ret_outbox) MUST_USE;
/* Gives the lane back when the owner has emptied it. NULL is allowed. */
void outbox_close(struct outbox *outbox);
/* In a forked child: forgets the parent's lane. */
void outbox_abandon(struct outbox *outbox);

/* Puts one packet, which the owner sees after outbox_flush, with all before it; by reference only
 * as long as outbox_reach says. FULL: no room now. OUT_OF_RANGE: too many pairs of addresses;
 * another link must carry it. */
enum status outbox_put(struct outbox *outbox, const struct outgoing *outgoing) MUST_USE;
/* Likewise, and the owner sees it at once; outbox_flush is to say whether it sleeps. False: it is
 * too long for that, or something that was put is not shown yet, or outbox_put is to say why. */
bool outbox_put_short(struct outbox *outbox, const struct outgoing_short *outgoing);
/* How many bytes of payload a packet along `path` may have by reference, see port.h: not 0, unless
 * there are too many pairs of addresses. */
uint32_t outbox_reach(struct outbox *outbox, const struct path *path);
/* What refers to a payload for that queue pair, put until now, is not to be read any more. */
void outbox_withdraw(struct outbox *outbox, struct qpn destination, bool responses);
/* The owner may still read some of these bytes by what was put with a reference. False from then
 * on, as long as nothing is put. */
bool outbox_refers_to(struct outbox *outbox, const uint8_t *bytes, uint64_t length);
/* The owner may still read some of these bytes, as what a response that was put until then refers
 * to; and that it never does. */
bool outbox_responds_with(struct outbox *outbox, const uint8_t *bytes, uint64_t length,
                          struct instant until);
void outbox_revoke(struct outbox *outbox, const uint8_t *bytes, uint64_t length,
                   struct instant until);
/* See struct direct_link: the owner's memory. 0 also where that is not to be touched so. */
uint32_t outbox_access(struct outbox *outbox, const struct direct_access *accesses, uint32_t count,
                       bool *ret_stores);
/* The latest access has left a wish for the owner, who hears of it by the next outbox_flush. */
bool outbox_has_wished(struct outbox *outbox);
/* After FULL: there is room again. Its owner tells us of it, see inbox_tell_of_room. */
bool outbox_has_room(struct outbox *outbox);
/* After puts: shows the owner where to look. True: it sleeps, and is ours to wake, as it is anybody
 * else's until somebody has. */
bool outbox_flush(struct outbox *outbox) MUST_USE;
/* Then wakes it. False: we have nothing to do it by. */
bool outbox_wake(struct outbox *outbox) MUST_USE;
/* ... and that was done, by that or otherwise. */
void outbox_has_woken(struct outbox *outbox);

#endif
