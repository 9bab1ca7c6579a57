#include "sim/provoke.h"

#include "rnic/base/check.h"

#define TRIES_MAX 40u

static void wrong(struct world *world, const char *what, uint32_t try)
{
    simulator_violate(&world->simulator, "refusal", "%s, allocation %u refused", what, try);
}

/* All of it or nothing. */
static bool try_objects(struct host *host, struct domain domain)
{
    struct allocator *allocator = &host->storage.allocator;
    struct completion_queue *completions = NULL;
    struct receive_queue *shared = NULL;
    struct qp *qp = NULL;
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = domain,
        .send = {.capacity = 2, .max_sge = 1, .max_inline = 8},
        .max_receive = 2,
        .max_receive_sge = 1,
    };
    bool all = completion_queue_create(allocator, 4, NULL, &completions) == STATUS_OK &&
               receive_queue_create(allocator, 4, 1, &shared) == STATUS_OK;
    if (all) {
        init.send_completions = init.receive_completions = completions;
        all = device_create_qp(host->device, &init, &qp) == STATUS_OK;
    }
    if (qp != NULL) {
        device_destroy_qp(host->device, qp);
    }
    receive_queue_destroy(shared);
    completion_queue_destroy(completions);
    return all;
}

static bool try_device(struct world *world, struct storage *storage)
{
    struct device_config config = {
        .allocator = &storage->allocator,
        .sink = network_sink(&world->network, 0),
        .key = {{1}},
        .first_qpn = {0x9000},
        .qpn_count = 4,
        .max_regions = 4,
        .max_reads_in = 1,
    };
    struct device *device = NULL;
    if (device_create(&config, &device) != STATUS_OK) {
        return false;
    }
    device_destroy(device);
    return true;
}

static void provoke_device(struct world *world)
{
    struct storage storage;
    storage_init(&storage, &world->simulator);
    for (uint32_t try = 1; try < TRIES_MAX; try++) {
        storage.refuse_after = try;
        bool made = try_device(world, &storage);
        if (storage.live_count != 0) {
            wrong(world, "a device that was not made left memory behind", try);
            break;
        }
        if (made) {
            break;
        }
    }
    storage_check(&storage);
    storage_forget(&storage);
}

void provoke_no_memory(struct world *world, struct host *host)
{
    provoke_device(world);
    uint64_t before = host->storage.live_count;
    bool made = false;
    for (uint32_t try = 1; try < TRIES_MAX && !made; try++) {
        host->storage.refuse_after = try;
        made = try_objects(host, world->space_of[host->index]->domain);
        if (host->storage.live_count != before) {
            wrong(world, "an object that was not made left memory behind", try);
            break;
        }
    }
    host->storage.refuse_after = 0;
    if (!made) {
        wrong(world, "objects cannot be made even with memory", TRIES_MAX);
    }
}

void provoke_post(struct world *world, struct end *end)
{
    struct sge sges[SGE_MAX + 1] = {{0}};
    struct datagram_target target = {.qpn = {1}};
    struct send_request request = {
        .kind = WORK_SEND,
        .sges = sges,
        .sge_count = end->limits.max_sge + 1,
        .target = &target,
    };
    CHECK(request.sge_count <= SGE_MAX + 1);
    if (qp_post_send(end->qp, &request) == STATUS_OK) {
        simulator_violate(&world->simulator, "refusal", "more SGEs than agreed were taken");
    }
    sges[0] = (struct sge){(uint64_t)(uintptr_t)end->space->bytes, end->limits.max_inline + 1, {0}};
    request.sge_count = 1;
    request.inline_data = true;
    if (qp_post_send(end->qp, &request) == STATUS_OK) {
        simulator_violate(&world->simulator, "refusal", "more inline bytes than agreed were taken");
    }
}
