/* Pages that nobody may look at for a moment: how strict mode sees a program read bytes that a peer
 * is still writing.
 *
 * A guarded range answers a read or a write with a fault; the handler lifts the guard, notes who it
 * was, and the program goes on. Only whole pages inside the range are guarded, so that neighbours
 * in memory are never in the way. What this library itself touches is nobody's mistake.
 * Nothing is guarded while a program has a SIGSEGV handler of its own, or a thread that blocks the
 * signal. A forked child finds no guard. One guard at a time; every call is made under the engine's
 * lock. */
#ifndef WEIR_STRICT_GUARD_H
#define WEIR_STRICT_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "rnic/strict/pitfall.h"

/* Guards what can be; false: nothing, and there is nothing to lift. */
bool guard_raise(void *bytes, size_t length);
/* Lifts it. True if somebody touched the range in the meantime, and where. */
bool guard_lower(struct trace *ret_where);
#endif
