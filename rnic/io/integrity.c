#include "rnic/io/integrity.h"

/* Those that are expected of the packet at `place` are tried first. */
bool integrity_fits(struct integrity *integrity, const struct path *sender, const uint8_t *bytes,
                    uint32_t body, uint32_t place, struct roce_ip *ret_ip)
{
    struct roce_ip hint = {.identification = (uint16_t)place, .dont_fragment = true};
    return roce_icrc_verify_in_series(&integrity->series, sender, &hint, bytes, body,
                                      roce_icrc_load(bytes + body), ret_ip);
}

enum packet_refusal integrity_check(struct integrity *integrity, struct instant now,
                                    const struct path *sender, const uint8_t *bytes, uint32_t body,
                                    uint32_t place, struct roce_ip *ret_ip)
{
    if (!integrity_fits(integrity, sender, bytes, body, place, ret_ip)) {
        return REFUSED_ICRC;
    }
    if (!gid_is_ipv4(&sender->local)) {
        return REFUSED_NOT;
    }
    /* What fits just as expected needs no habit: it has the whole CRC-32 behind it. */
    uint16_t identification = ret_ip->identification;
    bool believed = identification == (uint16_t)place ||
                    senders_believe(&integrity->senders, now, &sender->local, identification);
    return ret_ip->dont_fragment && believed ? REFUSED_NOT : REFUSED_IDENTIFICATION;
}

void integrity_learn(struct integrity *integrity, struct instant now, const struct path *sender,
                     const struct roce_ip *ip)
{
    if (gid_is_ipv4(&sender->local)) {
        senders_learn(&integrity->senders, now, &sender->local, ip->identification);
    }
}
