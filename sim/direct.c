#include "sim/direct.h"

#include <string.h>

#include "rnic/base/container.h"
#include "sim/host.h"

#define PART_BYTES 700u  /* of one host, so that much happens between parts; */
#define LONG_BYTES 6000u /* of others, so that many go together */

static struct direct_end *end_of(struct direct_mover *mover)
{
    return CONTAINER_OF(mover, struct direct_end, mover);
}

/* A host does nothing else while it touches memory, its own either. */
static void reach(struct direct_end *own, enum direct_step step)
{
    struct host *peer = own->peer;
    if (peer != own->host && host_is_alive(peer) && peer->application->touched != NULL) {
        peer->application->touched(peer->application, peer, own->host, own->access, step);
    }
}

static bool is_there(struct direct_mover *mover, uint32_t life)
{
    struct direct_end *own = end_of(mover);
    reach(own, DIRECT_STEP_ANNOUNCED);
    return life == own->peer->life;
}

static void move_bytes(const struct direct_access *access, uint8_t *there, uint32_t from,
                       uint32_t to)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < access->place_count; at += access->places[i++].length) {
        const struct payload_place *place = &access->places[i];
        uint32_t first = at < from ? from - at : 0;
        uint32_t last = to < at + place->length ? (to > at ? to - at : 0) : place->length;
        if (first >= last) {
            continue;
        }
        uint8_t *here = place->bytes + first, *its = there + at + first;
        memmove(access->write ? its : here, access->write ? here : its, last - first);
    }
}

static bool is_stale(struct direct_end *own, uint64_t guard)
{
    bool stale = atomic_load(&own->peer->direct.guard.word) != guard;
    own->stale += stale;
    return stale;
}

/* False: not the whole part. */
static bool move_part(struct direct_end *own, uint64_t guard, const struct direct_access *access,
                      uint64_t there)
{
    struct host *host = own->host, *peer = own->peer;
    struct network *network = host->network;
    bool breaks = network_breaks(network, host->index, peer->index);
    uint32_t length = breaks ? dice_below(&network->dice, access->part) : access->part;
    uint32_t half = dice_below(&network->dice, length + 1);
    own->access = access;
    move_bytes(access, (uint8_t *)(uintptr_t)there, 0, half);
    reach(own, own->stores ? DIRECT_STEP_STORED : DIRECT_STEP_MOVING);
    if (own->stores && is_stale(own, guard)) {
        return false;
    }
    move_bytes(access, (uint8_t *)(uintptr_t)there, half, length);
    own->moved++;
    own->broken += breaks;
    simulator_mix(host->simulator, UINT64_C(0xd000) + length);
    simulator_note(host->simulator, "%c %s %u bytes of %c%s", host->name,
                   access->write ? "writes" : "reads", length, peer->name,
                   breaks ? " and no more" : "");
    return !breaks;
}

static bool move(struct direct_mover *mover, uint64_t guard, const struct direct_access *accesses,
                 uint32_t count, const struct direct_there *there, uint32_t *ret_moved)
{
    struct direct_end *own = end_of(mover);
    reach(own, DIRECT_STEP_LOOKED);
    if (is_stale(own, guard)) {
        return false;
    }
    *ret_moved = 0;
    while (*ret_moved < count &&
           (accesses[*ret_moved].part == 0 ||
            move_part(own, guard, &accesses[*ret_moved], there[*ret_moved].bytes))) {
        ++*ret_moved;
    }
    own->batches += *ret_moved > 1;
    return *ret_moved > 0 || !own->stores || atomic_load(&own->peer->direct.guard.word) == guard;
}

static uint32_t access_directly(struct direct_link *link, const struct direct_access *accesses,
                                uint32_t count)
{
    struct direct_end *own = (struct direct_end *)link;
    struct host *host = own->host;
    struct host *peer =
        (struct host *)network_neighbour(host->network, host->index, &accesses->path->remote);
    if (peer == NULL) {
        return 0;
    }
    uint32_t together = 1;
    while (together < count &&
           gid_equal(&accesses[together].path->remote, &accesses->path->remote)) {
        together++;
    }
    count = together;
    own->peer = peer;
    own->access = &accesses[dice_below(&host->network->dice, count)];
    struct direct_memory *memory = &own->memories[peer->index];
    if (memory->life != peer->life) {
        *memory = (struct direct_memory){.life = peer->life};
    }
    struct direct_turn turn = {&peer->direct.table, &peer->direct.guard,
                               &peer->direct.announcements[host->index], &own->mover,
                               &memory->seen};
    own->stores = dice_percent(&host->network->dice, 50);
    uint32_t done = direct_turn_take(&turn, accesses, count, host->index);
    link->stores = own->stores && done > 0;
    for (uint32_t i = 0; i < done && host->application->moved != NULL; i++) {
        if (accesses[i].part > 0 && accesses[i].offset + accesses[i].part == accesses[i].length) {
            host->application->moved(host->application, host, &accesses[i]);
        }
    }
    return done;
}

/* Nobody calls it: takeback.c waits in steps. */
static bool settle(struct direct_link *link, struct qpn peer, bool waits)
{
    return true;
}

void direct_end_start(struct direct_end *end, struct host *host)
{
    uint64_t moved = end->moved, broken = end->broken, stale = end->stale, batches = end->batches;
    memset(end, 0, sizeof *end);
    end->table = (struct direct_table){end->qps, end->keys, DIRECT_ENTRIES, DIRECT_ENTRIES};
    end->link = (struct direct_link){.table = &end->table,
                                     .part_bytes = host->index == 0 ? PART_BYTES : LONG_BYTES,
                                     .qpns_each = 1u << 24,
                                     .access = access_directly,
                                     .settle = settle};
    end->mover = (struct direct_mover){is_there, move};
    end->host = host;
    end->moved = moved;
    end->broken = broken;
    end->stale = stale;
    end->batches = batches;
    atomic_store(&end->end, HOST_MAX);
    atomic_store(&end->guard.life, host->life);
}

void direct_end_stop(struct direct_end *end)
{
    atomic_store(&end->guard.life, 0);
}
