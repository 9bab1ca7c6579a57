/* The seam between the APIs and whatever gives the RNIC its time: io/loop (a thread, sockets) or
 * the simulator (one event queue).
 *
 * Who polls, drives: a thread that finds its completion queue empty calls engine_drive and looks
 * again. A background thread drives only when nobody has for a moment. Functions are documented
 * here once; implementations fill the table, no slot is NULL. */
#ifndef WEIR_DEVICE_ENGINE_H
#define WEIR_DEVICE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "rnic/base/time.h"

struct device;
struct cm;
struct engine;
struct qp;

struct engine_operations {
    void (*lock)(struct engine *engine);
    void (*unlock)(struct engine *engine);
    void (*drive)(struct engine *engine);
    void (*kick)(struct engine *engine, struct qp *qp);
    void (*about_to_sleep)(struct engine *engine);
    struct instant (*now)(struct engine *engine);
};

struct engine {
    const struct engine_operations *operations;
    struct device *device;
    struct cm *cm;
    _Atomic bool wants_drive;     /* what was posted waits for more, or for the next poll */
    _Atomic bool comes_back;      /* who drove last calls engine_about_to_sleep before it sleeps */
    _Atomic(const void *) posted; /* the API's object that was posted to last; it may be gone */
};

/* Excludes everybody else from device and cm: for control calls. Not recursive. unlock also sends
 * what the calls made ready. */
static inline void engine_lock(struct engine *engine)
{
    engine->operations->lock(engine);
}

static inline void engine_unlock(struct engine *engine)
{
    engine->operations->unlock(engine);
}

/* Receives, advances and sends once, unless another thread is doing so. Never blocks. */
static inline void engine_drive(struct engine *engine)
{
    engine->operations->drive(engine);
}

/* Before engine_drive: whether the caller will poll again, or say engine_about_to_sleep. One who
 * does neither looks at its memory only, maybe, and is to be driven for. */
static inline void engine_promise(struct engine *engine, bool comes_back)
{
    if (comes_back != atomic_load_explicit(&engine->comes_back, memory_order_relaxed)) {
        atomic_store_explicit(&engine->comes_back, comes_back, memory_order_relaxed);
    }
}

static inline bool engine_is_promised(const struct engine *engine)
{
    return atomic_load_explicit(&engine->comes_back, memory_order_relaxed);
}

/* Who polls asks it also where there are completions. */
static inline bool engine_wants_drive(const struct engine *engine)
{
    return atomic_load_explicit(&engine->wants_drive, memory_order_relaxed);
}

static inline void engine_want_drive(struct engine *engine, bool wants)
{
    if (wants != engine_wants_drive(engine)) {
        atomic_store_explicit(&engine->wants_drive, wants, memory_order_relaxed);
    }
}

/* Whether another object was posted to last: that one's lines are near. */
static inline bool engine_begins_post(struct engine *engine, const void *object)
{
    bool other = object != atomic_load_explicit(&engine->posted, memory_order_relaxed);
    if (other) {
        atomic_store_explicit(&engine->posted, object, memory_order_relaxed);
    }
    return other;
}

/* Work was posted to the queue pair: it is on its way when this returns, or the thread that holds
 * the engine sends it before it lets go, or it waits a moment for more of its kind, until somebody
 * drives or takes the lock. Never blocks. */
static inline void engine_kick(struct engine *engine, struct qp *qp)
{
    engine->operations->kick(engine, qp);
}

/* The caller armed a queue, or will block on a channel: the background thread takes over now. */
static inline void engine_about_to_sleep(struct engine *engine)
{
    engine->operations->about_to_sleep(engine);
}

static inline struct instant engine_now(struct engine *engine)
{
    return engine->operations->now(engine);
}

#endif
