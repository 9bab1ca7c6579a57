#include "rnic/verbs/take_back.h"

#include <time.h>

#include "rnic/io/system/cancel.h"
#include "rnic/io/system/clock.h"

#define LOOK_NS     20000u
#define PATIENCE_NS 100000000u /* with peers that are stopped */

/* Locked; unlocked while somebody is waited for. */
static bool settle(struct engine *engine, struct qpn peer)
{
    if (device_settle(engine->device, peer, false)) {
        return true;
    }
    int cancel = cancel_hold(); /* what is held is to be let go of */
    engine_unlock(engine);
    bool settled = device_settle(engine->device, peer, true);
    engine_lock(engine);
    cancel_restore(cancel);
    return settled;
}

enum status take_back_region(struct engine *engine, struct memory_key key, unsigned access)
{
    if ((access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ)) == 0) {
        return STATUS_OK; /* nobody else has ever seen it */
    }
    bool wait = device_hold_region(engine->device, key);
    if (wait && !settle(engine, (struct qpn){0})) {
        return STATUS_BUSY;
    }
    device_withdraw_region(engine->device, key);
    return STATUS_OK;
}

void take_back_bytes(struct engine *engine, const struct region_attributes *region)
{
    if ((region->access & ACCESS_REMOTE_READ) == 0) {
        return;
    }
    struct instant ended = clock_now();
    int cancel = cancel_hold();
    while (device_responds_with(engine->device, region->bytes, region->length, ended)) {
        if (instant_elapsed_ns(ended, clock_now()) >= PATIENCE_NS) {
            device_revoke(engine->device, region->bytes, region->length, ended);
            break;
        }
        engine_unlock(engine);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        engine_lock(engine);
    }
    cancel_restore(cancel);
}

enum status take_back_qp(struct engine *engine, struct qp *qp)
{
    struct qpn peer;
    engine_lock(engine);
    bool wait = device_hold_qp(engine->device, qp, &peer);
    enum status status = !wait || settle(engine, peer) ? STATUS_OK : STATUS_BUSY;
    if (status != STATUS_OK) {
        device_let_go_qp(engine->device, qp, false);
    }
    engine_unlock(engine);
    return status;
}

void take_back_done(struct engine *engine, struct qp *qp)
{
    device_let_go_qp(engine->device, qp, true);
}
