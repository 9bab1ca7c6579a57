/* Packets in: parsed, checked for what concerns no single queue pair, and handed on. Every packet
 * that goes no further is counted under its reason. */
#include "rnic/device/device_private.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/short_way.h"
#include "rnic/transport/succession.h"
#include "rnic/transport/trouble.h"

#define PKEY_MASK 0x7fffu /* without the membership bit */

static enum packet_refusal check(const struct arrival *arrival, const struct packet *packet)
{
    if ((packet->pkey.value & PKEY_MASK) != (PKEY_DEFAULT.value & PKEY_MASK)) {
        return REFUSED_PKEY;
    }
    /* A multicast address goes with its own queue pair number and no other. [IBA 10.5] */
    if (gid_is_multicast(&arrival->path.local) != qpn_equal(packet->destination, QPN_MULTICAST)) {
        return REFUSED_ADDRESS;
    }
    return REFUSED_NOT;
}

void device_refuse(struct device *device, enum packet_refusal refusal)
{
    environment_refuse(&device->environment, refusal);
}

void device_receive_relayed(struct device *device, struct instant now, uint32_t from,
                            const struct relay_message *message, const uint8_t *bytes,
                            uint32_t length)
{
    struct environment *environment = &device->environment;
    struct qp *qp;
    environment->now = now;
    switch (message->kind) {
    case RELAY_REQUEST:
        deputies_receive(&device->deputies, environment, from, message, bytes, length);
        break;
    case RELAY_ANSWER:
    case RELAY_WAIT:
        qp = device_qp(device, message->target.value);
        if (qp != NULL) {
            relay_answered(qp, from, message);
        }
        break;
    case RELAY_END:
        deputies_end(&device->deputies, from, message);
        break;
    default:
        environment_refuse(environment, REFUSED_OPCODE);
        break;
    }
}

static void receive_report(struct device *device, struct instant now, const struct arrival *arrival,
                           const uint8_t *bytes, uint32_t length)
{
    struct environment *environment = &device->environment;
    struct report report;
    environment->now = now;
    environment_count(environment, COUNTER_PACKETS_RECEIVED);
    enum packet_refusal refusal = report_parse(bytes, length, &report);
    if (refusal != REFUSED_NOT) {
        environment_refuse(environment, refusal);
        return;
    }
    struct qp *qp = device_qp(device, report.destination.value);
    if (qp == NULL) {
        environment_refuse(environment, REFUSED_NO_QP);
        return;
    }
    qp_receive_report(qp, now, arrival, &report);
}

/* `refusal`: what parsing said. */
static bool take(struct device *device, struct instant now, const struct arrival *arrival,
                 const struct packet *packet, enum packet_refusal refusal)
{
    struct environment *environment = &device->environment;
    environment->now = now;
    environment_count(environment, COUNTER_PACKETS_RECEIVED);
    if (arrival->congestion_experienced) {
        environment_count(environment, COUNTER_CONGESTION_MARKS);
    }
    if (refusal == REFUSED_NOT) {
        refusal = check(arrival, packet);
    }
    if (refusal != REFUSED_NOT) {
        environment_refuse(environment, refusal);
        return false;
    }
    if (qpn_equal(packet->destination, QPN_MANAGEMENT)) {
        management_receive(&device->management, environment, now, arrival, packet);
        return false;
    }
    if (qpn_equal(packet->destination, QPN_MULTICAST)) {
        multicast_receive(&device->multicast, environment, now, arrival, packet);
        return false;
    }
    struct qp *qp = device_qp(device, packet->destination.value);
    if (qp == NULL) {
        environment_refuse(environment, REFUSED_NO_QP);
        return false;
    }
    if (reference_wants_unfolding(qp, packet)) {
        return reference_unfold(qp, now, arrival, packet);
    }
    return qp_receive(qp, now, arrival, packet);
}

void device_expect(struct device *device, const uint8_t *bytes)
{
    if (device->expected != NULL) {
        qp_prefetch_sends(device->expected); /* by now it is near */
    }
    device->expected = device_qp(device, packet_destination(bytes).value);
    if (device->expected != NULL) {
        qp_prefetch(device->expected);
    }
}

/* False: it is for the general way. */
static inline bool receive_short(struct device *device, struct instant now,
                                 const struct arrival *arrival, const uint8_t *bytes,
                                 uint32_t length)
{
    if (short_way_may_take(bytes, length)) {
        struct qp *qp = device_qp(device, packet_destination(bytes).value);
        if (qp == NULL) {
            return false;
        }
        if (!succession_stays(qp, SUCCESSION_PACKETS)) {
            qp_prefetch_all(qp);
            succession_goes_on(qp, SUCCESSION_PACKETS);
        }
        return short_way_receive(qp, now, arrival, bytes, length);
    }
    if (short_way_may_acknowledge(bytes, length)) {
        struct qp *qp = device_qp(device, packet_destination(bytes).value);
        return qp != NULL && short_way_acknowledged(qp, now, arrival, bytes);
    }
    return false;
}

static bool receive_generally(struct device *device, struct instant now,
                              const struct arrival *arrival, const uint8_t *bytes, uint32_t length,
                              struct follow *ret_follow)
{
    struct packet packet;
    if (report_is_one(bytes, length) && device->environment.selective.capacity > 0) {
        receive_report(device, now, arrival, bytes, length);
        return false;
    }
    enum packet_refusal refusal = packet_parse(bytes, length, &packet);
    bool of_peer = take(device, now, arrival, &packet, refusal);
    if (of_peer) {
        follow_begin(ret_follow, device_qp(device, packet.destination.value), arrival, &packet,
                     bytes, length);
    }
    return of_peer;
}

bool device_receive(struct device *device, struct instant now, const struct arrival *arrival,
                    const uint8_t *bytes, uint32_t length)
{
    struct follow none;
    return receive_short(device, now, arrival, bytes, length) ||
           receive_generally(device, now, arrival, bytes, length, &none);
}

bool device_receive_in_row(struct device *device, struct instant now, const struct arrival *arrival,
                           const uint8_t *bytes, uint32_t length, struct follow *ret_follow)
{
    ret_follow->qp = NULL;
    return receive_short(device, now, arrival, bytes, length) ||
           receive_generally(device, now, arrival, bytes, length, ret_follow);
}

bool device_receive_reference(struct device *device, struct instant now,
                              const struct arrival *arrival, const uint8_t *bytes, uint32_t length,
                              const struct payload_reference *reference)
{
    struct packet packet;
    enum packet_refusal refusal = packet_parse_reference(bytes, length, reference, &packet);
    return take(device, now, arrival, &packet, refusal);
}

const struct qp *device_hear(struct device *device, struct instant now,
                             const struct trouble *trouble)
{
    device->environment.now = now;
    for (uint32_t i = 0; i < device->qpn_count; i++) {
        struct qp *qp = device->qps[i];
        if (qp != NULL && trouble_hear(qp, trouble)) {
            return qp;
        }
    }
    return NULL;
}

void device_mourn(struct device *device, struct instant now, struct device_death *death)
{
    device->environment.now = now;
    for (uint32_t i = 0; i < device->qpn_count; i++) {
        struct qp *qp = device->qps[i];
        if (qp != NULL &&
            death->is_of_dead(death, &qp->attributes.path, qp->attributes.destination)) {
            trouble_peer_died(qp);
        }
    }
}

void device_await_goodbye(struct device *device, struct qpn qpn)
{
    struct qp *qp = device_qp(device, qpn.value);
    if (qp != NULL) {
        trouble_await_goodbye(qp);
    }
}

void device_say_goodbye(struct device *device, struct qpn qpn)
{
    struct qp *qp = device_qp(device, qpn.value);
    if (qp != NULL) {
        trouble_goodbye(qp);
    }
}
