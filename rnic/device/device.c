/* The device's tables: creation, queue pairs, what the outside may look at. */
#include "rnic/device/device.h"

#include "rnic/base/check.h"
#include "rnic/base/secret.h"
#include "rnic/device/device_private.h"

#define MAX_QPS_DEFAULT      16384u
#define WINDOW_MAX_DEFAULT   (256u * 1024)
#define DATAGRAM_MAX_DEFAULT PACKET_PAYLOAD_MAX
#define MAX_XRC_DEFAULT      4096u
#define MAX_READS_IN_LIMIT   255u

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static enum status check_config(const struct device_config *config)
{
    uint64_t end = (uint64_t)config->first_qpn.value + config->qpn_count;
    bool sound = config->qpn_count > 0 && config->first_qpn.value > QPN_MANAGEMENT.value &&
                 end <= QPN_MULTICAST.value && config->max_reads_in <= MAX_READS_IN_LIMIT &&
                 config->datagram_max <= PACKET_PAYLOAD_MAX;
    return sound ? STATUS_OK : STATUS_INVALID;
}

static enum status create_parts(struct device *device, const struct device_config *config,
                                struct secret *secret)
{
    struct allocator *allocator = config->allocator;
    struct siphash_key memory_key = secret_key(secret), selective_key = secret_key(secret);
    enum status status =
        memory_create(allocator, config->max_regions, &memory_key, &device->environment.memory);
    if (status == STATUS_OK) {
        device->max_qps = or_default(config->max_qps, MAX_QPS_DEFAULT);
        device->qps = allocator->allocate(allocator, config->qpn_count * sizeof(struct qp *));
        status = device->qps != NULL ? STATUS_OK : STATUS_NO_MEMORY;
    }
    if (status == STATUS_OK) {
        status = map_init(&device->environment.xrc_queues, allocator,
                          or_default(config->max_xrc_queues, MAX_XRC_DEFAULT));
    }
    if (status == STATUS_OK) {
        status = deputies_init(&device->deputies, allocator);
    }
    if (status == STATUS_OK) {
        status = management_init(&device->management, allocator);
    }
    if (status == STATUS_OK) {
        status =
            selective_stock_init(&device->environment.selective, allocator, config->selective_qps,
                                 config->selective_packets, &selective_key);
    }
    if (status == STATUS_OK) {
        status = multicast_init(&device->multicast, allocator);
    }
    return status;
}

static void free_device(struct device *device)
{
    struct allocator *allocator = device->environment.allocator;
    multicast_fini(&device->multicast);
    selective_stock_fini(&device->environment.selective, allocator);
    management_fini(&device->management, allocator);
    deputies_fini(&device->deputies);
    map_fini(&device->environment.xrc_queues);
    allocator->release(allocator, device->qps);
    memory_destroy(device->environment.memory);
    allocator->release(allocator, device);
}

enum status device_create(const struct device_config *config, struct device **ret_device)
{
    enum status status = check_config(config);
    if (status != STATUS_OK) {
        return status;
    }
    struct device *device = config->allocator->allocate(config->allocator, sizeof *device);
    if (device == NULL) {
        return STATUS_NO_MEMORY;
    }
    struct secret secret = secret_init(&config->key);
    struct siphash_key qpn_key = secret_key(&secret), xrc_key = secret_key(&secret);
    device->environment = (struct environment){
        .allocator = config->allocator,
        .sink = config->sink,
        .events = config->events,
        .relay_link = config->relay_link,
        .heavy_fence = config->heavy_fence,
        .posters_fence = config->heavy_fence == NULL,
        .direct = config->direct,
        .no_reads = {.replay = REPLAY_OF_NONE},
        .max_reads_in = or_default(config->max_reads_in, 1),
        .window_max = or_default(config->window_max, WINDOW_MAX_DEFAULT),
        .datagram_max = or_default(config->datagram_max, DATAGRAM_MAX_DEFAULT),
    };
    timers_init(&device->environment.timers);
    timers_init(&device->alarms);
    list_init(&device->environment.active);
    device->first_qpn = config->first_qpn;
    device->qpn_count = config->qpn_count;
    device->qpns.order = shuffle_init(&qpn_key, config->qpn_count);
    device->xrc_queue_numbers.order = shuffle_init(&xrc_key, config->qpn_count);
    device->management.psn = psn_make((uint32_t)secret_u64(&secret));
    device->environment.relay_lives = secret_u64(&secret); /* a former process's are stale */
    status = create_parts(device, config, &secret);
    if (status != STATUS_OK) {
        free_device(device);
        return status;
    }
    direct_init(&device->environment);
    *ret_device = device;
    return STATUS_OK;
}

void device_destroy(struct device *device)
{
    if (device == NULL) {
        return;
    }
    CHECK(device->qps_count == 0);
    CHECK(device->environment.xrc_queues.count == 0);
    CHECK(memory_region_count(device->environment.memory) == 0);
    CHECK(memory_domain_count(device->environment.memory) == 0);
    free_device(device);
}

void device_set_watcher(struct device *device, struct watcher *watcher)
{
    device->environment.watcher = watcher;
}

struct memory *device_memory(struct device *device)
{
    return device->environment.memory;
}

const struct counters *device_counters(const struct device *device)
{
    return &device->environment.counters;
}

/* Goes round the whole range before a number comes again, so that packets of an old connection do
 * not meet a new one; in an order that the peer of some queue pairs cannot tell, so that it does
 * not know the others' numbers. */
static bool choose_number(const struct device *device,
                          bool (*is_taken)(const struct device *device, uint32_t number),
                          struct fresh_numbers *fresh, uint32_t *ret_number)
{
    for (uint32_t tries = 0; tries < device->qpn_count; tries++) {
        uint32_t number = device->first_qpn.value + shuffle_at(&fresh->order, fresh->next);
        fresh->next = fresh->next + 1 == device->qpn_count ? 0 : fresh->next + 1;
        if (!is_taken(device, number)) {
            *ret_number = number;
            return true;
        }
    }
    return false;
}

static bool qp_has(const struct device *device, uint32_t number)
{
    return device_qp(device, number) != NULL;
}

static bool xrc_queue_has(const struct device *device, uint32_t number)
{
    return map_find(&device->environment.xrc_queues, number) != NULL;
}

enum status device_create_qp(struct device *device, const struct qp_init *init, struct qp **ret_qp)
{
    struct qpn qpn;
    if (device->qps_count == device->max_qps ||
        !choose_number(device, qp_has, &device->qpns, &qpn.value)) {
        return STATUS_FULL;
    }
    struct qp *qp;
    enum status status = qp_create(&device->environment, init, qpn, &qp);
    if (status != STATUS_OK) {
        return status;
    }
    device->qps[qpn.value - device->first_qpn.value] = qp;
    device->qps_count++;
    *ret_qp = qp;
    return STATUS_OK;
}

void device_destroy_qp(struct device *device, struct qp *qp)
{
    device_answer_doorbells(device); /* its own may be among them */
    multicast_forget(&device->multicast, qp);
    CHECK(device_qp(device, qp->number.value) == qp);
    device->qps[qp->number.value - device->first_qpn.value] = NULL;
    device->qps_count--;
    device->expected = NULL;
    qp_destroy(qp);
}

enum status device_attach_multicast(struct device *device, struct qp *qp, const struct gid *group)
{
    return multicast_attach(&device->multicast, qp, group);
}

enum status device_detach_multicast(struct device *device, struct qp *qp, const struct gid *group)
{
    return multicast_detach(&device->multicast, qp, group);
}

enum status device_modify_qp(struct device *device, struct instant now, struct qp *qp,
                             const struct qp_attributes *attributes, unsigned mask,
                             unsigned *ret_offending)
{
    device->environment.now = now;
    return qp_modify(qp, attributes, mask, ret_offending);
}

bool device_hold_region(struct device *device, struct memory_key key)
{
    direct_hide_key(&device->environment, key);
    return device->environment.direct != NULL;
}

void device_withdraw_region(struct device *device, struct memory_key key)
{
    direct_withdraw_key(&device->environment, key);
}

bool device_hold_qp(struct device *device, struct qp *qp, struct qpn *ret_peer)
{
    *ret_peer = qp->attributes.destination;
    direct_hold(qp);
    return qp->was_shown;
}

void device_let_go_qp(struct device *device, struct qp *qp, bool settled)
{
    direct_let_go(qp, settled);
}

bool device_settle(struct device *device, struct qpn peer, bool waits)
{
    struct direct_link *link = device->environment.direct;
    return link == NULL || link->settle(link, peer, waits);
}

bool device_responds_with(struct device *device, const uint8_t *bytes, uint64_t length,
                          struct instant until)
{
    struct packet_sink *sink = device->environment.sink;
    return sink->responds_with != NULL && sink->responds_with(sink, bytes, length, until);
}

void device_revoke(struct device *device, const uint8_t *bytes, uint64_t length,
                   struct instant until)
{
    struct packet_sink *sink = device->environment.sink;
    if (sink->revoke != NULL) {
        sink->revoke(sink, bytes, length, until);
    }
}

struct qp *device_find_qp(const struct device *device, struct qpn qpn)
{
    return device_qp(device, qpn.value);
}

struct xrc_domain device_allocate_xrc_domain(struct device *device)
{
    return (struct xrc_domain){.name = ++device->xrc_domains};
}

enum status device_add_xrc_queue(struct device *device, struct xrc_queue *queue)
{
    struct map *queues = &device->environment.xrc_queues;
    if (receive_queue_max_sge(queue->receives) > XRC_SGE_MAX || xrc_domain_is_none(queue->domain)) {
        return STATUS_INVALID;
    }
    if (queues->count == queues->capacity ||
        !choose_number(device, xrc_queue_has, &device->xrc_queue_numbers, &queue->number)) {
        return STATUS_FULL;
    }
    enum status status = map_insert(queues, queue->number, queue);
    CHECK(status == STATUS_OK);
    memory_domain_use(device->environment.memory, queue->memory_domain, 1);
    completion_queue_use(queue->completions, 1);
    return STATUS_OK;
}

void device_remove_xrc_queue(struct device *device, struct xrc_queue *queue)
{
    void *removed = map_remove(&device->environment.xrc_queues, queue->number);
    CHECK(removed == queue);
    completion_queue_use(queue->completions, -1);
    memory_domain_use(device->environment.memory, queue->memory_domain, -1);
}

bool device_has_group(const struct device *device, const struct gid *group)
{
    return multicast_has(&device->multicast, group);
}

void device_set_management(struct device *device, struct management_handler *handler)
{
    device->management.handler = handler;
}

enum status device_send_management(struct device *device, const struct path *path,
                                   const uint8_t *mad, uint32_t length)
{
    return management_post(&device->management, path, mad, length);
}
