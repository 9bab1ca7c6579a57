#include "tools/transfer/ends/pace.h"

#define SECOND_NS UINT64_C(1000000000)
/* What was not sent in time may be sent later, for half a second: whoever drives the sender may
 * sleep for a quarter of one. */
#define SAVED_NS    (SECOND_NS / 2)
#define PIECE_LEAST 4096u

struct pace pace_start(uint64_t rate, uint64_t now_ns)
{
    return (struct pace){.rate = rate, .last_ns = now_ns};
}

bool pace_allows(struct pace *pace, uint64_t now_ns)
{
    if (pace->rate == 0) {
        return true;
    }
    uint64_t passed = now_ns - pace->last_ns;
    passed = passed < 60 * SECOND_NS ? passed : 60 * SECOND_NS;
    double due = (double)pace->rate * (double)passed / (double)SECOND_NS;
    if (due < 1) { /* the clock goes on until there is something to count */
        return pace->left > 0;
    }
    double most = (double)pace->rate * (double)SAVED_NS / (double)SECOND_NS + 1;
    double left = (double)pace->left + due;
    left = left < most ? left : most;
    pace->left = left < 1e18 ? (int64_t)left : INT64_MAX / 2;
    pace->last_ns = now_ns;
    return pace->left > 0;
}

void pace_spend(struct pace *pace, size_t length)
{
    if (pace->rate > 0) {
        pace->left -= (int64_t)length;
    }
}

size_t pace_piece(const struct pace *pace, size_t length)
{
    uint64_t piece = pace->rate / 8 > PIECE_LEAST ? pace->rate / 8 : PIECE_LEAST;
    return pace->rate > 0 && piece < length ? (size_t)piece : length;
}
