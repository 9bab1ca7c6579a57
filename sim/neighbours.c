#include "sim/neighbours.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"

struct letter {
    struct neighbours *neighbours;
    uint32_t from, to;
    uint32_t life; /* of the receiver when it was sent */
    struct relay_message message;
    uint32_t length;
    uint8_t bytes[];
};

/* Numbers tell their host, as in host_start. */
static uint32_t owner(struct relay_link *link, uint32_t number)
{
    const struct neighbour *end = (const struct neighbour *)link;
    uint32_t index = number / HOST_NUMBERS - 1;
    bool is_others =
        index < HOST_MAX && index != end->host->index && end->all->ends[index].host != NULL;
    return is_others ? index : RELAY_NOBODY;
}

static void deliver(void *context, uint64_t unused)
{
    (void)unused;
    struct letter *letter = context;
    struct host *host = letter->neighbours->ends[letter->to].host;
    if (host_is_alive(host) && host->life == letter->life) {
        device_receive_relayed(host->device, host->simulator->now, letter->from, &letter->message,
                               letter->bytes, letter->length);
        host_wake(host, 0);
    }
    free(letter);
}

static void note(struct neighbours *neighbours, char from, char to,
                 const struct relay_message *message, bool lost)
{
    static const char *const names[] = {"request", "answer", "wait", "end"};
    if (message->kind == RELAY_ANSWER) {
        simulator_note(neighbours->simulator, "%c-%c %s psn=%u kind=%u value=%u%s", from, to,
                       names[message->kind], message->psn.value, message->aeth_kind,
                       message->aeth_kind == AETH_NAK ? message->aeth_value : 0,
                       lost ? " lost" : "");
    } else {
        simulator_note(neighbours->simulator, "%c-%c %s%s", from, to, names[message->kind],
                       lost ? " lost" : "");
    }
}

static bool send(struct relay_link *link, uint32_t process, const struct relay_message *message,
                 const uint8_t *bytes, uint32_t length)
{
    struct neighbour *end = (struct neighbour *)link;
    struct neighbours *neighbours = end->all;
    struct host *to = process < HOST_MAX ? neighbours->ends[process].host : NULL;
    CHECK(to != NULL);
    if (!host_is_alive(to)) {
        return false;
    }
    bool lost = dice_chance(&neighbours->dice, neighbours->loss);
    neighbours->sent++;
    neighbours->lost += lost;
    simulator_mix(neighbours->simulator, (uint64_t)message->kind << 32 | length << 1 | lost);
    note(neighbours, end->host->name, to->name, message, lost);
    if (lost) {
        return true;
    }
    struct letter *letter = malloc(sizeof *letter + length);
    CHECK(letter != NULL);
    *letter = (struct letter){.neighbours = neighbours,
                              .from = end->host->index,
                              .to = process,
                              .life = to->life,
                              .message = *message,
                              .length = length};
    if (length > 0) {
        memcpy(letter->bytes, bytes, length);
    }
    uint64_t ns = neighbours->delay_ns + dice_below(&neighbours->dice, neighbours->jitter_ns);
    struct instant when = instant_after(neighbours->simulator->now, ns);
    if (instant_before(when, end->arrives[process])) {
        when = end->arrives[process];
    }
    end->arrives[process] = when;
    simulator_at(neighbours->simulator, when, deliver, letter, 0);
    return true;
}

static bool lives(struct relay_link *link, uint32_t process)
{
    const struct neighbour *end = (const struct neighbour *)link;
    return process < HOST_MAX && end->all->ends[process].host != NULL &&
           host_is_alive(end->all->ends[process].host);
}

void neighbours_init(struct neighbours *neighbours, struct simulator *simulator,
                     struct network *network)
{
    *neighbours = (struct neighbours){.simulator = simulator,
                                      .network = network,
                                      .dice = dice_split(simulator->seed, 12),
                                      .delay_ns = 500};
}

void neighbours_join(struct neighbours *neighbours, struct host *host)
{
    struct neighbour *end = &neighbours->ends[host->index];
    *end = (struct neighbour){
        .link = {.owner = owner, .send = send, .lives = lives}, .all = neighbours, .host = host};
    host->relay_link = &end->link;
    for (unsigned i = 0; i < HOST_MAX; i++) {
        if (neighbours->ends[i].host != NULL) {
            network_share(neighbours->network, i, host->index);
        }
    }
}
