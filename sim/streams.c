#include "sim/streams.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "rnic/transport/qp_private.h"

#define HOSTS        2u
#define RECEIVES     8u
#define MESSAGES     64u /* sent, and not yet received */
#define SMALL        64u
#define MIDDLING     4096u
#define PAUSE_NS     200000u
#define WRAP_PACKETS 3000u /* many begin so shortly before their PSNs wrap */
#define ACCESS_ALL                                                                                 \
    (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC)

/* Memory of one end of a stream. */
struct stretch {
    uint8_t local[STREAM_DEPTH_MAX][STREAM_MESSAGE_MAX];  /* of its requests */
    uint8_t remote[STREAM_DEPTH_MAX][STREAM_MESSAGE_MAX]; /* of its peer's */
    uint8_t received[RECEIVES][STREAM_MESSAGE_MAX];
    uint64_t cell;
};

/* Its bytes follow from `pattern`; for an atomic that is what it must find. */
struct streamed {
    enum work_kind kind;
    uint32_t length;
    uint64_t pattern;
};

struct message {
    struct streamed streamed;
    uint32_t slot;
};

struct stream_end {
    struct streams *streams;
    struct host *host;
    struct stream_end *peer;
    struct qp *qp;
    struct completion_queue *sends, *receives;
    struct stretch *stretch;
    struct streamed requests[STREAM_DEPTH_MAX]; /* by slot */
    uint32_t order[STREAM_DEPTH_MAX];           /* slots, as they were posted */
    uint64_t posted, completed;
    struct message messages[MESSAGES]; /* sent by this end */
    uint64_t messages_sent, messages_received;
    uint64_t receives_posted, receives_completed;
    uint64_t added;
    bool sends_failed, receives_failed;
    struct instant progressed;
};

struct streams {
    struct streams_config config;
    struct simulator *simulator;
    struct dice dice;
    struct host hosts[HOSTS];
    struct host_application application;
    struct domain domains[HOSTS];
    struct memory_key keys[HOSTS];
    struct stream_end ends[HOSTS][STREAMS_MAX];
    struct stretch stretches[HOSTS][STREAMS_MAX];
    uint64_t patterns;
    bool stopped;
    uint64_t done, failed, stood_ns;
};

static uint64_t word_of(uint64_t pattern, uint32_t at)
{
    return (pattern + at) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(uint8_t *bytes, const struct streamed *streamed)
{
    for (uint32_t at = 0; at < streamed->length; at += sizeof(uint64_t)) {
        uint64_t word = word_of(streamed->pattern, at);
        uint32_t left = streamed->length - at;
        memcpy(bytes + at, &word, left < sizeof word ? left : sizeof word);
    }
}

static bool holds(const uint8_t *bytes, const struct streamed *streamed)
{
    for (uint32_t at = 0; at < streamed->length; at += sizeof(uint64_t)) {
        uint64_t word = word_of(streamed->pattern, at);
        uint32_t left = streamed->length - at;
        if (memcmp(bytes + at, &word, left < sizeof word ? left : sizeof word) != 0) {
            return false;
        }
    }
    return true;
}

static void violate(const struct stream_end *end, const char *what)
{
    simulator_violate(end->streams->simulator, "streams", "%c qp %u: %s", end->host->name,
                      qp_number(end->qp).value, what);
}

static uint64_t offset_of(const struct stream_end *end, const void *bytes)
{
    return (uint64_t)((const uint8_t *)bytes -
                      (const uint8_t *)end->streams->stretches[end->host->index]);
}

static struct memory_key key_of(const struct stream_end *end)
{
    return end->streams->keys[end->host->index];
}

static void post_receive(struct stream_end *end)
{
    uint8_t *bytes = end->stretch->received[end->receives_posted % RECEIVES];
    struct sge sge = {offset_of(end, bytes), STREAM_MESSAGE_MAX, key_of(end)};
    struct receive_request request = {.id = end->receives_posted, .sges = &sge, .sge_count = 1};
    CHECK(qp_post_receive(end->qp, &request) == STATUS_OK);
    end->receives_posted++;
}

static void receive_event(void *context, uint64_t argument)
{
    (void)argument;
    struct stream_end *end = context;
    if (qp_current_state(end->qp) != QP_ERROR) {
        post_receive(end);
    }
}

static struct streamed choose(struct streams *streams)
{
    struct dice *dice = &streams->dice;
    uint32_t lot = dice_below(dice, 100), reads = streams->config.reads_percent;
    uint32_t size = dice_below(dice, 4);
    uint32_t most = size == 0 ? SMALL : size == 1 ? MIDDLING : streams->config.message_max;
    struct streamed streamed = {.length = dice_below(dice, most + 1), .pattern = streams->patterns};
    streams->patterns += STREAM_MESSAGE_MAX;
    if (lot < reads) {
        streamed.kind = WORK_READ;
    } else if (lot < reads + 5) {
        streamed.kind = WORK_FETCH_ADD;
        streamed.length = sizeof(uint64_t);
    } else if (lot % 2 == 0) {
        streamed.kind = WORK_SEND;
    } else {
        streamed.kind = dice_percent(dice, 20) ? WORK_WRITE_IMMEDIATE : WORK_WRITE;
    }
    return streamed;
}

/* Writes the bytes where they come from, and others where they are to be. */
static void prepare(struct stream_end *end, struct streamed *streamed, uint32_t slot)
{
    uint8_t *local = end->stretch->local[slot], *remote = end->peer->stretch->remote[slot];
    bool reads = streamed->kind == WORK_READ;
    if (streamed->kind == WORK_FETCH_ADD) {
        streamed->pattern = end->added++;
        return;
    }
    fill(reads ? remote : local, streamed);
    if (streamed->kind != WORK_SEND) {
        memset(reads ? local : remote, 0xdd, streamed->length);
    }
    if (streamed->kind == WORK_SEND || streamed->kind == WORK_WRITE_IMMEDIATE) {
        end->messages[end->messages_sent++ % MESSAGES] = (struct message){*streamed, slot};
    }
}

static void post(struct stream_end *end, uint32_t slot)
{
    struct streams *streams = end->streams;
    struct streamed *streamed = &end->requests[slot];
    *streamed = choose(streams);
    prepare(end, streamed, slot);
    struct sge sge = {offset_of(end, end->stretch->local[slot]), streamed->length, key_of(end)};
    bool is_atomic = streamed->kind == WORK_FETCH_ADD;
    const struct stretch *there = end->peer->stretch;
    struct send_request request = {
        .id = slot,
        .kind = streamed->kind,
        .signaled = true,
        .sges = &sge,
        .sge_count = streamed->length > 0,
        .remote_key = key_of(end->peer),
        .remote_address = is_atomic ? offset_of(end->peer, &there->cell)
                                    : offset_of(end->peer, there->remote[slot]),
        .swap_or_add = is_atomic,
        .immediate = slot,
        .fence = dice_percent(&streams->dice, 5),
    };
    CHECK(qp_post_send(end->qp, &request) == STATUS_OK);
    if (end->posted == end->completed) {
        end->progressed = streams->simulator->now;
    }
    end->order[end->posted++ % STREAM_DEPTH_MAX] = slot;
    (void)device_ring(end->host->device, end->qp);
    host_wake(end->host, 0);
}

static void post_event(void *context, uint64_t slot)
{
    struct stream_end *end = context;
    if (!end->streams->stopped && !end->sends_failed) {
        post(end, (uint32_t)slot);
    }
}

/* True: it has failed, as it may. */
static bool has_failed(struct stream_end *end, enum completion_status status, bool *failed)
{
    if (status == COMPLETION_SUCCESS && !*failed) {
        return false;
    }
    if (!end->streams->config.lied_to) {
        violate(end, completion_status_name(status));
    } else if (*failed && status != COMPLETION_FLUSHED) {
        violate(end, "what comes after a failure is not flushed");
    }
    *failed = true;
    end->streams->failed++;
    return true;
}

static bool brought(const struct stream_end *end, const struct streamed *streamed, uint32_t slot)
{
    uint64_t before;
    memcpy(&before, end->stretch->local[slot], sizeof before);
    switch (streamed->kind) {
    case WORK_READ:
        return holds(end->stretch->local[slot], streamed);
    case WORK_FETCH_ADD:
        return before == streamed->pattern;
    case WORK_SEND:
        return true; /* who received it has looked */
    default:
        return holds(end->peer->stretch->remote[slot], streamed);
    }
}

static void take_sent(struct stream_end *end, const struct completion *completion)
{
    struct streams *streams = end->streams;
    uint64_t stood_ns = instant_elapsed_ns(end->progressed, streams->simulator->now);
    streams->stood_ns = stood_ns > streams->stood_ns ? stood_ns : streams->stood_ns;
    end->progressed = streams->simulator->now;
    if (end->completed == end->posted ||
        completion->id != end->order[end->completed % STREAM_DEPTH_MAX]) {
        violate(end, "another request completes than the oldest");
        return;
    }
    uint32_t slot = (uint32_t)completion->id;
    end->completed++;
    if (has_failed(end, completion->status, &end->sends_failed)) {
        return;
    }
    if (!streams->config.lied_to && !brought(end, &end->requests[slot], slot)) {
        violate(end, "a request has moved other bytes than it should");
    }
    streams->done++;
    uint32_t pause_ns = dice_percent(&streams->dice, 70) ? 0 : dice_below(&streams->dice, PAUSE_NS);
    simulator_after(streams->simulator, pause_ns, post_event, end, slot);
}

/* The bytes of a SEND are in the receive's memory, those of a WRITE where it led. */
static void judge_received(struct stream_end *end, const struct completion *completion)
{
    struct stream_end *peer = end->peer;
    if (peer->messages_received == peer->messages_sent ||
        peer->messages_sent - peer->messages_received > MESSAGES) {
        violate(end, "a message is received that was not sent, or too late");
        return;
    }
    const struct message *message = &peer->messages[peer->messages_received++ % MESSAGES];
    bool is_send = message->streamed.kind == WORK_SEND;
    uint32_t place = (uint32_t)(completion->id % RECEIVES);
    if ((completion->kind == COMPLETED_RECEIVE) != is_send ||
        completion->byte_length != message->streamed.length ||
        (!is_send && completion->immediate != message->slot)) {
        violate(end, "a receive does not tell of the message that was sent");
    } else if (!holds(is_send ? end->stretch->received[place] : end->stretch->remote[message->slot],
                      &message->streamed)) {
        violate(end, "a message has other bytes than were sent");
    }
}

static void take_received(struct stream_end *end, const struct completion *completion)
{
    struct streams *streams = end->streams;
    if (completion->id != end->receives_completed) {
        violate(end, "another receive completes than the oldest");
        return;
    }
    end->receives_completed++;
    if (has_failed(end, completion->status, &end->receives_failed)) {
        return;
    }
    if (!streams->config.lied_to) {
        judge_received(end, completion);
    }
    uint32_t late_ns = dice_percent(&streams->dice, 80)
                           ? 0
                           : dice_below(&streams->dice, streams->config.unready_ns);
    simulator_after(streams->simulator, late_ns, receive_event, end, 0);
}

static void ran(struct host_application *application, struct host *host)
{
    struct streams *streams = CONTAINER_OF(application, struct streams, application);
    struct completion completion;
    for (uint32_t flow = 0; flow < streams->config.flows; flow++) {
        struct stream_end *end = &streams->ends[host->index][flow];
        while (completion_queue_poll(end->receives, 1, &completion) == 1) {
            take_received(end, &completion);
        }
        while (completion_queue_poll(end->sends, 1, &completion) == 1) {
            take_sent(end, &completion);
        }
    }
}

static void make_end(struct streams *streams, struct host *host, uint32_t flow)
{
    unsigned i = host->index;
    struct stream_end *end = &streams->ends[i][flow];
    end->streams = streams;
    end->host = host;
    end->peer = &streams->ends[1 - i][flow];
    end->stretch = &streams->stretches[i][flow];
    struct allocator *allocator = &host->storage.allocator;
    CHECK(completion_queue_create(allocator, STREAM_DEPTH_MAX, NULL, &end->sends) == STATUS_OK);
    CHECK(completion_queue_create(allocator, RECEIVES, NULL, &end->receives) == STATUS_OK);
    struct qp_init init = {.service = SERVICE_RC,
                           .domain = streams->domains[i],
                           .send_completions = end->sends,
                           .receive_completions = end->receives,
                           .send = {.capacity = STREAM_DEPTH_MAX, .max_sge = 1},
                           .max_receive = RECEIVES,
                           .max_receive_sge = 1};
    CHECK(device_create_qp(host->device, &init, &end->qp) == STATUS_OK);
}

static void make_host(struct streams *streams, struct network *network, unsigned i)
{
    const struct streams_config *config = &streams->config;
    struct host *host = &streams->hosts[i];
    struct host_config host_config = config->host;
    if ((config->selective >> i & 1) != 0) {
        host_config.selective_qps = config->flows;
        host_config.selective_packets = config->selective_packets;
    }
    host_init(host, streams->simulator, network, i, &host_config);
    host->application = &streams->application;
    host_start(host);
    struct memory *memory = device_memory(host->device);
    CHECK(memory_allocate_domain(memory, &streams->domains[i]) == STATUS_OK);
    struct region_attributes region = {.domain = streams->domains[i],
                                       .length = sizeof streams->stretches[i],
                                       .bytes = (uint8_t *)streams->stretches[i],
                                       .access = ACCESS_ALL};
    CHECK(memory_register(memory, &region, &streams->keys[i]) == STATUS_OK);
    for (uint32_t flow = 0; flow < config->flows; flow++) {
        make_end(streams, host, flow);
    }
}

static struct psn choose_psn(struct dice *dice)
{
    uint32_t value = dice_percent(dice, 60) ? PSN_MASK - dice_below(dice, WRAP_PACKETS)
                                            : (uint32_t)dice_next(dice) & PSN_MASK;
    return (struct psn){value};
}

static void connect(struct streams *streams, uint32_t flow)
{
    struct dice *dice = &streams->dice;
    struct psn psns[HOSTS] = {choose_psn(dice), choose_psn(dice)};
    uint8_t reads[HOSTS] = {STREAM_READS_MAX, STREAM_READS_MAX};
    if (dice_percent(dice, 50)) {
        reads[0] = (uint8_t)dice_range(dice, 1, STREAM_READS_MAX);
        reads[1] = (uint8_t)dice_range(dice, 1, STREAM_READS_MAX);
    }
    enum path_mtu mtu = (enum path_mtu)dice_range(dice, PATH_MTU_256, PATH_MTU_4096);
    for (unsigned i = 0; i < HOSTS; i++) {
        struct qp_attributes attributes = {
            .path = network_path(i, 1 - i, false, 50000),
            .path_mtu = mtu,
            .destination = qp_number(streams->ends[1 - i][flow].qp),
            .access = ACCESS_ALL,
            .send_psn = psns[i],
            .receive_psn = psns[1 - i],
            .max_reads_out = reads[i],
            .max_reads_in = reads[1 - i],
            .timeout = streams->config.timeout,
            .retry_count = 7,
            .rnr_retry_count = 7,
            .min_rnr_timer = (uint8_t)dice_range(dice, 1, 12),
            .port = 1,
        };
        attributes.path.traffic_class = streams->config.traffic_class;
        host_connect(&streams->hosts[i], streams->ends[i][flow].qp, attributes);
    }
}

static void start(struct streams *streams, uint32_t flow)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        for (uint32_t k = 0; k < RECEIVES; k++) {
            post_receive(&streams->ends[i][flow]);
        }
    }
    for (unsigned i = 0; i < (streams->config.one_way ? 1 : HOSTS); i++) {
        for (uint32_t slot = 0; slot < streams->config.depth; slot++) {
            post(&streams->ends[i][flow], slot);
        }
    }
}

struct streams *streams_make(struct simulator *simulator, struct network *network,
                             const struct streams_config *config)
{
    CHECK(config->flows <= STREAMS_MAX && config->depth <= STREAM_DEPTH_MAX &&
          config->message_max <= STREAM_MESSAGE_MAX);
    struct streams *streams = calloc(1, sizeof *streams);
    CHECK(streams != NULL);
    streams->config = *config;
    streams->simulator = simulator;
    streams->dice = dice_split(simulator->seed, 20);
    streams->application = (struct host_application){.ran = ran};
    for (unsigned i = 0; i < HOSTS; i++) {
        make_host(streams, network, i);
    }
    for (uint32_t flow = 0; flow < config->flows; flow++) {
        connect(streams, flow);
    }
    for (uint32_t flow = 0; flow < config->flows; flow++) {
        start(streams, flow);
    }
    return streams;
}

struct host *streams_host(struct streams *streams, unsigned index)
{
    return &streams->hosts[index];
}

struct psn streams_unacked(const struct streams *streams, unsigned index, uint32_t flow)
{
    return streams->ends[index][flow].qp->requester.unacked;
}

void streams_stop(struct streams *streams)
{
    streams->stopped = true;
}

void streams_check_ended(struct streams *streams)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        for (uint32_t flow = 0; flow < streams->config.flows; flow++) {
            const struct stream_end *end = &streams->ends[i][flow];
            if (end->completed != end->posted) {
                violate(end, "a request is outstanding, and nothing comes of it");
            }
        }
    }
}

uint64_t streams_done(const struct streams *streams)
{
    return streams->done;
}

uint64_t streams_failed(const struct streams *streams)
{
    return streams->failed;
}

uint64_t streams_counter(const struct streams *streams, enum counter counter)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < HOSTS; i++) {
        sum += device_counters(streams->hosts[i].device)->values[counter];
    }
    return sum;
}

uint64_t streams_stood_ns(const struct streams *streams)
{
    return streams->stood_ns;
}

static void take_down(struct streams *streams, unsigned i)
{
    struct host *host = &streams->hosts[i];
    for (uint32_t flow = 0; flow < streams->config.flows; flow++) {
        struct stream_end *end = &streams->ends[i][flow];
        device_destroy_qp(host->device, end->qp);
        completion_queue_destroy(end->sends);
        completion_queue_destroy(end->receives);
    }
    struct memory *memory = device_memory(host->device);
    CHECK(memory_deregister(memory, streams->keys[i]) == STATUS_OK);
    CHECK(memory_free_domain(memory, streams->domains[i]) == STATUS_OK);
    host_stop(host);
}

void streams_end(struct streams *streams)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        if (!simulator_is_violated(streams->simulator)) {
            take_down(streams, i);
        }
        storage_forget(&streams->hosts[i].storage);
    }
    free(streams);
}
