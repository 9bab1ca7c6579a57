/* Pairs that meet through the connection manager: connect, accept or reject, disconnect, release.
 *
 * Here: what both applications do at each event, and the oracles over events ("cm"): a request is
 * shown once and with what the other side gave; nothing is answered that was not asked; on a sound
 * network every attempt ends as the other side decided; when all is quiet nobody still waits. */
#ifndef WEIR_SIM_CONTACT_H
#define WEIR_SIM_CONTACT_H

#include "sim/world.h"

enum contact_phase {
    CONTACT_NOTHING,
    CONTACT_ASKING,    /* active: REQ sent */
    CONTACT_ANSWERING, /* passive: REQUEST seen, no answer yet */
    CONTACT_ACCEPTED,  /* passive: REP sent */
    CONTACT_CONNECTED, /* may disconnect */
    CONTACT_LEAVING,   /* has asked for the disconnect */
    CONTACT_LEFT,      /* DISCONNECTED seen, time-wait */
    CONTACT_OVER,      /* nothing more is to come */
};

struct contact_side {
    struct contact *contact;
    struct end *end;
    struct cm_connection *connection; /* NULL: none, or released */
    enum contact_phase phase;
    struct instant left_at; /* when it asked for the disconnect */
};

struct contact {
    struct world *world;
    struct contact_side active, passive;
    struct cm_listener *listener;
    uint64_t service_id;
    uint8_t private_data[16];
    bool accepted, rejected; /* what the passive side decided */
    bool listens;            /* before the attempt was made */
    uint32_t requests;
};

/* The pair's queue pairs are in INIT; everything else follows from events. */
void contact_start(struct world *world, struct pair *pair);
void contact_event(struct world *world, struct host *host, const struct cm_event *event);
/* The host's sides vanish with it. */
void contact_host_died(struct world *world, struct host *host);
/* Whoever is still connected disconnects. */
void contact_part_all(struct world *world);
/* Nothing moves any more: judges the phases. */
void contact_check(struct world *world);
/* Releases what is left and stops listening. */
void contact_release_all(struct world *world);

#endif
