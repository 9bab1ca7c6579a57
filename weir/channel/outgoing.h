/* One message or notice on its way out of a connection, and what it keeps until it has left. Not
 * here: when it leaves, and in which order (sender.h). */
#ifndef WEIR_CHANNEL_OUTGOING_H
#define WEIR_CHANNEL_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/channel.h>

#define OUTGOING_PIECES_FEW 4

struct transfer;

enum outgoing_kind {
    OUTGOING_EAGER,
    OUTGOING_ANNOUNCE,  /* long: the peer reads it */
    OUTGOING_IMMEDIATE, /* a put whose notice travels with its data */
    OUTGOING_NOTICE,    /* the notice of a put, as a message behind its data */
};

struct outgoing {
    struct outgoing *next;
    enum outgoing_kind kind;
    bool has_left;  /* its completion came */
    bool is_pulled; /* ANNOUNCE: the peer has read it */
    enum weir_status status;
    size_t length;
    weir_done_callback *done;
    void *argument;
    uint32_t buffer; /* while its header or bytes are sent from it */
    uint32_t identifier;
    struct transfer *transfer;
    struct weir_memory *memory; /* what the peer reads */
    uint8_t *copy;              /* the bytes, if they are ours */
    struct weir_piece *pieces;  /* few, or allocated */
    unsigned piece_count;
    struct weir_piece few[OUTGOING_PIECES_FEW];
};

/* Some that were used: a long line that has left leaves no more behind. */
struct outgoing_spares {
    struct outgoing *first;
    unsigned count;
};
#define OUTGOING_SPARES_MAX 256

/* From the spare ones, or new; NULL: no memory. */
struct outgoing *outgoing_create(struct outgoing_spares *spares, enum outgoing_kind kind);
/* To the spare ones, if there is room. */
void outgoing_release(struct outgoing_spares *spares, struct outgoing *outgoing);
void outgoing_spares_fini(struct outgoing_spares *spares);
/* Lets go of its bytes. */
void outgoing_drop_bytes(struct outgoing *outgoing);
/* False: no memory. */
bool outgoing_set_pieces(struct outgoing *outgoing, const struct weir_piece *pieces,
                         unsigned count);
/* Makes the bytes its own and one piece. False: no memory. */
bool outgoing_own_bytes(struct outgoing *outgoing);

void pieces_gather(const struct weir_piece *pieces, unsigned count, uint8_t *ret_bytes);

#endif
