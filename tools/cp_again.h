/* What weir cp does when its connection is lost: it connects again, with pauses that grow, for so
 * long as --timeout says, and goes on; and counts so that nothing is counted twice. */
#ifndef TOOLS_CP_AGAIN_H
#define TOOLS_CP_AGAIN_H

#include <stdbool.h>

#include "tools/command.h"
#include "tools/transfer/copy/session.h"

struct cp;

/* Problems that are not said again, if they come again with the connection. */
#define AGAIN_PROBLEMS_MAX 512

/* All of one transfer, but for `count` and `seconds`. */
struct again {
    struct session_copy copy; /* what the next connection begins with */
    bool is_allowed;          /* it can be gone on with: see cp_again_begin */
    bool is_through;          /* some connection carried it: there is something to go on with */
    bool is_wanted;           /* the last one was lost, and another is to be tried */
    double lost_s;            /* since then there is none; 0: there is one, or never was */
    double since_s;           /* since then nothing new has come */
    double pause_s;           /* before the next try */
    double counted_s;         /* up to here the time is in cp->seconds */
    unsigned tries;           /* since lost_s */
    bool is_anew;             /* the far side has been started since */
    uint64_t work;            /* how far it was */
    struct tally past;        /* of the connections that were lost, as far as it goes on counting */
    struct tally shown;       /* what the progress said last */
    unsigned items, items_before; /* said on this connection; on all before it at most */
    uint64_t repeated;            /* warnings of this connection that were known */
    uint64_t problems[AGAIN_PROBLEMS_MAX];
    unsigned problem_count, problems_before;
    unsigned count; /* how often it came again, */
    double seconds; /* and how long there was none */
};

/* A transfer begins, of which some do not go with a second connection; cp_again_end ends it. False:
 * no random bytes, or no memory, which has been said. */
bool cp_again_begin(struct cp *cp, const struct session_request *request);
void cp_again_end(struct cp *cp);
/* What the next connection says. */
struct session_request cp_again_request(const struct cp *cp, const struct session_request *request);
/* The connection has ended, or could not be made (`session` may be NULL). True: that is not the end
 * of the transfer; a loss has been said. */
bool cp_again_take(struct cp *cp, const struct session *session, const struct link *link);
/* Waits before the next try. False: there is none, and ret_code is the transfer's, which has been
 * said if it is changed here. */
bool cp_again_wait(struct cp *cp, enum exit_code *ret_code);
/* There is a connection, and not for the first time. */
bool cp_again_is_back(struct cp *cp);
/* What the user can do after the end. */
const char *cp_again_advice(const struct cp *cp);
/* Says that the owner has ended it, and how it goes on. */
enum exit_code cp_again_interrupted(struct cp *cp);
/* For so many seconds, and `most` at most, something may be tried. */
double cp_again_left_s(const struct cp *cp, double most);

/* Half of the time is over, and the far side that was there is still the one that is looked for:
 * its host may be gone, and the shell not know. Said once. */
bool cp_again_despairs(struct cp *cp);

/* All connections' tally, with this of the last one. */
struct tally cp_again_total(const struct cp *cp, const struct tally *now);
/* The same for who looks on: it never goes back. */
const struct tally *cp_again_progress(struct cp *cp, const struct tally *now);
/* It was said on an earlier connection. */
bool cp_again_knows_problem(struct cp *cp, const struct problem *problem);
bool cp_again_knows_item(struct cp *cp, const struct item *item);

#endif
