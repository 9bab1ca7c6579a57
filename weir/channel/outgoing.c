/* What an outgoing message keeps. */
#include "weir/channel/outgoing.h"

#include <stdlib.h>
#include <string.h>

#include "weir/channel/buffers.h"

struct outgoing *outgoing_create(struct outgoing_spares *spares, enum outgoing_kind kind)
{
    struct outgoing *outgoing = spares->first;
    if (outgoing != NULL) {
        spares->first = outgoing->next;
        spares->count--;
    } else {
        outgoing = malloc(sizeof(*outgoing));
        if (outgoing == NULL) {
            return NULL;
        }
    }
    memset(outgoing, 0, offsetof(struct outgoing, few));
    outgoing->kind = kind;
    outgoing->buffer = BUFFER_NONE;
    outgoing->pieces = outgoing->few;
    return outgoing;
}

void outgoing_drop_bytes(struct outgoing *outgoing)
{
    if (outgoing->memory != NULL) {
        weir_memory_deregister(outgoing->memory);
        outgoing->memory = NULL;
    }
    if (outgoing->copy != NULL) {
        free(outgoing->copy);
        outgoing->copy = NULL;
    }
    if (outgoing->pieces != outgoing->few) {
        free(outgoing->pieces);
    }
    outgoing->pieces = outgoing->few;
    outgoing->piece_count = 0;
}

bool outgoing_set_pieces(struct outgoing *outgoing, const struct weir_piece *pieces, unsigned count)
{
    if (count > OUTGOING_PIECES_FEW) {
        outgoing->pieces = malloc(count * sizeof(*pieces));
        if (outgoing->pieces == NULL) {
            outgoing->pieces = outgoing->few;
            return false;
        }
    }
    if (count > 0) {
        memcpy(outgoing->pieces, pieces, count * sizeof(*pieces));
    }
    outgoing->piece_count = count;
    return true;
}

void outgoing_release(struct outgoing_spares *spares, struct outgoing *outgoing)
{
    outgoing_drop_bytes(outgoing);
    if (spares->count >= OUTGOING_SPARES_MAX) {
        free(outgoing);
        return;
    }
    outgoing->next = spares->first;
    spares->first = outgoing;
    spares->count++;
}

void outgoing_spares_fini(struct outgoing_spares *spares)
{
    while (spares->first != NULL) {
        struct outgoing *outgoing = spares->first;
        spares->first = outgoing->next;
        free(outgoing);
    }
    spares->count = 0;
}

void pieces_gather(const struct weir_piece *pieces, unsigned count, uint8_t *ret_bytes)
{
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].length > 0) {
            memcpy(ret_bytes, pieces[i].bytes, pieces[i].length);
            ret_bytes += pieces[i].length;
        }
    }
}

bool outgoing_own_bytes(struct outgoing *outgoing)
{
    uint8_t *copy = malloc(outgoing->length > 0 ? outgoing->length : 1);
    if (copy == NULL) {
        return false;
    }
    pieces_gather(outgoing->pieces, outgoing->piece_count, copy);
    outgoing_drop_bytes(outgoing);
    outgoing->copy = copy;
    outgoing->few[0] = (struct weir_piece){copy, outgoing->length};
    outgoing->piece_count = 1;
    return true;
}
