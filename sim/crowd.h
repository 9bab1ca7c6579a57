/* Many queue pairs from host A to host B over one narrow link, all of them writing (or, at B's end,
 * reading) without end, beside flows of TCP perhaps: what congestion and loss are measured on. */
#ifndef WEIR_SIM_CROWD_H
#define WEIR_SIM_CROWD_H

#include "sim/host.h"
#include "sim/tcp.h"

#define CROWD_FLOWS_MAX   32u
#define CROWD_TCP_MAX     4u
#define CROWD_MESSAGE_MAX (1u << 20)

struct crowd_config {
    uint32_t flows; /* queue pairs */
    uint32_t tcp_flows;
    uint32_t message, depth; /* bytes of a WRITE; how many are outstanding */
    bool reads;              /* B READs instead */
    enum path_mtu mtu;
    uint8_t traffic_class;
    bool selective;
    uint32_t window_max;     /* as of the device */
    struct link_config link; /* from A to B, whereto the bytes go */
    uint64_t seed;
};

struct crowd;

struct crowd *crowd_make(const struct crowd_config *config);
/* Runs for that long. Bytes per millisecond of all queue pairs; who got what is then to be had. */
uint64_t crowd_run(struct crowd *crowd, uint64_t ms);
uint64_t crowd_done(const struct crowd *crowd, uint32_t flow);     /* bytes, in the last run */
uint64_t crowd_tcp_done(const struct crowd *crowd, uint32_t flow); /* likewise */
/* Jain's index of what the queue pairs got, in percent: 100 is equal, 100 / flows is all for one.
 */
uint64_t crowd_fairness(const struct crowd *crowd);
uint32_t crowd_queued_most(const struct crowd *crowd); /* frames */
uint64_t crowd_counter(const struct crowd *crowd, unsigned host, enum counter counter);
struct link_config *crowd_link(struct crowd *crowd);
/* Only the first so many go on. */
void crowd_keep(struct crowd *crowd, uint32_t flows);
/* What is under way completes; false: an oracle was violated, or a request failed. */
bool crowd_end(struct crowd *crowd);

#endif
