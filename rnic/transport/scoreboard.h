/* What a requester knows of each packet that it has sent and nobody has acknowledged in order:
 * when it left last, whether the peer holds it, whether it counts as lost.
 *
 * Lost is what has not come a round trip and a bit after it left, though something that left no
 * earlier has. The bit (the patience) is for packets that overtake each other; it grows
 * whenever a repetition turns out to have been in vain. [RACK, RFC 8985, has the idea] So neither
 * reordering nor a lost repetition needs a rule of its own.
 *
 * PSNs of READ responses ("drawn") stand here too, so that one window counts all; only the first of
 * a request is a packet of ours that can be lost. Pure: no queue pair, no clock. */
#ifndef WEIR_TRANSPORT_SCOREBOARD_H
#define WEIR_TRANSPORT_SCOREBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"

#define SCOREBOARD_WORDS (REPORT_SPAN / 64)

struct scoreboard {
    struct psn first; /* nothing before it is known */
    struct psn end;   /* nor from here on; at most REPORT_SPAN later */
    uint32_t held_count, lost_count;
    uint64_t held[SCOREBOARD_WORDS];
    uint64_t lost[SCOREBOARD_WORDS];
    uint64_t repeated[SCOREBOARD_WORDS];
    uint64_t demand[SCOREBOARD_WORDS]; /* of a READ or atomic */
    uint64_t drawn[SCOREBOARD_WORDS];  /* ... but not its request packet */
    uint32_t left[REPORT_SPAN];        /* when, in ticks */

    bool has_arrived;
    uint32_t newest; /* when the youngest packet left that has arrived */
    struct psn newest_psn;
    uint64_t shortest_ns; /* round trip */
    uint64_t took_ns;     /* what the latest arrival took to be reported */
    bool took_is_fresh;   /* it was no repetition: a measured round trip */
    uint32_t leniency;    /* factor of the patience */
    struct instant grown; /* when it did last */
    uint32_t calm;        /* losses since then */
    uint16_t duplicates;  /* as last reported */
    bool probing;         /* what leaves again next is a probe */
    bool has_probed;      /* since something is known to have arrived after it left last: */
    struct psn probed;
    uint8_t probes; /* duplicates that are no sign of impatience */
};

/* `round_trip_ns`: the shortest known; 0: none is. */
void scoreboard_reset(struct scoreboard *board, struct psn first, uint64_t round_trip_ns);
/* `count` packets at `psn` left, for the first time (psn is `end`) or again. Of a demand one did,
 * which draws `count` of response. */
void scoreboard_sent(struct scoreboard *board, struct instant now, struct psn psn, uint32_t count,
                     bool demand);
/* When what was sent so far had left is not known. */
void scoreboard_entered(struct scoreboard *board);
/* `count` packets from `first` on need no more care. Returns how many were not known to be held. */
uint32_t scoreboard_answered(struct scoreboard *board, struct instant now, uint32_t count);
/* What a report says. Returns how many packets are newly known to be held. */
uint32_t scoreboard_report(struct scoreboard *board, struct instant now,
                           const struct report *report);
/* The response at `psn` is here, and kept until its turn comes: it is under way no more. Returns
 * how many packets are newly known not to be. */
uint32_t scoreboard_came(struct scoreboard *board, struct instant now, struct psn psn);
/* A response is here. One that was demanded again, and comes sooner than any has, answers what had
 * left before; else it had been lost. */
void scoreboard_responded(struct scoreboard *board, struct instant now, struct psn psn);
/* Another copy of a response is here: it may have been drawn by a probe, which then was in vain. */
void scoreboard_came_again(struct scoreboard *board);
/* The peer has executed all requests before `psn`, though responses to some are missing. Returns
 * likewise. */
uint32_t scoreboard_acknowledged(struct scoreboard *board, struct instant now, struct psn psn);
/* Of one look for losses. */
struct scoreboard_losses {
    uint32_t count;      /* packets that count as lost since now */
    uint64_t waited_ns;  /* how long ago the youngest of them left */
    struct instant look; /* when to look again; NEVER: nothing is in doubt */
};

/* Marks what has to count as lost now; `base_ns` is the shortest round trip. */
struct scoreboard_losses scoreboard_find_lost(struct scoreboard *board, struct instant now,
                                              uint64_t base_ns);
/* No answer came to what is before `end`: of that, everything that is not held counts as lost, and
 * every demand. */
void scoreboard_lost_before(struct scoreboard *board, struct psn end);
void scoreboard_mark_lost(struct scoreboard *board, struct psn psn);
/* The peer misses the first packet, and something later has come. False: it counts as lost already,
 * or has left again since that can have been said. */
bool scoreboard_lose_first(struct scoreboard *board, struct instant now, uint64_t base_ns);
/* The last probe has come, or an earlier copy of it, and nothing else that tells of the rest. */
bool scoreboard_only_probe_came(const struct scoreboard *board);
/* Marks as lost what may be, and left at least so long ago. */
struct scoreboard_losses scoreboard_lose_old(struct scoreboard *board, struct instant now,
                                             uint64_t age_ns);
/* Something is to be sent again, to learn what has become of the rest: what counts as lost, or else
 * `psn`, which may come in vain. */
void scoreboard_probe(struct scoreboard *board, struct psn psn);
/* The last packet that the peer is not known to hold, but for those that count as lost; or the
 * first, where that waits for a response. False: there is none. */
bool scoreboard_last_in_doubt(const struct scoreboard *board, struct psn *ret_psn);
/* How long ago the packet left last. */
uint64_t scoreboard_out_ns(const struct scoreboard *board, struct instant now, struct psn psn);
/* How many of `count` packets from `psn` on count as lost. */
uint32_t scoreboard_count_lost(const struct scoreboard *board, struct psn psn, uint32_t count);
/* The first that counts as lost; false: none. */
bool scoreboard_first_lost(const struct scoreboard *board, struct psn *ret_psn);
/* How long a packet may be overtaken before it counts as lost. */
uint64_t scoreboard_patience_ns(const struct scoreboard *board, uint64_t base_ns);

static inline bool scoreboard_is_demand(const struct scoreboard *board, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    return (board->demand[index / 64] >> index % 64 & 1) != 0;
}

static inline bool scoreboard_is_drawn(const struct scoreboard *board, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    return (board->drawn[index / 64] >> index % 64 & 1) != 0;
}

static inline bool scoreboard_is_lost(const struct scoreboard *board, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    return (board->lost[index / 64] >> index % 64 & 1) != 0;
}

/* Something is known to be held or lost: it is not all in turn that is under way. */
static inline bool scoreboard_has_gap(const struct scoreboard *board)
{
    return (board->held_count | board->lost_count) != 0;
}

static inline uint32_t scoreboard_in_flight(const struct scoreboard *board)
{
    return (uint32_t)psn_distance(board->first, board->end) - board->held_count - board->lost_count;
}

#endif
