#include "rnic/device/deputies.h"

#include "rnic/base/check.h"
#include "rnic/transport/deputy.h"
#include "rnic/transport/qp_private.h"

#define DEPUTIES_MAX 1024u

enum status deputies_init(struct deputies *deputies, struct allocator *allocator)
{
    return map_init(&deputies->by_number, allocator, DEPUTIES_MAX);
}

static void destroy(struct deputies *deputies, struct qp *qp)
{
    void *removed = map_remove(&deputies->by_number, qp->number.value);
    CHECK(removed == qp);
    qp_destroy(qp);
}

static struct qp *find_forgettable(const struct deputies *deputies)
{
    uint32_t cursor = 0, number;
    void *value;
    while (map_next(&deputies->by_number, &cursor, &number, &value)) {
        if (deputy_is_forgettable(value)) {
            return value;
        }
    }
    return NULL;
}

void deputies_fini(struct deputies *deputies)
{
    uint32_t cursor = 0, number;
    void *value;
    while (deputies->by_number.count > 0 &&
           map_next(&deputies->by_number, &cursor, &number, &value)) {
        destroy(deputies, value);
        cursor = 0;
    }
    map_fini(&deputies->by_number);
}

static struct qp *create(struct deputies *deputies, struct environment *environment,
                         const struct relay_message *message)
{
    struct map *map = &deputies->by_number;
    struct qp_init init = {
        .service = SERVICE_XRC, .xrc_domain = message->domain, .is_deputy = true};
    struct qp *former = map->count < map->capacity ? NULL : find_forgettable(deputies);
    struct qp *qp;
    if (former != NULL) {
        destroy(deputies, former);
    }
    if (map->count == map->capacity ||
        qp_create(environment, &init, message->target, &qp) != STATUS_OK) {
        return NULL;
    }
    enum status status = map_insert(map, message->target.value, qp);
    CHECK(status == STATUS_OK);
    return qp;
}

static bool is_sound(const struct relay_message *message, const struct packet *packet)
{
    return packet->info->service == SERVICE_XRC && packet->info->is_request &&
           packet->destination.value == message->target.value &&
           xrc_domain_is_shared(message->domain) && message->path_mtu >= PATH_MTU_256 &&
           message->path_mtu <= PATH_MTU_4096 && message->destination.value <= PSN_MASK &&
           message->expected.value <= PSN_MASK;
}

void deputies_receive(struct deputies *deputies, struct environment *environment, uint32_t from,
                      const struct relay_message *message, const uint8_t *bytes, uint32_t length)
{
    struct packet packet;
    enum packet_refusal refusal = packet_parse(bytes, length, &packet);
    if (refusal == REFUSED_NOT && !is_sound(message, &packet)) {
        refusal = REFUSED_SERVICE;
    }
    if (refusal != REFUSED_NOT) {
        environment_refuse(environment, refusal);
        return;
    }
    environment_count(environment, COUNTER_DEPUTY_REQUESTS);
    struct qp *qp = map_find(&deputies->by_number, message->target.value);
    if (qp != NULL && !xrc_domain_equal(qp->rare.xrc_domain, message->domain)) {
        destroy(deputies, qp); /* the number has a new target */
        qp = NULL;
    }
    if (qp == NULL) {
        qp = create(deputies, environment, message);
    }
    if (qp == NULL) {
        return; /* the target asks again, for RELAY_PATIENCE_NS */
    }
    environment->counters.values[COUNTER_BYTES_RECEIVED] += packet.payload_length;
    deputy_receive(qp, from, message, &packet);
}

void deputies_end(struct deputies *deputies, uint32_t from, const struct relay_message *message)
{
    struct qp *qp = map_find(&deputies->by_number, message->target.value);
    if (qp == NULL || !deputy_is_of(qp, from, message->life)) {
        return;
    }
    if (message->has_failed != 0) {
        qp_enter_error(qp); /* its receive comes back */
    }
    destroy(deputies, qp);
}

void deputies_expire(struct deputies *deputies, struct qp *qp)
{
    if (!deputy_expire(qp)) {
        qp_enter_error(qp);
        destroy(deputies, qp);
    }
}
