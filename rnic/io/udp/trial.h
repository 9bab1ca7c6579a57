/* Which of two ways of doing the same takes less time: both are tried now and then, and what they
 * cost decides until the next time. The second has to save a sixteenth to be taken, and anything to
 * be kept. */
#ifndef WEIR_IO_TRIAL_H
#define WEIR_IO_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#define TRIAL_ROUNDS  64u   /* of each way; the first ones may be dear as none are later */
#define TRIAL_SAMPLES 21u   /* of those, the last */
#define TRIAL_REST    4096u /* rounds until both are tried again */

/* Zeroed to begin with. */
struct trial {
    uint32_t round;
    bool second; /* is better */
    uint32_t costs[2][TRIAL_SAMPLES];
};

/* The next round is the second way's. */
bool trial_is_second(const struct trial *trial);
/* What the next round costs wants to be known. */
bool trial_asks(const struct trial *trial);
/* A round was done, and cost so much (in any unit) where that was asked for. */
void trial_count(struct trial *trial, uint32_t cost);

#endif
