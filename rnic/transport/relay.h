/* Requests that a target of XRC gets for another process: they name a shared receive queue which
 * that process owns, in an XRC domain that both have open.
 *
 * The owner has what a request needs: receives, memory, keys, completion queue. So a deputy (see
 * deputy.h) executes it there. The target remains the peer's partner: it holds requests in the
 * order of their PSNs, hands them to deputies, and acknowledges what these have confirmed. A READ's
 * or atomic's response leaves the deputy for the wire itself; it confirms the request afterwards,
 * so that nothing overtakes the response.
 *
 * Invariants: the responder's expected PSN moves only when a request has been executed, here or by
 * a deputy. One process at a time has unconfirmed requests of a target, so that one that is not
 * ready leaves nothing executed behind the refused one. What was handed over stays here until it
 * is confirmed: messages may be lost between processes, and are repeated. An owner that is dead or
 * silent for RELAY_PATIENCE_NS ends in a remote operation error.
 *
 * Here: the messages, the seam that carries them, and the target's part. */
#ifndef WEIR_TRANSPORT_RELAY_H
#define WEIR_TRANSPORT_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/transport/xrc.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

#define RELAY_NOBODY      UINT32_MAX
#define RELAY_PROCESSES   1024u /* their numbers are below */
#define RELAY_PATIENCE_NS UINT64_C(5000000000)

struct environment;
struct qp;
struct relay;

enum relay_kind {
    RELAY_REQUEST, /* to the deputy; its packet goes with it, from the BTH to before the ICRC */
    RELAY_ANSWER,  /* from it: what would be an acknowledgement on the wire */
    RELAY_WAIT,    /* from it: a response is still on its way out */
    RELAY_END,     /* to it: the target is gone, or has failed */
};

/* Plain numbers throughout: it comes from another process, and is checked where it is used. */
struct relay_message {
    uint8_t kind;       /* of enum relay_kind */
    uint8_t is_repeat;  /* REQUEST: the peer asks again for a response */
    uint8_t has_failed; /* END */
    uint8_t path_mtu;   /* REQUEST: this and the next are the target's attributes */
    uint8_t max_reads_in;
    uint8_t aeth_kind, aeth_value; /* ANSWER: at `psn` */
    uint32_t access;
    struct qpn target, destination;
    struct psn psn;
    struct psn expected; /* REQUEST: all before it has been executed, by whomever */
    uint32_t msn;        /* ... when the target had completed so many messages */
    uint32_t repeats;    /* repeated requests until this one, or until this answer */
    uint64_t life;       /* of the target's connection: what is of another life is stale */
    uint64_t executed;   /* REQUEST: PSNs before `expected`, of this life and without a wrap */
    struct xrc_domain domain;
    struct path path;
};

/* The seam: io/registry/relays, or the simulator's. Messages to one process arrive in order or not
 * at all.
 */
struct relay_link {
    /* The process that owns the shared receive queue of that number; NOBODY: ours, or nobody's. */
    uint32_t (*owner)(struct relay_link *link, uint32_t number);
    /* False: there is no such process any more. The bytes are borrowed for the call. Leaves after
     * what was given to the packet sink before. */
    bool (*send)(struct relay_link *link, uint32_t process, const struct relay_message *message,
                 const uint8_t *bytes, uint32_t length);
    bool (*lives)(struct relay_link *link, uint32_t process);
};

/* For a target of a shared domain. NULL: no memory. */
struct relay *relay_create(struct environment *environment) MUST_USE;
void relay_destroy(struct environment *environment, struct relay *relay);
/* What is held is forgotten, and deputies are told. */
void relay_end(struct qp *qp, bool has_failed);

/* A request at the next PSN of the wire. False: it is for us and nothing is before it. */
bool relay_takes(struct qp *qp, const struct packet *packet);
/* A request that was executed already, or is held. False: it is ours to answer. */
bool relay_takes_again(struct qp *qp, const struct packet *packet);
/* A request behind the next PSN. False: nothing is held, complain now. */
bool relay_takes_gap(struct qp *qp);
/* The PSN that the peer's next new request has. */
struct psn relay_next(const struct qp *qp);
/* Answers must wait for those of a deputy. */
bool relay_holds_answers(const struct qp *qp);
/* Goes on with what is held, as far as possible. */
void relay_resume(struct qp *qp);
/* An ANSWER or WAIT from process `from`. */
void relay_answered(struct qp *qp, uint32_t from, const struct relay_message *message);
void relay_expire(struct qp *qp, struct instant now);

#endif
