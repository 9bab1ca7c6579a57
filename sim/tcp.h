/* A TCP flow with CUBIC [RFC 9438] as something that shares a link with us: a judge of fairness,
 * not a TCP. Segments that never run out, each acknowledged at once by a receiver
 * that remembers all; losses are known when three later segments have arrived, and repeated. */
#ifndef WEIR_SIM_TCP_H
#define WEIR_SIM_TCP_H

#include "sim/network.h"

#define TCP_FLIGHT_MAX 65536u

struct tcp {
    struct network *network;
    unsigned from, to;
    uint32_t segment; /* bytes */
    bool stopped;
    uint64_t arrived;  /* bytes, each once */
    uint64_t repeated; /* segments */

    double window, threshold, peak, friendly; /* segments */
    double epoch_s, climb_s;
    bool in_epoch;
    uint64_t next, first; /* transmissions, by number */
    uint64_t recover;     /* losses of transmissions before it are one */
    uint32_t owed;        /* lost segments to be repeated */
    uint32_t in_flight;
    double round_trip_s;
    uint64_t heard_ns;
    uint8_t acknowledged[TCP_FLIGHT_MAX]; /* by transmission; 2: counted as lost */
    uint64_t sent_ns[TCP_FLIGHT_MAX];
};

void tcp_start(struct tcp *tcp, struct network *network, unsigned from, unsigned to,
               uint32_t segment);
/* Sends no more; what is under way arrives. */
void tcp_stop(struct tcp *tcp);

#endif
