#include "rnic/io/udp/trial.h"

#include <stdlib.h>

static bool is_trying(const struct trial *trial)
{
    return trial->round < 2 * TRIAL_ROUNDS;
}

bool trial_is_second(const struct trial *trial)
{
    return is_trying(trial) ? trial->round >= TRIAL_ROUNDS : trial->second;
}

/* Among the samples of its way; TRIAL_SAMPLES or more: none. */
static uint32_t place_of(const struct trial *trial)
{
    return is_trying(trial) ? TRIAL_ROUNDS - 1 - trial->round % TRIAL_ROUNDS : TRIAL_SAMPLES;
}

bool trial_asks(const struct trial *trial)
{
    return place_of(trial) < TRIAL_SAMPLES;
}

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* A quarter of the rounds cost less: what others do to a thread only makes them dearer. */
static uint32_t quartile(uint32_t *costs)
{
    qsort(costs, TRIAL_SAMPLES, sizeof *costs, compare);
    return costs[TRIAL_SAMPLES / 4];
}

void trial_count(struct trial *trial, uint32_t cost)
{
    if (trial_asks(trial)) {
        trial->costs[trial_is_second(trial)][place_of(trial)] = cost;
    }
    trial->round++;
    if (trial->round == 2 * TRIAL_ROUNDS) {
        uint64_t first = quartile(trial->costs[0]), second = quartile(trial->costs[1]);
        trial->second = 16 * second < first * (trial->second ? 16 : 15);
    } else if (trial->round == TRIAL_REST) {
        trial->round = 0;
    }
}
