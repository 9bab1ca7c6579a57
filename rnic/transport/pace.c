#include "rnic/transport/pace.h"

#define RATE_START   (UINT64_C(1) << 18)
#define RATE_MAX     (UINT64_C(1) << 22)
#define RATE_MIN     (UINT64_C(1) << 12)
#define DOUBLE_BYTES (UINT64_C(1) << 20)
#define GROW_BYTES   (UINT64_C(1) << 24)
#define GROW_MS      256u
#define FLIGHT_BYTES (UINT64_C(1) << 16) /* complaints closer than this are one */

void pace_reset(struct pace *pace)
{
    *pace = (struct pace){.rate = RATE_START};
}

bool pace_may_send(struct pace *pace, struct instant now)
{
    return throttle_may_pass(&pace->throttle, now);
}

static void grow(struct pace *pace)
{
    uint64_t enough = DOUBLE_BYTES;
    uint64_t step = pace->rate;
    if (pace->complained) {
        enough = pace->rate * GROW_MS < GROW_BYTES ? pace->rate * GROW_MS : GROW_BYTES;
        step = pace->rate / 8;
    }
    if (pace->clean >= enough) {
        pace->clean = 0;
        pace->rate = pace->rate + step < RATE_MAX ? pace->rate + step : RATE_MAX;
    }
}

void pace_sent(struct pace *pace, struct instant now, uint32_t bytes)
{
    throttle_passed(&pace->throttle, now, bytes, pace->rate);
    pace->clean += bytes;
    grow(pace);
}

void pace_complaint(struct pace *pace)
{
    if (pace->complained && pace->clean < FLIGHT_BYTES) {
        return;
    }
    /* The doubling ran ahead of what could be complained of. */
    uint64_t rate = pace->complained ? pace->rate / 2 : RATE_START / 2;
    pace->rate = rate < RATE_MIN ? RATE_MIN : rate;
    pace->complained = true;
    pace->clean = 0;
}
