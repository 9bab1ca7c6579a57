/* Taking memory back from processes of the host that may be touching it at this moment without our
 * help (transport/direct.h). Nobody touches it through what is taken back after these have
 * succeeded; BUSY: somebody still does, after five seconds (it hangs, or a debugger has stopped it
 * in the middle of a system call), and nothing has changed. */
#ifndef WEIR_VERBS_TAKE_BACK_H
#define WEIR_VERBS_TAKE_BACK_H

#include "rnic/base/status.h"
#include "rnic/device/device.h"
#include "rnic/device/engine.h"

/* Before the key ends or opens something else; `access`: what it has opened. With the engine's
 * lock, which is let go of where somebody must be waited for. */
enum status take_back_region(struct engine *engine, struct memory_key key,
                             unsigned access) MUST_USE;
/* After that: READs of peers that have been answered, and whose payloads they take from where they
 * are, have them by then, or never get them. Likewise with the lock. */
void take_back_bytes(struct engine *engine, const struct region_attributes *region);
/* Before the queue pair ends, fails or gives less; take_back_done comes after that. Without the
 * lock. */
enum status take_back_qp(struct engine *engine, struct qp *qp) MUST_USE;
/* With the lock: the queue pair is as it is to be. */
void take_back_done(struct engine *engine, struct qp *qp);

#endif
