/* A lane of an inbox as its owner sees it, and what a record in it says: a packet, with its payload
 * or where in the sender's memory that is. See inbox.h. */
#ifndef WEIR_IO_LANE_H
#define WEIR_IO_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/io/same_host/inbox.h"
#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/same_host/ring.h"
#include "rnic/io/system/pull.h"

struct lane {
    struct inbox_lane *memory;
    struct ring_consumer ring;
    struct inbox_route routes[INBOX_ROUTES]; /* copies, for the sender can write to its own */
    uint32_t route_count;
    struct pull_identity sender; /* a copy, too */
    uint32_t idle;               /* rounds without a packet */
    bool closed;                 /* it held what none of ours writes */
    bool met;                    /* a packet has come */
    bool pulls;                  /* what lies in the sender's memory */
};

struct lane_passed {
    uint32_t packets; /* that the record stands for */
    bool is_long;     /* it holds the bytes of several */
};

/* Hands on what a record says. False: it is what none of ours writes. */
bool lane_pass_on(struct lane *lane, struct inbox_receiver *receiver, const uint8_t *bytes,
                  uint32_t length, struct lane_passed *ret_passed) MUST_USE;

#endif
