/* All that one end of a queue pair can do wrong, and what becomes of both: two of these programs go
 * through the tables of cases together, one with the mistake, the other suffering it, then the
 * other way round. Against standard verbs only, so that either may stand on any device.
 *
 *     error_tour serve ADDRESS                        waits for the other end, is led by it
 *     error_tour [--role ROLE] [--mtu MTU] ADDRESS [CASE...]     leads
 * ROLE of this end: requester, responder. MTU is the path's; only with that of the tables, 1024,
 * are those cases played that do not depend on it.
 *
 * Prints a line per case and direction, and one per field that is not as the specification has it:
 *     differs CASE REQUESTER-STACK RESPONDER-STACK FIELD SPECIFIED SEEN
 * Exit status: 0 all as specified, 1 differences, 2 the tour could not be made. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/interop/tour/case.h"
#include "test/interop/tour/end.h"
#include "test/interop/tour/link.h"
#include "test/interop/tour/script.h"
#include "test/interop/tour/tap.h"

#define ANSWER_MS     20000 /* until a completion that must come */
#define SETTLE_MS     1000  /* until what is expected has come; longer only where it differs */
#define EVENT_MS      200   /* likewise, for an event that belongs to what has come */
#define SURPRISE_MS   20    /* for what should not come */
#define NAME_MAX_TEXT 48
#define WAITS_WANTED  9

struct order { /* from who leads */
    char name[NAME_MAX_TEXT];
    bool leader_requests;
    uint32_t mtu;
};

/* What each end has seen; the requester's or the responder's half is filled. */
struct report {
    char requester[OUTCOME_TEXT], responder[OUTCOME_TEXT], event[OUTCOME_TEXT];
    char state[16], answers[TAP_TEXT + 16], memory[16];
};

struct visit {
    const struct tour_case *row;
    struct end *end;
    const struct link *link;
    struct introduction peer;
    struct tap tap;
};

static const char *status_name(enum ibv_wc_status status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "SUCCESS",
        [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
        [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
        [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
        [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
        [IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
        [IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
        [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
        [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
        [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
        [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
        [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
    };
    bool known = (size_t)status < sizeof names / sizeof *names && names[status] != NULL;
    return known ? names[status] : ibv_wc_status_str(status);
}

static const char *event_name(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_QP_FATAL:
        return "QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR:
        return "QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR:
        return "QP_ACCESS_ERR";
    case IBV_EVENT_CQ_ERR:
        return "CQ_ERR";
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return "SRQ_LIMIT_REACHED";
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return "QP_LAST_WQE_REACHED";
    default:
        return ibv_event_type_str(type);
    }
}

static const char *state_name(enum ibv_qp_state state)
{
    static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return (size_t)state < sizeof names / sizeof *names ? names[state] : "?";
}

/* Appends a word to a list that is "-" while empty. */
static void add(char *list, const char *word)
{
    size_t used = strcmp(list, "-") == 0 ? 0 : strlen(list);
    snprintf(list + used, OUTCOME_TEXT - used, "%s%s", used > 0 ? "," : "", word);
}

static const char *or_nothing(const char *text)
{
    return text != NULL ? text : "-";
}

/* Waits for a completion; false: none came. */
static bool await(struct ibv_cq *cq, int patience_ms, struct ibv_wc *ret_wc)
{
    long deadline = tour_now_ms() + patience_ms;
    for (;;) {
        int got = ibv_poll_cq(cq, 1, ret_wc);
        if (got < 0) {
            tour_die("ibv_poll_cq");
        }
        if (got > 0 || tour_now_ms() >= deadline) {
            return got > 0;
        }
        poll(NULL, 0, 1);
    }
}

static bool is_scripted(const struct tour_case *row)
{
    return row->script[0].used;
}

/* Unreliable requests are followed by a message that tells when they must have been there. */
static bool is_fenced(const struct tour_case *row)
{
    return !is_scripted(row) && (row->type == IBV_QPT_UD || row->type == IBV_QPT_UC);
}

/* ---- requester ---- */

static void complete(struct visit *visit, struct report *report)
{
    struct ibv_wc wc;
    bool came = await(visit->end->send_cq, ANSWER_MS, &wc);
    snprintf(report->requester, OUTCOME_TEXT, "%s", came ? status_name(wc.status) : "-");
}

static void request_many(struct visit *visit, struct report *report)
{
    unsigned count = visit->peer.cqe + 2;
    for (unsigned i = 0; i < count; i++) {
        if (end_post_request(visit->end, visit->row, &visit->peer) != 0) {
            break;
        }
        complete(visit, report);
        if (strcmp(report->requester, "SUCCESS") != 0) {
            break;
        }
    }
}

static void request(struct visit *visit, struct report *report)
{
    const struct tour_case *row = visit->row;
    if (row->as_receives) {
        request_many(visit, report);
        return;
    }
    int error = end_post_request(visit->end, row, &visit->peer);
    if (error != 0) {
        snprintf(report->requester, OUTCOME_TEXT, "post:%s", strerrorname_np(error));
    }
    if (row->receives == RECEIVES_LATE) {
        long deadline = tour_now_ms() + ANSWER_MS;
        while (visit->tap.not_ready < WAITS_WANTED && tour_now_ms() < deadline) {
            poll(NULL, 0, 1);
            tap_read(&visit->tap);
        }
        snprintf(report->answers, sizeof report->answers, "%s",
                 visit->tap.not_ready >= WAITS_WANTED ? "RNR*9" : tap_text(&visit->tap));
        link_meet(visit->link);
    }
    if (error == 0) {
        complete(visit, report);
    }
}

static void play(struct visit *visit, struct report *report)
{
    const char *wanted = or_nothing(visit->row->expected.answers);
    long deadline = tour_now_ms() + SETTLE_MS;
    script_play(visit->row, visit->end, &visit->peer, visit->link, &visit->tap);
    while (strcmp(tap_text(&visit->tap), wanted) != 0 && tour_now_ms() < deadline) {
        poll(NULL, 0, 1);
    }
    snprintf(report->requester, OUTCOME_TEXT, "-");
}

/* False where the queue pair cannot send any more. */
static bool fence(struct visit *visit)
{
    struct ibv_wc wc;
    if (end_state(visit->end) == IBV_QPS_ERR) {
        return false;
    }
    if (end_state(visit->end) == IBV_QPS_SQE) { /* its own error stopped its sends */
        struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
        errno = ibv_modify_qp(visit->end->qp, &attributes, IBV_QP_STATE | IBV_QP_CUR_STATE);
        if (errno != 0) {
            tour_die("queue pair out of SQE");
        }
    }
    errno = end_post_fence(visit->end, visit->row, &visit->peer);
    if (errno != 0 || !await(visit->end->send_cq, ANSWER_MS, &wc) || wc.status != IBV_WC_SUCCESS) {
        tour_die("%s: the message that follows cannot be sent", visit->row->name);
    }
    return true;
}

static void be_requester(struct visit *visit, struct report *report)
{
    if (is_scripted(visit->row)) {
        play(visit, report);
    } else {
        request(visit, report);
    }
    snprintf(report->state, sizeof report->state, "%s", state_name(end_state(visit->end)));
    bool fenced = is_fenced(visit->row) && fence(visit), ignored;
    link_swap(visit->link, &fenced, &ignored, sizeof fenced);
    link_meet(visit->link); /* the responder has waited for what should not come */
    if (visit->row->receives != RECEIVES_LATE) {
        snprintf(report->answers, sizeof report->answers, "%s", tap_text(&visit->tap));
    }
    snprintf(report->memory, sizeof report->memory, "%s", end_memory(visit->end, false));
}

/* ---- responder ---- */

static void note_event(const struct end *end, struct report *report)
{
    struct ibv_async_event event;
    if (ibv_get_async_event(end->context, &event) != 0) {
        return;
    }
    if (event.event_type != IBV_EVENT_COMM_EST && event.event_type != IBV_EVENT_GID_CHANGE &&
        event.event_type != IBV_EVENT_PORT_ACTIVE) {
        add(report->event, event_name(event.event_type));
    }
    ibv_ack_async_event(&event);
}

static void look(struct visit *visit, struct report *report)
{
    struct ibv_wc wc;
    struct end *end = visit->end;
    /* A completion queue that is to overrun is not emptied. */
    while (!visit->row->as_receives && ibv_poll_cq(end->receive_cq, 1, &wc) > 0) {
        bool is_fence = wc.status == IBV_WC_SUCCESS && (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
        if (!is_fence) {
            add(report->responder, status_name(wc.status));
        }
    }
    note_event(end, report);
    snprintf(report->state, sizeof report->state, "%s",
             end->qp != NULL ? state_name(end_state(end)) : "none");
}

static const char *second_state(const struct outcome *expected)
{
    const char *states = expected->states != NULL ? expected->states : "RTS/RTS";
    return strchr(states, '/') + 1;
}

static bool is_event_expected(const struct outcome *expected, const struct report *report)
{
    return strcmp(or_nothing(expected->event), report->event) == 0;
}

static bool is_rest_expected(const struct outcome *expected, const struct report *report)
{
    return strcmp(or_nothing(expected->responder), report->responder) == 0 &&
           strcmp(second_state(expected), report->state) == 0;
}

/* Until all has come, or for so long. */
static void settle(struct visit *visit, struct report *report)
{
    const struct outcome *expected = &visit->row->expected;
    long deadline = tour_now_ms() + SETTLE_MS;
    bool awaits_event = false;
    for (;;) {
        look(visit, report);
        bool rest = is_rest_expected(expected, report);
        if ((rest && is_event_expected(expected, report)) || tour_now_ms() >= deadline) {
            return;
        }
        if (rest && !awaits_event && deadline > tour_now_ms() + EVENT_MS) {
            deadline = tour_now_ms() + EVENT_MS;
        }
        awaits_event = rest;
        poll(NULL, 0, 1);
    }
}

static void await_fence(struct visit *visit, struct report *report)
{
    struct ibv_wc wc;
    do {
        if (!await(visit->end->receive_cq, ANSWER_MS, &wc)) {
            add(report->responder, "nothing-follows");
            return;
        }
        if (wc.status != IBV_WC_SUCCESS || (wc.wc_flags & IBV_WC_WITH_IMM) == 0) {
            add(report->responder, status_name(wc.status));
        }
    } while ((wc.wc_flags & IBV_WC_WITH_IMM) == 0);
}

static void be_responder(struct visit *visit, struct report *report)
{
    if (visit->row->receives == RECEIVES_LATE) {
        link_meet(visit->link);
        end_post_receive(visit->end, visit->row);
    }
    bool ignored = false, fenced;
    link_swap(visit->link, &ignored, &fenced, sizeof fenced);
    if (fenced && visit->row->receives != RECEIVES_NONE) {
        await_fence(visit, report);
    }
    settle(visit, report);
    poll(NULL, 0, SURPRISE_MS);
    look(visit, report);
    snprintf(report->memory, sizeof report->memory, "%s", end_memory(visit->end, true));
    link_meet(visit->link);
}

static unsigned receives_wanted(const struct visit *visit)
{
    const struct tour_case *row = visit->row;
    if (row->receives == RECEIVES_NONE || row->receives == RECEIVES_LATE ||
        row->readiness != READY) {
        return 0;
    }
    return row->as_receives ? visit->end->cqe + 2 : is_fenced(row) ? 2 : 1;
}

static void ready_responder(struct visit *visit)
{
    for (unsigned i = receives_wanted(visit); i > 0; i--) {
        end_post_receive(visit->end, visit->row);
    }
    if (visit->row->limit) {
        struct ibv_srq_attr attributes = {.srq_limit = 1};
        errno = ibv_modify_srq(visit->end->srq, &attributes, IBV_SRQ_LIMIT);
        if (errno != 0) {
            tour_die("ibv_modify_srq");
        }
    }
}

/* ---- both ---- */

static void be_both(struct visit *visit, struct report *report)
{
    if (visit->row->to_itself) {
        end_post_receive(visit->end, visit->row);
    }
    be_requester(visit, report);
    struct ibv_wc wc;
    if (visit->row->to_itself) {
        bool came = await(visit->end->receive_cq, SETTLE_MS, &wc);
        snprintf(report->responder, OUTCOME_TEXT, "%s", came ? status_name(wc.status) : "-");
    }
}

static void visit_case(struct end *end, const struct link *link, const struct tour_case *row,
                       bool is_requester, struct report *ret_mine, struct introduction *ret_peer)
{
    struct visit visit = {.row = row, .end = end, .link = link};
    *ret_mine = (struct report){.requester = "-", .responder = "-", .event = "-"};
    end_prepare(end, row, !is_requester);
    struct introduction mine = end_introduce(end);
    link_swap(link, &mine, &visit.peer, sizeof mine);
    *ret_peer = visit.peer;
    if (is_requester) {
        visit.tap = tap_open(link, end->qp->qp_num, is_scripted(row));
    } else {
        ready_responder(&visit);
    }
    end_connect(end, row, !is_requester, is_requester && row->to_itself ? &mine : &visit.peer);
    link_meet(link);
    if (is_requester) {
        be_both(&visit, ret_mine);
        tap_close(&visit.tap);
    } else {
        be_responder(&visit, ret_mine);
    }
    end_clear(end);
}

static unsigned differences;

static void compare(const char *name, const char *stacks, const char *field, const char *wanted,
                    const char *seen)
{
    if (strcmp(wanted, seen) != 0) {
        printf("differs %s %s %s %s %s\n", name, stacks, field, wanted, seen);
        differences++;
    }
}

static void judge(const struct tour_case *row, const char *stacks, const struct report *requester,
                  const struct report *responder)
{
    const struct outcome *expected = &row->expected;
    char states[40];
    bool was_read = strcmp(requester->memory, "intact") != 0;
    snprintf(states, sizeof states, "%s/%s", requester->state, responder->state);
    printf("case %s %s requester=%s responder=%s event=%s states=%s answers=%s\n", row->name,
           stacks, requester->requester, responder->responder, responder->event, states,
           requester->answers);
    compare(row->name, stacks, "requester",
            is_scripted(row)              ? "-"
            : expected->requester != NULL ? expected->requester
                                          : "SUCCESS",
            requester->requester);
    compare(row->name, stacks, "responder", or_nothing(expected->responder),
            row->to_itself ? requester->responder : responder->responder);
    compare(row->name, stacks, "event", or_nothing(expected->event), responder->event);
    compare(row->name, stacks, "states", expected->states != NULL ? expected->states : "RTS/RTS",
            states);
    compare(row->name, stacks, "answers", or_nothing(expected->answers), requester->answers);
    compare(row->name, stacks, "memory", expected->memory != NULL ? expected->memory : "intact",
            was_read ? requester->memory : responder->memory);
    fflush(stdout);
}

static const struct tour_case *find(const char *name)
{
    for (const struct tour_case *row = verbs_cases; row->name != NULL; row++) {
        if (strcmp(row->name, name) == 0) {
            return row;
        }
    }
    for (const struct tour_case *row = packet_cases; row->name != NULL; row++) {
        if (strcmp(row->name, name) == 0) {
            return row;
        }
    }
    return NULL;
}

static void lead(struct end *end, const struct link *link, const struct tour_case *row,
                 bool is_requester)
{
    struct order order = {.leader_requests = is_requester, .mtu = end->mtu}, nothing;
    struct report mine, theirs;
    struct introduction peer;
    char stacks[40];
    snprintf(order.name, sizeof order.name, "%s", row->name);
    link_swap(link, &order, &nothing, sizeof order);
    visit_case(end, link, row, is_requester, &mine, &peer);
    link_swap(link, &mine, &theirs, sizeof mine);
    snprintf(stacks, sizeof stacks, "%s %s", is_requester ? end->stack : peer.stack,
             is_requester ? peer.stack : end->stack);
    judge(row, stacks, is_requester ? &mine : &theirs, is_requester ? &theirs : &mine);
}

static void follow(struct end *end, const struct link *link)
{
    for (;;) {
        struct order order, nothing = {.name = ""};
        struct report mine, theirs;
        struct introduction peer;
        link_swap(link, &nothing, &order, sizeof order);
        if (order.name[0] == '\0') {
            return;
        }
        order.name[NAME_MAX_TEXT - 1] = '\0';
        const struct tour_case *row = find(order.name);
        if (row == NULL) {
            errno = 0;
            tour_die("%s is no case", order.name);
        }
        end->mtu = order.mtu;
        visit_case(end, link, row, !order.leader_requests, &mine, &peer);
        link_swap(link, &mine, &theirs, sizeof mine);
    }
}

static bool is_chosen(const char *name, char **chosen)
{
    bool none = *chosen == NULL;
    for (; *chosen != NULL && strcmp(*chosen, name) != 0; chosen++) {
    }
    return none || *chosen != NULL;
}

static void lead_all(struct end *end, const struct link *link, const char *role, char **chosen)
{
    const struct tour_case *const tables[] = {verbs_cases, packet_cases};
    for (int table = 0; table < 2; table++) {
        for (const struct tour_case *row = tables[table]; row->name != NULL; row++) {
            bool belongs = (end->mtu == TOUR_MTU || row->at_each_mtu) && end_can_play(end, row);
            if (!belongs || !is_chosen(row->name, chosen)) {
                continue;
            }
            if (strcmp(role, "responder") != 0) {
                lead(end, link, row, true);
            }
            if (strcmp(role, "requester") != 0) {
                lead(end, link, row, false);
            }
        }
    }
    struct order farewell = {.name = ""}, nothing;
    link_swap(link, &farewell, &nothing, sizeof farewell);
}

/* The arguments behind the options, or NULL. */
static char **parse(char **arguments, const char **ret_role, unsigned *ret_mtu)
{
    for (; *arguments != NULL && arguments[0][0] == '-'; arguments += 2) {
        if (strcmp(*arguments, "--role") == 0 && arguments[1] != NULL) {
            *ret_role = arguments[1];
        } else if (strcmp(*arguments, "--mtu") == 0 && arguments[1] != NULL) {
            *ret_mtu = (unsigned)atoi(arguments[1]);
        } else {
            return NULL;
        }
    }
    bool is_mtu = *ret_mtu >= 256 && *ret_mtu <= 4096 && (*ret_mtu & (*ret_mtu - 1)) == 0;
    return *arguments != NULL && is_mtu ? arguments : NULL;
}

int main(int argc, char **argv)
{
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    const char *role = "both";
    struct end end = {.mtu = TOUR_MTU};
    char **arguments = parse(argv + 1, &role, &end.mtu);
    if (arguments == NULL) {
        fprintf(stderr, "usage: error_tour serve ADDRESS\n"
                        "       error_tour [--role ROLE] [--mtu MTU] ADDRESS [CASE...]\n");
        return 2;
    }
    for (char **name = arguments + 1; !serves && *name != NULL; name++) {
        if (find(*name) == NULL) {
            errno = 0;
            tour_die("%s is no case", *name);
        }
    }
    struct link link = serves ? link_accept(argv[2]) : link_connect(*arguments);
    end_open(&end, &link);
    int flags = fcntl(end.context->async_fd, F_GETFL);
    fcntl(end.context->async_fd, F_SETFL, flags | O_NONBLOCK);
    if (serves) {
        follow(&end, &link);
    } else {
        lead_all(&end, &link, role, arguments + 1);
        printf("%u differences\n", differences);
    }
    end_close(&end);
    return differences > 0 ? 1 : 0;
}
