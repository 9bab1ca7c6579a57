#include "sim/reuse.h"

#include "rnic/memory/window.h"
#include "sim/illegal.h"
#include "sim/plan.h"
#include "sim/program.h"
#include "sim/takeback.h"
#include "sim/workload.h"

#define PERCENT   20u
#define BEGINS_NS 200000u
#define APART_NS  20000u
/* What was on its way has come. Of old packets a reliable connection takes none, but answers some;
 * an unreliable one knows no old ones. */
#define SOUND_NS     2000000u
#define WINDOW_BYTES 256u

static bool end_lives(const struct end *end)
{
    return !end->gone && end->qp != NULL && end->host->life == end->life &&
           host_is_alive(end->host);
}

static bool has_overrun(const struct end *end)
{
    return end->lost || (end->send_cq != NULL && end->send_cq->overrun) ||
           (end->receive_cq != NULL && end->receive_cq->overrun);
}

/* To the peer that it has now; it is shut to the one that comes. */
static void open_window(struct world *world, const struct end *end, struct end *next)
{
    struct span *span = &next->former_window;
    if (!program_take(world, end->space, PROGRAM_ACCESS_ALL, false, WINDOW_BYTES, 8, span) ||
        !model_open(span, end->qpn, WINDOW_TYPE_2, ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ,
                    &next->former_window_key)) {
        span->length = 0;
    }
}

static void connect_event(void *context, uint64_t number)
{
    struct world *world = context;
    struct pair *pair = world->pairs[number]->successor;
    for (unsigned side = 0; side < 2; side++) {
        if (!end_lives(&pair->ends[side]) || has_overrun(&pair->ends[side])) {
            return;
        }
    }
    if (world->pair_count == PAIR_MAX) {
        return;
    }
    plan_join(world, pair);
    for (unsigned side = 0; side < 2; side++) {
        if (dice_percent(&world->reuse, world->profile.illegal_percent)) {
            illegal_former_window(pair, &pair->ends[side]);
        }
    }
    for (unsigned side = 0; side < 2; side++) {
        workload_prepare(world, &pair->ends[side]);
        workload_connect(world, &pair->ends[side]);
        workload_start(world, &pair->ends[side]);
    }
    world->coverage->reused++;
}

/* Once both ends are reset. */
static void connect_soon(struct world *world, const struct pair *pair)
{
    uint32_t number = 0;
    while (world->pairs[number] != pair) {
        number++;
    }
    bool sound = world->profile.strict || pair->ends[0].service == SERVICE_UC;
    uint32_t wait_ns = (sound ? SOUND_NS : 0) + dice_below(&world->reuse, APART_NS);
    simulator_after(&world->simulator, wait_ns, connect_event, world, number);
}

void reuse_end(struct world *world, struct end *end)
{
    struct pair *pair = end->pair;
    workload_poll_all(world);
    if (has_overrun(end) || world->end_count == END_MAX) {
        return;
    }
    if (pair->successor == NULL) {
        pair->successor = scratch_take(&world->scratch, sizeof *pair);
    }
    unsigned side = end == &pair->ends[1];
    struct end *next = &pair->successor->ends[side];
    open_window(world, end, next);
    workload_reset(world, end);
    plan_end_again(world, next, end);
    next->pair = pair->successor;
    if (pair->successor->ends[1 - side].qp != NULL) {
        connect_soon(world, pair);
    }
}

static void reset_event(void *context, uint64_t number)
{
    struct world *world = context;
    struct end *end = world->ends[number];
    if (end->started) {
        takeback_end(world, end, TAKEBACK_RESETS);
    }
}

void reuse_plan(struct world *world, struct pair *pair)
{
    struct dice *dice = &world->reuse;
    if (!dice_percent(dice, PERCENT)) {
        return;
    }
    uint32_t begins_ns = dice_below(dice, BEGINS_NS), first = dice_below(dice, 2);
    for (unsigned side = 0; side < 2; side++) {
        uint32_t apart_ns = side == first ? 0 : dice_below(dice, APART_NS);
        simulator_after(&world->simulator, begins_ns + apart_ns, reset_event, world,
                        pair->ends[side].number);
    }
}
