/* Calls down, answers up. */
#include "weir/group/carrier.h"

#include <stdio.h>
#include <stdlib.h>

#include "weir/channel/timer.h"
#include "weir/group/spread.h"

/* One child's message, until rpc has called back. */
struct sending {
    struct weir_group *group;
    struct child *child; /* NULL: canceled */
    struct link *link;
    struct weir_call *call;
};

static uint64_t now_ns(void *user)
{
    return clock_now_ns();
}

static enum weir_status standing(void *user, uint32_t rank)
{
    const struct weir_group *group = user;
    if (rank >= group->members.count) {
        return WEIR_ADDRESS;
    }
    if (rank == group->rank) {
        return WEIR_PROTOCOL; /* who is called is not below itself */
    }
    switch (swim_state_of(group->swim.view.standings[rank])) {
    case SWIM_DEAD:
        return WEIR_UNREACHABLE;
    case SWIM_LEFT:
        return WEIR_DISCONNECTED;
    default:
        return WEIR_OK;
    }
}

/* What a member says when it refuses is a status, and not OK. */
static enum weir_status refusal(const struct weir_reply *reply)
{
    if (reply->status != WEIR_REFUSED) {
        return reply->status;
    }
    bool is_status = reply->code != WEIR_OK && reply->code < WEIR_STATUS_COUNT;
    return is_status ? (enum weir_status)reply->code : WEIR_PROTOCOL;
}

static void replied(const struct weir_reply *reply, void *argument)
{
    struct sending *sending = argument;
    struct weir_group *group = sending->group;
    struct child *child = sending->child;
    links_give(sending->link);
    free(sending);
    if (child == NULL) {
        return;
    }
    if (reply->status == WEIR_OK) {
        calls_answered(child, reply->bytes, reply->length);
    } else {
        calls_failed(child, refusal(reply), 0);
    }
    group_arm(group);
}

static bool send(void *user, struct child *child, const struct weir_piece *pieces, unsigned count,
                 unsigned timeout_ms)
{
    struct weir_group *group = user;
    struct weir_call_options options = {.timeout_ms = timeout_ms};
    struct sending *sending = calloc(1, sizeof(*sending));
    if (sending == NULL) {
        return false;
    }
    sending->group = group;
    sending->child = child;
    sending->link =
        links_take(&group->links, child->root, members_address(&group->members, child->root));
    if (sending->link == NULL) {
        free(sending);
        return false;
    }
    if (weir_rpc_call(sending->link->target, group->call_procedure, pieces, count, &options,
                      replied, sending, &sending->call) != WEIR_OK) {
        links_give(sending->link);
        free(sending);
        return false;
    }
    child->sending = sending;
    return true;
}

static void cancel(void *user, struct child *child)
{
    struct sending *sending = child->sending;
    sending->child = NULL;
    weir_call_cancel(sending->call);
}

static void refuse(void *user, void *request, enum weir_status status)
{
    weir_request_refuse(request, (uint32_t)status, weir_status_name(status));
}

static void reply(void *user, void *request, const struct weir_piece *pieces, unsigned count)
{
    enum weir_status status = weir_request_reply(request, pieces, count);
    if (status == WEIR_TOO_LONG || status == WEIR_NO_MEMORY || status == WEIR_INVALID) {
        refuse(user, request, status);
    }
}

const struct calls_port carrier_port = {now_ns, standing, send, cancel, reply, refuse};

static void gone(struct weir_request *request, enum weir_status why, void *argument)
{
    struct weir_group *group = argument;
    calls_gone(&group->calls, request);
}

static void handle_call(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_group *group = user;
    weir_request_on_gone(request, gone, group);
    calls_take(&group->calls, request, bytes, length, weir_request_timeout_ms(request));
    group_arm(group);
}

enum weir_status carrier_init(struct weir_group *group, struct weir_error *ret_error)
{
    char name[WEIR_PROCEDURE_NAME_MAX + 1];
    snprintf(name, sizeof(name), "%s/call", group->name);
    return weir_rpc_register(group->rpc, name, handle_call, group, &group->call_procedure,
                             ret_error);
}

void carrier_fini(struct weir_group *group)
{
    if (group->call_procedure != NULL) {
        weir_rpc_unregister(group->call_procedure);
    }
}
