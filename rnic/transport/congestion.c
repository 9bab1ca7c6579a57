/* Slow start, then one packet more per window; halving at most once per window. */
#include "rnic/transport/congestion.h"

#define WINDOW_START_BYTES 32768u
#define WINDOW_MIN_PACKETS 2u

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void congestion_reset(struct congestion *congestion, uint32_t mtu, uint32_t limit)
{
    uint32_t least = WINDOW_MIN_PACKETS * mtu;
    limit = larger(limit, least);
    *congestion = (struct congestion){
        .window = WINDOW_START_BYTES < limit ? WINDOW_START_BYTES : limit,
        .threshold = limit,
        .limit = limit,
        .mtu = (uint16_t)mtu,
    };
}

void congestion_acknowledged(struct congestion *congestion, uint32_t bytes, struct psn unacked)
{
    congestion->collapsed_from = 0;
    if (congestion->recovering) {
        if (psn_before(unacked, congestion->recover_psn)) {
            return;
        }
        congestion->recovering = false;
    }
    if (congestion->window >= congestion->limit) {
        return;
    }
    if (congestion->window < congestion->threshold) {
        uint32_t left = congestion->threshold - congestion->window;
        uint32_t doubling = bytes < left ? bytes : left;
        congestion->window += doubling;
        bytes -= doubling;
    }
    congestion->credit += bytes;
    while (congestion->credit >= congestion->window && congestion->window < congestion->limit) {
        congestion->credit -= congestion->window;
        congestion->window += congestion->mtu;
    }
    if (congestion->window >= congestion->limit) {
        congestion->window = congestion->limit;
        congestion->credit = 0;
    }
}

static void shrink(struct congestion *congestion, uint32_t window, struct psn frontier)
{
    uint32_t least = WINDOW_MIN_PACKETS * congestion->mtu;
    congestion->threshold = larger(congestion->window / 2, least);
    congestion->window = larger(window, least);
    congestion->credit = 0;
    congestion->recovering = true;
    congestion->recover_psn = frontier;
}

void congestion_lost(struct congestion *congestion, struct psn frontier)
{
    if (!congestion->recovering) {
        shrink(congestion, congestion->window / 2, frontier);
    }
}

void congestion_timed_out(struct congestion *congestion, struct psn frontier)
{
    uint32_t before =
        congestion->collapsed_from != 0 ? congestion->collapsed_from : congestion->window;
    shrink(congestion, 0, frontier);
    /* What is acknowledged from now on is evidence that the path works. */
    congestion->recovering = false;
    congestion->collapsed_from = before;
}

void congestion_not_lost(struct congestion *congestion)
{
    if (congestion->collapsed_from != 0) {
        congestion->window = congestion->collapsed_from;
        congestion->threshold = congestion->collapsed_from;
        congestion->collapsed_from = 0;
    }
}
