/* Probes out, answers in; goodbye. */
#include "weir/group/heartbeat.h"

#include <stdio.h>
#include <stdlib.h>

#include "weir/channel/timer.h"
#include "weir/error_private.h"

/* A message, until rpc has called back. */
struct beat {
    struct weir_group *group;
    struct link *link;
    uint64_t token;
};

/* --- goodbye --- */

static void tell_left(struct weir_group *group, enum weir_status status)
{
    weir_group_left *left = group->leaving.left;
    group->leaving.left = NULL;
    if (left != NULL) {
        left(status, group->leaving.argument);
    }
}

static bool is_goodbye(const struct leaving *leaving, uint64_t token)
{
    return leaving->left != NULL && token >= leaving->first_token && token < leaving->end_token;
}

enum weir_status weir_group_leave(struct weir_group *group, weir_group_left *left, void *argument)
{
    if (left == NULL || group->rank == WEIR_RANK_NONE) {
        return WEIR_INVALID;
    }
    if (group->swim.has_left || group->calls.is_ending) {
        return WEIR_STATE;
    }
    uint64_t now_ns = clock_now_ns();
    struct leaving leaving = {.left = left, .argument = argument, .until_ns = now_ns};
    leaving.first_token = group->swim.token;
    swim_leave(&group->swim, now_ns);
    leaving.end_token = group->swim.token;
    if (leaving.end_token > leaving.first_token) {
        leaving.until_ns += group->options.period_ms * MILLISECOND_NS;
    }
    group->leaving = leaving;
    group_arm(group);
    return WEIR_OK;
}

/* --- out --- */

static void replied(const struct weir_reply *reply, void *argument)
{
    struct beat *beat = argument;
    struct weir_group *group = beat->group;
    uint64_t token = beat->token;
    links_give(beat->link);
    free(beat);
    if (group->calls.is_ending) {
        return;
    }
    if (reply->status == WEIR_OK) {
        swim_answered(&group->swim, clock_now_ns(), token, reply->bytes, reply->length);
    } else {
        swim_unanswered(&group->swim, clock_now_ns(), token);
    }
    if (reply->status == WEIR_OK && is_goodbye(&group->leaving, token)) {
        tell_left(group, WEIR_OK);
    }
    group_arm(group);
}

static void send(void *user, uint32_t rank, uint64_t token, const uint8_t *bytes, size_t length,
                 uint64_t timeout_ns)
{
    struct weir_group *group = user;
    struct weir_call_options options = {.timeout_ms = (unsigned)(timeout_ns / MILLISECOND_NS)};
    struct weir_piece piece = {bytes, length};
    struct beat *beat = calloc(1, sizeof(*beat));
    if (beat == NULL) {
        return; /* as if it were lost */
    }
    options.timeout_ms += options.timeout_ms == 0;
    beat->group = group;
    beat->token = token;
    beat->link = links_take(&group->beat_links, rank, members_address(&group->members, rank));
    if (beat->link == NULL) {
        free(beat);
        return;
    }
    if (weir_rpc_call(beat->link->target, group->swim_procedure, &piece, 1, &options, replied, beat,
                      NULL) != WEIR_OK) {
        links_give(beat->link);
        free(beat);
    }
}

/* --- in --- */

static void refuse(struct weir_request *request)
{
    weir_request_refuse(request, WEIR_PROTOCOL, "this group does not understand that");
}

static void reply(void *user, void *request, const uint8_t *bytes, size_t length)
{
    struct weir_piece piece = {bytes, length};
    enum weir_status status = weir_request_reply(request, &piece, 1);
    if (status == WEIR_TOO_LONG || status == WEIR_NO_MEMORY) {
        refuse(request);
    }
}

static void changed(void *user, uint32_t rank, enum swim_state state)
{
    struct weir_group *group = user;
    if (state >= SWIM_DEAD) {
        calls_died(&group->calls, rank);
    }
    if (group->options.changed != NULL) {
        group->options.changed(group, rank, (enum weir_member_state)state, group->options.user);
    }
}

static void gone(struct weir_request *request, enum weir_status why, void *argument)
{
    struct weir_group *group = argument;
    swim_gone(&group->swim, request);
    refuse(request);
}

static void handle(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_group *group = user;
    weir_request_on_gone(request, gone, group);
    if (!swim_take(&group->swim, clock_now_ns(), request, bytes, length)) {
        refuse(request);
    }
    group_arm(group);
}

/* --- life --- */

static const struct swim_port port = {send, reply, changed};

enum weir_status heartbeat_init(struct weir_group *group, uint64_t seed,
                                struct weir_error *ret_error)
{
    char name[WEIR_PROCEDURE_NAME_MAX + 1];
    struct swim_options options = {
        .size = group->members.count,
        .rank = group->rank,
        .seed = seed,
        .period_ns = group->options.period_ms * MILLISECOND_NS,
        .probe_ns = group->options.probe_ms * MILLISECOND_NS,
        .suspicion_ns = group->options.suspicion_ms * MILLISECOND_NS,
        .indirect = group->options.indirect,
    };
    if (!swim_init(&group->swim, &port, group, &options, clock_now_ns())) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    snprintf(name, sizeof(name), "%s/swim", group->name);
    return weir_rpc_register(group->rpc, name, handle, group, &group->swim_procedure, ret_error);
}

void heartbeat_fini(struct weir_group *group)
{
    if (group->swim_procedure != NULL) {
        weir_rpc_unregister(group->swim_procedure);
    }
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        if (group->swim.relays[i].request != NULL) {
            refuse(group->swim.relays[i].request);
        }
    }
    tell_left(group, WEIR_CANCELED);
    swim_fini(&group->swim);
}

uint64_t heartbeat_next_ns(const struct weir_group *group)
{
    uint64_t next_ns = swim_next_ns(&group->swim);
    bool is_leaving = group->leaving.left != NULL && group->leaving.until_ns < next_ns;
    return is_leaving ? group->leaving.until_ns : next_ns;
}

void heartbeat_advance(struct weir_group *group)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= swim_next_ns(&group->swim)) {
        swim_advance(&group->swim, now_ns);
    }
    if (group->leaving.left != NULL && now_ns >= group->leaving.until_ns) {
        bool has_others = group->leaving.end_token > group->leaving.first_token;
        tell_left(group, has_others ? WEIR_TIMED_OUT : WEIR_OK);
    }
}
