/* From datagrams to the device: finds each packet's owner among the processes, hands foreign ones
 * on, checks the ICRC of our own and gives them to the device. ICMP messages about packets of
 * others are handed on, too. Under the engine's lock. */
#ifndef WEIR_IO_INGRESS_H
#define WEIR_IO_INGRESS_H

#include "rnic/io/registry/handoff.h"
#include "rnic/io/registry/steering.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/udp/integrity.h"
#include "rnic/io/udp/udp.h"

struct device;
struct cm;

struct ingress {
    struct udp_receiver receiver;
    struct device *device;
    struct cm *cm;
    struct registry *registry;
    struct steering *steering;
    struct handoff *handoff;
    struct integrity integrity;
    struct instant now;            /* of the batch, set by the caller */
    bool closing;                  /* hands on by what packets say, without asking the registry */
    uint64_t foreign;              /* packets for other processes */
    uint64_t copies;               /* handed to others of packets that we have kept, too */
    struct complaints *complaints; /* where those that others hand on to us go */
    struct ingress_allowance {     /* bounds what is handed to all of them */
        struct instant since;
        uint32_t told;
    } packets, hearsay;
};

void ingress_init(struct ingress *ingress);

/* The kernel has given us an ICMP message, for it gives them to any process of the port; it is
 * about no packet of ours. `complaint` goes to whose datagram it quotes, or else, in bounds, to all
 * others: a BTH does not say who has sent it. */
void ingress_hand_on_complaint(struct ingress *ingress, struct instant now,
                               const struct complaint *complaint);

#endif
