/* Additive increase, multiplicative decrease. */
#include "weir/rpc/window.h"

void window_init(struct window *window, unsigned most)
{
    *window = (struct window){.size = most, .most = most};
}

void window_answered(struct window *window)
{
    window->answered++;
    if (window->answered >= window->size) {
        window->answered = 0;
        window->size += window->size < window->most;
    }
}

void window_busy(struct window *window, uint64_t sent, uint64_t next)
{
    if (sent < window->halved_at) {
        return;
    }
    window->halved_at = next;
    window->answered = 0;
    window->size = window->size > 1 ? window->size / 2 : 1;
}
