#include "sim/liar.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/base/check.h"
#include "rnic/wire/report.h"

#define MARKED_PER_MILLE 30
#define CNPS             20u
#define FAR              1500u
#define CNP_LENGTH       (BTH_LENGTH + 16u)
#define PSN_AT           9u
#define HEADERS          40u /* bytes in which bits are flipped */

static void pass(struct liar *liar, const struct host_packet *packet)
{
    struct network_end *honest = &liar->host->end;
    honest->deliver(honest, &packet->arrival, packet->bytes, packet->length);
    simulator_note(liar->host->simulator, "%c is told what nobody sent", liar->host->name);
}

static void flip(struct liar *liar, struct host_packet *packet, uint32_t from, uint32_t to)
{
    uint32_t at = from + dice_below(&liar->dice, to - from);
    packet->bytes[at] ^= (uint8_t)(1u << dice_below(&liar->dice, 8));
}

/* Near, as a rule: what is far is refused for that alone. */
static uint32_t moved(struct liar *liar, uint32_t psn)
{
    uint32_t range = dice_percent(&liar->dice, 50) ? 2 : FAR;
    return psn + dice_below(&liar->dice, 2 * range) - range;
}

static void move_psn(struct liar *liar, struct host_packet *packet)
{
    uint8_t *psn = packet->bytes + PSN_AT;
    bytes_store_u24(psn, moved(liar, bytes_load_u24(psn)));
}

static void change_opcode(struct liar *liar, struct host_packet *packet)
{
    static const uint8_t others[] = {0x1c, 0x1d, OPCODE_CNP};
    uint32_t lot = dice_below(&liar->dice, 24 + sizeof others);
    packet->bytes[0] = lot < 24 ? (uint8_t)lot : others[lot - 24];
}

static void change_syndrome(struct liar *liar, struct host_packet *packet)
{
    if (packet->length > BTH_LENGTH) {
        packet->bytes[BTH_LENGTH] = (uint8_t)dice_next(&liar->dice);
    }
}

static void flip_headers(struct liar *liar, struct host_packet *packet)
{
    flip(liar, packet, 0, packet->length < HEADERS ? packet->length : HEADERS);
}

static void repeat_old(struct liar *liar, struct host_packet *packet)
{
    (void)packet;
    pass(liar, &liar->kept[dice_below(&liar->dice, liar->kept_count < LIAR_KEPT ? liar->kept_count
                                                                                : LIAR_KEPT)]);
}

static void add_cnps(struct liar *liar, struct host_packet *packet)
{
    struct host_packet cnp = {.arrival = packet->arrival, .length = CNP_LENGTH};
    memcpy(cnp.bytes, packet->bytes, BTH_LENGTH);
    cnp.bytes[0] = OPCODE_CNP;
    for (uint32_t i = 0; i < CNPS; i++) {
        pass(liar, &cnp);
    }
}

/* An ACK or NAK near what is not acknowledged. */
static void add_acknowledgement(struct liar *liar, struct host_packet *packet)
{
    struct dice *dice = &liar->dice;
    struct host_packet answer = {.arrival = packet->arrival, .length = BTH_LENGTH + AETH_LENGTH};
    memcpy(answer.bytes, packet->bytes, BTH_LENGTH);
    answer.bytes[0] = OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE);
    struct psn unacked =
        streams_unacked(liar->streams, liar->host->index, dice_below(dice, liar->flows));
    bytes_store_u24(answer.bytes + PSN_AT, moved(liar, unacked.value));
    uint8_t any = (uint8_t)dice_next(dice);
    answer.bytes[BTH_LENGTH] = dice_percent(dice, 40) ? 0x1f : any & 0x7f;
    pass(liar, &answer);
}

/* Bits of it, or one of the PSNs. */
static void change_report(struct liar *liar, struct host_packet *packet)
{
    uint32_t word = BTH_LENGTH + 4 * dice_below(&liar->dice, 4);
    if (dice_percent(&liar->dice, 60) || word + 4 > packet->length) {
        flip(liar, packet, BTH_LENGTH, packet->length);
    } else {
        bytes_store_u24(packet->bytes + word + 1,
                        moved(liar, bytes_load_u24(packet->bytes + word + 1)));
    }
}

static void lie(struct liar *liar, struct host_packet *packet)
{
    liar->told++;
    static void (*const lies[])(struct liar *, struct host_packet *) = {
        move_psn,     move_psn,   move_psn, change_opcode,       change_syndrome,
        flip_headers, repeat_old, add_cnps, add_acknowledgement,
    };
    if (report_is_one(packet->bytes, packet->length)) {
        change_report(liar, packet);
    } else {
        lies[dice_below(&liar->dice, sizeof lies / sizeof lies[0])](liar, packet);
    }
}

static void deliver(struct network_end *end, const struct arrival *arrival, const uint8_t *bytes,
                    uint32_t length)
{
    struct liar *liar = (struct liar *)end;
    struct host_packet packet = {.arrival = *arrival, .length = length};
    CHECK(length <= sizeof packet.bytes);
    memcpy(packet.bytes, bytes, length);
    if (liar->per_mille > 0) {
        liar->kept[liar->kept_count++ % LIAR_KEPT] = packet;
        packet.arrival.congestion_experienced |= dice_below(&liar->dice, 1000) < MARKED_PER_MILLE;
        if (dice_below(&liar->dice, 1000) < liar->per_mille) {
            lie(liar, &packet);
            simulator_note(liar->host->simulator, "%c is lied to", liar->host->name);
        }
    }
    liar->host->end.deliver(&liar->host->end, &packet.arrival, packet.bytes, length);
}

static void deliver_reference(struct network_end *end, const struct arrival *arrival,
                              const uint8_t *bytes, uint32_t length,
                              const struct payload_reference *reference)
{
    struct liar *liar = (struct liar *)end;
    liar->host->end.deliver_reference(&liar->host->end, arrival, bytes, length, reference);
}

static void refuse(struct network_end *end, enum packet_refusal refusal)
{
    struct liar *liar = (struct liar *)end;
    liar->host->end.refuse(&liar->host->end, refusal);
}

static void room(struct network_end *end)
{
    struct liar *liar = (struct liar *)end;
    liar->host->end.room(&liar->host->end);
}

void liar_start(struct liar *liar, struct network *network, struct streams *streams, unsigned index,
                uint32_t flows)
{
    struct dice dice = dice_split(network->simulator->seed, 21 + index);
    *liar = (struct liar){
        .end = {.deliver = deliver,
                .deliver_reference = deliver_reference,
                .refuse = refuse,
                .room = room},
        .host = streams_host(streams, index),
        .streams = streams,
        .flows = flows,
        .dice = dice,
    };
    liar->per_mille = 1u << dice_below(&liar->dice, 8);
    network_attach(network, index, &liar->end);
}

void liar_stop(struct liar *liar)
{
    liar->per_mille = 0;
}
