/* Two communication managers, A and B, joined by a pipe with a virtual clock, over a device that
 * is nothing but its management interface. For the tests of cm only.
 *
 * The pipe delivers after a millisecond, unless told to lose, repeat or delay. All that happens is
 * written down as text: "1ms A>B REQ", "2ms B event request". */
#ifndef WEIR_CM_CM_WORLD_TEST_H
#define WEIR_CM_CM_WORLD_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/random.h"
#include "rnic/cm/cm.h"

#define MILLISECOND  UINT64_C(1000000)
#define FLIGHT_MAX   4096
#define RULE_MAX     16
#define SERVICE      UINT64_C(0x1061234)
#define RESPONSE_19  19u /* 4.096 us * 2^19: tries at 2147 ms */
#define TRACE_LENGTH 65536u

struct world;

/* Defined here, since the device's own file is not linked. */
struct device {
    struct world *world;
    int index;
    struct management_handler *handler;
    bool full;
    unsigned refused, sent;
    unsigned awaited, goodbyes; /* queue pairs of connections that stood, and that stand no more */
    struct qpn awaited_of;
    unsigned wakes_at_goodbye; /* the host's */
};

struct host {
    struct device device;
    struct cm *cm;
    struct cm_connection *connection; /* of its latest event, or what it has made */
    struct cm_event event;
    bool keep_quiet; /* answer no event by itself */
    unsigned wakes;
    struct cm_will *wills; /* as kept, by index; debt NONE: none */
};

struct flight {
    uint64_t at_ns;
    uint64_t order;
    int to;
    struct path path; /* as the sender sees it */
    uint8_t mad[MAD_LENGTH];
};

struct rule {
    const char *label; /* "A>B REQ" */
    int lose, repeat;  /* so many of them, the lost ones first */
};

struct world {
    struct allocator allocator;
    unsigned blocks; /* allocated */
    struct host hosts[2];
    uint64_t now_ns;
    struct flight flights[FLIGHT_MAX];
    int flight_count;
    uint64_t flight_order;
    struct rule rules[RULE_MAX];
    char trace[TRACE_LENGTH];
    size_t trace_length;
    struct random random;
    unsigned lose_percent, repeat_percent; /* of everything */
    uint64_t jitter_ns;
    void (*on_event)(struct world *world, struct host *host); /* instead of the answers below */
    void *context;
    uint32_t max_connections;
    uint32_t dead_prefix; /* of ids whose process is gone; 0: none */
};

static inline void trace(struct world *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = TRACE_LENGTH - world->trace_length;
    int length = vsnprintf(world->trace + world->trace_length, room, format, arguments);
    va_end(arguments);
    world->trace_length += (size_t)length < room ? (size_t)length : 0;
}

static inline struct gid world_gid(int index)
{
    struct gid gid = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, (uint8_t)(index + 1)}};
    return gid;
}

static inline struct instant world_now(const struct world *world)
{
    return (struct instant){world->now_ns};
}

/* The device */

void device_set_management(struct device *device, struct management_handler *handler)
{
    device->handler = handler;
}

void device_refuse(struct device *device, enum packet_refusal refusal)
{
    assert_int_equal(refusal, REFUSED_MANAGEMENT);
    device->refused++;
}

void device_await_goodbye(struct device *device, struct qpn qpn)
{
    device->awaited++;
    device->awaited_of = qpn;
}

void device_say_goodbye(struct device *device, struct qpn qpn)
{
    device->goodbyes++;
    device->wakes_at_goodbye = device->world->hosts[device->index].wakes;
}

static inline void world_fly(struct world *world, int to, const struct path *path,
                             const uint8_t *mad)
{
    assert_true(world->flight_count < FLIGHT_MAX);
    uint64_t jitter_ns = world->jitter_ns == 0 ? 0 : random_below(&world->random, world->jitter_ns);
    struct flight *flight = &world->flights[world->flight_count++];
    *flight = (struct flight){.at_ns = world->now_ns + MILLISECOND + jitter_ns,
                              .order = world->flight_order++,
                              .to = to,
                              .path = *path};
    memcpy(flight->mad, mad, MAD_LENGTH);
}

static inline int world_fate(struct world *world, const char *label)
{
    for (int i = 0; i < RULE_MAX && world->rules[i].label != NULL; i++) {
        struct rule *rule = &world->rules[i];
        if (strcmp(rule->label, label) == 0) {
            if (rule->lose > 0) {
                rule->lose--;
                return 0;
            }
            return rule->repeat-- > 0 ? 2 : 1;
        }
    }
    if (random_below(&world->random, 100) < world->lose_percent) {
        return 0;
    }
    return random_below(&world->random, 100) < world->repeat_percent ? 2 : 1;
}

enum status device_send_management(struct device *device, const struct path *path,
                                   const uint8_t *mad, uint32_t length)
{
    struct world *world = device->world;
    if (device->full) {
        return STATUS_FULL;
    }
    device->sent++;
    struct cm_message message;
    assert_int_equal(cm_message_parse(mad, length, &message), STATUS_OK);
    char label[16];
    snprintf(label, sizeof label, "%c>%c %s", 'A' + device->index, 'B' - device->index,
             cm_message_kind_name(message.kind));
    int copies = world_fate(world, label);
    trace(world, "%llums %s", (unsigned long long)(world->now_ns / MILLISECOND), label);
    if (message.kind == CM_MESSAGE_REJ) {
        trace(world, " reason=%u about=%u", message.reject_reason, message.answered);
    }
    trace(world, copies == 0 ? " lost\n" : copies == 2 ? " twice\n" : "\n");
    for (int i = 0; i < copies; i++) {
        world_fly(world, 1 - device->index, path, mad);
    }
    return STATUS_OK;
}

/* The world */

static void *world_allocate(struct allocator *allocator, size_t size)
{
    CONTAINER_OF(allocator, struct world, allocator)->blocks++;
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    return memory == NULL ? NULL : memset(memory, 0, size);
}

static void world_release(struct allocator *allocator, void *memory)
{
    if (memory != NULL) {
        CONTAINER_OF(allocator, struct world, allocator)->blocks--;
        free(memory);
    }
}

static inline void world_wake(void *context)
{
    ((struct host *)context)->wakes++;
}

static bool world_is_nobodys(void *context, uint32_t communication_id)
{
    const struct world *world = context;
    return world->dead_prefix != 0 && communication_id >> 20 == world->dead_prefix;
}

static void world_keep_will(void *context, uint32_t index, const struct cm_will *will)
{
    struct host *host = context;
    assert_in_range(index, 0, host->device.world->max_connections - 1);
    host->wills[index] = will != NULL ? *will : (struct cm_will){.debt = CM_DEBT_NONE};
}

/* A cm for host `index` whose ids begin with `prefix`, its wills unwritten. */
static inline void world_create_cm(struct world *world, int index, uint32_t prefix, uint64_t seed)
{
    struct host *host = &world->hosts[index];
    host->wills = calloc(world->max_connections, sizeof *host->wills);
    assert_non_null(host->wills);
    struct cm_config config = {.allocator = &world->allocator,
                               .device = &host->device,
                               .key = {{seed}},
                               .id_prefix = prefix,
                               .id_prefix_bits = 12,
                               .is_nobodys = world_is_nobodys,
                               .is_nobodys_context = world,
                               .keep_will = world_keep_will,
                               .keep_will_context = host,
                               .max_connections = world->max_connections,
                               .ca_guid = 0x1000u + (unsigned)index,
                               .wake = world_wake,
                               .wake_context = host};
    assert_int_equal(cm_create(&config, &host->cm), STATUS_OK);
}

static inline struct world *world_create(uint64_t seed, uint32_t max_connections)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->max_connections = max_connections;
    world->allocator = (struct allocator){world_allocate, world_release};
    world->now_ns = 1000 * MILLISECOND;
    random_seed(&world->random, seed);
    for (int i = 0; i < 2; i++) {
        world->hosts[i].device = (struct device){.world = world, .index = i};
        world_create_cm(world, i, 5, seed * 2 + (uint64_t)i);
    }
    return world;
}

static inline void world_destroy(struct world *world)
{
    cm_destroy(world->hosts[0].cm);
    cm_destroy(world->hosts[1].cm);
    assert_int_equal(world->blocks, 0);
    free(world->hosts[0].wills);
    free(world->hosts[1].wills);
    free(world);
}

static inline const char *event_name(enum cm_event_kind kind)
{
    static const char *const names[] = {"request",        "reply",           "established",
                                        "rejected",       "unreachable",     "disconnected",
                                        "time wait over", "service request", "service reply"};
    return names[kind];
}

/* B takes every request, A confirms every reply. */
static inline void world_answer(struct world *world, struct host *host)
{
    if (host->event.kind == CM_EVENT_REQUEST) {
        struct cm_parameters parameters = {.qpn = {200}, .starting_psn = {20}};
        assert_int_equal(cm_accept(host->connection, world_now(world), &parameters), STATUS_OK);
    } else if (host->event.kind == CM_EVENT_REPLY) {
        assert_int_equal(cm_confirm(host->connection, world_now(world)), STATUS_OK);
    } else if (host->event.kind == CM_EVENT_SERVICE_REQUEST) {
        struct cm_parameters parameters = {.qpn = {300}, .qkey = {0x1234567}};
        assert_int_equal(cm_service_accept(host->connection, world_now(world), &parameters),
                         STATUS_OK);
    }
}

static inline void world_take_events(struct world *world)
{
    for (int i = 0; i < 2; i++) {
        struct host *host = &world->hosts[i];
        struct cm_event event;
        while (cm_next_event(host->cm, &event)) {
            trace(world, "%llums %c event %s", (unsigned long long)(world->now_ns / MILLISECOND),
                  'A' + i, event_name(event.kind));
            if (event.kind == CM_EVENT_REJECTED) {
                trace(world, " reason=%u", event.reject_reason);
            } else if (event.kind == CM_EVENT_SERVICE_REPLY) {
                trace(world, " status=%u", event.sidr_status);
            }
            trace(world, "\n");
            host->event = event;
            host->connection = event.connection;
            if (world->on_event != NULL) {
                world->on_event(world, host);
            } else if (!host->keep_quiet) {
                world_answer(world, host);
            }
        }
    }
}

static inline int world_next_flight(const struct world *world)
{
    int best = -1;
    for (int i = 0; i < world->flight_count; i++) {
        const struct flight *flight = &world->flights[i];
        if (best < 0 || flight->at_ns < world->flights[best].at_ns ||
            (flight->at_ns == world->flights[best].at_ns &&
             flight->order < world->flights[best].order)) {
            best = i;
        }
    }
    return best;
}

static inline void world_deliver(struct world *world, int index)
{
    struct flight flight = world->flights[index];
    world->flights[index] = world->flights[--world->flight_count];
    struct arrival arrival = {.path = flight.path};
    arrival.path.local = flight.path.remote;
    arrival.path.remote = flight.path.local;
    struct management_handler *handler = world->hosts[flight.to].device.handler;
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, flight.mad, MAD_LENGTH);
}

/* When something happens next by itself; UINT64_MAX: never. */
static inline uint64_t world_next_ns(const struct world *world)
{
    int flight = world_next_flight(world);
    uint64_t next_ns = flight < 0 ? UINT64_MAX : world->flights[flight].at_ns;
    for (int i = 0; i < 2; i++) {
        struct instant deadline = cm_next_deadline(world->hosts[i].cm);
        next_ns = deadline.ns < next_ns ? deadline.ns : next_ns;
    }
    return next_ns;
}

/* Until nothing happens any more, or until the clock stands at `until_ms`. */
static inline void world_run(struct world *world, uint64_t until_ms)
{
    world_take_events(world);
    for (int steps = 0; steps < 1000000; steps++) {
        uint64_t next_ns = world_next_ns(world);
        if (next_ns > until_ms * MILLISECOND) {
            world->now_ns =
                until_ms == UINT64_MAX / MILLISECOND ? world->now_ns : until_ms * MILLISECOND;
            return;
        }
        world->now_ns = next_ns > world->now_ns ? next_ns : world->now_ns;
        int flight = world_next_flight(world);
        if (flight >= 0 && world->flights[flight].at_ns <= world->now_ns) {
            world_deliver(world, flight);
        }
        cm_advance(world->hosts[0].cm, world_now(world));
        cm_advance(world->hosts[1].cm, world_now(world));
        world_take_events(world);
    }
    fail_msg("the world does not come to rest");
}

#define FOREVER (UINT64_MAX / MILLISECOND)

static inline struct cm_listener *world_listen(struct world *world, uint32_t backlog)
{
    struct cm_listener *listener;
    assert_int_equal(cm_listen(world->hosts[1].cm, SERVICE, NULL, backlog, NULL, &listener),
                     STATUS_OK);
    return listener;
}

static inline struct cm_connect_request world_request(uint32_t qpn)
{
    return (struct cm_connect_request){
        .path = {.local = world_gid(0), .remote = world_gid(1)},
        .service_id = SERVICE,
        .parameters = {.qpn = {qpn}, .starting_psn = {10}, .ack_timeout = 14, .path_mtu = 3},
        .response_timeout = RESPONSE_19,
        .max_retries = 3,
    };
}

static inline struct cm_connection *world_connect(struct world *world, uint32_t qpn)
{
    struct cm_connect_request request = world_request(qpn);
    struct host *a = &world->hosts[0];
    assert_int_equal(cm_connect(a->cm, world_now(world), &request, &a->connection), STATUS_OK);
    return a->connection;
}

/* Releases what both hosts hold and lets everything end: nothing is left then. */
static inline void world_end(struct world *world, struct cm_connection *a, struct cm_connection *b)
{
    struct cm_connection *held[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (held[i] != NULL) {
            cm_release(held[i], world_now(world));
        }
    }
    world_run(world, FOREVER);
    assert_int_equal(cm_connection_count(world->hosts[0].cm), 0);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 0);
    for (uint32_t i = 0; i < 2 * world->max_connections; i++) {
        assert_int_equal(world->hosts[i % 2].wills[i / 2].debt, CM_DEBT_NONE);
    }
    world_destroy(world);
}

static inline void expect_trace(struct world *world, const char *expected)
{
    assert_string_equal(world->trace, expected);
    world->trace_length = 0;
    world->trace[0] = '\0';
}

/* A message out of nowhere to B, from the address of host `from` (2 is neither A nor B). */
static inline void inject(struct world *world, int from, const struct cm_message *message)
{
    uint8_t mad[MAD_LENGTH];
    cm_message_build(message, mad);
    struct arrival arrival = {.path = {.local = world_gid(1), .remote = world_gid(from)}};
    struct management_handler *handler = world->hosts[1].device.handler;
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH);
    world_take_events(world);
}

static inline struct cm_message request_of(uint32_t id, uint32_t qpn)
{
    return (struct cm_message){.kind = CM_MESSAGE_REQ,
                               .local_id = id,
                               .transaction = id,
                               .service_id = SERVICE,
                               .local_qpn = {qpn},
                               .path_mtu = 3,
                               .local_response_timeout = RESPONSE_19,
                               .path = {.local = world_gid(0), .remote = world_gid(1)}};
}

static inline void forget_trace(struct world *world)
{
    world->trace_length = 0;
    world->trace[0] = '\0';
}

#endif
