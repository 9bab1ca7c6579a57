#include "rnic/io/loop/stay.h"

#define STREAM_PACKETS  8u
#define PATIENCE_MIN_NS 1000u
#define PATIENCE_MAX_NS 64000u
#define LONGEST_NS      4000000u /* then deaths and addresses are looked at */
#define NAP_NS          128000u  /* a sleep so short was none worth falling into */
#define NAPS            32u      /* in a row, before longer patience is tried */

void stay_init(struct stay *stay)
{
    *stay = (struct stay){.patience_ns = PATIENCE_MAX_NS};
}

bool stay_begin(struct stay *stay, struct instant now, uint64_t packets)
{
    if (packets < STREAM_PACKETS) {
        return false;
    }
    bool napped = instant_elapsed_ns(stay->left, now) < NAP_NS;
    stay->naps = napped ? stay->naps + 1 : 0;
    if (stay->naps >= NAPS) {
        stay->naps = 0;
        stay->patience_ns = PATIENCE_MAX_NS;
    }
    stay->began = stay->came = now;
    stay->count = 0;
    return true;
}

bool stay_on(struct stay *stay, struct instant now, uint64_t packets)
{
    stay->left = now;
    stay->count += packets;
    if (stay->count >= STREAM_PACKETS) {
        stay->count = 0;
        stay->came = now;
        uint64_t twice = stay->patience_ns * 2;
        stay->patience_ns = twice < PATIENCE_MAX_NS ? twice : PATIENCE_MAX_NS;
    }
    if (instant_elapsed_ns(stay->came, now) >= stay->patience_ns) {
        uint64_t half = stay->patience_ns / 2;
        stay->patience_ns = half > PATIENCE_MIN_NS ? half : PATIENCE_MIN_NS;
        return false;
    }
    return instant_elapsed_ns(stay->began, now) < LONGEST_NS;
}
