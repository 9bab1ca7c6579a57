#include "rnic/io/udp/senders.h"

#include <string.h>

static struct sender *place_of(struct senders *senders, const struct gid *gid)
{
    uint64_t halves[2];
    memcpy(halves, gid->bytes, sizeof halves);
    uint64_t hash = (halves[0] ^ halves[1]) * UINT64_C(0x9e3779b97f4a7c15);
    return &senders->places[(hash >> 32) % SENDERS_PLACES];
}

static bool continues(uint16_t before, uint64_t idle_ns, uint16_t identification)
{
    uint64_t ahead = SENDERS_NEAR + idle_ns / MILLISECOND_NS;
    return (uint16_t)(identification - before) <= ahead ||
           (uint16_t)(before - identification) <= SENDERS_NEAR;
}

static uint8_t one_more(uint8_t count)
{
    return count < SENDERS_HABIT ? count + 1 : count;
}

static bool breaks_habit(const struct sender *sender, struct instant now, uint16_t identification)
{
    if (sender->restarts == SENDERS_HABIT) {
        return identification >= SENDERS_SMALL;
    }
    uint64_t idle_ns = instant_elapsed_ns(sender->seen, now);
    return sender->counting == SENDERS_HABIT &&
           !continues(sender->furthest, idle_ns, identification);
}

bool senders_believe(struct senders *senders, struct instant now, const struct gid *gid,
                     uint16_t identification)
{
    struct sender *sender = place_of(senders, gid);
    if (!gid_equal(&sender->gid, gid) || !breaks_habit(sender, now, identification)) {
        return true;
    }
    bool continued = sender->has_stray && continues(sender->stray, 0, identification);
    sender->has_stray = true;
    sender->stray = identification;
    return continued;
}

void senders_learn(struct senders *senders, struct instant now, const struct gid *gid,
                   uint16_t identification)
{
    struct sender *sender = place_of(senders, gid);
    if (!gid_equal(&sender->gid, gid)) {
        *sender =
            (struct sender){.gid = *gid, .latest = identification, .furthest = identification};
    }
    uint64_t idle_ns = instant_elapsed_ns(sender->seen, now);
    bool counting = continues(sender->furthest, idle_ns, identification) &&
                    !breaks_habit(sender, now, identification);
    if (identification >= SENDERS_SMALL) {
        sender->restarts = 0;
    } else if (identification <= sender->latest) { /* who counts gets there, too, but goes on */
        sender->restarts = one_more(sender->restarts);
    }
    sender->counting = counting ? one_more(sender->counting) : 0;
    bool overtaken = counting && (int16_t)(identification - sender->furthest) < 0;
    sender->furthest = overtaken ? sender->furthest : identification;
    sender->latest = identification;
    sender->seen = now;
    sender->has_stray = false;
}
