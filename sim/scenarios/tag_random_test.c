/* Tag matching at random: two peers send messages with tags, eager, by rendezvous and without; an
 * application posts buffers for tags, handles what came unexpected, and falls behind now and then.
 * Whatever is lost, each message is had once and whole, and none overtakes another: of two messages
 * of one peer that a buffer wants the first is in it, and of two buffers that want a message it is
 * in the first. A peer whose queue pair fails in the middle of a message concerns nobody else. */
#include <string.h>

#include "rnic/base/bytes.h"
#include "sim/scenarios/tag_peers.h"

#define SORTER     PEERS /* its host's index */
#define TAGS       3u
#define LENGTH     900u
#define LANDING    (REQUESTS * SLOT) /* receives */
#define FINS       (MESSAGES * SLOT) /* a peer's receives */
#define RECEIVE_ID 1000u
#define REMOVAL_ID 2000u
#define NOTHING    UINT32_MAX
#define LOST       (UINT32_MAX - 1) /* a message of which nothing but its end was told */
#define RUN_NS     UINT64_C(60000000000)
#define EVENTS     2000000u

enum header {
    HEADER_NO_TAG = 0,
    HEADER_RENDEZVOUS = 1,
    HEADER_EAGER = 3
};

struct message {
    enum header kind;
    uint64_t tag;
    uint32_t length;
    uint32_t request; /* where it is; NOTHING: in none */
    bool is_had;
};

struct request {
    uint64_t tag, mask;
    uint32_t handle;
    bool is_posted;   /* in the matcher, as far as the application knows */
    uint32_t message; /* peer and number; NOTHING: none yet */
    bool is_done;
};

static struct {
    struct simulator simulator;
    struct network network;
    struct host_application application;
    struct node nodes[PEERS + 1];
    struct dice dice;
    struct tag_matcher *matcher;
    struct receive_queue *receives;
    struct message messages[PEERS * MESSAGES];
    uint8_t sent[PEERS * MESSAGES][LENGTH];
    uint32_t posted[PEERS];
    struct request requests[REQUESTS];
    uint32_t request_count;
    uint32_t waiting[PEERS * MESSAGES], waiting_count; /* unexpected, in order of arrival */
    uint32_t handled;
    bool look_due, must_synchronize;
    bool fails; /* the queue pair of the last peer does, at some time */
    uint32_t fins, fetched;
    uint64_t seed;
} w;

static uint64_t unexpected, matched; /* over all seeds */

static struct node *sorter(void)
{
    return &w.nodes[SORTER];
}

static bool wants(const struct request *request, const struct message *message)
{
    return message->kind != HEADER_NO_TAG && (message->tag & request->mask) == request->tag;
}

static uint8_t *source_of(uint32_t name)
{
    uint32_t ahead =
        w.messages[name].kind == HEADER_RENDEZVOUS ? TAG_RENDEZVOUS_LENGTH : TAG_HEADER_LENGTH;
    return w.nodes[name / MESSAGES].bytes + name % MESSAGES * SLOT + ahead;
}

static bool is_whole(uint32_t name, const uint8_t *bytes)
{
    return memcmp(bytes, w.sent[name], w.messages[name].length) == 0;
}

static void wrong(const char *what, uint32_t name)
{
    fail_msg("seed %llu, message %u: %s", (unsigned long long)w.seed, name, what);
}

static void post_receive(void *context, uint64_t place)
{
    (void)context;
    struct sge sge = {LANDING + place * SLOT, SLOT, sorter()->key};
    struct receive_request request = {.id = RECEIVE_ID + place, .sges = &sge, .sge_count = 1};
    assert_int_equal(receive_queue_post(w.receives, &request), STATUS_OK);
}

static struct tag_operation operation(uint64_t id)
{
    return (struct tag_operation){
        .id = id, .signaled = true, .synchronizes = true, .unexpected = w.handled};
}

static void have(uint32_t name)
{
    if (name >= PEERS * MESSAGES || w.messages[name].is_had) {
        wrong("nobody's, or it came twice", name);
    }
    w.messages[name].is_had = true;
}

/* The application itself puts it there: it has it in a receive, or knows where to fetch it. */
static void put(uint32_t name, struct request *request)
{
    w.messages[name].request = (uint32_t)(request - w.requests);
    request->message = name;
    request->is_done = true;
}

/* A message that came unexpected: to the first buffer that wants it, which is taken back for that;
 * if there is none it waits. */
static void handle(uint32_t name)
{
    const struct message *message = &w.messages[name];
    w.handled++;
    unexpected++;
    for (uint32_t i = 0; i < w.request_count; i++) {
        struct request *request = &w.requests[i];
        if (request->is_posted && wants(request, message)) {
            struct tag_operation removal = operation(REMOVAL_ID + i);
            request->is_posted = false;
            request->message = name;
            tag_remove(w.matcher, &removal, request->handle);
            return;
        }
    }
    w.waiting[w.waiting_count++] = name;
}

static bool take_waiting(struct request *request)
{
    for (uint32_t i = 0; i < w.waiting_count; i++) {
        uint32_t name = w.waiting[i];
        if (wants(request, &w.messages[name])) {
            put(name, request);
            w.waiting_count--;
            memmove(&w.waiting[i], &w.waiting[i + 1], (w.waiting_count - i) * sizeof w.waiting[0]);
            return true;
        }
    }
    return false;
}

static void ask(void *context, uint64_t unused)
{
    (void)context;
    (void)unused;
    uint32_t index = w.request_count++;
    struct request *request = &w.requests[index];
    bool any = dice_percent(&w.dice, 15);
    *request = (struct request){.tag = any ? 0 : 1 + dice_below(&w.dice, TAGS),
                                .mask = any ? 0 : UINT64_MAX,
                                .message = NOTHING};
    if (!take_waiting(request)) {
        uint32_t first = dice_below(&w.dice, LENGTH);
        struct sge sges[2] = {{index * SLOT, first, sorter()->key},
                              {index * SLOT + first, LENGTH - first, sorter()->key}};
        struct tag_buffer buffer = {
            .id = index, .tag = request->tag, .mask = request->mask, .sges = sges, .sge_count = 2};
        struct tag_operation adding = operation(REMOVAL_ID + REQUESTS);
        assert_int_equal(tag_add(w.matcher, &adding, &buffer, &request->handle), STATUS_OK);
        request->is_posted = true;
        host_wake(&sorter()->host, 0);
    }
    if (w.request_count < REQUESTS) {
        simulator_after(&w.simulator, dice_below(&w.dice, 40000), ask, NULL, 0);
    }
}

static void look_at_receive(const struct completion *completion)
{
    uint32_t place = (uint32_t)completion->id - RECEIVE_ID;
    const uint8_t *header = sorter()->bytes + LANDING + place * SLOT;
    uint32_t name = bytes_load_u32(header + 4);
    have(name);
    const struct message *message = &w.messages[name];
    if ((completion->kind == COMPLETED_TAG_NONE) != (message->kind == HEADER_NO_TAG) ||
        (completion->tag_flags & TAG_MATCHED) != 0) {
        wrong("another kind of completion", name);
    }
    if (message->kind != HEADER_RENDEZVOUS &&
        (completion->byte_length != TAG_HEADER_LENGTH + message->length ||
         !is_whole(name, header + TAG_HEADER_LENGTH))) {
        wrong("other bytes", name);
    }
    if (message->kind != HEADER_NO_TAG) {
        handle(name);
    }
    simulator_after(&w.simulator, dice_below(&w.dice, 60000), post_receive, NULL, place);
}

static void look_at_match(const struct completion *completion)
{
    uint32_t index = (uint32_t)completion->id;
    struct request *request = &w.requests[index];
    if ((completion->tag_flags & TAG_MATCHED) != 0) {
        uint32_t name = completion->tag_context;
        have(name);
        if (!request->is_posted || !wants(request, &w.messages[name]) ||
            completion->tag != w.messages[name].tag) {
            wrong("in a buffer that is not for it", name);
        }
        request->is_posted = false;
        request->message = name;
        w.fetched += w.messages[name].kind == HEADER_RENDEZVOUS;
        w.messages[name].request = index;
        matched++;
    }
    uint32_t name = request->message;
    if ((completion->tag_flags & TAG_DATA_VALID) != 0) {
        if (name == NOTHING || request->is_done ||
            completion->byte_length != w.messages[name].length ||
            !is_whole(name, sorter()->bytes + index * SLOT)) {
            wrong("other bytes in its buffer", name);
        }
        request->is_done = true;
    }
}

/* What the message that was under way had taken comes back. */
static void look_at_flushed(const struct completion *completion)
{
    if (!w.fails || !qpn_equal(completion->qpn, qp_number(sorter()->qps[PEERS - 1])) ||
        completion->status != COMPLETION_FLUSHED) {
        fail_msg("seed %llu: id %llu: %s", (unsigned long long)w.seed,
                 (unsigned long long)completion->id, completion_status_name(completion->status));
    }
    if (completion->id >= RECEIVE_ID) {
        post_receive(NULL, completion->id - RECEIVE_ID);
        return;
    }
    struct request *request = &w.requests[completion->id];
    request->is_posted = false;
    request->message = request->message == NOTHING ? LOST : request->message;
}

static void look_at_sorted(const struct completion *completion)
{
    if (completion->status != COMPLETION_SUCCESS) {
        look_at_flushed(completion);
        return;
    }
    w.must_synchronize |= (completion->tag_flags & TAG_SYNCHRONIZE) != 0;
    if (completion->kind == COMPLETED_TAG_REMOVE) {
        struct request *request = &w.requests[completion->id - REMOVAL_ID];
        put(request->message, request);
    } else if (completion->kind == COMPLETED_TAG_RECEIVE ||
               completion->kind == COMPLETED_TAG_NONE) {
        if (completion->id >= RECEIVE_ID) {
            look_at_receive(completion);
        } else {
            look_at_match(completion);
        }
    }
}

static void look(void *context, uint64_t unused)
{
    (void)context;
    (void)unused;
    struct completion completion;
    uint32_t some = dice_range(&w.dice, 1, 6);
    while (some-- > 0 && completion_queue_poll(sorter()->completions, 1, &completion) == 1) {
        look_at_sorted(&completion);
    }
    w.look_due = completion_queue_depth(sorter()->completions) > 0;
    if (w.must_synchronize && !w.look_due) {
        struct tag_operation synchronization = operation(REMOVAL_ID + REQUESTS);
        w.must_synchronize = false;
        tag_synchronize(w.matcher, &synchronization);
        w.look_due = true;
    }
    if (w.look_due) {
        simulator_after(&w.simulator, dice_below(&w.dice, 10000), look, NULL, 0);
    }
}

/* What the message was about is the sender's again. */
static void take_fin(struct node *node, uint32_t place)
{
    uint32_t name = bytes_load_u32(node->bytes + FINS + place * SLOT + 4);
    if (name >= PEERS * MESSAGES || w.messages[name].kind != HEADER_RENDEZVOUS) {
        wrong("it was not asked for", name);
    }
    dice_fill(&w.dice, source_of(name), w.messages[name].length);
    w.fins++;
}

static void ran(struct host_application *application, struct host *host)
{
    (void)application;
    struct node *node = (struct node *)host;
    struct completion completion;
    if (node == sorter()) {
        if (!w.look_due) {
            w.look_due = true;
            simulator_after(&w.simulator, dice_below(&w.dice, 30000), look, NULL, 0);
        }
        return;
    }
    while (completion_queue_poll(node->completions, 1, &completion) == 1) {
        if (completion.status != COMPLETION_SUCCESS) {
            assert_true(w.fails && node == &w.nodes[PEERS - 1]);
        } else if (completion.kind == COMPLETED_RECEIVE) {
            take_fin(node, (uint32_t)completion.id);
        }
    }
}

static void send(void *context, uint64_t peer)
{
    (void)context;
    static const enum header kinds[] = {HEADER_EAGER, HEADER_EAGER, HEADER_RENDEZVOUS,
                                        HEADER_NO_TAG};
    struct node *node = &w.nodes[peer];
    uint32_t number = w.posted[peer]++, name = (uint32_t)peer * MESSAGES + number;
    struct message *message = &w.messages[name];
    *message = (struct message){.kind = kinds[dice_below(&w.dice, 4)],
                                .tag = 1 + dice_below(&w.dice, TAGS),
                                .length = dice_below(&w.dice, LENGTH),
                                .request = NOTHING};
    uint8_t *header = node->bytes + number * SLOT;
    memcpy(w.sent[name], source_of(name), message->length);
    bool is_rendezvous = message->kind == HEADER_RENDEZVOUS;
    header[0] = (uint8_t)message->kind;
    bytes_store_u32(header + 4, name);
    bytes_store_u64(header + 8, message->tag);
    if (is_rendezvous) {
        bytes_store_u64(header + 16, (uint64_t)(source_of(name) - node->bytes));
        bytes_store_u32(header + 24, node->key.value);
        bytes_store_u32(header + 28, message->length);
    }
    struct sge sge = {number * SLOT,
                      is_rendezvous ? TAG_RENDEZVOUS_LENGTH : TAG_HEADER_LENGTH + message->length,
                      node->key};
    struct send_request request = {
        .id = name, .kind = WORK_SEND, .signaled = true, .sges = &sge, .sge_count = 1};
    assert_int_equal(qp_post_send(node->qps[0], &request), STATUS_OK);
    (void)device_ring(node->host.device, node->qps[0]);
    host_wake(&node->host, 0);
    if (w.posted[peer] < MESSAGES) {
        simulator_after(&w.simulator, dice_below(&w.dice, 60000), send, NULL, peer);
    }
}

static void make_sorter(void)
{
    struct allocator *allocator = &sorter()->host.storage.allocator;
    const struct tag_config config = {.allocator = allocator,
                                      .max_tags = REQUESTS,
                                      .max_sge = 2,
                                      .completions = sorter()->completions};
    assert_int_equal(tag_matcher_create(&config, &w.matcher), STATUS_OK);
    assert_int_equal(receive_queue_create(allocator, RECEIVES, 1, &w.receives), STATUS_OK);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        post_receive(NULL, i);
    }
}

static void fail_last(void *context, uint64_t unused)
{
    struct qp_attributes attributes = {.state = QP_ERROR};
    (void)context;
    (void)unused;
    assert_int_equal(device_modify_qp(sorter()->host.device, sorter()->host.simulator->now,
                                      sorter()->qps[PEERS - 1], &attributes, QP_SET_STATE, NULL),
                     STATUS_OK);
    host_wake(&sorter()->host, 0);
}

static void start(uint64_t seed, const struct link_config *link)
{
    memset(&w, 0, sizeof w);
    w.seed = seed;
    w.dice = dice_split(seed, 21);
    w.application = (struct host_application){.ran = ran};
    simulator_init(&w.simulator, seed, NULL);
    network_init(&w.network, &w.simulator, seed);
    network_set_links(&w.network, link);
    for (unsigned i = 0; i <= PEERS; i++) {
        make_node(&w.nodes[i], &w.network, i, &w.application, seed % 2 == 0);
    }
    make_sorter();
    for (unsigned i = 0; i < PEERS; i++) {
        struct node *node = &w.nodes[i];
        node->qps[0] = make_qp(node, NULL, NULL);
        sorter()->qps[i] = make_qp(sorter(), w.matcher, w.receives);
        connect_qp(node, sorter(), node->qps[0], sorter()->qps[i]);
        connect_qp(sorter(), node, sorter()->qps[i], node->qps[0]);
        for (uint32_t n = 0; n < MESSAGES; n++) {
            struct sge sge = {FINS + n % RECEIVES * SLOT, SLOT, node->key};
            struct receive_request request = {.id = n % RECEIVES, .sges = &sge, .sge_count = 1};
            assert_int_equal(qp_post_receive(node->qps[0], &request), STATUS_OK);
        }
        simulator_after(&w.simulator, dice_below(&w.dice, 300000), send, NULL, i);
    }
    simulator_after(&w.simulator, dice_below(&w.dice, 300000), ask, NULL, 0);
    w.fails = seed % 3 == 0;
    if (w.fails) {
        simulator_after(&w.simulator, dice_below(&w.dice, 1500000), fail_last, NULL, 0);
    }
}

static void stop(void)
{
    for (unsigned i = 0; i < PEERS; i++) {
        device_destroy_qp(w.nodes[i].host.device, w.nodes[i].qps[0]);
        device_destroy_qp(sorter()->host.device, sorter()->qps[i]);
    }
    tag_matcher_destroy(w.matcher);
    receive_queue_destroy(w.receives);
    for (unsigned i = 0; i <= PEERS; i++) {
        stop_node(&w.nodes[i]);
    }
    assert_string_equal(w.simulator.violation, "");
    simulator_fini(&w.simulator);
}

/* Nothing earlier is left out of the buffer that the message is in, nor it of an earlier buffer. */
static void judge_order(uint32_t name)
{
    const struct message *message = &w.messages[name];
    for (uint32_t i = 0; i < message->request; i++) {
        const struct request *request = &w.requests[i];
        bool has_later = request->message < PEERS * MESSAGES && request->message > name &&
                         request->message / MESSAGES == name / MESSAGES;
        if (wants(request, message) && (request->message == NOTHING || has_later)) {
            wrong("an earlier buffer wanted it", name);
        }
    }
    for (uint32_t before = name / MESSAGES * MESSAGES; before < name; before++) {
        if (w.messages[before].request == NOTHING &&
            wants(&w.requests[message->request], &w.messages[before])) {
            wrong("it has overtaken another", name);
        }
    }
}

static void judge(void)
{
    for (uint32_t name = 0; name < PEERS * MESSAGES; name++) {
        const struct message *message = &w.messages[name];
        bool fails = w.fails && name / MESSAGES == PEERS - 1;
        if (!fails && !message->is_had) {
            wrong("it did not come", name);
        }
        if (message->is_had && message->request != NOTHING) {
            if (!fails && !w.requests[message->request].is_done) {
                wrong("its buffer has waited in vain", name);
            }
            judge_order(name);
        }
    }
    assert_true(w.fails ? w.fins <= w.fetched : w.fins == w.fetched);
}

static void no_message_overtakes_another(void **state)
{
    (void)state;
    static const struct link_config links[] = {
        {.delay_ns = 1000},
        {.delay_ns = 5000, .loss = 30000, .reorder = 20000, .reorder_ns = 4000, .duplicate = 10000},
        {.delay_ns = 5000, .queue_limit = 4, .bits_per_second = 1000000000},
        {.delay_ns = 2000, .reach = 2048, .unreadable = 50000},
    };
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        start(seed, &links[seed % 4]);
        enum simulator_end end =
            simulator_run(&w.simulator, instant_after(w.simulator.now, RUN_NS), EVENTS);
        assert_int_equal(end, SIMULATOR_IDLE);
        judge();
        stop();
    }
    assert_true(unexpected > 1000 && matched > 1000); /* it was put to the test */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_message_overtakes_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
