#include "sim/stranger.h"

#include "rnic/transport/qp_private.h"

#define SHOTS     60u
#define PAUSE_NS  20000u
#define AHEAD_MAX 100u /* most of what is under way in a run */

static bool keeps_early(const struct end *end)
{
    return !end->gone && end->qp != NULL && end->host->life == end->life &&
           host_is_alive(end->host) && end->qp->selective != NULL && end->qp->selective->peer_tags;
}

static void shoot(struct world *world, struct end *end)
{
    struct dice *dice = &world->stranger;
    struct packet packet = {
        .opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
        .pkey = PKEY_DEFAULT,
        .destination = end->qpn,
        .psn = psn_add(end->qp->responder.expected, 1 + dice_below(dice, AHEAD_MAX)),
        .tag = (uint16_t)dice_below(dice, 1 + PACKET_TAG_MAX),
        .payload_length = 8,
    };
    uint8_t bytes[PACKET_HEADER_MAX + 8] = {0};
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = end->qp->attributes.path};
    if (packet.tag != end->qp->agreement.tag) {
        (void)device_receive(end->host->device, world->simulator.now, &arrival, bytes,
                             length + packet.payload_length);
        host_wake(end->host, 0);
        world->coverage->shots++;
    }
}

static void shoot_event(void *context, uint64_t left)
{
    struct world *world = context;
    uint32_t first = dice_below(&world->stranger, world->end_count);
    for (uint32_t i = 0; i < world->end_count; i++) {
        struct end *end = world->ends[(first + i) % world->end_count];
        if (keeps_early(end)) {
            shoot(world, end);
            break;
        }
    }
    if (left > 0) {
        simulator_after(&world->simulator, dice_below(&world->stranger, PAUSE_NS), shoot_event,
                        world, left - 1);
    }
}

void stranger_plan(struct world *world)
{
    world->stranger = dice_split(world->simulator.seed, 13);
    if (world->end_count > 0 && dice_percent(&world->stranger, 30)) {
        simulator_after(&world->simulator, 0, shoot_event, world, SHOTS);
    }
}
