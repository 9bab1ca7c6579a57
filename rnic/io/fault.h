/* Faults on purpose, for tests without netem: what to do with a packet on its way out.
 *
 * Configured by the environment variable WEIR_FAULT, for example
 * "loss=0.01,reorder=0.01,duplicate=0.001,corrupt=0.001,seed=7": probabilities per packet. Decides
 * only; the link carries it out. */
#ifndef WEIR_IO_FAULT_H
#define WEIR_IO_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/base/random.h"
#include "rnic/base/status.h"

struct fault {
    struct random random;
    /* Probabilities times 2^32, of loss, reorder, duplicate and corrupt. */
    uint64_t loss, reorder, duplicate, corrupt;
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
