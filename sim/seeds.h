/* Runs of a simulated world, one per seed, over several processes: what sim_swarm, sim_bulk and
 * sim_storm have in common.
 *
 * Prints `seed=N` and the violated oracle for each run that fails, and ends with 1 then. The same
 * seed replays the same run, to the last packet: --seed N --trace shows it. */
#ifndef WEIR_SIM_SEEDS_H
#define WEIR_SIM_SEEDS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SEEDS_COUNTS_MAX 128u

/* One run. Not ok: an oracle was violated, `violation` says which and how. */
struct run_result {
    bool ok;
    uint64_t hash;
    const char *profile;
    char violation[512];
};

/* What is run, and options beside those that all have. */
struct seeds_program {
    const char *usage;
    const struct option *options; /* values above 127; the last one is zero; or NULL */
    bool (*take_option)(int choice, const char *argument);
    /* One run, that depends on nothing but the seed and the options; `trace` may be NULL. Adds to
     * the counts, of which there are so many and which `print` prints, summed up over all runs. */
    void (*run)(uint64_t seed, FILE *trace, uint64_t *counts, struct run_result *ret_result);
    unsigned counts;
    void (*print)(const uint64_t *counts);
};

int seeds_main(int argc, char **argv, const struct seeds_program *program);

#endif
