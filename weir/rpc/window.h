/* How many calls one target may have in flight: what its server has had room for of late. */
#ifndef WEIR_RPC_WINDOW_H
#define WEIR_RPC_WINDOW_H

#include <stdint.h>

struct window {
    unsigned size, most; /* 1 <= size <= most */
    unsigned answered;   /* since it last grew */
    uint64_t halved_at;  /* the number of the first call sent after that */
};

/* Begins with all that may be. */
void window_init(struct window *window, unsigned most);
/* One more for each `size` answers. */
void window_answered(struct window *window);
/* The server had no room for call number `sent`; `next` is the next one's. Of all calls that were
 * sent before the window was halved none halves it again: they tell of the same moment. */
void window_busy(struct window *window, uint64_t sent, uint64_t next);

#endif
