#include "rnic/verbs/take_back.h"

enum status take_back_region(struct engine *engine, struct memory_key key, unsigned access)
{
    if ((access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ)) == 0) {
        return STATUS_OK; /* nobody else has ever seen it */
    }
    engine_lock(engine);
    bool wait = device_hold_region(engine->device, key);
    engine_unlock(engine);
    return !wait || device_settle(engine->device, (struct qpn){0}) ? STATUS_OK : STATUS_BUSY;
}

enum status take_back_qp(struct engine *engine, struct qp *qp)
{
    struct qpn peer;
    engine_lock(engine);
    bool wait = device_hold_qp(engine->device, qp, &peer);
    engine_unlock(engine);
    if (!wait || device_settle(engine->device, peer)) {
        return STATUS_OK;
    }
    engine_lock(engine);
    device_let_go_qp(engine->device, qp, false);
    engine_unlock(engine);
    return STATUS_BUSY;
}

void take_back_done(struct engine *engine, struct qp *qp)
{
    device_let_go_qp(engine->device, qp, true);
}
