#include "tools/patience.h"

#include <sched.h>
#include <time.h>

#define LENGTH_MAX_NS UINT64_C(500000)
#define LENGTH_MIN_NS UINT64_C(1000)
#define NAPS          16 /* in a row, each over within LENGTH_MAX_NS */

void patience_init(struct patience *patience)
{
    *patience = (struct patience){.length_ns = LENGTH_MAX_NS};
}

static void lengthen(struct patience *patience)
{
    uint64_t twice = patience->length_ns * 2;
    patience->length_ns = twice < LENGTH_MAX_NS ? twice : LENGTH_MAX_NS;
}

/* It has been asleep since slept_ns. */
static void wake_up(struct patience *patience, uint64_t now_ns)
{
    bool napped = now_ns - patience->slept_ns < LENGTH_MAX_NS;
    patience->naps = napped ? patience->naps + 1 : 0;
    if (patience->naps >= NAPS) {
        patience->naps = 0;
        patience->length_ns = LENGTH_MAX_NS;
    }
    patience->slept_ns = 0;
}

bool patience_lasts(struct patience *patience, uint64_t now_ns, bool come)
{
    if (come) {
        if (patience->slept_ns != 0) {
            wake_up(patience, now_ns);
        } else {
            lengthen(patience);
        }
        patience->busy_ns = now_ns;
        return true;
    }
    if (patience->slept_ns != 0) {
        return false; /* nothing has come since */
    }
    if (now_ns - patience->busy_ns < patience->length_ns) {
        return true;
    }
    uint64_t half = patience->length_ns / 2;
    patience->length_ns = half > LENGTH_MIN_NS ? half : LENGTH_MIN_NS;
    patience->slept_ns = now_ns;
    return false;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void patience_poll(struct patience *patience, struct weir_poller *poller, bool more, int timeout_ms)
{
    if (patience == NULL) {
        weir_poll(poller, more ? 0 : timeout_ms);
        return;
    }
    bool come = weir_glance(poller) > 0;
    if (!come && !more) {
        sched_yield(); /* whom we wait for may wait for this processor */
    }
    if (!patience_lasts(patience, now_ns(), come || more)) {
        come = weir_poll(poller, timeout_ms) > 0;
        (void)patience_lasts(patience, now_ns(), come);
    }
}
