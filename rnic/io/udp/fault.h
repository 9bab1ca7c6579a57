/* Faults on purpose, for tests without netem: what to do with a packet on its way out.
 *
 * Configured by the environment variable WEIR_FAULT, for example
 * "loss=0.01,reorder=0.01,duplicate=0.001,corrupt=0.001,seed=7": probabilities per packet. Decides
 * only; the link carries it out.
 *
 * What is drawn is how many packets a fault spares, and then they are only counted: dice for each
 * packet cost as much as a hundredth of sending it, which loss would be blamed for. */
#ifndef WEIR_IO_FAULT_H
#define WEIR_IO_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/base/random.h"
#include "rnic/base/status.h"

#define FAULT_DIGITS 40u /* no gap is longer than 2^40 packets */

struct fault_kind {
    uint64_t spared;               /* so many packets more meet none; UINT64_MAX: all */
    uint64_t digits[FAULT_DIGITS]; /* of a gap, binary: each one's probability times 2^32 */
};

struct fault {
    struct random random;
    struct fault_kind loss, reorder, duplicate, corrupt;
};

struct fault_verdict {
    bool lose, delay, duplicate, corrupt;
};

static inline bool fault_befalls(const struct fault_verdict *verdict)
{
    return verdict->lose || verdict->delay || verdict->duplicate || verdict->corrupt;
}

/* INVALID: the text names something unknown or a probability outside 0..1. */
enum status fault_parse(const char *text, struct fault *ret_fault) MUST_USE;
struct fault_verdict fault_decide(struct fault *fault);
/* Decides on `count` packets, or fewer: returns how many from the first on nothing befalls. Where
 * that is not all, *ret_verdict is what befalls the next. */
uint32_t fault_spares(struct fault *fault, uint32_t count, struct fault_verdict *ret_verdict);
/* Flips one bit. `length` is not 0. */
void fault_corrupt(struct fault *fault, uint8_t *bytes, size_t length);
/* After how many later packets a delayed one goes out: 1..8. */
uint32_t fault_delay(struct fault *fault);

#endif
