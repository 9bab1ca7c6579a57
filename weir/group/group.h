/* What the parts of a group share.
 *
 *     group ---- members   addresses by rank              members.h
 *       |------- swim      who lives, without I/O         swim.h
 *       |------- calls     over a tree, without I/O       calls.h
 *       |------- links     whom it is connected to        links.h
 *       |------- heartbeat swim's messages, over links    heartbeat.h
 *       `------- carrier   calls' messages, over links    carrier.h
 */
#ifndef WEIR_GROUP_GROUP_H
#define WEIR_GROUP_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/group.h>

#include "weir/group/calls.h"
#include "weir/group/links.h"
#include "weir/group/members.h"
#include "weir/group/swim.h"

/* That it has left is to be told. */
struct leaving {
    weir_group_left *left; /* NULL: nobody waits */
    void *argument;
    uint64_t until_ns;
    uint64_t first_token, end_token; /* of the goodbyes */
};

struct weir_group {
    struct weir_rpc *rpc;
    struct weir_poller *poller;
    struct weir_group_options options; /* defaults filled in; its name is copied */
    char name[WEIR_GROUP_NAME_MAX + 1];
    uint32_t rank;
    struct members members;
    struct swim swim;
    struct calls calls;
    struct links links;      /* for calls */
    struct links beat_links; /* for probes, which wait behind no call */
    struct leaving leaving;
    struct weir_procedure *call_procedure, *swim_procedure; /* of rpc */
    uint64_t armed_ns;                                      /* for when the poller's timer is set */
};

/* After whatever may have set an earlier deadline. */
void group_arm(struct weir_group *group);

#endif
