#include "tools/bench/stopwatch.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LEARN_NS 20000000u
#define READINGS 8

struct stopwatch stopwatch;

#if defined __x86_64__
/* Then it ticks at one rate always, and on all processors alike. */
static bool is_trusted_by_kernel(void)
{
    char name[32] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    bool is_read = file != NULL && fgets(name, sizeof(name), file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return is_read && strcmp(name, "tsc\n") == 0;
}

struct both {
    uint64_t ns, ticks;
};

/* At one time: of some readings the one that took least. */
static struct both read_both(void)
{
    struct both best = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        uint64_t before = __builtin_ia32_rdtsc(), ns = clock_now_ns();
        uint64_t took = __builtin_ia32_rdtsc() - before;
        if (took < least) {
            least = took;
            best = (struct both){ns, before + took / 2};
        }
    }
    return best;
}
#endif

void stopwatch_init(void)
{
#if defined __x86_64__
    if (is_trusted_by_kernel()) {
        struct both began = read_both(), now;
        do {
            now = read_both();
        } while (now.ns - began.ns < LEARN_NS);
        stopwatch.ns_per_tick = (double)(now.ns - began.ns) / (double)(now.ticks - began.ticks);
    }
#endif
}

const char *stopwatch_name(void)
{
    return stopwatch.ns_per_tick > 0 ? "TSC" : "CLOCK_MONOTONIC";
}
