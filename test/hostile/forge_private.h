/* What the parts of the forger share. */
#ifndef WEIR_TEST_HOSTILE_FORGE_PRIVATE_H
#define WEIR_TEST_HOSTILE_FORGE_PRIVATE_H

#include "rnic/base/random.h"
#include "test/hostile/forge.h"

struct forger {
    struct random random;
    const struct scene *scene;
    struct shot *shot;
    uint16_t source_port; /* of what is not a copy */
};

uint32_t below(struct forger *forger, uint32_t bound);
bool one_in(struct forger *forger, uint32_t count);
uint32_t any(struct forger *forger);
struct path from_anywhere(struct forger *forger);
struct path from_peer(struct forger *forger, bool sheltered);
/* Right for what stands in the shot now. */
void add_icrc(struct forger *forger);

/* forge_mad.c */
void shoot_mad(struct forger *forger);
void shoot_mad_blind(struct forger *forger);
void shoot_request(struct forger *forger);
void shoot_stale(struct forger *forger);

#endif
