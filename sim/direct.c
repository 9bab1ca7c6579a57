#include "sim/direct.h"

#include <string.h>

#include "sim/host.h"

#define PART_BYTES 700u /* so that much happens between parts */

static void move(const struct direct_access *access, uint8_t *there, uint32_t length)
{
    for (uint32_t i = 0; i < access->place_count && length > 0; i++) {
        const struct payload_place *place = &access->places[i];
        uint32_t step = place->length < length ? place->length : length;
        if (access->write) {
            memmove(there, place->bytes, step);
        } else {
            memmove(place->bytes, there, step);
        }
        there += step;
        length -= step;
    }
}

static bool access_directly(struct direct_link *link, const struct direct_access *access)
{
    struct direct_end *own = (struct direct_end *)link;
    struct host *host = own->host;
    struct network *network = host->network;
    const struct host *peer =
        (const struct host *)network_neighbour(network, host->index, &access->path->remote);
    uint64_t there;
    if (peer == NULL || !direct_table_grants(&peer->direct.table, access, &there)) {
        return false;
    }
    bool breaks = access->part > 0 && network_breaks(network, host->index, peer->index);
    uint32_t length = breaks ? dice_below(&network->dice, access->part) : access->part;
    move(access, (uint8_t *)(uintptr_t)there, length);
    own->moved += access->part > 0;
    own->broken += breaks;
    if (access->part > 0) {
        simulator_mix(host->simulator, UINT64_C(0xd000) + length);
        simulator_note(host->simulator, "%c %s %u bytes of %c%s", host->name,
                       access->write ? "writes" : "reads", length, peer->name,
                       breaks ? " and no more" : "");
    }
    return !breaks;
}

/* Nothing happens while an access is under way. */
static void settle(struct direct_link *link)
{
}

void direct_end_start(struct direct_end *end, struct host *host)
{
    memset(end, 0, sizeof *end);
    end->table = (struct direct_table){end->qps, end->keys, DIRECT_ENTRIES, DIRECT_ENTRIES};
    end->link = (struct direct_link){.table = &end->table,
                                     .part_bytes = PART_BYTES,
                                     .access = access_directly,
                                     .settle = settle};
    end->host = host;
}
