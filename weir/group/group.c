/* A group's life, and what is asked of it. */
#include "weir/group/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "weir/channel/timer.h"
#include "weir/error_private.h"
#include "weir/group/call_message.h"
#include "weir/group/carrier.h"
#include "weir/group/heartbeat.h"

#define WAIT_MAX_MS        ((uint64_t)1 << 31)
#define REQUEST_LENGTH_MAX ((size_t)1 << 30)

/* --- time --- */

static void run_deadlines(void *argument)
{
    struct weir_group *group = argument;
    group->armed_ns = TIMER_NEVER;
    heartbeat_advance(group);
    calls_advance(&group->calls);
    group_arm(group);
}

/* It fires too early rather than to be set anew for what ends before its time. */
void group_arm(struct weir_group *group)
{
    uint64_t next_ns = heartbeat_next_ns(group), calls_ns = calls_next_ns(&group->calls);
    next_ns = calls_ns < next_ns ? calls_ns : next_ns;
    if (next_ns >= group->armed_ns || group->calls.is_ending) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_ms = next_ns > now_ns ? (next_ns - now_ns) / MILLISECOND_NS + 1 : 1;
    wait_ms = wait_ms < WAIT_MAX_MS ? wait_ms : WAIT_MAX_MS;
    weir_timer(group->poller, 0, run_deadlines, group);
    group->armed_ns = TIMER_NEVER;
    if (weir_timer(group->poller, (unsigned)wait_ms, run_deadlines, group) == WEIR_OK) {
        group->armed_ns = next_ns;
    }
}

/* --- life --- */

static unsigned choose(unsigned given, unsigned usual)
{
    return given != 0 ? given : usual;
}

static struct weir_group_options resolve(const struct weir_group_options *options)
{
    struct weir_group_options resolved =
        options != NULL ? *options : (struct weir_group_options){0};
    resolved.name = resolved.name != NULL ? resolved.name : "group";
    resolved.period_ms = choose(resolved.period_ms, 1000);
    resolved.probe_ms = choose(resolved.probe_ms, (resolved.period_ms + 2) / 3);
    resolved.suspicion_ms = choose(resolved.suspicion_ms, 8 * resolved.period_ms);
    resolved.indirect = choose(resolved.indirect, 3);
    resolved.radix = choose(resolved.radix, 8);
    resolved.links_max = choose(resolved.links_max, 64);
    if (resolved.reply_length_max == 0) {
        resolved.reply_length_max = (size_t)64 << 10;
    }
    if (resolved.held_length_max == 0) {
        resolved.held_length_max = (size_t)64 << 20;
    }
    return resolved;
}

static bool is_radix(unsigned radix)
{
    return radix >= CALL_RADIX_LEAST && radix <= CALL_RADIX_MOST;
}

static enum weir_status check(const struct weir_group_options *options, uint32_t size,
                              uint32_t rank, struct weir_error *ret_error)
{
    size_t length = strlen(options->name);
    if (length == 0 || length > WEIR_GROUP_NAME_MAX) {
        return error_set(ret_error, WEIR_INVALID, "\"%s\": a group's name has 1 to %d bytes",
                         options->name, WEIR_GROUP_NAME_MAX);
    }
    if (size == 0 || size > WEIR_GROUP_SIZE_MAX) {
        return error_set(ret_error, WEIR_INVALID, "%s: a group has 1 to %d members, not %u",
                         options->name, WEIR_GROUP_SIZE_MAX, size);
    }
    if (rank != WEIR_RANK_NONE && rank >= size) {
        return error_set(ret_error, WEIR_INVALID, "%s: there is no rank %u of %u", options->name,
                         rank, size);
    }
    if (!is_radix(options->radix) || options->indirect > 8 ||
        options->probe_ms >= options->period_ms) {
        return error_set(ret_error, WEIR_INVALID,
                         "%s: a radix not from 2 to 64, more than 8 who probe for another, or "
                         "probes longer than their period",
                         options->name);
    }
    return WEIR_OK;
}

static enum weir_status random_bytes(void *ret_bytes, size_t length, struct weir_error *ret_error)
{
    if (getrandom(ret_bytes, length, 0) != (ssize_t)length) {
        return error_set(ret_error, WEIR_SYSTEM, "no random bytes: %s", strerror(errno));
    }
    return WEIR_OK;
}

static void init(struct weir_group *group, struct weir_rpc *rpc,
                 const struct weir_group_options *options, uint32_t rank)
{
    group->rpc = rpc;
    group->poller = weir_rpc_poller(rpc);
    group->options = *options;
    strcpy(group->name, options->name);
    group->options.name = group->name;
    group->rank = rank;
    group->armed_ns = TIMER_NEVER;
    group->links = (struct links){.rpc = rpc, .most = options->links_max};
    group->beat_links = group->links;
    group->calls = (struct calls){
        .port = &carrier_port,
        .user = group,
        .rank = rank,
        .radix = options->radix,
        .reply_length_max = options->reply_length_max,
        .held_length_max = options->held_length_max,
    };
}

/* Everything that may fail. */
static enum weir_status begin(struct weir_group *group, const char *const *addresses, uint32_t size,
                              struct weir_error *ret_error)
{
    uint64_t random[2];
    enum weir_status status = random_bytes(random, sizeof(random), ret_error);
    if (status != WEIR_OK) {
        return status;
    }
    calls_init(&group->calls, random[0]);
    for (uint32_t rank = 0; rank < size; rank++) {
        if (!members_add(&group->members, addresses[rank])) {
            return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
        }
    }
    status = heartbeat_init(group, random[1], ret_error);
    return status == WEIR_OK ? carrier_init(group, ret_error) : status;
}

enum weir_status weir_group_create(struct weir_rpc *rpc, const struct weir_group_options *options,
                                   const char *const *addresses, uint32_t size, uint32_t rank,
                                   struct weir_group **ret_group, struct weir_error *ret_error)
{
    struct weir_group_options resolved = resolve(options);
    enum weir_status status = check(&resolved, size, rank, ret_error);
    if (status != WEIR_OK) {
        return status;
    }
    struct weir_group *group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    init(group, rpc, &resolved, rank);
    status = begin(group, addresses, size, ret_error);
    if (status != WEIR_OK) {
        weir_group_destroy(group);
        return status;
    }
    group_arm(group);
    *ret_group = group;
    return WEIR_OK;
}

void weir_group_destroy(struct weir_group *group)
{
    if (group == NULL) {
        return;
    }
    carrier_fini(group);
    calls_fini(&group->calls);
    heartbeat_fini(group);
    links_fini(&group->links);
    links_fini(&group->beat_links);
    weir_timer(group->poller, 0, run_deadlines, group);
    members_fini(&group->members);
    free(group);
}

/* --- what is known of it --- */

const char *weir_member_state_name(enum weir_member_state state)
{
    static const char *const names[] = {
        [WEIR_MEMBER_ALIVE] = "alive",
        [WEIR_MEMBER_SUSPECT] = "suspect",
        [WEIR_MEMBER_DEAD] = "dead",
        [WEIR_MEMBER_LEFT] = "left",
    };
    return (unsigned)state < sizeof(names) / sizeof(*names) ? names[state] : "unknown";
}

uint32_t weir_group_size(const struct weir_group *group)
{
    return group->members.count;
}

uint32_t weir_group_alive(const struct weir_group *group)
{
    return group->members.count - group->swim.view.absent;
}

uint64_t weir_group_version(const struct weir_group *group)
{
    return view_version(&group->swim.view);
}

uint32_t weir_group_rank(const struct weir_group *group)
{
    return group->rank;
}

bool weir_group_member(const struct weir_group *group, uint32_t rank,
                       struct weir_member *ret_member)
{
    if (rank >= group->members.count) {
        return false;
    }
    uint32_t standing = group->swim.view.standings[rank];
    *ret_member = (struct weir_member){
        .address = members_address(&group->members, rank),
        .state = (enum weir_member_state)swim_state_of(standing),
        .incarnation = swim_incarnation_of(standing),
    };
    return true;
}

/* --- procedures --- */

enum weir_status weir_group_register(struct weir_group *group, const char *name,
                                     weir_group_handler *handler, weir_group_combine *combine,
                                     void *user, struct weir_group_procedure **ret_procedure,
                                     struct weir_error *ret_error)
{
    size_t length = strlen(name);
    if (length == 0 || length > WEIR_PROCEDURE_NAME_MAX) {
        return error_set(ret_error, WEIR_INVALID, "\"%s\": a procedure's name has 1 to %d bytes",
                         name, WEIR_PROCEDURE_NAME_MAX);
    }
    uint64_t number = XXH3_64bits(name, length);
    if (calls_find_procedure(&group->calls, number) != NULL) {
        return error_set(ret_error, WEIR_INVALID, "%s: \"%s\", or one of the same number, is there",
                         group->name, name);
    }
    struct weir_group_procedure *procedure = calloc(1, sizeof(*procedure));
    if (procedure == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    strcpy(procedure->name, name);
    procedure->number = number;
    procedure->handler = handler;
    procedure->combine = combine;
    procedure->user = user;
    procedure->next = group->calls.procedures;
    group->calls.procedures = procedure;
    *ret_procedure = procedure;
    return WEIR_OK;
}

/* --- calling --- */

/* INVALID: out of order, beyond the group, or nobody. */
static enum weir_status choose_ranks(const struct weir_group *group,
                                     const struct weir_group_call_options *options,
                                     struct ranks *ret_ranks)
{
    const struct weir_rank_range all = {0, group->members.count};
    bool names_some = options->range_count > 0;
    const struct weir_rank_range *ranges = names_some ? options->ranges : &all;
    unsigned count = names_some ? options->range_count : 1;
    struct ranks ranks = {0};
    uint32_t least = 0;
    for (unsigned i = 0; i < count; i++) {
        bool is_right = ranges[i].count > 0 && ranges[i].first >= least &&
                        ranges[i].first < group->members.count &&
                        ranges[i].count <= group->members.count - ranges[i].first;
        if (!is_right || !ranks_add(&ranks, ranges[i].first, ranges[i].count)) {
            ranks_fini(&ranks);
            return is_right ? WEIR_NO_MEMORY : WEIR_INVALID;
        }
        least = ranges[i].first + ranges[i].count;
    }
    *ret_ranks = ranks;
    return WEIR_OK;
}

static enum weir_status check_pieces(const struct weir_piece *pieces, unsigned count)
{
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].bytes == NULL && pieces[i].length > 0) {
            return WEIR_INVALID;
        }
        if (pieces[i].length > REQUEST_LENGTH_MAX - length) {
            return WEIR_TOO_LONG;
        }
        length += pieces[i].length;
    }
    return WEIR_OK;
}

enum weir_status weir_group_call(struct weir_group *group, struct weir_group_procedure *procedure,
                                 const struct weir_piece *pieces, unsigned count,
                                 const struct weir_group_call_options *options,
                                 weir_group_replied *replied, void *argument)
{
    static const struct weir_group_call_options usual;
    struct ranks ranks;
    options = options != NULL ? options : &usual;
    if (group->calls.is_ending) {
        return WEIR_STATE;
    }
    if (replied == NULL || (options->radix != 0 && !is_radix(options->radix))) {
        return WEIR_INVALID;
    }
    enum weir_status status = check_pieces(pieces, count);
    if (status == WEIR_OK) {
        status = choose_ranks(group, options, &ranks);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status =
        calls_begin(&group->calls, procedure, pieces, count, options, &ranks, replied, argument);
    if (status != WEIR_OK) {
        ranks_fini(&ranks);
        return status;
    }
    group_arm(group);
    return WEIR_OK;
}
