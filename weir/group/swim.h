/* Who of a group lives: one member's part of finding out (SWIM, with what Lifeguard adds to it).
 *
 * It reads no clock and sends nothing: struct swim_port does, so that the same code runs in a
 * simulated world of thousands. Times, requests and answers in; the port's calls out.
 *
 * In each period it probes another rank, each in its turn, in an order that changes from round to
 * round. Who does not answer it asks some others to probe for it; whom nobody has reached by the
 * end of the period it suspects, for itself alone, and probes on, directly and through others. Whom
 * it has not reached when the suspicion's time is over is dead, and that is news. Who hears that it
 * is dead says that it lives, in its next incarnation.
 *
 * News goes along with probes and their answers, a bounded number of times. Besides, each probe
 * carries digests of the sender's view, and its answer what is different in one block of ranks: so
 * what news did not reach is repaired, also after a partition, for those held dead are probed now
 * and then.
 *
 * Time in which the process did not run does not count: who is called far too late draws no
 * conclusion from what it had begun, and has half a probe's time to read what came meanwhile. */
#ifndef WEIR_GROUP_SWIM_H
#define WEIR_GROUP_SWIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/group/news.h"
#include "weir/group/shuffle.h"
#include "weir/group/swim_message.h"
#include "weir/group/view.h"

#define SWIM_INDIRECT_MAX 8u
#define SWIM_RELAYS       16u /* probes for others, at once */
#define SWIM_HEALTH_MAX   3u
#define SWIM_SUSPECTS     64u /* at once; one comes in a period at most */

struct swim_port {
    /* A request to that rank; what comes of it is told by swim_answered or swim_unanswered, or is
     * not told. */
    void (*send)(void *user, uint32_t rank, uint64_t token, const uint8_t *bytes, size_t length,
                 uint64_t timeout_ns);
    /* The answer to swim_take's `request`. */
    void (*reply)(void *user, void *request, const uint8_t *bytes, size_t length);
    /* The view has changed. */
    void (*changed)(void *user, uint32_t rank, enum swim_state state);
};

struct swim_options {
    uint32_t size, rank; /* SWIM_NOBODY: a client, which asks and accuses nobody */
    uint64_t seed;
    uint64_t period_ns, probe_ns, suspicion_ns;
    unsigned indirect;
};

enum probe_stage {
    PROBE_NONE, /* nobody, or it has answered */
    PROBE_DIRECT,
    PROBE_INDIRECT,
};

struct suspicion {
    uint32_t rank, standing;
    uint64_t due_ns;
};

/* A probe for another. */
struct relay {
    void *request; /* NULL: free */
    uint32_t subject;
    uint64_t token, due_ns;
};

struct swim {
    const struct swim_port *port;
    void *user;
    struct swim_options options;
    struct view view;
    struct news news;
    struct shuffle order, absent_order;
    struct suspicion suspects[SWIM_SUSPECTS]; /* of its own, oldest first */
    unsigned suspect_count, next_suspect;     /* next: to be probed again */
    struct relay relays[SWIM_RELAYS];
    uint64_t random;
    uint64_t clock_ns; /* time in which it ran */
    uint64_t last_ns;  /* when that was set */
    bool has_forgiven; /* a delay, the last time */
    uint64_t period_due_ns, probe_due_ns;
    enum probe_stage stage;
    uint32_t subject; /* of the probe */
    uint64_t token;   /* of the next request */
    uint64_t probe_token, first_ask;
    unsigned asked, heard; /* for it: how many, and how many of them answered at all */
    unsigned health;       /* 0: good; else that much slower */
    bool has_left;
};

/* False: no memory. The first probe goes within the first period. */
bool swim_init(struct swim *swim, const struct swim_port *port, void *user,
               const struct swim_options *options, uint64_t now_ns);
void swim_fini(struct swim *swim);

/* A request has come. False: it is not understood, and is not answered. It is answered now or
 * later, or never if swim_fini comes before. */
bool swim_take(struct swim *swim, uint64_t now_ns, void *request, const uint8_t *bytes,
               size_t length);
/* Nobody waits for its answer any more; there will be none. */
void swim_gone(struct swim *swim, const void *request);
void swim_answered(struct swim *swim, uint64_t now_ns, uint64_t token, const uint8_t *bytes,
                   size_t length);
void swim_unanswered(struct swim *swim, uint64_t now_ns, uint64_t token);

/* When swim_advance is to be called. */
uint64_t swim_next_ns(const struct swim *swim);
void swim_advance(struct swim *swim, uint64_t now_ns);

/* Says goodbye, to some at once; the news spreads from there. */
void swim_leave(struct swim *swim, uint64_t now_ns);

/* --- between its parts --- */

/* Something was heard of a rank, maybe of ours; suspicions of others are not heard. */
void swim_hear(struct swim *swim, uint32_t rank, uint32_t standing);
/* Takes in what a valid message says beside its kind. */
void swim_hear_message(struct swim *swim, const struct swim_message *message);
/* A message to be sent; `to` is whom it goes to, or SWIM_NOBODY. `asks`: of a request that is
 * answered, or NULL. */
size_t swim_compose(struct swim *swim, enum swim_kind kind, uint32_t subject, uint32_t to,
                    const struct swim_message *asks, uint8_t ret_bytes[SWIM_MESSAGE_MAX]);

#endif
