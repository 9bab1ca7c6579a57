/* What arrives for one queue pair, seen beside the device: which acknowledgements, NAKs and
 * responses the peer answered with; for queue pair 1, which messages of connection management.
 * Needs CAP_NET_RAW. */
#ifndef WEIR_TOUR_TAP_H
#define WEIR_TOUR_TAP_H

#include <stdbool.h>
#include <stdint.h>

#define TAP_TEXT 96

struct link;

struct tap {
    int socket;
    uint32_t qpn;
    bool with_successes; /* acknowledgements and responses are listed, too */
    /* Of queue pair 1: what answers are listed to. Not MRAs. */
    uint64_t transaction;
    unsigned not_ready;  /* RNR NAKs so far */
    unsigned answers;    /* all that was listed */
    char last[16];       /* equal ones in a row are listed once */
    char seen[TAP_TEXT]; /* "RNR*3", "SEQ,ACK", "-" */
};

/* At the interface that has the link's own address. */
struct tap tap_open(const struct link *link, uint32_t qpn, bool with_successes);
/* Takes what has arrived; does not wait. */
void tap_read(struct tap *tap);
/* The answers so far, "-" for none. Valid until the next call. */
const char *tap_text(struct tap *tap);
void tap_close(struct tap *tap);

#endif
