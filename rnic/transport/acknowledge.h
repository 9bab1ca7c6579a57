/* What the responder owes as an acknowledgement, and when it is worth a packet.
 *
 * At most one acknowledgement is owed at a time: a newer one covers the older. Acknowledgements
 * leave in qp_transmit, so those of packets that arrived together become one. They never overtake
 * the responses to READs and atomics before them. */
#ifndef WEIR_TRANSPORT_ACKNOWLEDGE_H
#define WEIR_TRANSPORT_ACKNOWLEDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/packet.h"

/* Credit count code "not limited": end-to-end credits are not used. [IBA table 48] */
#define CREDITS_UNLIMITED 0x1fu

enum owed {
    OWED_NOTHING,
    OWED_ACK,          /* of everything before the expected PSN */
    OWED_REST,         /* the same; or a NAK, where what was left out has not come */
    OWED_RNR_NAK,      /* at the expected PSN */
    OWED_NAK_SEQUENCE, /* at the expected PSN */
    OWED_NAK_FATAL,    /* the queue pair has failed; repeated as often as the peer asks */
};

struct acknowledge {
    enum owed owed : 8;
    bool demanded : 1;  /* a NAK asked for the expected PSN: later ones are dropped silently */
    bool failed : 1;    /* a fatal NAK was made: fatal_code at fatal_psn */
    bool asks_late : 1; /* the peer does, and has room for what passes meanwhile */
    bool unready : 1;   /* ... for want of a receive, or has since */
    bool left_out : 1;  /* of what came behind it something up to left_psn was dropped */
    uint8_t fatal_code; /* enum nak_code */
    union {
        struct psn fatal_psn;
        struct psn left_psn;
    };
    uint16_t unanswered; /* packets executed or kept since the last acknowledgement, */
    uint16_t unasked;    /* and executed since the peer has asked for one */
};

void acknowledge_reset(struct acknowledge *acknowledge);
/* A request packet at the expected PSN was executed. `ends_message`: the last of its message. */
void acknowledge_executed(struct acknowledge *acknowledge, bool requested, bool ends_message);
/* A READ or atomic was: its response acknowledges everything before it. */
void acknowledge_executed_with_response(struct acknowledge *acknowledge);
/* A request packet came before its turn and was kept. */
void acknowledge_kept(struct acknowledge *acknowledge, bool requested);
void acknowledge_duplicate(struct acknowledge *acknowledge);
/* A packet is missing. True if this is news worth a NAK: there is one only, until the expected PSN
 * has come. [IBA 9.7.5.1.2] */
bool acknowledge_out_of_sequence(struct acknowledge *acknowledge);
/* A request packet that the peer takes to be kept is not, because of which a NAK is due, or was
 * sent. Behind one without a receive that tells nothing: it is told when that one was executed. */
void acknowledge_left_out(struct acknowledge *acknowledge, struct psn psn);
/* OWED_REST is paid: it becomes an ACK or a NAK. */
void acknowledge_rest(struct acknowledge *acknowledge, struct psn expected);
/* The expected packet came, and its payload, by reference, is not to be had. */
void acknowledge_unreadable(struct acknowledge *acknowledge);
void acknowledge_receiver_not_ready(struct acknowledge *acknowledge);
void acknowledge_fail(struct acknowledge *acknowledge, enum nak_code code, struct psn psn);
/* The peer asks again after a fatal NAK. */
void acknowledge_repeat_failure(struct acknowledge *acknowledge);
/* What is owed has left. */
void acknowledge_paid(struct acknowledge *acknowledge);

#endif
