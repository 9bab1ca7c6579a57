/* The bad end as a list of packets: made by the wire library, sent through a UDP socket to the
 * other end's device, past our own. */
#ifndef WEIR_TOUR_SCRIPT_H
#define WEIR_TOUR_SCRIPT_H

#include "test/interop/tour/case.h"
#include "test/interop/tour/end.h"

struct tap;

/* Sends the row's steps to the peer's queue pair, whose answers `tap` sees. */
void script_play(const struct tour_case *row, const struct end *end,
                 const struct introduction *peer, const struct link *link, struct tap *tap);

#endif
