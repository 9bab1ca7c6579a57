/* Connections that one process makes for fan-outs (docs/fanout.md): to whom is to be fed, and, of a
 * source, to every receiver. */
#ifndef TOOLS_HOP_DIAL_H
#define TOOLS_HOP_DIAL_H

#include <weir/channel.h>

#include "tools/transfer/chain/relay.h"

struct dialed;
struct guard;

struct hop_dial {
    struct weir_poller *poller;
    struct dialed *list;
};

/* `guard` is taken over; NULL: none. NULL: see ret_why. */
struct link *hop_dial_to(struct hop_dial *dial, const char *address, struct guard *guard,
                         char ret_why[HOP_WHY_LENGTH]);
/* As the functions of struct hop_dialer, whose user is a struct hop_dial. */
struct hop_dialer hop_dialer_of(struct hop_dial *dial);
/* Frees what was dropped and has closed; not from within a callback. */
void hop_dial_sweep(struct hop_dial *dial);
/* Frees all, after the poller is gone. */
void hop_dial_end(struct hop_dial *dial);

#endif
