/* Nodes, exchanges between two of them, and what the judge sees of each call. */
#include "sim/callers.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "weir/group/run.h"
#include "weir/group/spread.h"

enum occasion_kind {
    OCCASION_DUE,     /* a node's deadline */
    OCCASION_REQUEST, /* arrives */
    OCCASION_ANSWER,  /* arrives */
    OCCASION_TIMEOUT, /* of an exchange */
    OCCASION_GONE,    /* nobody waits for the exchange's answer */
    OCCASION_LOST,    /* its connection has ended */
    OCCASION_RUMOR,   /* a node hears that another is dead */
    OCCASION_REPLY,   /* a handler is done */
};

/* One call of rpc's: freed when nothing points to it. */
struct exchange {
    struct exchange *next; /* of those that `to` has not answered */
    uint32_t from, to;
    struct child *child; /* NULL: it is over for who asked */
    bool is_asked;       /* `to` has not answered */
    unsigned references;
    uint64_t until_ns;
    unsigned timeout_ms;
};

struct occasion {
    enum occasion_kind kind;
    uint32_t node, other;
    uint64_t at_ns;
    struct exchange *exchange;
    uint8_t *bytes; /* NULL: refused with `status` */
    size_t length;
    enum weir_status status;
    struct weir_group_request *request;
    uint64_t value;
    unsigned call;
};

void callers_violate(struct callers *group, const char *format, uint32_t a, uint32_t b)
{
    if (group->violation[0] == '\0') {
        snprintf(group->violation, sizeof(group->violation), format, a, b);
    }
}

/* --- exchanges and occasions --- */

static void release_exchange(struct exchange *exchange)
{
    if (exchange != NULL && --exchange->references == 0) {
        free(exchange);
    }
}

static void release(void *what)
{
    struct occasion *occasion = what;
    release_exchange(occasion->exchange);
    free(occasion->bytes);
    free(occasion);
}

static void plan(struct callers *group, uint64_t at_ns, struct occasion occasion)
{
    struct occasion *planned = malloc(sizeof(*planned));
    CHECK(planned != NULL);
    *planned = occasion;
    planned->at_ns = at_ns;
    if (occasion.exchange != NULL) {
        occasion.exchange->references++;
    }
    agenda_put(&group->agenda, at_ns, planned);
}

static uint64_t delay(struct callers *group)
{
    return 10000 + dice_next(&group->network) % group->delay_ns;
}

static bool is_lost(struct callers *group)
{
    bool lost = dice_chance(&group->network, group->loss);
    group->counts.messages++;
    group->counts.lost += lost;
    return lost;
}

static void arm(struct callers *group, struct caller_node *node)
{
    uint64_t next_ns = calls_next_ns(&node->calls);
    if (next_ns < node->armed_ns) {
        node->armed_ns = next_ns > group->now_ns ? next_ns : group->now_ns;
        plan(group, node->armed_ns, (struct occasion){.kind = OCCASION_DUE, .node = node->rank});
    }
}

static uint8_t *join(const struct weir_piece *pieces, unsigned count, size_t *ret_length)
{
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        length += pieces[i].length;
    }
    uint8_t *bytes = malloc(length + 1), *at = bytes;
    CHECK(bytes != NULL);
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].length > 0) {
            memcpy(at, pieces[i].bytes, pieces[i].length);
            at += pieces[i].length;
        }
    }
    *ret_length = length;
    return bytes;
}

/* --- the port --- */

static uint64_t now_ns(void *user)
{
    return ((struct caller_node *)user)->group->now_ns;
}

static enum weir_status standing(void *user, uint32_t rank)
{
    const struct caller_node *node = user;
    if (rank >= node->group->size || rank == node->rank) {
        return WEIR_ADDRESS;
    }
    return node->holds_dead[rank] != 0 ? WEIR_UNREACHABLE : WEIR_OK;
}

static bool send(void *user, struct child *child, const struct weir_piece *pieces, unsigned count,
                 unsigned timeout_ms)
{
    struct caller_node *node = user;
    struct callers *group = node->group;
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    CHECK(exchange != NULL);
    *exchange = (struct exchange){.from = node->rank,
                                  .to = child->root,
                                  .child = child,
                                  .references = 1, /* the child's */
                                  .until_ns = group->now_ns + timeout_ms * CALLERS_MS,
                                  .timeout_ms = timeout_ms};
    child->sending = exchange;
    plan(group, exchange->until_ns,
         (struct occasion){.kind = OCCASION_TIMEOUT, .node = node->rank, .exchange = exchange});
    if (!is_lost(group)) {
        struct occasion request = {
            .kind = OCCASION_REQUEST, .node = child->root, .exchange = exchange};
        request.bytes = join(pieces, count, &request.length);
        plan(group, group->now_ns + delay(group), request);
    }
    return true;
}

static void end_exchange(struct callers *group, struct exchange *exchange)
{
    exchange->child = NULL;
    plan(group, group->now_ns + delay(group),
         (struct occasion){.kind = OCCASION_GONE, .node = exchange->to, .exchange = exchange});
    release_exchange(exchange);
}

static void cancel(void *user, struct child *child)
{
    struct caller_node *node = user;
    end_exchange(node->group, child->sending);
}

static void answer(struct caller_node *node, struct exchange *exchange, struct occasion answer)
{
    struct callers *group = node->group;
    struct exchange **link = &node->asked;
    while (*link != exchange) {
        link = &(*link)->next;
    }
    *link = exchange->next;
    exchange->is_asked = false;
    answer.kind = OCCASION_ANSWER;
    answer.node = exchange->from;
    answer.exchange = exchange;
    if (is_lost(group)) {
        free(answer.bytes);
    } else {
        plan(group, group->now_ns + delay(group), answer);
    }
    release_exchange(exchange);
}

static void reply(void *user, void *request, const struct weir_piece *pieces, unsigned count)
{
    struct occasion occasion = {.status = WEIR_OK};
    occasion.bytes = join(pieces, count, &occasion.length);
    answer(user, request, occasion);
}

static void refuse(void *user, void *request, enum weir_status status)
{
    answer(user, request, (struct occasion){.status = status});
}

static const struct calls_port port = {now_ns, standing, send, cancel, reply, refuse};

/* --- the procedure: each replies a number of its own, and the numbers are added --- */

static uint64_t number_of(unsigned call, uint32_t rank)
{
    struct dice dice = dice_split(call, rank);
    return dice_next(&dice);
}

static void handle(struct weir_group_request *request, const void *bytes, size_t length, void *user)
{
    struct caller_node *node = user;
    struct callers *group = node->group;
    unsigned call = *(const uint8_t *)bytes;
    struct judged_call *judged = &group->calls[call];
    if (judged->runs[node->rank]++ > 0) {
        callers_violate(group, "once: call %u ran again at %u", call, node->rank);
    }
    if (dice_percent(&group->faults, group->silent)) {
        judged->excused[node->rank] = 1;
        group->counts.silent++;
        return;
    }
    plan(group, group->now_ns + dice_next(&group->faults) % group->work_ns,
         (struct occasion){.kind = OCCASION_REPLY,
                           .node = node->rank,
                           .request = request,
                           .value = number_of(call, node->rank)});
}

static bool combine(void *into, size_t *into_length, size_t length_max, const void *bytes,
                    size_t length, void *user)
{
    uint64_t sum = 0, more;
    if (length != sizeof(more)) {
        return false;
    }
    memcpy(&sum, into, *into_length);
    memcpy(&more, bytes, sizeof(more));
    sum += more;
    memcpy(into, &sum, sizeof(sum));
    *into_length = sizeof(sum);
    return true;
}

/* --- what was told --- */

/* All that have not failed have run it, and each of them is in the sum once. */
static void judge_told(struct callers *group, unsigned call, const struct weir_group_reply *reply)
{
    struct judged_call *judged = &group->calls[call];
    uint64_t wanted = 0, sum = 0;
    size_t next = 0;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        const struct weir_group_failure *failure = &reply->failures[next];
        while (next < reply->failure_count && rank >= failure->first + failure->count) {
            failure = &reply->failures[++next];
        }
        if (next < reply->failure_count && rank >= failure->first) {
            if (!judged->excused[rank] && group->loss == 0) {
                callers_violate(group, "spared: call %u failed at %u, which was well", call, rank);
            }
            continue;
        }
        wanted += number_of(call, rank);
        if (judged->runs[rank] != 1) {
            callers_violate(group, "told: call %u did not run at %u", call, rank);
        }
    }
    if (reply->length == sizeof(sum)) {
        memcpy(&sum, reply->bytes, sizeof(sum));
    }
    if (sum != wanted) {
        callers_violate(group, "sum: call %u of %u", call, judged->caller);
    }
}

static void told(const struct weir_group_reply *reply, void *argument)
{
    struct callers *group = ((struct caller_node **)argument)[0]->group;
    unsigned call = (unsigned)(uintptr_t)((void **)argument)[1];
    struct judged_call *judged = &group->calls[call];
    free(argument);
    if (reply->status == WEIR_CANCELED) { /* the caller died */
        judged->is_told = true;
        return;
    }
    if (judged->is_told) {
        callers_violate(group, "told: call %u of %u twice", call, judged->caller);
    }
    judged->is_told = true;
    judged->told_ns = group->now_ns;
    group->counts.replied += reply->replied;
    group->counts.failed += reply->asked - reply->replied;
    judge_told(group, call, reply);
}

void callers_call(struct callers *group, uint32_t rank, unsigned radix, uint32_t timeout_ms)
{
    struct caller_node *node = &group->nodes[rank];
    if (!node->is_up || node->is_stopped || group->made == CALLS_IN_RUN) {
        return;
    }
    uint8_t call = (uint8_t)group->made++;
    struct judged_call *judged = &group->calls[call];
    struct weir_group_call_options options = {.timeout_ms = timeout_ms, .radix = radix};
    struct weir_piece piece = {&call, 1};
    struct ranks ranks = {0};
    *judged = (struct judged_call){
        .is_made = true, .caller = rank, .timeout_ms = timeout_ms, .made_ns = group->now_ns};
    judged->runs = calloc(group->size, 1);
    judged->excused = calloc(group->size, 1);
    void **argument = malloc(2 * sizeof(void *));
    CHECK(judged->runs != NULL && judged->excused != NULL && argument != NULL);
    for (uint32_t i = 0; i < group->size; i++) {
        judged->excused[i] = !group->nodes[i].is_up || group->nodes[i].is_stopped;
    }
    argument[0] = node;
    argument[1] = (void *)(uintptr_t)call;
    CHECK(ranks_add(&ranks, 0, group->size));
    CHECK(calls_begin(&node->calls, node->procedure, &piece, 1, &options, &ranks, told, argument) ==
          WEIR_OK);
    group->counts.calls++;
    arm(group, node);
}

/* --- occasions --- */

static void take_request(struct callers *group, struct caller_node *node, struct occasion *occasion)
{
    struct exchange *exchange = occasion->exchange;
    if (!node->is_up) {
        plan(
            group, group->now_ns + delay(group),
            (struct occasion){.kind = OCCASION_LOST, .node = exchange->from, .exchange = exchange});
        return;
    }
    exchange->next = node->asked;
    node->asked = exchange;
    exchange->is_asked = true;
    exchange->references++;
    calls_take(&node->calls, exchange, occasion->bytes, occasion->length, exchange->timeout_ms);
}

static void fail_child(struct callers *group, struct exchange *exchange, enum weir_status status)
{
    struct child *child = exchange->child;
    group->counts.repaired += child->below.total > 0;
    end_exchange(group, exchange);
    calls_failed(child, status, 0);
}

static void take_answer(struct callers *group, struct occasion *occasion)
{
    struct exchange *exchange = occasion->exchange;
    struct child *child = exchange->child;
    if (child == NULL) {
        return;
    }
    if (occasion->status != WEIR_OK) {
        group->counts.refused++;
        fail_child(group, exchange, occasion->status);
        return;
    }
    exchange->child = NULL;
    release_exchange(exchange);
    calls_answered(child, occasion->bytes, occasion->length);
}

static void happen(struct callers *group, struct caller_node *node, struct occasion *occasion)
{
    struct exchange *exchange = occasion->exchange;
    switch (occasion->kind) {
    case OCCASION_DUE:
        node->armed_ns = UINT64_MAX;
        calls_advance(&node->calls);
        break;
    case OCCASION_ANSWER:
        take_answer(group, occasion);
        break;
    case OCCASION_TIMEOUT:
    case OCCASION_LOST:
        if (exchange->child != NULL) {
            fail_child(group, exchange,
                       occasion->kind == OCCASION_LOST ? WEIR_PEER_LOST : WEIR_TIMED_OUT);
        }
        break;
    case OCCASION_GONE:
        if (exchange->is_asked) {
            calls_gone(&node->calls, exchange);
        }
        break;
    case OCCASION_RUMOR:
        node->holds_dead[occasion->other] = 1;
        calls_died(&node->calls, occasion->other);
        break;
    default: /* OCCASION_REPLY */
        CHECK(weir_group_request_reply(occasion->request, &occasion->value,
                                       sizeof(occasion->value)) == WEIR_OK);
        break;
    }
}

static void take_occasion(struct callers *group, struct occasion *occasion)
{
    struct caller_node *node = &group->nodes[occasion->node];
    group->now_ns = occasion->at_ns;
    group->hash =
        (group->hash ^ occasion->at_ns ^ (uint64_t)occasion->node << 32 ^ occasion->kind) *
        UINT64_C(0x100000001b3);
    if (node->is_up && node->is_stopped && group->now_ns < node->goes_on_ns) {
        occasion->at_ns = node->goes_on_ns;
        agenda_put(&group->agenda, occasion->at_ns, occasion);
        return;
    }
    node->is_stopped = false;
    if (occasion->kind == OCCASION_REQUEST) {
        take_request(group, node, occasion);
    } else if (node->is_up) {
        happen(group, node, occasion);
    }
    if (node->is_up) {
        arm(group, node);
    }
    release(occasion);
}

void callers_run(struct callers *group, uint64_t until_ns)
{
    while (agenda_next_ns(&group->agenda) <= until_ns) {
        take_occasion(group, agenda_take(&group->agenda));
    }
    group->now_ns = until_ns;
}

/* --- life --- */

static void start(struct callers *group, struct caller_node *node)
{
    node->procedure = calloc(1, sizeof(*node->procedure));
    node->holds_dead = calloc(group->size, 1);
    CHECK(node->procedure != NULL && node->holds_dead != NULL);
    *node->procedure =
        (struct weir_group_procedure){.number = 7, .handler = handle, .combine = combine};
    node->procedure->user = node;
    node->is_up = true;
    node->armed_ns = UINT64_MAX;
    node->calls = (struct calls){.port = &port,
                                 .user = node,
                                 .rank = node->rank,
                                 .radix = 8,
                                 .reply_length_max = 64,
                                 .held_length_max = 1 << 20,
                                 .procedures = node->procedure};
    calls_init(&node->calls, 1000 + node->rank);
}

void callers_open(struct callers *group, uint32_t size, uint64_t seed, FILE *trace)
{
    *group = (struct callers){
        .size = size,
        .network = dice_split(seed, 11),
        .faults = dice_split(seed, 12),
        .delay_ns = CALLERS_MS,
        .rumor_ns = 3000 * CALLERS_MS,
        .work_ns = 5 * CALLERS_MS,
        .trace = trace,
    };
    group->nodes = calloc(size, sizeof(*group->nodes));
    CHECK(group->nodes != NULL);
    for (uint32_t rank = 0; rank < size; rank++) {
        group->nodes[rank].group = group;
        group->nodes[rank].rank = rank;
        start(group, &group->nodes[rank]);
    }
}

/* Of a caller's own call time passes for all. */
static void excuse(struct callers *group, uint32_t rank)
{
    for (unsigned i = 0; i < group->made; i++) {
        struct judged_call *call = &group->calls[i];
        if (!call->is_told && call->caller == rank) {
            memset(call->excused, 1, group->size);
        } else if (!call->is_told) {
            call->excused[rank] = 1;
        }
    }
}

/* Its peers are told by their connections; those that it had asked are not told anything. */
void callers_kill(struct callers *group, uint32_t rank)
{
    struct caller_node *node = &group->nodes[rank];
    if (!node->is_up) {
        return;
    }
    excuse(group, rank);
    group->counts.deaths++;
    for (struct exchange *exchange = node->asked; exchange != NULL; exchange = exchange->next) {
        plan(
            group, group->now_ns + delay(group),
            (struct occasion){.kind = OCCASION_LOST, .node = exchange->from, .exchange = exchange});
    }
    for (uint32_t other = 0; other < group->size; other++) {
        if (other != rank) {
            plan(group, group->now_ns + dice_next(&group->faults) % group->rumor_ns,
                 (struct occasion){.kind = OCCASION_RUMOR, .node = other, .other = rank});
        }
    }
    calls_fini(&node->calls);
    free(node->holds_dead);
    node->holds_dead = NULL;
    node->is_up = false;
}

void callers_stop(struct callers *group, uint32_t rank, uint64_t time_ns)
{
    struct caller_node *node = &group->nodes[rank];
    if (node->is_up && !node->is_stopped) {
        excuse(group, rank);
        group->counts.stops++;
        node->is_stopped = true;
        node->goes_on_ns = group->now_ns + time_ns;
    }
}

void callers_close(struct callers *group)
{
    for (uint32_t rank = 0; rank < group->size; rank++) {
        struct caller_node *node = &group->nodes[rank];
        if (node->is_up) {
            calls_fini(&node->calls);
            free(node->holds_dead);
        }
    }
    agenda_fini(&group->agenda, release);
    for (unsigned i = 0; i < group->made; i++) {
        free(group->calls[i].runs);
        free(group->calls[i].excused);
    }
    free(group->nodes);
}
