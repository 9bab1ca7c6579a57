#include "tools/patience.h"

#include <time.h>

#define LENGTH_MAX_NS UINT64_C(500000)
#define LENGTH_MIN_NS UINT64_C(1000)
#define NAPS          16 /* in a row, each over within LENGTH_MAX_NS */
#define WINDOW_NS     UINT64_C(5000000)
#define REST_MIN_NS   UINT64_C(50000000)
#define REST_MAX_NS   UINT64_C(1600000000)

void patience_init(struct patience *patience)
{
    *patience = (struct patience){.length_ns = LENGTH_MAX_NS, .rest_ns = REST_MIN_NS};
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

void patience_judge(struct patience *patience, uint64_t now_ns, uint64_t worked_ns)
{
    uint64_t took_ns = now_ns - patience->window_ns, had_ns = worked_ns - patience->worked_ns;
    patience->rests = now_ns < patience->rests_until_ns;
    if (patience->rests) {
        patience->window_ns = 0;
        return;
    }
    if (patience->window_ns != 0 && took_ns < WINDOW_NS) {
        return;
    }
    if (patience->window_ns != 0 && had_ns < took_ns - took_ns / 8) {
        uint64_t twice = patience->rest_ns * 2;
        patience->rests = true;
        patience->rests_until_ns = now_ns + patience->rest_ns;
        patience->rest_ns = twice < REST_MAX_NS ? twice : REST_MAX_NS;
        patience->window_ns = 0;
        return;
    }
    if (patience->window_ns != 0 && patience->rest_ns > REST_MIN_NS) {
        patience->rest_ns -= patience->rest_ns / 8;
    }
    patience->window_ns = now_ns;
    patience->worked_ns = worked_ns;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What a thread has had of a processor is a system call to know. */
static void judge(struct patience *patience)
{
    uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    if (now_ns < patience->rests_until_ns || now_ns - patience->window_ns >= WINDOW_NS) {
        patience_judge(patience, now_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID));
    }
}

void patience_poll(struct patience *patience, struct weir_poller *poller, bool more, int timeout_ms)
{
    if (patience != NULL) {
        judge(patience);
    }
    if (patience == NULL || patience->rests) {
        weir_poll(poller, more ? 0 : timeout_ms);
        return;
    }
    bool come = weir_glance(poller) > 0;
    if (!patience_lasts(patience, clock_ns(CLOCK_MONOTONIC), come || more)) {
        come = weir_poll(poller, timeout_ms) > 0;
        patience->window_ns = 0; /* what it slept was not taken from it */
        (void)patience_lasts(patience, clock_ns(CLOCK_MONOTONIC), come);
    }
}
