/* sim_members: runs of a simulated group (membership.h); see seeds.h. Oracles:
 *
 *   agreement  so long after the last disturbance all who live hold all who live alive, all who are
 *              dead dead, all who have left left, and have equal versions of the view
 *   false      nobody holds dead who lives and was neither stopped, cut off, nor lied about; where
 *              nothing is lost nobody suspects it, either
 *   load       nobody sends more requests in a period than its options allow, whatever the size
 *
 * With --figures SIZE it measures instead (members_figures.h). */
#include <stdlib.h>
#include <string.h>

#include "sim/members_figures.h"
#include "sim/membership.h"
#include "sim/seeds.h"

#define PERIOD_NS   MEMBERSHIP_PERIOD_NS
#define DISTURBANCE 60u /* periods */
#define COUNTS      (sizeof(struct membership_counts) / sizeof(uint64_t))

enum own_option {
    OPTION_PROFILE = 128,
    OPTION_FIGURES,
};

struct profile {
    const char *name;
    bool deaths, mass, stops, partition, leaves, lies, loss;
};

static const struct profile profiles[] = {
    {.name = "quiet"},
    {.name = "deaths", .deaths = true},
    {.name = "mass", .mass = true, .deaths = true},
    {.name = "stops", .stops = true},
    {.name = "partition", .partition = true},
    {.name = "leaves", .leaves = true, .deaths = true},
    {.name = "lies", .lies = true},
    {.name = "loss", .loss = true},
    {.name = "mass_loss", .mass = true, .loss = true},
    {.name = "chaos",
     .deaths = true,
     .mass = true,
     .stops = true,
     .partition = true,
     .leaves = true,
     .lies = true,
     .loss = true},
};
#define PROFILES (sizeof(profiles) / sizeof(*profiles))

struct judge {
    const struct profile *profile;
    struct run_result *result;
    struct dice dice;
};

static const char *chosen; /* profile */
static uint32_t figures_size;

static void violate(struct judge *judge, const char *format, uint32_t a, uint32_t b)
{
    if (judge->result->ok) {
        judge->result->ok = false;
        snprintf(judge->result->violation, sizeof(judge->result->violation), format, a, b);
    }
}

/* --- while it runs --- */

static void judge_change(struct membership *group, struct node *node, uint32_t rank,
                         enum swim_state state)
{
    struct judge *judge = group->judge;
    const struct node *other = &group->nodes[rank];
    bool is_excused = other->was_disturbed || judge->profile->lies;
    bool is_accused = state == SWIM_DEAD || (state == SWIM_SUSPECT && !judge->profile->loss);
    if (is_accused && other->is_up && !other->has_left && !is_excused) {
        violate(judge, "false: %u accuses %u, which lives", node->rank, rank);
    }
}

static void disturb(struct membership *group, struct judge *judge, unsigned period)
{
    const struct profile *profile = judge->profile;
    struct dice *dice = &judge->dice;
    uint32_t rank = dice_below(dice, group->size);
    if (profile->deaths && dice_percent(dice, 10)) {
        membership_kill(group, rank);
    }
    if (profile->deaths && dice_percent(dice, 10)) {
        membership_restart(group, dice_below(dice, group->size));
    }
    if (profile->mass && period == 10) {
        uint32_t percent = dice_range(dice, 10, 70);
        for (uint32_t i = 0; i < group->size; i++) {
            if (dice_percent(dice, percent)) {
                membership_kill(group, i);
            }
        }
    }
    if (profile->stops && dice_percent(dice, 20)) {
        uint64_t most = dice_percent(dice, 50) ? 3 : 40;
        uint64_t end_ns = (DISTURBANCE - period) * PERIOD_NS;
        uint64_t time_ns = dice_next(dice) % (most * PERIOD_NS);
        membership_stop(group, rank, time_ns < end_ns ? time_ns : end_ns);
    }
    if (profile->partition && period == 5) {
        membership_part(group, dice_range(dice, 1, 50));
    } else if (profile->partition && period == 45) {
        membership_heal(group);
    }
    if (profile->leaves && dice_percent(dice, 5)) {
        membership_leave(group, rank);
    }
    if (profile->lies) {
        membership_lie(group, judge->dice.state % 7 == 0 ? 1 : 0);
    }
}

/* --- when it is over --- */

static unsigned logarithm(uint32_t size)
{
    unsigned bits = 0;
    while ((1u << bits) < size) {
        bits++;
    }
    return bits;
}

/* Periods after which all agree. Who is left has to probe all who are dead; in the worst case each
 * of them is slowed down, for those it asks to try are dead, too. */
static unsigned settling(const struct membership *group)
{
    uint32_t up = 0;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        up += group->nodes[rank].is_up;
    }
    return 60 + 4 * logarithm(group->size) + (1 + SWIM_HEALTH_MAX) * group->size / (up + 1);
}

static bool is_right(const struct node *other, enum swim_state held)
{
    if (other->is_up && other->has_left) {
        return held == SWIM_LEFT;
    }
    return other->is_up ? held <= SWIM_SUSPECT : held >= SWIM_DEAD;
}

static void judge_agreement(struct membership *group, struct judge *judge)
{
    const struct node *first = NULL;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        const struct node *node = &group->nodes[rank];
        if (!node->is_up || node->has_left) {
            continue;
        }
        for (uint32_t i = 0; i < group->size; i++) {
            if (!is_right(&group->nodes[i], swim_state_of(node->swim.view.standings[i]))) {
                violate(judge, "agreement: %u is wrong about %u", rank, i);
            }
        }
        first = first != NULL ? first : node;
        if (view_version(&node->swim.view) != view_version(&first->swim.view)) {
            violate(judge, "agreement: %u has another version than %u", rank, first->rank);
        }
    }
}

static void add_counts(const struct membership *group, uint64_t *counts)
{
    const uint64_t *own = (const uint64_t *)&group->counts;
    for (unsigned i = 0; i + 1 < COUNTS; i++) {
        counts[i] += own[i];
    }
    uint64_t *most = &counts[COUNTS - 1];
    *most = own[COUNTS - 1] > *most ? own[COUNTS - 1] : *most;
}

static void run(uint64_t seed, FILE *trace, uint64_t *counts, struct run_result *ret_result)
{
    struct dice dice = dice_split(seed, 3);
    const struct profile *profile = &profiles[seed % PROFILES];
    for (unsigned i = 0; chosen != NULL && i < PROFILES; i++) {
        profile = strcmp(chosen, profiles[i].name) == 0 ? &profiles[i] : profile;
    }
    struct judge judge = {.profile = profile, .result = ret_result, .dice = dice_split(seed, 4)};
    struct membership group;
    uint32_t size =
        dice_percent(&dice, 10) ? dice_range(&dice, 200, 600) : dice_range(&dice, 2, 60);
    *ret_result = (struct run_result){.ok = true, .profile = profile->name};
    membership_open(&group, size, seed, trace);
    group.judge = &judge;
    group.changed = judge_change;
    group.loss = profile->loss ? dice_range(&dice, 1, 10) * 10000 : 0;
    group.duplicate = dice_percent(&dice, 50) ? 10000 : 0;
    group.delay_ns = dice_percent(&dice, 20) ? 80000000 : 2000000;
    for (unsigned period = 0; period < DISTURBANCE; period++) {
        disturb(&group, &judge, period);
        membership_run(&group, (period + 1) * PERIOD_NS);
    }
    group.loss = 0;
    membership_run(&group, (DISTURBANCE + settling(&group)) * PERIOD_NS);
    judge_agreement(&group, &judge);
    /* A period of its own may lie across two of the window's; a liar's lies are its own. */
    uint64_t most = 2 * (2 + 3) + SWIM_RELAYS + 4;
    if (group.counts.most_sent > most && !profile->lies) {
        violate(&judge, "load: %u requests in one period, more than %u",
                (uint32_t)group.counts.most_sent, (uint32_t)most);
    }
    ret_result->hash = group.hash;
    add_counts(&group, counts);
    membership_close(&group);
}

static void print(const uint64_t *counts)
{
    struct membership_counts total;
    memcpy(&total, counts, sizeof(total));
    printf("requests=%llu bytes=%llu lost=%llu duplicated=%llu deaths=%llu restarts=%llu "
           "stops=%llu partitions=%llu leaves=%llu lies=%llu\nsuspected=%llu held_dead=%llu "
           "falsely_dead=%llu most_sent=%llu\n",
           (unsigned long long)total.requests, (unsigned long long)total.bytes,
           (unsigned long long)total.lost, (unsigned long long)total.duplicated,
           (unsigned long long)total.deaths, (unsigned long long)total.restarts,
           (unsigned long long)total.stops, (unsigned long long)total.partitions,
           (unsigned long long)total.leaves, (unsigned long long)total.lies,
           (unsigned long long)total.suspected, (unsigned long long)total.held_dead,
           (unsigned long long)total.falsely_dead, (unsigned long long)total.most_sent);
}

static bool take_option(int choice, const char *argument)
{
    if (choice == OPTION_FIGURES) {
        figures_size = (uint32_t)strtoul(argument, NULL, 10);
        return figures_size >= 2 && figures_size <= SWIM_SIZE_MAX;
    }
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
        {"profile", required_argument, NULL, OPTION_PROFILE},
        {NULL, 0, NULL, 0},
    };
    static const struct seeds_program program = {
        .usage = "\n       [--profile NAME] | --figures SIZE",
        .options = own,
        .take_option = take_option,
        .run = run,
        .counts = COUNTS,
        .print = print,
    };
    if (argc == 3 && strcmp(argv[1], "--figures") == 0) {
        if (!take_option(OPTION_FIGURES, argv[2])) {
            fprintf(stderr, "a group has 2 to %u members\n", SWIM_SIZE_MAX);
            return 2;
        }
        members_figures(figures_size, 10);
        return 0;
    }
    return seeds_main(argc, argv, &program);
}
