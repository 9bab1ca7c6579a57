/* The steps of a walk, ahead of the one who works on them: what is asked about a step is answered
 * by the time its turn comes.
 *
 * Bounded: LOOKAHEAD_STEPS steps, LOOKAHEAD_LENGTH bytes of their paths, and as many directories
 * held open as the walk is in, and LOOKAHEAD_FOLDERS more. */
#ifndef TOOLS_TRANSFER_LOOKAHEAD_H
#define TOOLS_TRANSFER_LOOKAHEAD_H

#include <stdbool.h>

#include "tools/transfer/choice/walk.h"
#include "tools/transfer/wire/link.h"
#include "tools/transfer/wire/protocol.h"

#define LOOKAHEAD_STEPS   2048u
#define LOOKAHEAD_LENGTH  (1u << 20)
#define LOOKAHEAD_FOLDERS 48u

struct look {
    struct walk_step step;
    bool asked, answered;
    enum answer answer; /* ANSWER_WANTED where it was not asked about */
    uint8_t digest[DIGEST_LENGTH];
};

struct lookahead;

/* What the peer is asked about. */
enum asking {
    ASK_NOTHING,
    ASK_FILES,
    ASK_NODES, /* and links, devices, FIFOs and sockets */
    ASK_ALL,   /* but the sources themselves */
};

/* Takes the walk over. NULL: no memory, and the walk is still the caller's. */
struct lookahead *lookahead_create(struct link *link, struct walk *walk, enum asking asking);
void lookahead_destroy(struct lookahead *lookahead);
struct walk *lookahead_walk(const struct lookahead *lookahead);
/* Nothing is asked about a source until the one before it is done with: what that does may change
 * the answer. */
void lookahead_part_sources(struct lookahead *lookahead);

/* Walks on for a little. True: there is more to do without waiting for anything. */
bool lookahead_pump(struct lookahead *lookahead);
/* The same, of what another call would do. */
bool lookahead_has_room(const struct lookahead *lookahead);
/* The next step whose turn it is; NULL: it has to be waited for. WALK_END is the last. It lasts
 * until lookahead_pop. */
struct look *lookahead_head(struct lookahead *lookahead);
/* There is none because a source was waited with, and it need not be any more. */
bool lookahead_may_go_on(const struct lookahead *lookahead);
void lookahead_pop(struct lookahead *lookahead);
/* False: more than was asked for. */
bool lookahead_answer(struct lookahead *lookahead, const struct message *answers);

#endif
