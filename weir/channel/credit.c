/* Counts of messages, modulo 2^32. */
#include "weir/channel/credit.h"

void credit_init(struct credit *credit, uint32_t window, uint32_t peer_window)
{
    *credit = (struct credit){
        .limit = peer_window,
        .peer_window = peer_window,
        .window = window,
        .granted = window,
        .told = window,
    };
}

bool credit_can_send(const struct credit *credit)
{
    return credit->sent != credit->limit;
}

void credit_spend(struct credit *credit)
{
    credit->sent++;
}

bool credit_learn(struct credit *credit, uint32_t limit)
{
    /* Never less than before, never more than a window beyond what was sent. */
    if (limit - credit->sent > credit->peer_window ||
        limit - credit->sent < credit->limit - credit->sent) {
        return false;
    }
    credit->limit = limit;
    return true;
}

bool credit_receive(struct credit *credit)
{
    if (credit->received == credit->granted) {
        return false;
    }
    credit->received++;
    return true;
}

void credit_return(struct credit *credit, uint32_t count)
{
    credit->granted += count;
}

uint32_t credit_tell(struct credit *credit)
{
    credit->told = credit->granted;
    return credit->granted;
}

bool credit_is_due(const struct credit *credit)
{
    uint32_t enough = credit->window / 2 > 0 ? credit->window / 2 : 1;
    return credit->granted - credit->told >= enough;
}
