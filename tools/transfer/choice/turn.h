/* Holding names against rules, in slices: others have their turns between them, and longer ones
 * after a slice that took long for all that, of a single name. */
#ifndef TOOLS_TRANSFER_TURN_H
#define TOOLS_TRANSFER_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/transfer/wire/clock.h"

/* Of filter_work. */
#define TURN_WORK      (1u << 20)
#define TURN_LONG_WORK (8 * TURN_WORK)
#define TURN_RESTS     4 /* times as long as the slice took */

struct turn {
    uint64_t work; /* in this slice */
    uint64_t begun_ns, rests_until_ns;
};

/* False: it is not its turn. */
static inline bool turn_begin(struct turn *turn)
{
    turn->begun_ns = now_ns();
    turn->work = 0;
    return turn->begun_ns >= turn->rests_until_ns;
}

static inline bool turn_goes_on(const struct turn *turn)
{
    return turn->work < TURN_WORK;
}

static inline void turn_end(struct turn *turn)
{
    if (turn->work > TURN_LONG_WORK) {
        uint64_t ended_ns = now_ns();
        turn->rests_until_ns = ended_ns + TURN_RESTS * (ended_ns - turn->begun_ns);
    }
}

#endif
