/* Deaths, one after the other, and the times at which they are known. */
#include "sim/members_figures.h"

#include <stdio.h>

#include "sim/membership.h"

#define PERIOD_NS MEMBERSHIP_PERIOD_NS
#define WARM_UP   20u /* periods */
#define PATIENCE  200u

struct watch {
    uint32_t victim;
    uint64_t suspected_ns, first_ns, last_ns; /* when it was held so */
};

static void watch_change(struct membership *group, struct node *node, uint32_t rank,
                         enum swim_state state)
{
    struct watch *watch = group->judge;
    if (rank != watch->victim || group->nodes[rank].is_up) {
        return;
    }
    if (state == SWIM_SUSPECT && watch->suspected_ns == 0) {
        watch->suspected_ns = group->now_ns;
    } else if (state == SWIM_DEAD) {
        watch->first_ns = watch->first_ns != 0 ? watch->first_ns : group->now_ns;
        watch->last_ns = group->now_ns;
    }
}

static double periods(uint64_t from_ns, uint64_t to_ns)
{
    return (double)(to_ns - from_ns) / PERIOD_NS;
}

static uint32_t count_up(const struct membership *group)
{
    uint32_t up = 0;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        up += group->nodes[rank].is_up;
    }
    return up;
}

static void run_until_known(struct membership *group, uint32_t victim)
{
    uint32_t up = count_up(group);
    for (unsigned period = 0; period < PATIENCE && group->nodes[victim].known_dead < up; period++) {
        membership_run(group, group->now_ns + PERIOD_NS);
    }
}

static void row(uint32_t size, unsigned deaths, unsigned percent)
{
    struct membership group;
    struct watch watch = {0};
    double suspected = 0, first = 0, all = 0, all_most = 0;
    membership_open(&group, size, 1, NULL);
    group.loss = percent * 10000;
    group.judge = &watch;
    group.changed = watch_change;
    membership_run(&group, WARM_UP * PERIOD_NS);
    uint64_t requests = group.counts.requests, bytes = group.counts.bytes;
    for (unsigned i = 0; i < deaths; i++) {
        watch = (struct watch){.victim = (uint32_t)((uint64_t)size * (2 * i + 1) / (2 * deaths))};
        membership_kill(&group, watch.victim);
        uint64_t died_ns = group.now_ns;
        run_until_known(&group, watch.victim);
        double this_one = periods(died_ns, watch.last_ns);
        suspected += periods(died_ns, watch.suspected_ns) / deaths;
        first += periods(died_ns, watch.first_ns) / deaths;
        all += this_one / deaths;
        all_most = this_one > all_most ? this_one : all_most;
    }
    double member_periods = (double)size * periods(WARM_UP * PERIOD_NS, group.now_ns);
    printf("%6u %5u%% %10.1f %10.1f %10.1f %10.1f %12.2f %10.0f %12llu %10llu\n", size, percent,
           suspected, first, all, all_most,
           (double)(group.counts.requests - requests) / member_periods,
           (double)(group.counts.bytes - bytes) / member_periods,
           (unsigned long long)group.counts.falsely_dead,
           (unsigned long long)group.counts.most_sent);
    fflush(stdout);
    membership_close(&group);
}

/* Until the first half holds all of the other half dead. */
static void half_at_once(uint32_t size)
{
    struct membership group;
    membership_open(&group, size, 1, NULL);
    membership_run(&group, WARM_UP * PERIOD_NS);
    uint64_t bytes = group.counts.bytes, died_ns = group.now_ns;
    for (uint32_t rank = size / 2; rank < size; rank++) {
        membership_kill(&group, rank);
    }
    for (uint32_t rank = 0; rank < size / 2;) {
        if (group.nodes[rank].swim.view.absent == size - size / 2) {
            rank++;
        } else if (periods(died_ns, group.now_ns) < 10 * PATIENCE) {
            membership_run(&group, group.now_ns + PERIOD_NS);
        } else {
            break;
        }
    }
    double passed = periods(died_ns, group.now_ns);
    printf("half of %u at once: known to all after %.0f periods, %.0f bytes per member and period, "
           "%llu times one who lives held dead\n",
           size, passed, (double)(group.counts.bytes - bytes) / (size / 2) / passed,
           (unsigned long long)group.counts.falsely_dead);
    membership_close(&group);
}

void members_figures(uint32_t size, unsigned deaths)
{
    static const unsigned losses[] = {0, 1, 5, 10};
    printf("periods from a death until it is suspect, dead to the first, dead to all (mean, most); "
           "requests, bytes per member and period\n");
    printf("  size   loss    suspect      first        all       most     requests      bytes "
           "falsely dead  most sent\n");
    for (unsigned i = 0; i < 4; i++) {
        row(size, deaths, losses[i]);
    }
    half_at_once(size);
}
