/* One end of a case of cm_tour: what it is to do, and what it hears, written down. */
#ifndef WEIR_TOUR_CM_PARTY_H
#define WEIR_TOUR_CM_PARTY_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "test/interop/tour/cm_forge.h"
#include "test/interop/tour/link.h"

#define TEXT_MAX    160
#define PATIENCE_MS 20000
#define PATTERN     'w' /* private data are full of it */
#define BURST       2   /* connections at once, to a backlog of one */

enum answer {
    ACCEPTS,
    REJECTS,
    LEAVES,
    DIES
};
enum ending {
    ACTIVE_LEAVES,
    PASSIVE_LEAVES,
    BOTH_LEAVE,
    ACTIVE_DIES,
    PASSIVE_DIES
};

#define MIGRATIONS 2u

struct cm_case {
    const char *name;
    enum answer answer; /* to the request */
    enum ending ending; /* once established */
    bool no_listener;
    bool listens_twice;
    bool datagrams;               /* the active end asks a datagram service instead */
    bool migrates;                /* each end moves its id to another channel, twice */
    bool bursts;                  /* BURST connections at once */
    enum forgery forgery;         /* the active end sends this request past its own manager */
    bool is_deaf;                 /* the passive end looks at no request for QUIET_MS */
    unsigned private_length;      /* of the request */
    unsigned answer_length;       /* of the acceptance or the rejection */
    uint8_t resources, depth;     /* the active end's; 0: 1 */
    const char *active, *passive; /* what each hears */
};

struct report { /* shared with the process that plays */
    char text[TEXT_MAX];
    char stack[16];
};

struct party {
    const struct cm_case *row;
    const struct link *link;
    struct report *report;
    struct rdma_event_channel *channel;
    struct rdma_event_channel *left[MIGRATIONS]; /* those before it; ids may be there still */
    unsigned migrations;
    struct rdma_cm_id *id, *listener;
    struct rdma_cm_id *burst[BURST];
};

void note(struct party *party, const char *word);
/* The call and errno. */
void note_error(struct party *party, const char *call);

bool has_event(const struct party *party, int timeout_ms);
/* The next event, noted; the new id of a request is the party's from then on. -1: none came. */
int await(struct party *party);
/* To a channel of its own, with what has not been read yet. */
void migrate(struct party *party);

/* Of the party's id. */
void create_qp(struct party *party, enum ibv_qp_type type);

#endif
