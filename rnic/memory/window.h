/* Memory windows: a part of a region, with rights of its own, opened and shut by work requests.
 *
 * A window of type 1 is open to every queue pair of its domain, and bound anew as often as one
 * likes. One of type 2 (2B of the specification) is open to the queue pair that bound it, and must
 * be invalidated before it is bound again. A window is for peers: no local access goes through it.
 * A region with windows bound to it stays as it is. [IBA 10.6.7] */
#ifndef WEIR_MEMORY_WINDOW_H
#define WEIR_MEMORY_WINDOW_H

#include "rnic/memory/memory.h"
#include "rnic/queue/work.h"

enum window_type {
    WINDOW_TYPE_1 = 1,
    WINDOW_TYPE_2 = 2,
};

/* Bound to nothing: its key grants nothing yet. FULL: no key is left. INVALID: no such domain. */
enum status window_allocate(struct memory *memory, struct domain domain, enum window_type type,
                            struct memory_key *ret_key) MUST_USE;
/* `key` is any variant of the window's; a bound one is unbound. NOT_FOUND: no such window. */
enum status window_free(struct memory *memory, struct memory_key key) MUST_USE;

/* Binds through the queue pair `qpn` of `domain`, and gives the window its new key. Length 0
 * unbinds one of type 1. On failure all stays as it was.
 * NOT_FOUND: no such window or region in the domain; INVALID: a key that is not the window's, a
 * zero-based window of type 1, length 0 with type 2; STATE: type 2, and bound already; DENIED: the
 * region may not be bound, or not be written; OUT_OF_RANGE. */
enum status window_bind(struct memory *memory, struct domain domain, struct qpn qpn,
                        const struct window_bind *bind) MUST_USE;
/* A peer's SEND with Invalidate, or a local invalidate, at the queue pair `qpn` of `domain`.
 * NOT_FOUND: no such key in the domain; DENIED: of a region, of a window of type 1 or of another
 * queue pair's; STATE: a window that is not bound. */
enum status window_invalidate(struct memory *memory, struct domain domain, struct qpn qpn,
                              struct memory_key key) MUST_USE;
/* The queue pair goes away, or is reset: what it has bound is bound no more. */
void window_forget(struct memory *memory, struct qpn qpn);

#endif
