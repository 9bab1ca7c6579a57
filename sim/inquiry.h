/* Service id resolutions beside the pairs that meet through cm: one asks which queue pair a service
 * has, the other answers or refuses after a while.
 *
 * Here: what both applications do at each event, and the oracles over events ("sidr"): a question
 * is shown once and with what was asked; the answer is the one that was given, and comes once; on a
 * sound network every question is answered; when all is quiet nobody still waits. */
#ifndef WEIR_SIM_INQUIRY_H
#define WEIR_SIM_INQUIRY_H

#include "sim/world.h"

#define INQUIRY_DATA 12u

struct inquiry {
    struct world *world;
    struct host *asker, *answerer;
    uint32_t asker_life, answerer_life;
    uint64_t service_id;
    uint8_t question[INQUIRY_DATA], answer[INQUIRY_DATA];
    enum cm_sidr_status decision;
    struct qpn qpn;
    struct qkey qkey;
    struct cm_listener *listener;
    struct cm_connection *asking, *asked; /* NULL: none, or released */
    uint32_t shown;                       /* times */
    bool listens;                         /* before the question was put */
    bool has_asked, has_decided, has_heard;
};

/* Between the hosts of a pair. */
void inquiry_start(struct world *world, struct pair *pair);
/* False: the event is of something else. */
bool inquiry_event(struct world *world, struct host *host, const struct cm_event *event);
void inquiry_host_died(struct world *world, struct host *host);
/* Nothing moves any more. */
void inquiry_check(struct world *world);
void inquiry_release_all(struct world *world);

#endif
