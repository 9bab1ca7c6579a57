#include "test/interop/tour/script.h"

#include <poll.h>
#include <string.h>

#include "rnic/wire/packet.h"
#include "rnic/wire/psn.h"
#include "test/interop/tour/raw.h"
#include "test/interop/tour/tap.h"

#define ANSWER_MS 5000
#define BTH_FLAGS 1 /* byte of the BTH: solicited, migration, pad count, version */
#define PAD_SHIFT 4

static struct packet describe(const struct step *step, const struct tour_case *row,
                              const struct introduction *peer, const struct end *end)
{
    uint64_t address = peer->address + (row->aim == AIM_MISALIGNED ? 4 : 0);
    return (struct packet){
        .opcode = step->opcode,
        .ack_request = !step->silent,
        .pkey = {step->flaw == FLAW_PKEY ? (uint16_t)step->value : PKEY_DEFAULT.value},
        .destination = {peer->qpn + (step->flaw == FLAW_QPN ? 1 : 0)},
        .psn = psn_make(end->psn + (uint32_t)step->psn),
        .remote_address = address,
        .remote_key = {peer->rkey},
        .dma_length = end_scaled(end, step->dma_length != 0 ? step->dma_length : step->payload),
        .swap_or_add = 1,
        .qkey = {TOUR_QKEY},
        .source = {end->qp->qp_num},
        .payload_length = end_scaled(end, step->payload),
    };
}

/* From the BTH to before the ICRC; the length. */
static size_t build(const struct step *step, const struct packet *packet, uint8_t *ret_bytes)
{
    size_t length = packet_build(packet, ret_bytes);
    size_t body = packet->payload_length + packet_pad(packet->payload_length);
    memset(ret_bytes + length, 0xcc, body + PACKET_PAYLOAD_MAX);
    length += body;
    switch (step->flaw) {
    case FLAW_CUT:
        length -= step->value;
        break;
    case FLAW_LONGER:
        length += step->value;
        break;
    case FLAW_PAD:
        ret_bytes[BTH_FLAGS] = (uint8_t)(ret_bytes[BTH_FLAGS] | step->value << PAD_SHIFT);
        break;
    case FLAW_OPCODE:
        ret_bytes[0] = (uint8_t)step->value;
        break;
    case FLAW_VERSION:
        ret_bytes[BTH_FLAGS] = (uint8_t)(ret_bytes[BTH_FLAGS] | step->value);
        break;
    default:
        break;
    }
    return length;
}

static void await_answer(struct tap *tap)
{
    long deadline = tour_now_ms() + ANSWER_MS;
    unsigned before = tap->answers;
    while (tap->answers == before && tour_now_ms() < deadline) {
        poll(NULL, 0, 1);
        tap_read(tap);
    }
}

void script_play(const struct tour_case *row, const struct end *end,
                 const struct introduction *peer, const struct link *link, struct tap *tap)
{
    static uint8_t bytes[RAW_MAX];
    struct raw raw = raw_open(link);
    for (const struct step *step = row->script; step < row->script + STEPS_MAX && step->used;
         step++) {
        struct packet packet = describe(step, row, peer, end);
        size_t length = build(step, &packet, bytes);
        raw_send(&raw, bytes, length, step->flaw == FLAW_ICRC ? 0x10 : 0);
        if (step->awaited) {
            await_answer(tap);
        }
    }
    raw_close(&raw);
}
