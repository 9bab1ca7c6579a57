/* sim_calls: runs of a simulated group's calls (callers.h); see seeds.h. Oracles:
 *
 *   once    no handler runs twice for one call
 *   told    each caller that lives hears once of each call, within its time; who is told to have
 *           replied has run it
 *   sum     what was combined has each of those who replied once
 *   spared  where nothing is lost nobody has failed who was alive, not stopped, and replied in time
 *   clean   when all is over no member holds anything of it */
#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "sim/callers.h"
#include "sim/seeds.h"

#define COUNTS   (sizeof(struct callers_counts) / sizeof(uint64_t))
#define SPAN_MS  10000u
#define SLACK_MS 5u

struct profile {
    const char *name;
    bool deaths, stops, silent, loss;
};

static const struct profile profiles[] = {
    {.name = "quiet"},
    {.name = "deaths", .deaths = true},
    {.name = "stops", .stops = true},
    {.name = "silent", .silent = true},
    {.name = "loss", .loss = true},
    {.name = "chaos", .deaths = true, .stops = true, .silent = true, .loss = true},
};
#define PROFILES (sizeof(profiles) / sizeof(*profiles))

static const char *chosen;

static void disturb(struct callers *group, const struct profile *profile, struct dice *dice)
{
    static const unsigned radices[] = {0, 2, 3, 16};
    uint32_t rank = dice_below(dice, group->size);
    if (dice_percent(dice, 20)) {
        callers_call(group, rank, radices[dice_below(dice, 4)], 5000);
    }
    if (profile->deaths && dice_percent(dice, 15) && group->counts.deaths < group->size / 2) {
        callers_kill(group, dice_below(dice, group->size));
    }
    if (profile->stops && dice_percent(dice, 5)) {
        callers_stop(group, dice_below(dice, group->size), dice_range(dice, 1, 20000) * CALLERS_MS);
    }
}

static void judge_end(struct callers *group)
{
    for (unsigned i = 0; i < group->made; i++) {
        const struct judged_call *call = &group->calls[i];
        uint64_t most_ns = call->made_ns + (call->timeout_ms + SLACK_MS) * CALLERS_MS;
        if (!call->is_told) {
            callers_violate(group, "told: call %u of %u never", i, call->caller);
        } else if (call->told_ns > most_ns && !call->excused[call->caller]) {
            callers_violate(group, "told: call %u of %u too late", i, call->caller);
        }
    }
    for (uint32_t rank = 0; rank < group->size; rank++) {
        const struct caller_node *node = &group->nodes[rank];
        if (node->is_up && group->silent == 0 && node->calls.count > 0) {
            callers_violate(group, "clean: %u still holds %u calls", rank, node->calls.count);
        }
    }
}

static const struct profile *choose_profile(uint64_t seed)
{
    const struct profile *profile = &profiles[seed % PROFILES];
    for (unsigned i = 0; chosen != NULL && i < PROFILES; i++) {
        profile = strcmp(chosen, profiles[i].name) == 0 ? &profiles[i] : profile;
    }
    return profile;
}

static void run(uint64_t seed, FILE *trace, uint64_t *counts, struct run_result *ret_result)
{
    const struct profile *profile = choose_profile(seed);
    struct dice dice = dice_split(seed, 13);
    struct callers group;
    uint32_t size =
        dice_percent(&dice, 10) ? dice_range(&dice, 200, 1200) : dice_range(&dice, 1, 60);
    callers_open(&group, size, seed, trace);
    group.loss = profile->loss ? dice_range(&dice, 1, 50) * 1000 : 0;
    group.silent = profile->silent ? dice_range(&dice, 1, 10) : 0;
    for (unsigned ms = 0; ms < SPAN_MS; ms += 100) {
        disturb(&group, profile, &dice);
        callers_run(&group, (ms + dice_below(&dice, 100)) * CALLERS_MS);
    }
    callers_run(&group, (SPAN_MS + 40000) * CALLERS_MS);
    judge_end(&group);
    *ret_result = (struct run_result){
        .ok = group.violation[0] == '\0', .hash = group.hash, .profile = profile->name};
    strcpy(ret_result->violation, group.violation);
    const uint64_t *own = (const uint64_t *)&group.counts;
    for (unsigned i = 0; i < COUNTS; i++) {
        counts[i] += own[i];
    }
    callers_close(&group);
}

static void print(const uint64_t *counts)
{
    static const char *const names[] = {"calls",  "replied", "failed",   "messages", "lost",
                                        "deaths", "stops",   "repaired", "refused",  "silent"};
    for (unsigned i = 0; i < COUNTS; i++) {
        printf("%s=%llu%s", names[i], (unsigned long long)counts[i], i + 1 < COUNTS ? " " : "\n");
    }
}

static bool take_option(int choice, const char *argument)
{
    chosen = argument;
    for (unsigned i = 0; i < PROFILES; i++) {
        if (strcmp(argument, profiles[i].name) == 0) {
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    static const struct option own[] = {
        {"profile", required_argument, NULL, 128},
        {NULL, 0, NULL, 0},
    };
    static const struct seeds_program program = {
        .usage = "\n       [--profile NAME]",
        .options = own,
        .take_option = take_option,
        .run = run,
        .counts = COUNTS,
        .print = print,
    };
    return seeds_main(argc, argv, &program);
}
