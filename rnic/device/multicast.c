#include "rnic/device/multicast.h"

#include <string.h>

#include "rnic/device/device.h"
#include "rnic/transport/qp_private.h"

struct multicast_group {
    struct gid gid;
    struct list members; /* in the order in which they were attached */
    uint32_t count;
};

struct member {
    struct list_node node;
    struct qp *qp;
};

static struct member *member_of(struct list_node *node)
{
    return CONTAINER_OF(node, struct member, node);
}

enum status multicast_init(struct multicast *multicast, struct allocator *allocator)
{
    struct multicast_group **groups =
        allocator->allocate(allocator, MULTICAST_GROUPS_MAX * sizeof *groups);
    if (groups == NULL) {
        return STATUS_NO_MEMORY;
    }
    *multicast = (struct multicast){.allocator = allocator, .groups = groups};
    return STATUS_OK;
}

void multicast_fini(struct multicast *multicast)
{
    CHECK(multicast->count == 0);
    if (multicast->allocator != NULL) {
        multicast->allocator->release(multicast->allocator, multicast->groups);
    }
}

/* The place of the group, or the one where it belongs. */
static uint32_t place_of(const struct multicast *multicast, const struct gid *gid)
{
    uint32_t low = 0;
    uint32_t high = multicast->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (memcmp(multicast->groups[middle]->gid.bytes, gid->bytes, sizeof gid->bytes) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct multicast_group *find_group(const struct multicast *multicast, const struct gid *gid)
{
    uint32_t place = place_of(multicast, gid);
    return place < multicast->count && gid_equal(&multicast->groups[place]->gid, gid)
               ? multicast->groups[place]
               : NULL;
}

bool multicast_has(const struct multicast *multicast, const struct gid *group)
{
    return find_group(multicast, group) != NULL;
}

static struct member *find_member(const struct multicast_group *group, const struct qp *qp)
{
    LIST_FOR_EACH(node, &group->members)
    {
        if (member_of(node)->qp == qp) {
            return member_of(node);
        }
    }
    return NULL;
}

/* NULL: no memory. */
static struct multicast_group *add_group(struct multicast *multicast, const struct gid *gid)
{
    struct multicast_group *group =
        multicast->allocator->allocate(multicast->allocator, sizeof *group);
    if (group == NULL) {
        return NULL;
    }
    group->gid = *gid;
    list_init(&group->members);
    uint32_t place = place_of(multicast, gid);
    memmove(multicast->groups + place + 1, multicast->groups + place,
            (multicast->count - place) * sizeof multicast->groups[0]);
    multicast->groups[place] = group;
    multicast->count++;
    return group;
}

static void remove_group(struct multicast *multicast, struct multicast_group *group)
{
    uint32_t place = place_of(multicast, &group->gid);
    multicast->count--;
    memmove(multicast->groups + place, multicast->groups + place + 1,
            (multicast->count - place) * sizeof multicast->groups[0]);
    multicast->allocator->release(multicast->allocator, group);
}

static void remove_member(struct multicast *multicast, struct multicast_group *group,
                          struct member *member)
{
    list_remove(&member->node);
    member->qp->rare.multicast_groups--;
    multicast->allocator->release(multicast->allocator, member);
    if (--group->count == 0) {
        remove_group(multicast, group);
    }
}

enum status multicast_attach(struct multicast *multicast, struct qp *qp, const struct gid *gid)
{
    if (qp->service != SERVICE_UD || !gid_is_multicast(gid)) {
        return STATUS_INVALID;
    }
    struct multicast_group *group = find_group(multicast, gid);
    if (group != NULL && find_member(group, qp) != NULL) {
        return STATUS_IN_USE;
    }
    if (group == NULL ? multicast->count == MULTICAST_GROUPS_MAX
                      : group->count == MULTICAST_MEMBERS_MAX) {
        return STATUS_FULL;
    }
    struct member *member = multicast->allocator->allocate(multicast->allocator, sizeof *member);
    if (member == NULL) {
        return STATUS_NO_MEMORY;
    }
    if (group == NULL) {
        group = add_group(multicast, gid);
    }
    if (group == NULL) {
        multicast->allocator->release(multicast->allocator, member);
        return STATUS_NO_MEMORY;
    }
    member->qp = qp;
    list_append(&group->members, &member->node);
    group->count++;
    qp->rare.multicast_groups++;
    return STATUS_OK;
}

enum status multicast_detach(struct multicast *multicast, struct qp *qp, const struct gid *gid)
{
    struct multicast_group *group = find_group(multicast, gid);
    struct member *member = group != NULL ? find_member(group, qp) : NULL;
    if (member == NULL) {
        return STATUS_NOT_FOUND;
    }
    remove_member(multicast, group, member);
    return STATUS_OK;
}

void multicast_forget(struct multicast *multicast, struct qp *qp)
{
    if (qp->service != SERVICE_UD) {
        return;
    }
    for (uint32_t i = multicast->count; i > 0 && qp->rare.multicast_groups > 0; i--) {
        struct multicast_group *group = multicast->groups[i - 1];
        struct member *member = find_member(group, qp);
        if (member != NULL) {
            remove_member(multicast, group, member);
        }
    }
    CHECK(qp->rare.multicast_groups == 0);
}

/* Its own datagram comes back to a sender that is attached, unless it asked not to be told what it
 * knows. Another host may have the same number. */
static bool is_own(const struct qp *qp, const struct arrival *arrival, const struct packet *packet)
{
    struct packet_sink *sink = qp->environment->sink;
    return qpn_equal(packet->source, qp->number) && sink->is_here != NULL &&
           sink->is_here(sink, &arrival->path.remote);
}

/* Each member's Q_Key, state and receives are its own: one that drops the datagram does not keep
 * it from the others. [IBA 10.5] */
void multicast_receive(struct multicast *multicast, struct environment *environment,
                       struct instant now, const struct arrival *arrival,
                       const struct packet *packet)
{
    if (packet->info->service != SERVICE_UD) {
        environment_refuse(environment, REFUSED_SERVICE);
        return;
    }
    const struct multicast_group *group = find_group(multicast, &arrival->path.local);
    if (group == NULL) {
        environment_refuse(environment, REFUSED_NO_GROUP);
        return;
    }
    LIST_FOR_EACH(node, &group->members)
    {
        struct qp *qp = member_of(node)->qp;
        if (!qp->blocks_own_multicast || !is_own(qp, arrival, packet)) {
            qp_receive(qp, now, arrival, packet);
        }
    }
}
