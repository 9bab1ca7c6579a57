/* Flow control of one connection: how many messages this side may send, and how many it has let
 * the peer send. Pure arithmetic on counts modulo 2^32.
 *
 * A limit is the total number of messages the peer may have sent since the beginning; it stands
 * in every message's header. It grows by one for each receive posted again.
 *
 * A message that only carries a limit needs no credit: the receiver holds CREDIT_RESERVE receives
 * more than it grants. One is sent after half a window was given back; until the peer has read it
 * and sent more there can be at most two on the way. The other messages without credit are bounded
 * too: CREDIT_PULLS_MAX of PULLED, one BYE, one ABORT. */
#ifndef WEIR_CHANNEL_CREDIT_H
#define WEIR_CHANNEL_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#define CREDIT_PULLS_MAX 8 /* announced messages of one side that wait to be pulled */
#define CREDIT_RESERVE   (CREDIT_PULLS_MAX + 6)

struct credit {
    uint32_t sent, limit, peer_window;  /* to the peer */
    uint32_t received, granted, window; /* from the peer */
    uint32_t told;                      /* `granted` as last sent */
};

void credit_init(struct credit *credit, uint32_t window, uint32_t peer_window);

bool credit_can_send(const struct credit *credit);
void credit_spend(struct credit *credit);
/* A limit from the peer; false if no honest peer could have sent it. */
bool credit_learn(struct credit *credit, uint32_t limit);

/* A message that needs credit arrived; false: the peer had none left. */
bool credit_receive(struct credit *credit);
/* The receives of so many were posted again. */
void credit_return(struct credit *credit, uint32_t count);
/* The limit to put into the header that goes out now. */
uint32_t credit_tell(struct credit *credit);
/* Enough was given back for a message of its own. */
bool credit_is_due(const struct credit *credit);

#endif
