/* sim_storm: calls of connection management at random, in any state, at three hosts that die and
 * come back, over links that lose, repeat, delay and refuse; see seeds.h.
 *
 * Where sim_swarm's pairs meet as programs do (contact.h), here nobody has a plan: connections are
 * stale, half open and released at any moment, listeners vanish while requests wait, tables are
 * full. The oracles, besides those of hosts and their storage:
 *
 * - "storm": an event names a connection that is held, each kind once, and of its side only.
 * - "leak": when all has been released and time has passed, cm has nothing left.
 * - "ends": by then nothing happens any more. */
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "rnic/cm/cm_private.h"
#include "sim/dice.h"
#include "sim/host.h"
#include "sim/seeds.h"

#define HOSTS          3u
#define HANDLES        160u /* of a host */
#define SERVICES       4u
#define SERVICE_ID     UINT64_C(0x1060000)
#define CONNECTIONS    40u
#define FEW            8u
#define CALLS_EVENTS   600000u
#define CALLS_NS       UINT64_C(30000000000)
#define QUIET_EVENTS   3000000u
#define QUIET_NS       UINT64_C(400000000000) /* the longest wait is over */
#define PAUSE_NS       20000u
#define LONG_PAUSE_NS  3000000u
#define REJECT_REASON  28u
#define EVENT_KINDS    ((unsigned)CM_EVENT_SERVICE_REPLY + 1)
#define PASSIVE_EVENTS (1u << CM_EVENT_ESTABLISHED)
#define ACTIVE_EVENTS  (1u << CM_EVENT_REPLY | 1u << CM_EVENT_SERVICE_REPLY)

struct handle {
    struct cm_connection *connection; /* NULL: the handle is free */
    bool is_active;
    uint32_t told; /* a bit per kind of event */
};

struct storm {
    struct simulator simulator;
    struct network network;
    struct dice dice;
    struct host hosts[HOSTS];
    struct host_application application;
    struct handle handles[HOSTS][HANDLES];
    struct cm_listener *listeners[HOSTS][SERVICES];
    uint32_t qpns;  /* so many numbers are given out, again and again */
    uint32_t burst; /* calls at once, at most */
    uint32_t left;  /* bursts */
    uint64_t deaths, events[EVENT_KINDS];
};

static struct handle *find_free(struct storm *storm, unsigned i)
{
    for (uint32_t k = 0; k < HANDLES; k++) {
        if (storm->handles[i][k].connection == NULL) {
            return &storm->handles[i][k];
        }
    }
    return NULL;
}

static void release(struct storm *storm, struct handle *handle)
{
    cm_release(handle->connection, storm->simulator.now);
    handle->connection = NULL;
}

static struct cm_parameters draw_parameters(struct storm *storm)
{
    struct dice *dice = &storm->dice;
    return (struct cm_parameters){
        .qpn = {0x1000 + dice_below(dice, storm->qpns)},
        .starting_psn = {7},
        .ack_timeout = (uint8_t)dice_below(dice, 16),
        .path_mtu = PATH_MTU_1024,
        .transport_service = dice_percent(dice, 10) ? CM_TRANSPORT_EXTENDED : 0,
    };
}

static void ask(struct storm *storm, unsigned i)
{
    struct dice *dice = &storm->dice;
    struct handle *handle = find_free(storm, i);
    if (handle == NULL) {
        return;
    }
    struct cm_connect_request request = {
        .path = network_path(i, dice_below(dice, HOSTS), false, 50000),
        .service_id = SERVICE_ID + dice_below(dice, SERVICES),
        .parameters = draw_parameters(storm),
        .context = handle,
        .response_timeout = (uint8_t)dice_range(dice, 8, 15),
        .max_retries = (uint8_t)dice_range(dice, 1, 5),
    };
    struct cm *cm = storm->hosts[i].cm;
    struct cm_connection *connection;
    enum status status = dice_percent(dice, 15)
                             ? cm_resolve(cm, storm->simulator.now, &request, &connection)
                             : cm_connect(cm, storm->simulator.now, &request, &connection);
    if (status == STATUS_OK) {
        *handle = (struct handle){.connection = connection, .is_active = true};
    }
}

static void listen(struct storm *storm, unsigned i, uint32_t service, uint32_t backlog)
{
    struct cm_listener *listener, **place = &storm->listeners[i][service];
    if (cm_listen(storm->hosts[i].cm, SERVICE_ID + service, NULL, backlog, NULL, &listener) ==
        STATUS_OK) {
        *place = listener;
    }
}

static void listen_or_not(struct storm *storm, unsigned i)
{
    uint32_t service = dice_below(&storm->dice, SERVICES);
    if (storm->listeners[i][service] == NULL) {
        listen(storm, i, service, dice_range(&storm->dice, 1, FEW));
    } else {
        cm_unlisten(storm->listeners[i][service]);
        storm->listeners[i][service] = NULL;
    }
}

/* What is not to be done in its state is refused, and harms nothing. */
static void call(struct storm *storm, struct handle *handle)
{
    struct dice *dice = &storm->dice;
    struct instant now = storm->simulator.now;
    struct cm_connection *connection = handle->connection;
    struct cm_parameters parameters = draw_parameters(storm);
    uint32_t lot = dice_below(dice, 100);
    if (lot < 25) {
        (void)!cm_accept(connection, now, &parameters);
    } else if (lot < 45) {
        (void)!cm_confirm(connection, now);
    } else if (lot < 52) {
        (void)!cm_reject(connection, now, REJECT_REASON, NULL, 0);
    } else if (lot < 62) {
        (void)!cm_disconnect(connection, now);
    } else if (lot < 70) {
        cm_data_arrived(connection, now);
    } else if (lot < 78) {
        (void)!cm_delay(connection, now, (uint8_t)dice_below(dice, 18));
    } else if (lot < 83) {
        (void)!cm_service_accept(connection, now, &parameters);
    } else if (lot < 85) {
        (void)!cm_service_reject(connection, now, CM_SIDR_REJECTED, NULL, 0);
    } else if (lot < 88) {
        cm_taken(connection);
    } else {
        release(storm, handle);
    }
}

static void act(struct storm *storm, unsigned i)
{
    uint32_t lot = dice_below(&storm->dice, 100);
    struct handle *handle = &storm->handles[i][dice_below(&storm->dice, HANDLES)];
    if (!host_is_alive(&storm->hosts[i])) {
        return;
    }
    if (lot < 25) {
        ask(storm, i);
    } else if (lot < 30) {
        listen_or_not(storm, i);
    } else if (handle->connection != NULL) {
        call(storm, handle);
    }
    host_wake(&storm->hosts[i], 0);
}

static void die_or_live(struct storm *storm, unsigned i)
{
    if (host_is_alive(&storm->hosts[i])) {
        host_die(&storm->hosts[i]);
        memset(storm->handles[i], 0, sizeof storm->handles[i]);
        memset(storm->listeners[i], 0, sizeof storm->listeners[i]);
        storm->deaths++;
    } else {
        host_start(&storm->hosts[i]);
    }
}

static void burst_event(void *context, uint64_t argument)
{
    (void)argument;
    struct storm *storm = context;
    struct dice *dice = &storm->dice;
    if (storm->left == 0) {
        return;
    }
    storm->left--;
    for (uint32_t calls = dice_range(dice, 1, storm->burst); calls > 0; calls--) {
        act(storm, dice_below(dice, HOSTS));
    }
    unsigned i = dice_below(dice, HOSTS);
    uint32_t lot = dice_below(dice, 1000);
    if (lot < 2) {
        die_or_live(storm, i);
    } else if (lot < 3 && host_is_alive(&storm->hosts[i])) {
        cm_say_goodbyes(storm->hosts[i].cm, storm->simulator.now);
    }
    uint32_t pause_ns = dice_percent(dice, 90) ? PAUSE_NS : LONG_PAUSE_NS;
    simulator_after(&storm->simulator, dice_below(dice, pause_ns), burst_event, storm, 0);
}

/* What programs do mostly; all else is done to a handle later, or never. */
static void answer(struct storm *storm, struct handle *handle, enum cm_event_kind kind)
{
    struct instant now = storm->simulator.now;
    struct cm_parameters parameters = draw_parameters(storm);
    uint32_t lot = dice_below(&storm->dice, 100);
    bool is_new = kind == CM_EVENT_REQUEST || kind == CM_EVENT_REPLY;
    if (kind == CM_EVENT_REQUEST && lot < 60) {
        (void)!cm_accept(handle->connection, now, &parameters);
    } else if (kind == CM_EVENT_REPLY && lot < 60) {
        (void)!cm_confirm(handle->connection, now);
    } else if (kind == CM_EVENT_SERVICE_REQUEST && lot < 60) {
        (void)!cm_service_accept(handle->connection, now, &parameters);
    } else if (is_new && lot < 70) {
        (void)!cm_reject(handle->connection, now, REJECT_REASON, NULL, 0);
    } else if (lot < (kind == CM_EVENT_ESTABLISHED ? 10u : 80u)) {
        release(storm, handle);
    }
}

/* NULL: it is. */
static const char *what_is_wrong(const struct handle *handle, const struct cm_event *event)
{
    if (handle == NULL || handle->connection != event->connection) {
        return "of a connection that was released";
    }
    uint32_t of_others = handle->is_active ? PASSIVE_EVENTS : ACTIVE_EVENTS;
    bool fits = ((handle->told | of_others) >> event->kind & 1) == 0;
    return fits ? NULL : "again, or of the other side";
}

static void cm_event(struct host_application *application, struct host *host,
                     const struct cm_event *event)
{
    struct storm *storm = CONTAINER_OF(application, struct storm, application);
    bool asks = event->kind == CM_EVENT_REQUEST || event->kind == CM_EVENT_SERVICE_REQUEST;
    struct handle *handle = asks ? find_free(storm, host->index) : event->context;
    storm->events[event->kind]++;
    if (asks && handle == NULL) {
        cm_release(event->connection, storm->simulator.now);
        return;
    }
    if (asks) {
        *handle = (struct handle){.connection = event->connection};
        cm_set_context(event->connection, handle);
    }
    const char *wrong = what_is_wrong(handle, event);
    if (wrong != NULL) {
        simulator_violate(&storm->simulator, "storm", "%c is told event %d, %s", host->name,
                          event->kind, wrong);
        return;
    }
    handle->told |= 1u << event->kind;
    answer(storm, handle, event->kind);
    host_wake(host, 0);
}

static void draw(struct storm *storm)
{
    struct dice *dice = &storm->dice;
    struct link_config link = {
        .delay_ns = dice_range(dice, 500, 3000000),
        .loss = dice_percent(dice, 60) ? dice_below(dice, 300000) : 0,
        .duplicate = dice_percent(dice, 60) ? dice_below(dice, 300000) : 0,
        .reorder = dice_percent(dice, 60) ? dice_below(dice, 400000) : 0,
        .reorder_ns = UINT64_C(1000) << dice_below(dice, 14),
        .corrupt = dice_percent(dice, 10) ? 10000 : 0,
        .refuse = dice_percent(dice, 30) ? dice_below(dice, 600000) : 0,
    };
    network_set_links(&storm->network, &link);
    storm->burst = dice_percent(dice, 20) ? 30 : 3;
    storm->qpns = dice_percent(dice, 50) ? 4 : 4000;
    storm->left = dice_range(dice, 50, 600);
    struct host_config config = {
        .qpn_count = 64,
        .max_regions = 8,
        .max_reads_in = 4,
        .budget = 16,
        .with_cm = true,
        .max_connections = dice_percent(dice, 50) ? CONNECTIONS : dice_range(dice, 2, FEW),
    };
    for (unsigned i = 0; i < HOSTS; i++) {
        host_init(&storm->hosts[i], &storm->simulator, &storm->network, i, &config);
        storm->hosts[i].application = &storm->application;
        host_start(&storm->hosts[i]);
        for (uint32_t service = 1; service < SERVICES; service++) {
            listen(storm, i, service, 0);
        }
    }
}

static void release_all(struct storm *storm, unsigned i)
{
    for (uint32_t k = 0; k < HANDLES; k++) {
        if (storm->handles[i][k].connection != NULL) {
            release(storm, &storm->handles[i][k]);
        }
    }
    for (uint32_t service = 0; service < SERVICES; service++) {
        if (storm->listeners[i][service] != NULL) {
            cm_unlisten(storm->listeners[i][service]);
        }
    }
    host_wake(&storm->hosts[i], 0);
}

/* host_stop looks at connections and listeners. */
static void check_empty(struct storm *storm, unsigned i)
{
    const struct cm *cm = storm->hosts[i].cm;
    if (cm->half_open != 0 || !list_is_empty(&cm->unsent) || !list_is_empty(&cm->events) ||
        !list_is_empty(&cm->rejected)) {
        simulator_violate(&storm->simulator, "leak", "%c counts %u half open, or has lists of them",
                          storm->hosts[i].name, cm->half_open);
    }
}

static void play(struct storm *storm)
{
    struct simulator *simulator = &storm->simulator;
    burst_event(storm, 0);
    (void)simulator_run(simulator, instant_after(simulator->now, CALLS_NS), CALLS_EVENTS);
    storm->left = 0;
    for (unsigned i = 0; i < HOSTS && !simulator_is_violated(simulator); i++) {
        if (host_is_alive(&storm->hosts[i])) {
            release_all(storm, i);
        }
    }
    if (!simulator_is_violated(simulator) &&
        simulator_run(simulator, instant_after(simulator->now, QUIET_NS), QUIET_EVENTS) ==
            SIMULATOR_LIMIT) {
        simulator_violate(simulator, "ends", "still busy after %llu events",
                          (unsigned long long)simulator->events_run);
    }
    for (unsigned i = 0; i < HOSTS && !simulator_is_violated(simulator); i++) {
        if (host_is_alive(&storm->hosts[i])) {
            check_empty(storm, i);
            host_stop(&storm->hosts[i]);
        }
    }
}

static void run(uint64_t seed, FILE *trace, uint64_t *counts, struct run_result *ret_result)
{
    struct storm storm = {.dice = dice_split(seed, 23), .application = {.cm_event = cm_event}};
    simulator_init(&storm.simulator, seed, trace);
    storm.simulator.trace_detail = true;
    network_init(&storm.network, &storm.simulator, seed);
    draw(&storm);
    play(&storm);
    for (unsigned i = 0; i < HOSTS; i++) {
        storage_forget(&storm.hosts[i].storage);
    }
    for (unsigned kind = 0; kind < EVENT_KINDS; kind++) {
        counts[kind] += storm.events[kind];
    }
    counts[EVENT_KINDS] += storm.deaths;
    ret_result->ok = !simulator_is_violated(&storm.simulator);
    ret_result->hash = storm.simulator.hash;
    ret_result->profile = "storm";
    memcpy(ret_result->violation, storm.simulator.violation, sizeof ret_result->violation);
    simulator_fini(&storm.simulator);
}

static void print(const uint64_t *counts)
{
    static const char *const names[EVENT_KINDS + 1] = {
        [CM_EVENT_REQUEST] = "requests",
        [CM_EVENT_REPLY] = "replies",
        [CM_EVENT_ESTABLISHED] = "established",
        [CM_EVENT_REJECTED] = "rejected",
        [CM_EVENT_UNREACHABLE] = "unreachable",
        [CM_EVENT_DISCONNECTED] = "disconnected",
        [CM_EVENT_TIME_WAIT_OVER] = "over",
        [CM_EVENT_SERVICE_REQUEST] = "service_requests",
        [CM_EVENT_SERVICE_REPLY] = "service_replies",
        [EVENT_KINDS] = "deaths",
    };
    for (unsigned i = 0; i <= EVENT_KINDS; i++) {
        printf("%s=%llu%c", names[i], (unsigned long long)counts[i], i < EVENT_KINDS ? ' ' : '\n');
    }
}

int main(int argc, char **argv)
{
    static const struct seeds_program program = {
        .usage = "",
        .run = run,
        .counts = EVENT_KINDS + 1,
        .print = print,
    };
    return seeds_main(argc, argv, &program);
}
