/* The length of pieces. */
#include "weir/channel/stride.h"

#define SLOW_PART  16 /* of the silence timeout */
#define SWIFT_PART 256
#define SWIFT_ROW  8 /* several end at once when an acknowledgement was late */

void stride_init(struct stride *stride, unsigned silence_timeout_ms)
{
    uint64_t silence_ns = (uint64_t)silence_timeout_ms * 1000000u;
    *stride = (struct stride){
        .length = STRIDE_LEAST,
        .slow_ns = silence_ns / SLOW_PART,
        .swift_ns = silence_ns / SWIFT_PART,
    };
}

bool stride_is_full(const struct stride *stride)
{
    return stride->length == STRIDE_MOST;
}

void stride_posted(struct stride *stride, uint64_t now_ns)
{
    if (stride->flying++ == 0) {
        stride->since_ns = now_ns;
    }
}

void stride_ended(struct stride *stride, uint64_t now_ns)
{
    uint64_t took_ns = now_ns > stride->since_ns ? now_ns - stride->since_ns : 0;
    stride->flying--;
    stride->since_ns = now_ns;
    stride->swift = took_ns < stride->swift_ns ? stride->swift + 1 : 0;
    if (took_ns > stride->slow_ns && stride->length > STRIDE_LEAST) {
        stride->length /= 2;
    } else if (stride->swift == SWIFT_ROW && stride->length < STRIDE_MOST) {
        stride->length *= 2;
        stride->swift = 0;
    }
}
