/* No more bytes than so many a second, over any time that one would notice. */
#ifndef TOOLS_TRANSFER_PACE_H
#define TOOLS_TRANSFER_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pace {
    uint64_t rate; /* bytes a second; 0: as fast as it goes */
    int64_t left;  /* bytes that may go now; below 0: too many went */
    uint64_t last_ns;
};

/* At this time of a clock that only goes forward. */
struct pace pace_start(uint64_t rate, uint64_t now_ns);
/* Something may go now, however long it is. */
bool pace_allows(struct pace *pace, uint64_t now_ns);
void pace_spend(struct pace *pace, size_t length);
/* How much should go at once: so much that the peer sees an even stream, `length` at most. */
size_t pace_piece(const struct pace *pace, size_t length);

#endif
