/* What goes wrong between two communication managers: refusals, limits, ends, deaths. Two of these
 * programs play each case together, then with their roles exchanged; each end of a case is a
 * process of its own, which may die of it. Output and exit status are error_tour's.
 *
 *     cm_tour serve ADDRESS
 *     cm_tour ADDRESS [CASE...] */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/interop/tour/cm_party.h"

#define RESOLVE_MS   5000
#define QUIET_MS     1000
#define SURPRISE_MS  50 /* for what should not come */
#define PORT         18700
#define OTHER_PORT   18701
#define NAME_TEXT    48
#define REQUEST_MOST 56  /* private bytes behind rdma_cm's own header in a REQ */
#define REPLY_MOST   196 /* in a REP */
#define REFUSAL_MOST 148 /* in a REJ */

#define SETUP        "ADDR_RESOLVED,ROUTE_RESOLVED,"
#define AS_ONE       SETUP "ESTABLISHED,DISCONNECTED"
#define AS_TWO       "CONNECT_REQUEST,ESTABLISHED,DISCONNECTED"
#define BURST_OF_ONE SETUP SETUP "ESTABLISHED,ESTABLISHED"
#define BURST_OF_TWO "CONNECT_REQUEST,CONNECT_REQUEST,ESTABLISHED,ESTABLISHED"

static const struct cm_case cases[] = {
    {"active_disconnects", .active = AS_ONE, .passive = AS_TWO},
    {"passive_disconnects", .ending = PASSIVE_LEAVES, .active = AS_ONE, .passive = AS_TWO},
    {"both_disconnect", .ending = BOTH_LEAVE, .active = AS_ONE, .passive = AS_TWO},
    {"rejected", .answer = REJECTS, .active = SETUP "REJECTED(28)", .passive = "CONNECT_REQUEST"},
    {"rejected_with_data", .answer = REJECTS, .answer_length = 3, .active = SETUP "REJECTED(28)+3",
     .passive = "CONNECT_REQUEST"},
    {"rejected_with_most_data", .answer = REJECTS, .answer_length = REFUSAL_MOST,
     .active = SETUP "REJECTED(28)+148", .passive = "CONNECT_REQUEST"},
    {"nobody_listens", .no_listener = true, .active = SETUP "REJECTED(8)", .passive = "-"},
    {"datagrams_to_a_connected_service", .datagrams = true, .active = SETUP "UNREACHABLE(1)",
     .passive = "-"},
    {"port_taken", .listens_twice = true, .active = AS_ONE, .passive = "bind:EADDRINUSE," AS_TWO},
    {"most_data_in_request", .private_length = REQUEST_MOST, .active = AS_ONE,
     .passive = "CONNECT_REQUEST+56,ESTABLISHED,DISCONNECTED"},
    {"too_much_data_in_request", .private_length = REQUEST_MOST + 1,
     .active = SETUP "connect:EINVAL", .passive = "-"},
    {"most_data_in_reply", .answer_length = REPLY_MOST,
     .active = SETUP "ESTABLISHED+196,DISCONNECTED", .passive = AS_TWO},
    {"too_much_data_in_reply", .answer_length = REPLY_MOST + 1, .active = SETUP "REJECTED(28)",
     .passive = "CONNECT_REQUEST,accept:EINVAL"},
    {"other_resources", .resources = 3, .depth = 2, .active = SETUP "ESTABLISHED[1/1],DISCONNECTED",
     .passive = "CONNECT_REQUEST[2/3],ESTABLISHED,DISCONNECTED"},
    {"passive_leaves_before_answer", .answer = LEAVES, .active = SETUP "REJECTED(28)",
     .passive = "CONNECT_REQUEST"},
    {"passive_dies_before_answer", .answer = DIES, .active = SETUP "REJECTED(28)",
     .passive = "CONNECT_REQUEST"},
    {"active_dies", .ending = ACTIVE_DIES, .active = SETUP "ESTABLISHED", .passive = AS_TWO},
    {"passive_dies", .ending = PASSIVE_DIES, .active = AS_ONE,
     .passive = "CONNECT_REQUEST,ESTABLISHED"},
    {"migrated", .migrates = true, .active = AS_ONE, .passive = AS_TWO},
    {"migrated_passive_disconnects", .migrates = true, .ending = PASSIVE_LEAVES, .active = AS_ONE,
     .passive = AS_TWO},
    {"forged_request", .forgery = FORGED_RIGHT, .answer = LEAVES, .active = "REJ(28)",
     .passive = "CONNECT_REQUEST"},
    {"header_of_next_version", .forgery = FORGED_MAJOR_VERSION, .active = "REJ(28)",
     .passive = "-"},
    {"header_of_next_minor_version", .forgery = FORGED_MINOR_VERSION, .active = "REJ(28)",
     .passive = "-"},
    {"header_without_ip_version", .forgery = FORGED_IP_VERSION_0, .active = "REJ(28)",
     .passive = "-"},
    {"header_of_ip_version_5", .forgery = FORGED_IP_VERSION_5, .active = "REJ(28)", .passive = "-"},
    {"header_of_other_ip_version", .forgery = FORGED_OTHER_FAMILY, .active = "REJ(28)",
     .passive = "-"},
    {"header_to_another_address", .forgery = FORGED_OTHER_ADDRESS, .active = "REJ(28)",
     .passive = "-"},
    {"header_of_zeros", .forgery = FORGED_ZEROS, .active = "REJ(28)", .passive = "-"},
    {"request_cut_in_its_header", .forgery = FORGED_CUT, .active = "-", .passive = "-"},
    {"backlog_of_what_was_taken", .bursts = true, .active = BURST_OF_ONE, .passive = BURST_OF_TWO},
    {"backlog_full", .bursts = true, .is_deaf = true, .active = BURST_OF_ONE,
     .passive = BURST_OF_TWO},
    {0},
};

struct order {
    char name[NAME_TEXT];
    bool leader_connects;
};

static socklen_t address_of(const struct sockaddr_in6 *from, uint16_t port,
                            struct sockaddr_storage *ret_address)
{
    memset(ret_address, 0, sizeof *ret_address);
    if (IN6_IS_ADDR_V4MAPPED(&from->sin6_addr)) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)ret_address;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, &from->sin6_addr.s6_addr[12], 4);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_address;
    *v6 = *from;
    v6->sin6_port = htons(port);
    return sizeof *v6;
}

/* The name of this end's devices without a number. */
static void name_stack(struct report *report)
{
    int count;
    struct ibv_context **devices = rdma_get_devices(&count);
    if (devices == NULL || count == 0) {
        tour_die("no RDMA device");
    }
    snprintf(report->stack, sizeof report->stack, "%s", ibv_get_device_name(devices[0]->device));
    report->stack[strcspn(report->stack, "0123456789")] = '\0';
    rdma_free_devices(devices);
}

/* ---- what becomes of an established connection ---- */

static void disconnect(struct party *party)
{
    if (rdma_disconnect(party->id) != 0) {
        note_error(party, "disconnect");
    }
}

static void end_connection(struct party *party, bool is_active)
{
    enum ending ending = party->row->ending;
    link_meet(party->link);
    if (ending == (is_active ? ACTIVE_DIES : PASSIVE_DIES)) {
        raise(SIGKILL);
    }
    bool leaves = ending == BOTH_LEAVE || ending == (is_active ? ACTIVE_LEAVES : PASSIVE_LEAVES);
    if (leaves) {
        disconnect(party);
    }
    if (party->row->migrates && has_event(party, PATIENCE_MS)) {
        migrate(party);
    }
    if (await(party) == RDMA_CM_EVENT_DISCONNECTED && !leaves) {
        disconnect(party); /* a kernel answers its peer no sooner */
    }
}

/* ---- active ---- */

static bool resolve(struct party *party)
{
    struct sockaddr_storage to;
    address_of(&party->link->remote, party->row->no_listener ? OTHER_PORT : PORT, &to);
    return rdma_resolve_addr(party->id, NULL, (struct sockaddr *)&to, RESOLVE_MS) == 0 &&
           await(party) == RDMA_CM_EVENT_ADDR_RESOLVED &&
           rdma_resolve_route(party->id, RESOLVE_MS) == 0 &&
           await(party) == RDMA_CM_EVENT_ROUTE_RESOLVED;
}

static void burst(struct party *party)
{
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    link_meet(party->link);
    for (int i = 0; i < BURST; i++) {
        if (rdma_create_id(party->channel, &party->id, NULL, RDMA_PS_TCP) != 0 || !resolve(party)) {
            tour_die("%s: the other end's address or route", party->row->name);
        }
        party->burst[i] = party->id;
        create_qp(party, IBV_QPT_RC);
        if (rdma_connect(party->id, &param) != 0) {
            note_error(party, "connect");
        }
    }
    if (party->row->is_deaf) {
        while (has_event(party, QUIET_MS)) {
            await(party);
        }
        link_meet(party->link);
    }
    for (int i = 0; i < BURST; i++) {
        await(party);
    }
    link_meet(party->link);
}

static void forge(struct party *party)
{
    char answers[48];
    link_meet(party->link);
    cm_forge(party->link, party->row->forgery, PORT, QUIET_MS, answers, sizeof answers);
    note(party, answers);
    link_meet(party->link);
}

static void be_active(struct party *party)
{
    const struct cm_case *row = party->row;
    char bytes[256];
    memset(bytes, PATTERN, sizeof bytes);
    struct rdma_conn_param param = {
        .private_data = bytes,
        .private_data_len = (uint8_t)row->private_length,
        .responder_resources = row->resources != 0 ? row->resources : 1,
        .initiator_depth = row->depth != 0 ? row->depth : 1,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    if (rdma_create_id(party->channel, &party->id, NULL,
                       row->datagrams ? RDMA_PS_UDP : RDMA_PS_TCP) != 0) {
        tour_die("rdma_create_id");
    }
    link_meet(party->link); /* the other one listens */
    if (!resolve(party)) {
        tour_die("%s: the other end's address or route", row->name);
    }
    create_qp(party, row->datagrams ? IBV_QPT_UD : IBV_QPT_RC);
    if (row->migrates) {
        migrate(party);
    }
    if (rdma_connect(party->id, &param) != 0) {
        note_error(party, "connect");
    } else if (await(party) == RDMA_CM_EVENT_ESTABLISHED) {
        end_connection(party, true);
    }
    link_meet(party->link);
}

/* ---- passive ---- */

static struct rdma_cm_id *listen_at(struct party *party)
{
    struct rdma_cm_id *id;
    struct sockaddr_storage at;
    address_of(&party->link->local, PORT, &at);
    if (rdma_create_id(party->channel, &id, NULL, RDMA_PS_TCP) != 0) {
        tour_die("rdma_create_id");
    }
    if (rdma_bind_addr(id, (struct sockaddr *)&at) != 0 ||
        rdma_listen(id, party->row->bursts ? 1 : 4) != 0) {
        note_error(party, "bind");
        rdma_destroy_id(id);
        return NULL;
    }
    return id;
}

static void answer(struct party *party)
{
    const struct cm_case *row = party->row;
    char bytes[256];
    memset(bytes, PATTERN, sizeof bytes);
    struct rdma_conn_param param = {
        .private_data = bytes,
        .private_data_len = (uint8_t)row->answer_length,
        .responder_resources = 1,
        .initiator_depth = 1,
        .rnr_retry_count = 7,
    };
    switch (row->answer) {
    case DIES:
        raise(SIGKILL);
        break;
    case LEAVES:
        break;
    case REJECTS:
        if (rdma_reject(party->id, bytes, (uint8_t)row->answer_length) != 0) {
            note_error(party, "reject");
        }
        break;
    case ACCEPTS:
        if (row->migrates) {
            migrate(party);
        }
        create_qp(party, IBV_QPT_RC);
        if (rdma_accept(party->id, &param) != 0) {
            note_error(party, "accept");
        } else if (await(party) == RDMA_CM_EVENT_ESTABLISHED) {
            end_connection(party, false);
        }
        break;
    }
}

static void take_burst(struct party *party)
{
    struct rdma_conn_param param = {.rnr_retry_count = 7};
    if (party->row->is_deaf) {
        link_meet(party->link);
    }
    for (int i = 0; i < BURST && await(party) == RDMA_CM_EVENT_CONNECT_REQUEST; i++) {
        party->burst[i] = party->id;
        create_qp(party, IBV_QPT_RC);
    }
    for (int i = 0; i < BURST && party->burst[i] != NULL; i++) {
        if (rdma_accept(party->burst[i], &param) != 0) {
            note_error(party, "accept");
        } else {
            await(party);
        }
    }
}

static bool is_broken(const struct cm_case *row)
{
    return row->forgery != FORGED_NOT && row->forgery != FORGED_RIGHT;
}

static bool is_asked(const struct cm_case *row)
{
    return !row->no_listener && !row->datagrams && row->private_length <= REQUEST_MOST &&
           !is_broken(row);
}

static void leave(struct party *party)
{
    if (party->id != NULL) {
        if (party->id->qp != NULL) {
            rdma_destroy_qp(party->id);
        }
        rdma_destroy_id(party->id);
        party->id = NULL;
    }
}

static void be_passive(struct party *party)
{
    party->listener = listen_at(party);
    if (party->listener == NULL) {
        tour_die("%s: cannot listen", party->row->name);
    }
    if (party->row->listens_twice) {
        (void)listen_at(party);
    }
    link_meet(party->link);
    if (party->row->bursts) {
        take_burst(party);
    } else if (is_asked(party->row) && await(party) == RDMA_CM_EVENT_CONNECT_REQUEST) {
        answer(party);
        if (party->row->answer == LEAVES || strstr(party->report->text, "accept:") != NULL) {
            leave(party);
        }
    }
    link_meet(party->link);
    if (is_broken(party->row) && has_event(party, SURPRISE_MS)) {
        await(party);
    }
    rdma_destroy_id(party->listener);
}

/* ---- the processes ---- */

static void play(struct party *party, bool is_active)
{
    party->channel = rdma_create_event_channel();
    if (party->channel == NULL) {
        tour_die("rdma_create_event_channel");
    }
    name_stack(party->report);
    if (is_active && party->row->bursts) {
        burst(party);
    } else if (is_active && party->row->forgery != FORGED_NOT) {
        forge(party);
    } else if (is_active) {
        be_active(party);
    } else {
        be_passive(party);
    }
    for (int i = 0; i < BURST; i++) {
        if (party->burst[i] != NULL) {
            party->id = party->burst[i];
            leave(party);
        }
    }
    leave(party);
    rdma_destroy_event_channel(party->channel);
    while (party->migrations > 0) {
        rdma_destroy_event_channel(party->left[--party->migrations]);
    }
    exit(0);
}

static bool dies(const struct cm_case *row, bool is_active)
{
    return is_active ? row->ending == ACTIVE_DIES
                     : row->ending == PASSIVE_DIES || row->answer == DIES;
}

static void visit(const struct cm_case *row, const struct link *link, bool is_active,
                  struct report *report)
{
    int status;
    *report = (struct report){.text = "-"};
    struct party party = {.row = row, .link = link, .report = report};
    pid_t child = fork();
    if (child == 0) {
        play(&party, is_active);
    }
    waitpid(child, &status, 0);
    if (dies(row, is_active) && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        link_meet(link); /* for it */
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        errno = 0;
        tour_die("%s: this end broke (status %d)", row->name, status);
    }
}

/* A kernel outlives its programs and says goodbye for them; where the stack is in the programs,
 * another one of the host does. This is that one. */
static pid_t start_witness(void)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(1); /* who reads what the parent printed waits for our end too */
        }
        struct rdma_event_channel *channel = rdma_create_event_channel();
        int count;
        struct ibv_context **devices = rdma_get_devices(&count);
        if (channel == NULL || devices == NULL) {
            tour_die("no RDMA device");
        }
        for (;;) {
            pause();
        }
    }
    return child;
}

static unsigned differences;

static void compare(const struct cm_case *row, const char *stacks, const char *field,
                    const char *wanted, const char *seen)
{
    if (strcmp(wanted, seen) != 0) {
        printf("differs %s %s %s %s %s\n", row->name, stacks, field, wanted, seen);
        differences++;
    }
}

static void lead(const struct cm_case *row, const struct link *link, bool is_active,
                 struct report *mine)
{
    struct order order = {.leader_connects = is_active}, nothing;
    struct report theirs;
    char stacks[40];
    snprintf(order.name, sizeof order.name, "%s", row->name);
    link_swap(link, &order, &nothing, sizeof order);
    visit(row, link, is_active, mine);
    link_swap(link, mine, &theirs, sizeof theirs);
    snprintf(stacks, sizeof stacks, "%s %s", is_active ? mine->stack : theirs.stack,
             is_active ? theirs.stack : mine->stack);
    const char *active = is_active ? mine->text : theirs.text;
    const char *passive = is_active ? theirs.text : mine->text;
    printf("case %s %s active=%s passive=%s\n", row->name, stacks, active, passive);
    compare(row, stacks, "active", row->active, active);
    compare(row, stacks, "passive", row->passive, passive);
    fflush(stdout);
}

static bool is_chosen(const char *name, char **chosen)
{
    bool none = *chosen == NULL;
    for (; *chosen != NULL && strcmp(*chosen, name) != 0; chosen++) {
    }
    return none || *chosen != NULL;
}

static void lead_all(const struct link *link, struct report *report, char **chosen)
{
    for (const struct cm_case *row = cases; row->name != NULL; row++) {
        if (is_chosen(row->name, chosen)) {
            lead(row, link, true, report);
            lead(row, link, false, report);
        }
    }
    struct order farewell = {.name = ""}, nothing;
    link_swap(link, &farewell, &nothing, sizeof farewell);
    printf("%u differences\n", differences);
}

static const struct cm_case *find(const char *name)
{
    const struct cm_case *row = cases;
    while (row->name != NULL && strcmp(row->name, name) != 0) {
        row++;
    }
    if (row->name == NULL) {
        errno = 0;
        tour_die("%s is no case", name);
    }
    return row;
}

static void follow(const struct link *link, struct report *report)
{
    for (;;) {
        struct order order, nothing = {.name = ""};
        struct report theirs;
        link_swap(link, &nothing, &order, sizeof order);
        if (order.name[0] == '\0') {
            return;
        }
        order.name[NAME_TEXT - 1] = '\0';
        visit(find(order.name), link, !order.leader_connects, report);
        link_swap(link, report, &theirs, sizeof theirs);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: cm_tour serve ADDRESS | ADDRESS [CASE...]\n");
        return 2;
    }
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    for (char **name = argv + 2; !serves && *name != NULL; name++) {
        (void)find(*name);
    }
    struct link link = serves ? link_accept(argv[2]) : link_connect(argv[1]);
    struct report *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t witness = start_witness();
    if (serves) {
        follow(&link, report);
    } else {
        lead_all(&link, report, argv + 2);
    }
    kill(witness, SIGKILL);
    waitpid(witness, NULL, 0);
    return differences > 0 ? 1 : 0;
}
