/* The receiving side of a reliable queue pair: requests in, their effects on memory and queues.
 *
 * Here: the order of checks and execution. Not here: what leaves (answer), which responses are
 * remembered (replay), which acknowledgement is owed (acknowledge).
 * Invariant: the expected PSN moves only when a request packet has been executed. */
#ifndef WEIR_TRANSPORT_RESPONDER_H
#define WEIR_TRANSPORT_RESPONDER_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/queue/receive_queue.h"
#include "rnic/transport/acknowledge.h"
#include "rnic/transport/reads.h"
#include "rnic/transport/tag.h"
#include "rnic/wire/packet.h"

struct qp;

/* A message of several packets under way. */
enum inbound {
    INBOUND_NONE,
    INBOUND_SEND,
    INBOUND_WRITE,
};

struct responder {
    struct psn expected;
    uint32_t msn;  /* 24 bits */
    uint32_t done; /* bytes of the message under way */
    enum inbound inbound : 8;
    bool receive_taken;         /* the receive that a SEND goes to: at its first packet */
    uint16_t receive_sge_count; /* of that receive */
    uint64_t receive_id;
    struct reads *reads; /* those of environment->no_reads where none were agreed upon */
    struct acknowledge acknowledge;

    /* WRITE under way */
    struct memory_key key;
    uint64_t address; /* of the next byte */
    uint32_t length;  /* of the whole message */

    struct domain domain; /* that the keys of requests must be of */
};

/* What came of the checks and the execution of one request packet. */
enum verdict {
    VERDICT_EXECUTED,
    VERDICT_NOT_READY,  /* no receive: RNR NAK */
    VERDICT_UNREADABLE, /* its payload, by reference: as if it had been lost */
    /* These end in a NAK, and the queue pair fails. */
    VERDICT_INVALID,   /* an opcode that is not allowed, or not here */
    VERDICT_UNFIT,     /* length, alignment or number of what touches memory by a key */
    VERDICT_ACCESS,    /* its key does not grant it */
    VERDICT_LENGTH,    /* of what goes into a receive */
    VERDICT_OPERATION, /* the receive itself is wrong */
};

void responder_reset(struct qp *qp, struct psn expected);
/* What has come of a message so far is all that comes. */
void responder_abandon(struct qp *qp);
/* Never fails: every packet is executed, answered, or counted as dropped. */
void responder_receive(struct qp *qp, const struct packet *packet);
/* A request came though the queue pair is in error. One from before the failure, or the failed one
 * itself, says that the peer has not heard of it yet; one behind was only under way. */
void responder_receive_in_error(struct qp *qp, const struct packet *packet);
/* The failure of a request at `psn` that used no receive here: NAK, event, error state. */
void responder_fail(struct qp *qp, enum nak_code code, struct psn psn);

/* A request at the expected PSN: executed and owed an acknowledgement, or refused. */
enum verdict responder_take(struct qp *qp, const struct packet *packet);
/* The same of one that passes all checks but those of what it brings, see follow.h. */
enum verdict responder_go_on(struct qp *qp, const struct packet *packet);
/* A request at the expected PSN was executed by a deputy. */
void responder_confirm(struct qp *qp, const struct packet *packet);
/* A SEND of one packet at the expected PSN was executed elsewhere, see short_way.h. */
void responder_executed_short(struct qp *qp, bool ack_request);
/* So many PSNs are executed. */
static inline void responder_advance(struct responder *responder, uint32_t psns)
{
    responder->expected = psn_add(responder->expected, psns);
    replay_pass(&responder->reads->replay, responder->expected);
}
/* Bytes of the WRITE under way that have not come. */
static inline uint32_t responder_write_left(const struct responder *responder)
{
    return responder->length - responder->done;
}
/* Whether the key grants the queue pair's peer these rights; where the bytes are. Else it has been
 * told to who watches. */
bool responder_grants(const struct qp *qp, struct memory_key key, uint64_t address, uint64_t length,
                      unsigned rights, uint8_t **ret_bytes);
/* PSNs that a request takes. */
uint32_t responder_psn_count(const struct qp *qp, const struct packet *packet);

/* All but the PSN is checked, in the order of the specification, and the packet executed.
 * Unreliable connections use it too. [IBA 9.7.4.1] */
enum verdict responder_execute(struct qp *qp, const struct packet *packet);
/* A receive for the message that begins; false: there is none. */
bool responder_take_receive(struct qp *qp);
/* It was, and nothing has been put there. */
void responder_begin_receive(struct qp *qp);
/* Where the next of its bytes go: `done` are there. */
struct scatter *responder_place(struct qp *qp);
/* Completes the receive that was taken. `packet` is the message's last, NULL on failure. */
void responder_complete_receive(struct qp *qp, enum completion_status status,
                                const struct packet *packet);

#endif
