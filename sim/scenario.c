#include "sim/scenario.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/wire/psn.h"
#include "sim/describe.h"
#include "sim/dice.h"

#define ACCESS_ALL                                                                                 \
    (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC |        \
     ACCESS_BIND_WINDOW)
#define LINK_DELAY_NS  1000u
#define RUN_LIMIT_NS   UINT64_C(100000000000)
#define RUN_EVENT_MAX  1000000u
#define QUEUE_CAPACITY 64u
#define SENDS_DEFAULT  16u
#define TRACE_MAX      (1u << 20)

static void note_completion(struct scenario *scenario, struct party *party,
                            const struct completion *completion)
{
    bool receive = completion->id >= 1000;
    unsigned id = (unsigned)(receive ? completion->id - 1000 : completion->id);
    const char *status = completion_status_name(completion->status);
    if (receive && completion->status == COMPLETION_SUCCESS) {
        simulator_note(&scenario->simulator, "%c receive %u %s length=%u", party->host->name, id,
                       status, completion->byte_length);
    } else {
        simulator_note(&scenario->simulator, "%c %s %u %s", party->host->name,
                       receive ? "receive" : "send", id, status);
    }
}

static struct party *party_of(struct scenario *scenario, const struct host *host)
{
    return host == scenario->a.host ? &scenario->a : &scenario->b;
}

static struct scenario *scenario_of(struct host_application *application)
{
    return CONTAINER_OF(application, struct scenario, application);
}

static void ran(struct host_application *application, struct host *host)
{
    struct scenario *scenario = scenario_of(application);
    struct party *party = party_of(scenario, host);
    struct completion completion;
    while (scenario->polls && party->completions != NULL &&
           completion_queue_poll(party->completions, 1, &completion) == 1) {
        note_completion(scenario, party, &completion);
    }
}

static const char *cm_event_name(enum cm_event_kind kind)
{
    static const char *const names[] = {
        [CM_EVENT_REQUEST] = "REQUEST",
        [CM_EVENT_REPLY] = "REPLY",
        [CM_EVENT_ESTABLISHED] = "ESTABLISHED",
        [CM_EVENT_REJECTED] = "REJECTED",
        [CM_EVENT_UNREACHABLE] = "UNREACHABLE",
        [CM_EVENT_DISCONNECTED] = "DISCONNECTED",
        [CM_EVENT_TIME_WAIT_OVER] = "TIME_WAIT_OVER",
        [CM_EVENT_SERVICE_REQUEST] = "SERVICE_REQUEST",
        [CM_EVENT_SERVICE_REPLY] = "SERVICE_REPLY",
    };
    return names[kind];
}

static void cm_event(struct host_application *application, struct host *host,
                     const struct cm_event *event)
{
    struct scenario *scenario = scenario_of(application);
    struct party *party = party_of(scenario, host);
    simulator_note(&scenario->simulator, "%c event %s", host->name, cm_event_name(event->kind));
    party->connection = event->connection;
    if (scenario->on_cm != NULL) {
        scenario->on_cm(scenario, party, event);
    }
    host_wake(host, 0);
}

static enum fate script(void *context, unsigned from, unsigned to, const uint8_t *bytes,
                        uint32_t length)
{
    struct scenario *scenario = context;
    char text[DESCRIPTION_MAX];
    describe_bytes(from, to, bytes, length, false, text);
    for (uint32_t i = 0; i < SCENARIO_RULES; i++) {
        struct rule *rule = &scenario->rules[i];
        size_t prefix = strlen(rule->text);
        /* Whole words: "psn=1" is not "psn=10". */
        if (rule->times > 0 && strncmp(text, rule->text, prefix) == 0 &&
            (text[prefix] == '\0' || text[prefix] == ' ')) {
            rule->times--;
            return rule->fate;
        }
    }
    return FATE_PASS;
}

void scenario_rule(struct scenario *scenario, const char *text, enum fate fate, uint32_t times)
{
    for (uint32_t i = 0; i < SCENARIO_RULES; i++) {
        struct rule *rule = &scenario->rules[i];
        if (rule->times == 0) {
            assert_true(strlen(text) < sizeof rule->text);
            strcpy(rule->text, text);
            rule->fate = fate;
            rule->times = times;
            return;
        }
    }
    fail_msg("too many rules");
}

static struct qp *create_qp(struct party *party)
{
    struct qp_init init = {
        .xrc_domain = party->shared.domain,
        .service = party->scenario->service,
        .domain = party->domain,
        .send_completions = party->completions,
        .receive_completions = party->completions,
        .send = {.capacity = SENDS_DEFAULT, .max_sge = 2, .max_inline = 64},
        .max_receive = SENDS_DEFAULT,
        .max_receive_sge = 2,
    };
    struct qp *qp;
    assert_int_equal(device_create_qp(party->host->device, &init, &qp), STATUS_OK);
    return qp;
}

static void make_shared_queue(struct party *party)
{
    assert_int_equal(
        receive_queue_create(&party->host->storage.allocator, SENDS_DEFAULT, 2, &party->receives),
        STATUS_OK);
    party->shared = (struct xrc_queue){
        .domain = device_allocate_xrc_domain(party->host->device),
        .memory_domain = party->domain,
        .receives = party->receives,
        .completions = party->completions,
    };
    assert_int_equal(device_add_xrc_queue(party->host->device, &party->shared), STATUS_OK);
}

static void make_party(struct scenario *scenario, struct party *party, unsigned index)
{
    static const uint32_t first_psn[2] = {7, 100};
    *party = (struct party){.scenario = scenario, .host = &scenario->hosts[index]};
    struct memory *memory = device_memory(party->host->device);
    party->bytes = malloc(SCENARIO_BYTES);
    assert_non_null(party->bytes);
    struct dice dice = dice_split(index, 9);
    dice_fill(&dice, party->bytes, SCENARIO_BYTES);
    assert_int_equal(memory_allocate_domain(memory, &party->domain), STATUS_OK);
    struct region_attributes region = {
        .domain = party->domain,
        .length = SCENARIO_BYTES,
        .bytes = party->bytes,
        .access = ACCESS_ALL,
    };
    assert_int_equal(memory_register(memory, &region, &party->key), STATUS_OK);
    assert_int_equal(completion_queue_create(&party->host->storage.allocator, QUEUE_CAPACITY, NULL,
                                             &party->completions),
                     STATUS_OK);
    if (scenario->service == SERVICE_XRC && index == 1) {
        make_shared_queue(party);
    }
    party->qp = create_qp(party);
    party->attributes = (struct qp_attributes){
        .path_mtu = PATH_MTU_256,
        .send_psn = psn_make(first_psn[index]),
        .receive_psn = psn_make(first_psn[1 - index]),
        .access = ACCESS_ALL,
        .max_reads_out = 4,
        .max_reads_in = 4,
        .min_rnr_timer = 1,
        .timeout = 8,
        .retry_count = 3,
        .rnr_retry_count = 7,
        .port = 1,
        .qkey = SCENARIO_QKEY,
        .path = network_path(index, 1 - index, false, 50000),
    };
}

static void modify(struct party *party, enum qp_state state, unsigned mask)
{
    struct qp_attributes attributes = party->attributes;
    attributes.state = state;
    unsigned offending = 0;
    enum status status = device_modify_qp(party->host->device, party->scenario->simulator.now,
                                          party->qp, &attributes, mask | QP_SET_STATE, &offending);
    if (status != STATUS_OK) {
        fail_msg("modify to %s: %s, mask %x", qp_state_name(state), status_name(status), offending);
    }
    host_wake(party->host, 0);
}

/* The first so many hosts have selective repeat. */
static void start_all(struct scenario *scenario, enum service service, unsigned selective_hosts)
{
    memset(scenario, 0, sizeof *scenario);
    scenario->service = service;
    FILE *trace = open_memstream(&scenario->text, &scenario->text_length);
    assert_non_null(trace);
    simulator_init(&scenario->simulator, 1, trace);
    network_init(&scenario->network, &scenario->simulator, 1);
    scenario->network.script = script;
    scenario->network.script_context = scenario;
    struct link_config link = {.delay_ns = LINK_DELAY_NS, .reorder_ns = 2000};
    network_set_links(&scenario->network, &link);
    scenario->application = (struct host_application){.ran = ran, .cm_event = cm_event};
    scenario->polls = true;
    struct host_config config = {
        .qpn_count = 16,
        .max_regions = 16,
        .max_reads_in = 8,
        .budget = 64,
        .with_cm = true,
        .max_connections = 8,
        .selective_packets = 64,
    };
    for (unsigned i = 0; i < 2; i++) {
        config.selective_qps = i < selective_hosts ? 4 : 0;
        host_init(&scenario->hosts[i], &scenario->simulator, &scenario->network, i, &config);
        scenario->hosts[i].application = &scenario->application;
        host_start(&scenario->hosts[i]);
    }
    make_party(scenario, &scenario->a, 0);
    make_party(scenario, &scenario->b, 1);
    unsigned mask = QP_SET_PKEY_INDEX | QP_SET_PORT;
    mask |= service == SERVICE_UD ? QP_SET_QKEY : QP_SET_ACCESS;
    modify(&scenario->a, QP_INIT, mask);
    modify(&scenario->b, QP_INIT, mask);
}

void scenario_start(struct scenario *scenario)
{
    start_all(scenario, SERVICE_RC, 0);
}

void scenario_start_selective(struct scenario *scenario)
{
    start_all(scenario, SERVICE_RC, 2);
}

void scenario_start_half_selective(struct scenario *scenario)
{
    start_all(scenario, SERVICE_RC, 1);
}

void scenario_start_service(struct scenario *scenario, enum service service)
{
    start_all(scenario, service, 0);
}

/* To RTR, and on to RTS unless it is only to receive. */
static void make_ready(struct party *party, const struct party *peer, bool only_receives)
{
    enum service service = party->scenario->service;
    party->attributes.destination = qp_number(peer->qp);
    party->attributes.receive_psn = peer->attributes.send_psn;
    unsigned to_rtr = 0;
    unsigned to_rts = QP_SET_SEND_PSN;
    if (service != SERVICE_UD) {
        to_rtr |=
            QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN | QP_SET_ACCESS;
    }
    if (service == SERVICE_XRC && party->receives != NULL) {
        to_rtr |= QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER;
        to_rts |= QP_SET_TIMEOUT;
    } else if (service == SERVICE_XRC) {
        to_rts |=
            QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT;
    }
    if (service == SERVICE_RC) {
        to_rtr |= QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER;
        to_rts |=
            QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT;
    }
    modify(party, QP_RTR, to_rtr);
    if (!only_receives) {
        modify(party, QP_RTS, to_rts);
    }
}

void scenario_to_rts(struct party *party, const struct party *peer)
{
    make_ready(party, peer, false);
}

void scenario_connect_one_way(struct scenario *scenario)
{
    make_ready(&scenario->a, &scenario->b, false);
    make_ready(&scenario->b, &scenario->a, true);
}

void scenario_connect(struct scenario *scenario)
{
    scenario_to_rts(&scenario->a, &scenario->b);
    scenario_to_rts(&scenario->b, &scenario->a);
    scenario_run(scenario);
    forget_trace(scenario);
}

static void stop_party(struct party *party)
{
    struct host *host = party->host;
    if (host_is_alive(host)) {
        if (party->qp != NULL) {
            device_destroy_qp(host->device, party->qp);
        }
        if (party->second != NULL) {
            device_destroy_qp(host->device, party->second);
        }
        for (unsigned i = 0; i < SCENARIO_PAIRS; i++) {
            if (party->others[i] != NULL) {
                device_destroy_qp(host->device, party->others[i]);
            }
        }
        if (party->receives != NULL) {
            device_remove_xrc_queue(host->device, &party->shared);
            receive_queue_destroy(party->receives);
        }
        completion_queue_destroy(party->completions);
        party->completions = NULL;
        struct memory *memory = device_memory(host->device);
        assert_int_equal(memory_deregister(memory, party->key), STATUS_OK);
        assert_int_equal(memory_free_domain(memory, party->domain), STATUS_OK);
        host_stop(host);
    }
    free(party->bytes);
}

void scenario_stop(struct scenario *scenario)
{
    scenario_run(scenario);
    stop_party(&scenario->a);
    stop_party(&scenario->b);
    scenario_run(scenario);
    fclose(scenario->simulator.trace);
    free(scenario->text);
    simulator_fini(&scenario->simulator);
}

enum status scenario_post(struct party *party, struct work work)
{
    struct scenario *scenario = party->scenario;
    struct party *peer = party == &scenario->a ? &scenario->b : &scenario->a;
    struct sge sge = {0, work.length, party->key};
    struct datagram_target target = {
        .path = party->attributes.path,
        .qpn = peer->qp != NULL ? qp_number(peer->qp) : (struct qpn){0},
        .qkey = work.qkey,
    };
    if (work.group != NULL) {
        target.path.remote = *work.group;
        target.qpn = QPN_MULTICAST;
    }
    struct send_request request = {
        .target = &target,
        .id = work.id,
        .kind = work.kind,
        .signaled = !work.unsignaled,
        .fence = work.fence,
        .solicited = work.solicited,
        .sges = &sge,
        .sge_count = work.length > 0 ? 1 : 0,
        .immediate = work.immediate,
        .invalidate = work.key,
        .bind = work.bind,
        .remote_address = work.at,
        .remote_key = work.key.value != 0 ? work.key : peer->key,
        .compare = work.compare,
        .swap_or_add = work.swap_or_add,
        .xrc_srq = work.xrc_srq != 0 ? work.xrc_srq : peer->shared.number,
    };
    enum status status = qp_post_send(party->qp, &request);
    (void)device_ring(party->host->device, party->qp);
    host_wake(party->host, 0);
    return status;
}

static void receive_on(struct party *party, struct qp *qp, uint64_t id, uint32_t length)
{
    struct sge sge = {SCENARIO_BYTES / 2, length, party->key};
    struct receive_request request = {
        .id = 1000 + id, .sges = &sge, .sge_count = length > 0 ? 1 : 0};
    enum status status = party->receives != NULL ? receive_queue_post(party->receives, &request)
                                                 : qp_post_receive(qp, &request);
    assert_int_equal(status, STATUS_OK);
    (void)device_ring(party->host->device, qp);
    host_wake(party->host, 0);
}

void scenario_receive(struct party *party, uint64_t id, uint32_t length)
{
    receive_on(party, party->qp, id, length);
}

void scenario_receive_second(struct party *party, uint64_t id, uint32_t length)
{
    receive_on(party, party->second, id, length);
}

void scenario_add_second(struct party *party)
{
    struct qp *first = party->qp;
    party->second = create_qp(party);
    party->qp = party->second;
    modify(party, QP_INIT, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_QKEY);
    modify(party, QP_RTR, 0);
    modify(party, QP_RTS, QP_SET_SEND_PSN);
    party->qp = first;
}

void scenario_change_pair(struct scenario *scenario, unsigned index)
{
    struct qp *a = scenario->a.qp, *b = scenario->b.qp;
    scenario->a.qp = scenario->a.others[index];
    scenario->b.qp = scenario->b.others[index];
    scenario->a.others[index] = a;
    scenario->b.others[index] = b;
}

void scenario_add_pair(struct scenario *scenario, unsigned index)
{
    scenario->a.others[index] = create_qp(&scenario->a);
    scenario->b.others[index] = create_qp(&scenario->b);
    scenario_change_pair(scenario, index);
    modify(&scenario->a, QP_INIT, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS);
    modify(&scenario->b, QP_INIT, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS);
    scenario_connect(scenario);
    scenario_change_pair(scenario, index);
}

static void run(struct scenario *scenario, struct instant until, bool to_the_end)
{
    enum simulator_end end = simulator_run(&scenario->simulator, until, RUN_EVENT_MAX);
    fflush(scenario->simulator.trace); /* into the text */
    if (end == SIMULATOR_VIOLATION) {
        fail_msg("%s\n%s", scenario->simulator.violation, scenario->text);
    }
    if (to_the_end && end == SIMULATOR_LIMIT) {
        fail_msg("the run does not end");
    }
}

void scenario_run(struct scenario *scenario)
{
    run(scenario, instant_after(scenario->simulator.now, RUN_LIMIT_NS), true);
}

void scenario_run_for(struct scenario *scenario, uint64_t us)
{
    struct instant until = instant_after(scenario->simulator.now, us * 1000);
    run(scenario, until, false);
    scenario->simulator.now = until;
}

void forget_trace(struct scenario *scenario)
{
    fflush(scenario->simulator.trace);
    rewind(scenario->simulator.trace);
    fflush(scenario->simulator.trace);
}

void scenario_agree(struct scenario *scenario)
{
    struct work work = {.kind = WORK_WRITE, .id = 1, .length = 512};
    scenario_connect(scenario);
    scenario_lose(scenario, "A>B WRITE_FIRST psn=7");
    assert_int_equal(scenario_post(&scenario->a, work), STATUS_OK);
    scenario_run(scenario);
    forget_trace(scenario);
}

/* The line without its instant. */
static const char *after_time(const char *line)
{
    const char *space = strchr(line, ' ');
    return isdigit((unsigned char)line[0]) && space != NULL ? space + 1 : line;
}

static bool next_line(const char **text, char ret_line[256])
{
    while (**text == '\n') {
        (*text)++;
    }
    size_t length = strcspn(*text, "\n");
    if (length == 0) {
        return false;
    }
    size_t kept = length < 255 ? length : 255;
    memcpy(ret_line, *text, kept);
    ret_line[kept] = '\0';
    *text += length;
    return true;
}

void expect_trace(struct scenario *scenario, const char *expected)
{
    fflush(scenario->simulator.trace);
    char *actual = strndup(scenario->text, scenario->text_length);
    assert_non_null(actual);
    const char *left = expected;
    const char *right = actual;
    char expected_line[256], actual_line[256];
    for (;;) {
        bool wants = next_line(&left, expected_line);
        bool has = next_line(&right, actual_line);
        if (!wants && !has) {
            break;
        }
        const char *comparable = actual_line;
        if (wants && !isdigit((unsigned char)expected_line[0])) {
            comparable = after_time(actual_line);
        }
        if (!wants || !has || strcmp(expected_line, comparable) != 0) {
            fprintf(stderr, /* cmocka's own cuts long texts off */
                    "expected: %s\nactual:   %s\nthe whole trace:\n%s",
                    wants ? expected_line : "(the end)", has ? actual_line : "(the end)", actual);
            free(actual);
            fail_msg("the trace is not as expected");
        }
    }
    free(actual);
    forget_trace(scenario);
}

void expect_equal_bytes(const struct party *left, const struct party *right, uint64_t at,
                        uint32_t length)
{
    assert_memory_equal(left->bytes, right->bytes + at, length);
}
