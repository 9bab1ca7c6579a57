#include "rnic/io/udp/integrity.h"

static bool fits(struct integrity *integrity, const struct path *sender, const uint8_t *bytes,
                 uint32_t body, uint16_t likely, struct roce_ip *ret_ip)
{
    struct roce_ip hint = {.identification = likely, .dont_fragment = true};
    return roce_icrc_verify_in_series(&integrity->series, sender, &hint, bytes, body,
                                      roce_icrc_load(bytes + body), ret_ip);
}

bool integrity_fits(struct integrity *integrity, const struct path *sender, const uint8_t *bytes,
                    uint32_t body, uint32_t place, struct roce_ip *ret_ip)
{
    return fits(integrity, sender, bytes, body, (uint16_t)place, ret_ip);
}

/* What a packet that comes alone has: 0, as a rule; but where nobody joins the packets of a
 * segmented send, or the sender counts, one more than the one before. Another costs a division. */
static uint16_t likely_after(uint32_t place, uint16_t identification)
{
    return place == 0 && identification != 0 ? (uint16_t)(identification + 1) : 0;
}

enum packet_refusal integrity_check(struct integrity *integrity, struct instant now,
                                    const struct path *sender, const uint8_t *bytes, uint32_t body,
                                    uint32_t place, struct roce_ip *ret_ip)
{
    uint16_t likely = place == 0 ? integrity->likely : (uint16_t)place;
    if (!fits(integrity, sender, bytes, body, likely, ret_ip)) {
        return REFUSED_ICRC;
    }
    integrity->likely = likely_after(place, ret_ip->identification);
    if (!gid_is_ipv4(&sender->local)) {
        return REFUSED_NOT;
    }
    /* What fits just as expected needs no habit: it has the whole CRC-32 behind it. */
    uint16_t identification = ret_ip->identification;
    bool believed = identification == (uint16_t)place ||
                    senders_believe(&integrity->senders, now, &sender->local, identification);
    return ret_ip->dont_fragment && believed ? REFUSED_NOT : REFUSED_IDENTIFICATION;
}

const struct roce_likeness *integrity_likeness(const struct integrity *integrity,
                                               const struct path *sender, const uint8_t *bytes,
                                               uint32_t body)
{
    return roce_likeness(&integrity->series, sender, bytes, body);
}

bool integrity_is_alike(const struct roce_likeness *like, const uint8_t *bytes, uint32_t place)
{
    uint32_t icrc = roce_icrc_load(bytes + like->length);
    return roce_icrc_is_alike(like, (uint16_t)place, bytes, icrc);
}

void integrity_learn(struct integrity *integrity, struct instant now, const struct path *sender,
                     const struct roce_ip *ip)
{
    if (gid_is_ipv4(&sender->local)) {
        senders_learn(&integrity->senders, now, &sender->local, ip->identification);
    }
}
