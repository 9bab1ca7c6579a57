/* sim_swarm: runs of the simulated world (world.h); see seeds.h. */
#include <string.h>

#include "rnic/base/check.h"
#include "sim/seeds.h"
#include "sim/world.h"

#define COUNTS ((unsigned)(sizeof(struct coverage) / sizeof(uint64_t)))

enum own_option {
    OPTION_PROFILE = 128,
    OPTION_LOSSY,
    OPTION_SELECTIVE,
};

static struct run_options options;

static void print_coverage(const uint64_t *counts)
{
    struct coverage total;
    memcpy(&total, counts, sizeof total);
    printf("packets=%llu events=%llu lost=%llu corrupted=%llu duplicated=%llu delayed=%llu "
           "sink_full=%llu deaths=%llu\n",
           (unsigned long long)total.packets, (unsigned long long)total.events,
           (unsigned long long)total.lost, (unsigned long long)total.corrupted,
           (unsigned long long)total.duplicated, (unsigned long long)total.delayed,
           (unsigned long long)total.refusals, (unsigned long long)total.deaths);
    printf("retransmitted=%llu duplicate_requests=%llu rnr_naks=%llu connects=%llu "
           "disconnects=%llu overruns=%llu referred=%llu unread=%llu early=%llu reports=%llu "
           "shots=%llu reused=%llu recovered=%llu moved=%llu batches=%llu broken=%llu stale=%llu "
           "taken_back=%llu shorts=%llu posted=%llu held=%llu\n",
           (unsigned long long)total.retransmitted, (unsigned long long)total.duplicates,
           (unsigned long long)total.rnr_naks, (unsigned long long)total.connects,
           (unsigned long long)total.disconnects, (unsigned long long)total.overruns,
           (unsigned long long)total.referred, (unsigned long long)total.unread,
           (unsigned long long)total.early, (unsigned long long)total.reports,
           (unsigned long long)total.shots, (unsigned long long)total.reused,
           (unsigned long long)total.recovered, (unsigned long long)total.moved,
           (unsigned long long)total.batches, (unsigned long long)total.broken,
           (unsigned long long)total.stale, (unsigned long long)total.taken_back,
           (unsigned long long)total.shorts, (unsigned long long)total.posted,
           (unsigned long long)total.held);
    static const char *const kinds[WORK_KIND_COUNT] = {
        [WORK_SEND] = "send",
        [WORK_SEND_IMMEDIATE] = "send_immediate",
        [WORK_SEND_INVALIDATE] = "send_invalidate",
        [WORK_WRITE] = "write",
        [WORK_WRITE_IMMEDIATE] = "write_immediate",
        [WORK_READ] = "read",
        [WORK_COMPARE_SWAP] = "compare_swap",
        [WORK_FETCH_ADD] = "fetch_add",
        [WORK_ATOMIC_WRITE] = "atomic_write",
        [WORK_LOCAL_INVALIDATE] = "local_invalidate",
        [WORK_BIND_WINDOW] = "bind_window",
    };
    printf("done:");
    for (unsigned i = 0; i < WORK_KIND_COUNT; i++) {
        printf(" %s=%llu", kinds[i], (unsigned long long)total.done[i]);
    }
    printf(" received=%llu datagrams=%llu unreliable=%llu\nfailed:",
           (unsigned long long)total.received, (unsigned long long)total.datagrams,
           (unsigned long long)total.unreliable);
    for (unsigned i = 1; i < COMPLETION_STATUS_COUNT; i++) {
        if (total.failed[i] > 0) {
            printf(" %s=%llu", completion_status_name((enum completion_status)i),
                   (unsigned long long)total.failed[i]);
        }
    }
    printf("\n");
}

/* "A>B=20000": of a million frames from A to B so many are lost, and none elsewhere. */
static bool parse_lossy(const char *text)
{
    char from, to;
    unsigned loss;
    if (sscanf(text, "%c>%c=%u", &from, &to, &loss) != 3 || from < 'A' || to < 'A' ||
        from >= 'A' + (int)HOST_MAX || to >= 'A' + (int)HOST_MAX) {
        return false;
    }
    options.lossy_from = (unsigned)(from - 'A');
    options.lossy_to = (unsigned)(to - 'A');
    options.loss = loss;
    return true;
}

static bool take_option(int choice, const char *argument)
{
    switch (choice) {
    case OPTION_PROFILE:
        options.profile = argument;
        return world_has_profile(argument);
    case OPTION_LOSSY:
        return parse_lossy(argument);
    case OPTION_SELECTIVE:
        options.selective = true;
        return true;
    default:
        return false;
    }
}

static void run(uint64_t seed, FILE *trace, uint64_t *counts, struct run_result *ret_result)
{
    struct coverage coverage = {0};
    options.trace = trace;
    world_run(seed, &options, &coverage, ret_result);
    const uint64_t *added = (const uint64_t *)&coverage;
    for (unsigned i = 0; i < COUNTS; i++) {
        counts[i] += added[i];
    }
}

int main(int argc, char **argv)
{
    static const struct option own[] = {
        {"profile", required_argument, NULL, OPTION_PROFILE},
        {"lossy", required_argument, NULL, OPTION_LOSSY},
        {"selective", no_argument, NULL, OPTION_SELECTIVE},
        {NULL, 0, NULL, 0},
    };
    static const struct seeds_program program = {
        .usage = "\n       [--profile NAME] [--lossy A>B=PER_MILLION] [--selective]",
        .options = own,
        .take_option = take_option,
        .run = run,
        .counts = COUNTS,
        .print = print_coverage,
    };
    return seeds_main(argc, argv, &program);
}
