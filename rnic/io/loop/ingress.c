#include "rnic/io/loop/ingress.h"

#include <string.h>

#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

/* Places in a packet, from the BTH. */
#define AT_MAD        (BTH_LENGTH + 8u /* DETH */)
#define AT_ATTRIBUTE  (AT_MAD + 16u)
#define AT_LOCAL_ID   (AT_MAD + 24u)
#define AT_REMOTE_ID  (AT_MAD + 24u + 4u)
#define AT_SERVICE_ID (AT_MAD + 24u + 8u)

#define EVERYBODY SLOT_NONE

/* What goes to all processes costs a system call for each: a stranger gets so many in a while. Who
 * needs one and does not get it hears of its peer by a timeout. */
#define TOLD_MAX    64u
#define TOLD_PER_NS UINT64_C(100000000)

/* Whose a MAD is. A REQ belongs to who listens at its address, which the registry knows best: our
 * cm may listen at others of the host, and somebody else at this one. All others to whose
 * communication id they name, or to the heir of who is gone. What is nobody's is ours: our cm
 * answers for it. A REJ of a peer that gave up before it heard from us names no id of ours: whoever
 * knows the peer's takes it. */
static uint32_t owner_of_mad(const struct ingress *ingress, const struct path *path,
                             const uint8_t *bytes, uint32_t length)
{
    uint32_t own = registry_slot(ingress->registry);
    if (length < AT_MAD + MAD_LENGTH) {
        return own;
    }
    uint16_t kind = bytes_load_u16(bytes + AT_ATTRIBUTE);
    if (kind == CM_MESSAGE_REQ || kind == CM_MESSAGE_SIDR_REQ) {
        uint64_t service_id = bytes_load_u64(bytes + AT_SERVICE_ID);
        uint32_t slot = SLOT_NONE;
        if (!ingress->closing) {
            slot = registry_find_listener(ingress->registry, service_id, &path->local);
        }
        return slot != SLOT_NONE ? slot : own;
    }
    uint32_t at = kind == CM_MESSAGE_SIDR_REP ? AT_LOCAL_ID : AT_REMOTE_ID;
    uint32_t id = bytes_load_u32(bytes + at);
    if (kind == CM_MESSAGE_REJ && id == 0) {
        uint32_t peer_id = bytes_load_u32(bytes + AT_LOCAL_ID);
        bool ours = !ingress->closing && cm_knows_peer(ingress->cm, &path->remote, peer_id);
        return ours ? own : EVERYBODY;
    }
    uint32_t slot = slot_of_communication_id(id);
    if (registry_slot_is_used(ingress->registry, slot)) {
        return slot;
    }
    uint32_t heir = registry_heir(ingress->registry, slot);
    return heir != SLOT_NONE ? heir : own;
}

static uint32_t owner_of(const struct ingress *ingress, const struct path *path,
                         const uint8_t *bytes, uint32_t length)
{
    uint32_t own = registry_slot(ingress->registry);
    if (length < BTH_LENGTH + ICRC_LENGTH) {
        return own;
    }
    struct qpn qpn = packet_destination(bytes);
    if (gid_is_multicast(&path->local)) {
        return own; /* who else has joined has a copy, whatever number stands in it */
    }
    if (qpn_equal(qpn, QPN_MANAGEMENT)) {
        return owner_of_mad(ingress, path, bytes, length - ICRC_LENGTH);
    }
    uint32_t slot = slot_of_qpn(qpn);
    bool ours = slot == own || qpn.value < SLOT_QPN_RESERVED || qpn_equal(qpn, QPN_MULTICAST) ||
                !registry_slot_is_used(ingress->registry, slot);
    return ours ? own : slot;
}

/* Packets that have come in one read, as far as they are ours. */
struct row {
    const struct arrival *arrival;
    struct path sender; /* its path, as they see it */
    struct follow follow;
    const struct roce_likeness *like; /* of those that follow, or NULL */
};

static void begin_row(struct row *row, const struct arrival *arrival)
{
    row->arrival = arrival;
    row->sender = path_reverse(&arrival->path);
    row->follow.qp = NULL;
    row->like = NULL;
}

static bool is_sound(struct ingress *ingress, const struct row *row, const uint8_t *bytes,
                     uint32_t body, uint32_t place, struct roce_ip *ret_ip)
{
    enum packet_refusal refusal = integrity_check(&ingress->integrity, ingress->now, &row->sender,
                                                  bytes, body, place, ret_ip);
    if (refusal != REFUSED_NOT) {
        device_refuse(ingress->device, refusal);
    }
    return refusal == REFUSED_NOT;
}

/* True: it was sound, and the device has it. */
static bool keep(struct ingress *ingress, struct row *row, const uint8_t *bytes, uint32_t length,
                 uint32_t place)
{
    if (length < BTH_LENGTH + ICRC_LENGTH) {
        device_refuse(ingress->device, REFUSED_TRUNCATED);
        return false;
    }
    uint32_t body = length - ICRC_LENGTH;
    struct roce_ip ip = {0};
    if (!is_sound(ingress, row, bytes, body, place, &ip)) {
        return false;
    }
    bool of_peer = device_receive_in_row(ingress->device, ingress->now, row->arrival, bytes, body,
                                         &row->follow);
    if (of_peer) {
        integrity_learn(&ingress->integrity, ingress->now, &row->sender, &ip);
    }
    return true;
}

/* The same of one that follows the one before. An identification as expected teaches nothing that
 * the row's first packets have not taught. */
static void keep_following(struct ingress *ingress, struct row *row, const uint8_t *bytes,
                           uint32_t length, uint32_t place)
{
    struct roce_ip ip = {0};
    if (row->like != NULL && integrity_is_alike(row->like, bytes, place)) {
        follow_receive(&row->follow, bytes);
        return;
    }
    if (is_sound(ingress, row, bytes, length - ICRC_LENGTH, place, &ip)) {
        follow_receive(&row->follow, bytes);
        if (ip.identification != (uint16_t)place) {
            integrity_learn(&ingress->integrity, ingress->now, &row->sender, &ip);
        }
    }
    row->like = integrity_likeness(&ingress->integrity, &row->sender, bytes, length - ICRC_LENGTH);
}

/* Their owner was found dead: then they are ours to answer. */
static void keep_all(struct ingress *ingress, const struct udp_datagrams *datagrams)
{
    uint32_t place = datagrams->first_place;
    struct row row;
    begin_row(&row, &datagrams->arrival);
    for (uint32_t at = 0; at < datagrams->length; at += datagrams->segment, place++) {
        uint32_t rest = datagrams->length - at;
        (void)keep(ingress, &row, datagrams->bytes + at,
                   rest < datagrams->segment ? rest : datagrams->segment, place);
    }
}

static bool first_is_sound(struct ingress *ingress, const struct udp_datagrams *datagrams)
{
    struct path sender = path_reverse(&datagrams->arrival.path);
    struct roce_ip ip;
    uint32_t length =
        datagrams->length < datagrams->segment ? datagrams->length : datagrams->segment;
    return integrity_fits(&ingress->integrity, &sender, datagrams->bytes, length - ICRC_LENGTH,
                          datagrams->first_place, &ip);
}

/* Packets that follow each other and have one owner travel together. The kernel chose us by the
 * first packet of a read: `chosen` says that this is it. What it says it is for counts if its
 * ICRC does. */
static void hand_on(struct ingress *ingress, uint32_t slot, const struct udp_datagrams *datagrams,
                    bool chosen)
{
    ingress->foreign += (datagrams->length + datagrams->segment - 1) / datagrams->segment;
    enum status status = handoff_send(ingress->handoff, ingress->now, slot, datagrams);
    struct qpn qpn = packet_destination(datagrams->bytes);
    if (ingress->closing) {
        return;
    }
    if ((status == STATUS_CLOSED || (chosen && !qpn_equal(qpn, QPN_MANAGEMENT))) &&
        first_is_sound(ingress, datagrams)) {
        steering_correct(ingress->steering, datagrams->family, slot);
    }
    if (status == STATUS_CLOSED && !registry_slot_is_used(ingress->registry, slot)) {
        keep_all(ingress, datagrams);
    }
}

static bool may_tell_others(struct ingress_allowance *allowance, struct instant now)
{
    if (instant_elapsed_ns(allowance->since, now) >= TOLD_PER_NS) {
        *allowance = (struct ingress_allowance){.since = now};
    }
    return allowance->told++ < TOLD_MAX;
}

static bool is_others(const struct ingress *ingress, uint32_t slot)
{
    return slot != registry_slot(ingress->registry) &&
           registry_slot_is_used(ingress->registry, slot);
}

static void tell_others(struct ingress *ingress, const struct udp_datagrams *datagrams,
                        const uint8_t *bytes, uint32_t length, uint32_t place)
{
    struct udp_datagrams one = *datagrams;
    one.bytes = bytes;
    one.length = length;
    one.segment = length;
    one.first_place = place;
    for (uint32_t slot = 0; slot < SLOT_COUNT; slot++) {
        if (is_others(ingress, slot)) {
            enum status status = handoff_send(ingress->handoff, ingress->now, slot, &one);
            (void)status; /* who is gone does not need it */
            ingress->copies++;
        }
    }
}

void ingress_hand_on_complaint(struct ingress *ingress, struct instant now,
                               const struct complaint *complaint)
{
    if (!may_tell_others(&ingress->hearsay, now)) {
        return;
    }
    bool is_datagram = complaint->trouble.source.value != 0;
    uint32_t first = is_datagram ? slot_of_qpn(complaint->trouble.source) : 0;
    uint32_t end = is_datagram ? first + 1 : SLOT_COUNT;
    for (uint32_t slot = first; slot < end; slot++) {
        if (is_others(ingress, slot)) {
            handoff_send_complaint(ingress->handoff, slot, complaint);
        }
    }
}

/* Every socket of the port has a copy of such a datagram, whosever packets stand in it. */
static bool is_to_strangers(const struct ingress *ingress, const struct udp_datagrams *datagrams)
{
    const struct gid *destination = &datagrams->arrival.path.local;
    return datagrams->broadcast ||
           (gid_is_multicast(destination) && !device_has_group(ingress->device, destination));
}

static void refuse_all(struct ingress *ingress, const struct udp_datagrams *datagrams)
{
    for (uint32_t at = 0; at < datagrams->length; at += datagrams->segment) {
        device_refuse(ingress->device, REFUSED_BROADCAST);
    }
}

static void receive(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    struct ingress *ingress = (struct ingress *)receiver;
    uint32_t own = registry_slot(ingress->registry);
    struct udp_datagrams foreign = *datagrams;
    uint32_t foreign_owner = own;
    uint32_t place = datagrams->first_place;
    foreign.length = 0;
    if (datagrams->length == 0) { /* a datagram of nothing */
        device_refuse(ingress->device, REFUSED_TRUNCATED);
    }
    if (is_to_strangers(ingress, datagrams)) {
        refuse_all(ingress, datagrams);
        return;
    }
    struct row row;
    begin_row(&row, &datagrams->arrival);
    for (uint32_t at = 0; at < datagrams->length; at += datagrams->segment, place++) {
        const uint8_t *bytes = datagrams->bytes + at;
        uint32_t rest = datagrams->length - at;
        uint32_t length = rest < datagrams->segment ? rest : datagrams->segment;
        uint32_t owner = own;
        if (foreign.length == 0 && follow_fits(&row.follow, bytes, length - ICRC_LENGTH)) {
            keep_following(ingress, &row, bytes, length, place);
            continue;
        }
        row.like = NULL;
        if (rest >= 2 * datagrams->segment + BTH_LENGTH) {
            device_expect(ingress->device, bytes + 2 * (size_t)datagrams->segment);
        }
        if (!datagrams->handed_on) {
            owner = owner_of(ingress, &datagrams->arrival.path, bytes, length);
        }
        if (foreign.length > 0 && owner != foreign_owner) {
            hand_on(ingress, foreign_owner, &foreign, foreign.bytes == datagrams->bytes);
            foreign.length = 0;
        }
        if (owner == own || owner == EVERYBODY) {
            bool sound = keep(ingress, &row, bytes, length, place);
            if (owner == EVERYBODY && sound && may_tell_others(&ingress->packets, ingress->now)) {
                tell_others(ingress, datagrams, bytes, length, place);
            }
        } else if (foreign.length == 0) {
            foreign_owner = owner;
            foreign.bytes = bytes;
            foreign.length = length;
            foreign.first_place = place;
        } else {
            foreign.length += length;
        }
    }
    if (foreign.length > 0) {
        hand_on(ingress, foreign_owner, &foreign, foreign.bytes == datagrams->bytes);
    }
}

static void hear(struct udp_receiver *receiver, const struct complaint *complaint)
{
    complaints_add(((struct ingress *)receiver)->complaints, complaint);
}

void ingress_init(struct ingress *ingress)
{
    ingress->receiver.receive = receive;
    ingress->receiver.hear = hear;
}
