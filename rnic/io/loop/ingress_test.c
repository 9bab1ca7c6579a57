/* Which process gets a packet that reached another. Two processes' worth of registry, hand-on,
 * device and cm in one, without sockets of the link. */
#include "rnic/io/loop/ingress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "rnic/base/heap.h"
#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

#define SERVICE  UINT64_C(0x1061234)
#define MAD_AT   (BTH_LENGTH + DETH_LENGTH)
#define PEER_ID  0x55667788u
#define DATAGRAM (MAD_AT + MAD_LENGTH + ICRC_LENGTH)

static const struct path path = {
    .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
    .source_port = 50000,
};

struct process {
    struct ingress ingress;
    struct complaints complaints;
    struct packet_sink sink;
    struct handoff *handoff;
};

static const char *own_file(void)
{
    static char file[64];
    snprintf(file, sizeof file, "/tmp/weir-ingress-test-%ld", (long)getpid());
    unlink(file);
    return file;
}

static bool swallow(struct packet_sink *sink, const struct outgoing *outgoing)
{
    (void)sink;
    (void)outgoing;
    return true;
}

static void start(struct process *process, const char *file)
{
    struct ingress *ingress = &process->ingress;
    *process = (struct process){.sink = {swallow}};
    ingress_init(ingress);
    ingress->complaints = &process->complaints;
    assert_int_equal(registry_open(file, &ingress->registry), STATUS_OK);
    assert_int_equal(handoff_create(ingress->registry, &ingress->handoff), STATUS_OK);
    uint32_t slot = registry_slot(ingress->registry);
    struct device_config device = {.allocator = heap_allocator(),
                                   .sink = &process->sink,
                                   .key = {{slot}},
                                   .first_qpn = registry_first_qpn(ingress->registry),
                                   .qpn_count = registry_qpn_count(ingress->registry),
                                   .max_regions = 1,
                                   .max_reads_in = 1};
    assert_int_equal(device_create(&device, &ingress->device), STATUS_OK);
    struct cm_config cm = {.allocator = heap_allocator(),
                           .device = ingress->device,
                           .key = {{slot}},
                           .id_prefix = slot,
                           .id_prefix_bits = SLOT_BITS,
                           .max_connections = 4};
    assert_int_equal(cm_create(&cm, &ingress->cm), STATUS_OK);
}

static void stop(struct process *process)
{
    cm_destroy(process->ingress.cm);
    device_destroy(process->ingress.device);
    handoff_destroy(process->ingress.handoff);
    registry_close(process->ingress.registry);
}

/* A packet of the peer reaches this process's socket, with an IP header like this. */
static void arrive_bytes(struct process *process, uint8_t *bytes, uint32_t length,
                         const struct roce_ip *ip)
{
    struct path sender = path_reverse(&path);
    roce_icrc_store(bytes + length, roce_icrc(&sender, ip, bytes, length));
    length += ICRC_LENGTH;
    struct udp_datagrams datagrams = {
        .arrival = {.path = path}, .bytes = bytes, .length = length, .segment = length};
    process->ingress.receiver.receive(&process->ingress.receiver, &datagrams);
}

static void arrive_as(struct process *process, const struct cm_message *message,
                      const struct roce_ip *ip)
{
    uint8_t bytes[DATAGRAM], header[PACKET_HEADER_MAX];
    struct packet packet = {.opcode = OPCODE(SERVICE_UD, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = QPN_MANAGEMENT,
                            .qkey = QKEY_MANAGEMENT,
                            .source = QPN_MANAGEMENT,
                            .payload_length = MAD_LENGTH};
    assert_int_equal(packet_build(&packet, header), MAD_AT);
    memcpy(bytes, header, MAD_AT);
    cm_message_build(message, bytes + MAD_AT);
    arrive_bytes(process, bytes, MAD_AT + MAD_LENGTH, ip);
}

static void arrive(struct process *process, const struct cm_message *message)
{
    arrive_as(process, message, &(struct roce_ip){.dont_fragment = true});
}

/* Whether a packet with such an IP header is taken. */
static bool is_taken(struct process *process, uint16_t identification, bool dont_fragment)
{
    const struct counters *counters = device_counters(process->ingress.device);
    uint64_t before = counters->refused[REFUSED_IDENTIFICATION];
    struct cm_message nothing = {.kind = CM_MESSAGE_DREP};
    arrive_as(process, &nothing, &(struct roce_ip){identification, dont_fragment});
    assert_int_equal(counters->refused[REFUSED_ICRC], 0);
    return counters->refused[REFUSED_IDENTIFICATION] == before;
}

struct peer {
    struct process *process;
    struct completion_queue *completions;
    struct domain domain;
    struct qp *qp;
};

/* A queue pair of ours that waits for the peer's first request. */
static struct peer connect_peer(struct process *process)
{
    struct peer peer = {.process = process};
    struct device *device = process->ingress.device;
    assert_int_equal(completion_queue_create(heap_allocator(), 4, NULL, &peer.completions),
                     STATUS_OK);
    assert_int_equal(memory_allocate_domain(device_memory(device), &peer.domain), STATUS_OK);
    struct qp_init init = {.service = SERVICE_RC,
                           .domain = peer.domain,
                           .send_completions = peer.completions,
                           .receive_completions = peer.completions,
                           .send = {.capacity = 1, .max_sge = 1},
                           .max_receive = 1,
                           .max_receive_sge = 1};
    assert_int_equal(device_create_qp(device, &init, &peer.qp), STATUS_OK);
    struct qp_attributes attributes = {.state = QP_INIT,
                                       .path = path,
                                       .path_mtu = PATH_MTU_1024,
                                       .destination = {4711},
                                       .port = 1,
                                       .max_reads_in = 1};
    struct instant now = process->ingress.now;
    assert_int_equal(
        device_modify_qp(device, now, peer.qp, &attributes,
                         QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS, NULL),
        STATUS_OK);
    attributes.state = QP_RTR;
    assert_int_equal(device_modify_qp(device, now, peer.qp, &attributes,
                                      QP_SET_STATE | QP_SET_PATH | QP_SET_PATH_MTU |
                                          QP_SET_DESTINATION | QP_SET_RECEIVE_PSN |
                                          QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER,
                                      NULL),
                     STATUS_OK);
    return peer;
}

static void disconnect_peer(struct peer *peer)
{
    struct device *device = peer->process->ingress.device;
    device_destroy_qp(device, peer->qp);
    completion_queue_destroy(peer->completions);
    assert_int_equal(memory_free_domain(device_memory(device), peer->domain), STATUS_OK);
}

/* The same of a request with the PSN that is due. */
static bool is_learned(struct process *process, const struct peer *peer, uint16_t identification)
{
    const struct counters *counters = device_counters(process->ingress.device);
    uint64_t before = counters->refused[REFUSED_IDENTIFICATION];
    uint8_t bytes[PACKET_HEADER_MAX + ICRC_LENGTH];
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(peer->qp)};
    arrive_bytes(process, bytes, packet_build(&packet, bytes),
                 &(struct roce_ip){identification, true});
    return counters->refused[REFUSED_IDENTIFICATION] == before;
}

static bool has_event(struct process *process, enum cm_event_kind kind)
{
    struct cm_event event;
    bool came = cm_next_event(process->ingress.cm, &event);
    assert_true(!came || event.kind == kind);
    return came;
}

static struct cm_message request_of(uint32_t peer_id)
{
    return (struct cm_message){.kind = CM_MESSAGE_REQ,
                               .transaction = 7,
                               .local_id = peer_id,
                               .service_id = SERVICE,
                               .local_qpn = {100 + peer_id - PEER_ID},
                               .path_mtu = PATH_MTU_1024,
                               .path = {.local = path.remote, .remote = path.local}};
}

static void listen_at(struct process *process, const struct gid *address)
{
    struct registry_name name = {
        .service_id = SERVICE, .scope = REGISTRY_EXACT, .address = *address};
    struct cm_listener *listener;
    uint32_t claim;
    assert_int_equal(registry_claim(process->ingress.registry, &name, false, &claim), STATUS_OK);
    assert_int_equal(registry_listen(process->ingress.registry, claim), STATUS_OK);
    assert_int_equal(cm_listen(process->ingress.cm, SERVICE, NULL, 0, NULL, &listener), STATUS_OK);
}

/* Two processes at one port; rdmacm's listeners hear of all addresses. Whichever gets the REQ. */
static void one_port_at_two_addresses(void **state)
{
    (void)state;
    static const struct gid elsewhere = {{[10] = 0xff, 0xff, 10, 0, 0, 9}};
    const char *file = own_file();
    struct process all[2];
    for (int i = 0; i < 2; i++) {
        start(&all[i], file);
    }
    listen_at(&all[0], &elsewhere);
    listen_at(&all[1], &path.local);
    for (int way = 0; way < 2; way++) {
        struct cm_message request = request_of(PEER_ID + (uint32_t)way);
        arrive(&all[way], &request);
        handoff_receive(all[1].ingress.handoff, &all[1].ingress.receiver);
        assert_false(has_event(&all[0], CM_EVENT_REQUEST));
        assert_true(has_event(&all[1], CM_EVENT_REQUEST));
    }
    for (int i = 0; i < 2; i++) {
        stop(&all[i]);
    }
    unlink(file);
}

/* What no queue pair knows to be its peer's teaches nothing: neither forged habits nor strangers.
 */
static void strangers_teach_nothing(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process process;
    start(&process, file);
    for (uint16_t i = 0; i < 100; i++) {
        assert_true(is_taken(&process, i % 4, true));
    }
    assert_true(is_taken(&process, 33032, true));
    stop(&process);
    unlink(file);
}

/* Of the identifications that fit a packet, only those are taken that its sender uses. */
static void damage_is_not_taken_for_another_identification(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process process;
    start(&process, file);
    struct peer peer = connect_peer(&process);
    for (uint16_t i = 0; i < 3; i++) { /* nobody's habit yet, as of rxe */
        assert_true(is_learned(&process, &peer, (uint16_t)(40000 + i * 777)));
    }
    assert_false(is_taken(&process, 0, false));
    for (uint16_t i = 0; i < 100; i++) {
        assert_true(is_learned(&process, &peer, i % 4));
    }
    for (int i = 0; i < 5; i++) {
        assert_false(is_taken(&process, 33032, true));
        assert_true(is_learned(&process, &peer, 1));
    }
    assert_false(is_taken(&process, 33032, true));
    assert_true(is_learned(&process, &peer, 33032)); /* no accident: somebody else is there now */
    assert_true(is_taken(&process, 4711, true));
    for (uint16_t i = 0; i < 100; i++) { /* one who counts; the first of a segmented send */
        assert_true(is_learned(&process, &peer, 5000 + i));
        assert_true(i < 50 || i % 10 != 0 || is_taken(&process, 0, true));
    }
    disconnect_peer(&peer);
    stop(&process);
    unlink(file);
}

/* REQ at the listener, then the peer gives up; its REJ names none of our ids. */
static void a_reject_without_our_id_finds_the_request(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process all[3], *listening = &all[1];
    for (int i = 0; i < 3; i++) {
        start(&all[i], file);
    }
    struct cm_listener *listener;
    assert_int_equal(cm_listen(listening->ingress.cm, SERVICE, NULL, 0, NULL, &listener),
                     STATUS_OK);
    for (int way = 0; way < 3; way++) { /* to whichever process the kernel gives it */
        struct cm_message request = request_of(PEER_ID + (uint32_t)way);
        arrive(listening, &request);
        assert_true(has_event(listening, CM_EVENT_REQUEST));
        struct cm_message reject = {.kind = CM_MESSAGE_REJ,
                                    .transaction = 7,
                                    .local_id = PEER_ID + (uint32_t)way,
                                    .reject_reason = CM_REJECT_TIMEOUT};
        arrive(&all[way], &reject);
        for (int i = 0; i < 3; i++) {
            /* Who knows it keeps it; else all others hear of it. */
            uint32_t heard = handoff_receive(all[i].ingress.handoff, &all[i].ingress.receiver);
            assert_int_equal(heard, &all[way] != listening && i != way);
        }
        assert_true(has_event(listening, CM_EVENT_REJECTED));
    }
    for (int i = 0; i < 3; i++) {
        stop(&all[i]);
    }
    unlink(file);
}

/* What a stranger sends is not multiplied without bound, and damage not at all. */
static void a_flood_is_not_handed_to_everybody(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process all[2];
    for (int i = 0; i < 2; i++) {
        start(&all[i], file);
    }
    const struct counters *counters = device_counters(all[0].ingress.device);
    struct cm_message reject = {.kind = CM_MESSAGE_REJ, .local_id = PEER_ID};
    uint32_t heard = 0;
    for (int i = 0; i < 1000; i++) {
        arrive(&all[0], &reject);
        heard += handoff_receive(all[1].ingress.handoff, &all[1].ingress.receiver);
    }
    assert_in_range(heard, 1, 100);
    assert_int_equal(all[0].ingress.copies, heard);
    assert_int_equal(counters->refused[REFUSED_MANAGEMENT], 1000); /* each is counted */
    all[0].ingress.now.ns += 1000000000;
    uint8_t bytes[DATAGRAM] = {[0] = OPCODE(SERVICE_UD, FORM_SEND_ONLY), [7] = 1};
    cm_message_build(&reject, bytes + MAD_AT); /* no ICRC */
    struct udp_datagrams datagrams = {
        .arrival = {.path = path}, .bytes = bytes, .length = DATAGRAM, .segment = DATAGRAM};
    all[0].ingress.receiver.receive(&all[0].ingress.receiver, &datagrams);
    assert_int_equal(handoff_receive(all[1].ingress.handoff, &all[1].ingress.receiver), 0);
    datagrams.length = datagrams.segment = 0; /* a datagram without a byte is one */
    all[0].ingress.receiver.receive(&all[0].ingress.receiver, &datagrams);
    assert_int_equal(counters->refused[REFUSED_ICRC], 1);
    assert_int_equal(counters->refused[REFUSED_TRUNCATED], 1);
    for (int i = 0; i < 2; i++) {
        stop(&all[i]);
    }
    unlink(file);
}

/* An ICMP message names no process, unless it quotes a datagram: all others hear of it, but not
 * without bound, for it may be forged. */
static void a_complaint_finds_whom_it_concerns(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process all[3];
    for (int i = 0; i < 3; i++) {
        start(&all[i], file);
    }
    struct complaint complaint = {.trouble = {.kind = TROUBLE_TOO_LONG, .mtu = 1500}}, heard;
    struct instant now = {1};
    ingress_hand_on_complaint(&all[0].ingress, now, &complaint);
    for (int i = 0; i < 3; i++) {
        (void)handoff_receive(all[i].ingress.handoff, &all[i].ingress.receiver);
        assert_int_equal(complaints_take(&all[i].complaints, &heard), i != 0);
        assert_true(i == 0 || (heard.trouble.mtu == 1500 && heard.handed_on));
    }
    uint32_t count = 1;
    for (int i = 0; i < 1000; i++) {
        ingress_hand_on_complaint(&all[0].ingress, now, &complaint);
        (void)handoff_receive(all[1].ingress.handoff, &all[1].ingress.receiver);
        (void)handoff_receive(all[2].ingress.handoff, &all[2].ingress.receiver);
        count += complaints_take(&all[2].complaints, &heard);
    }
    assert_in_range(count, 10, 100);
    now.ns += 1000000000;
    complaint.trouble.source = registry_first_qpn(all[2].ingress.registry);
    ingress_hand_on_complaint(&all[0].ingress, now, &complaint);
    assert_int_equal(handoff_receive(all[1].ingress.handoff, &all[1].ingress.receiver), 0);
    assert_int_equal(handoff_receive(all[2].ingress.handoff, &all[2].ingress.receiver), 1);
    for (int i = 0; i < 3; i++) {
        stop(&all[i]);
    }
    unlink(file);
}

static void receive_copy(struct process *process, const struct gid *destination, bool broadcast,
                         const uint8_t *bytes, uint32_t length)
{
    struct udp_datagrams datagrams = {.arrival = {.path = path},
                                      .bytes = bytes,
                                      .length = length,
                                      .segment = length,
                                      .broadcast = broadcast};
    datagrams.arrival.path.local = *destination;
    process->ingress.receiver.receive(&process->ingress.receiver, &datagrams);
}

/* Of a datagram to all, each process has a copy: it says nothing of whom the kernel takes whom for,
 * and is nobody's, whatever it says. */
static void what_is_sent_to_all_is_nobodys(void **state)
{
    (void)state;
    static const struct gid all_of_net = {{[10] = 0xff, 0xff, 10, 0, 0, 255}};
    static const struct gid group = {{[10] = 0xff, 0xff, 224, 0, 0, 1}};
    const char *file = own_file();
    struct process all[2];
    for (int i = 0; i < 2; i++) {
        start(&all[i], file);
    }
    struct steering steering = {.registry = all[0].ingress.registry};
    all[0].ingress.steering = &steering;
    const struct counters *counters = device_counters(all[0].ingress.device);
    uint8_t bytes[BTH_LENGTH + ICRC_LENGTH] = {0};
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE),
                            .destination = registry_first_qpn(all[1].ingress.registry)};
    uint8_t header[PACKET_HEADER_MAX];
    packet_build(&packet, header);
    memcpy(bytes, header, BTH_LENGTH);
    for (uint64_t i = 1; i <= 3; i++) {
        receive_copy(&all[0], &all_of_net, true, bytes, sizeof bytes);
        receive_copy(&all[0], &group, false, bytes, sizeof bytes);
        assert_int_equal(counters->refused[REFUSED_BROADCAST], 2 * i);
    }
    assert_int_equal(all[0].ingress.foreign, 0);
    assert_int_equal(steering.corrections, 0);
    assert_int_equal(handoff_receive(all[1].ingress.handoff, &all[1].ingress.receiver), 0);
    for (int i = 0; i < 2; i++) {
        stop(&all[i]);
    }
    unlink(file);
}

/* What reaches us for another process corrects the record, unless it is damaged. */
static void damage_corrects_no_steering(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process all[2];
    for (int i = 0; i < 2; i++) {
        start(&all[i], file);
    }
    struct steering steering = {.registry = all[0].ingress.registry};
    all[0].ingress.steering = &steering;
    uint8_t bytes[PACKET_HEADER_MAX + ICRC_LENGTH];
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = registry_first_qpn(all[1].ingress.registry)};
    uint32_t length = packet_build(&packet, bytes);
    struct path sender = path_reverse(&path);
    struct roce_ip ip = {.dont_fragment = true};
    uint32_t icrc = roce_icrc(&sender, &ip, bytes, length);
    roce_icrc_store(bytes + length, icrc ^ 0x00100400);
    receive_copy(&all[0], &path.local, false, bytes, length + ICRC_LENGTH);
    assert_int_equal(all[0].ingress.foreign, 1); /* the damage may be that it is not ours */
    assert_int_equal(steering.corrections, 0);
    roce_icrc_store(bytes + length, icrc);
    receive_copy(&all[0], &path.local, false, bytes, length + ICRC_LENGTH);
    assert_int_equal(all[0].ingress.foreign, 2);
    assert_int_equal(steering.corrections, 1);
    for (int i = 0; i < 2; i++) {
        stop(&all[i]);
    }
    unlink(file);
}

#define ROW    10u
#define LENGTH (BTH_LENGTH + 1024u + ICRC_LENGTH)

/* The packet of a message that stands at `place` in a row, with `length` bytes of payload. */
static void put_in_row(uint8_t *row, uint32_t place, struct qpn destination, uint32_t psn,
                       uint32_t length)
{
    struct path sender = path_reverse(&path);
    struct roce_ip ip = {.identification = (uint16_t)place, .dont_fragment = true};
    uint8_t form = psn == 0 ? FORM_SEND_FIRST : FORM_SEND_MIDDLE, header[PACKET_HEADER_MAX];
    uint8_t *bytes = row + (size_t)place * LENGTH;
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, form),
                            .pkey = PKEY_DEFAULT,
                            .destination = destination,
                            .psn = {psn},
                            .payload_length = length};
    memcpy(bytes, header, packet_build(&packet, header));
    memset(bytes + BTH_LENGTH, (int)psn + 1, length);
    uint32_t body = BTH_LENGTH + length;
    roce_icrc_store(bytes + body, roce_icrc(&sender, &ip, bytes, body));
}

static void receive_row(struct process *process, const uint8_t *row, uint32_t length)
{
    struct udp_datagrams datagrams = {
        .arrival = {.path = path}, .bytes = row, .length = length, .segment = LENGTH};
    process->ingress.receiver.receive(&process->ingress.receiver, &datagrams);
}

/* What stands between two packets of ours, one of which follows the other, and what behind. */
static void check_mixed(struct process *process, const struct peer *peer, const char *file)
{
    static uint8_t row[4 * LENGTH];
    struct process other;
    start(&other, file);
    struct qpn foreign = registry_first_qpn(other.ingress.registry);
    put_in_row(row, 0, qp_number(peer->qp), ROW, 1024);
    put_in_row(row, 1, foreign, 1, 1024);
    put_in_row(row, 2, qp_number(peer->qp), ROW + 1, 1024);
    put_in_row(row, 3, foreign, 2, 16);
    receive_row(process, row, sizeof row - 1024 + 16);
    while (handoff_receive(other.ingress.handoff, &other.ingress.receiver) > 0) {
    }
    const struct counters *counters = device_counters(other.ingress.device);
    assert_int_equal(counters->refused[REFUSED_ICRC], 0);
    assert_int_equal(counters->refused[REFUSED_NO_QP], 2);
    stop(&other);
}

/* One that is damaged, or another's, is not taken for one that follows; what stands behind it has
 * come too early. */
static void a_row_is_taken_up_to_what_is_damaged(void **state)
{
    (void)state;
    const char *file = own_file();
    struct process process;
    start(&process, file);
    struct device *device = process.ingress.device;
    const struct counters *counters = device_counters(device);
    struct peer peer = connect_peer(&process);
    static uint8_t buffer[(ROW + 2) * 1024], row[ROW * LENGTH];
    struct region_attributes region = {.domain = peer.domain,
                                       .address = 4096,
                                       .length = sizeof buffer,
                                       .bytes = buffer,
                                       .access = ACCESS_LOCAL_WRITE};
    struct memory_key key;
    assert_int_equal(memory_register(device_memory(device), &region, &key), STATUS_OK);
    struct sge sge = {4096, sizeof buffer, key};
    struct receive_request receive = {.id = 1, .sges = &sge, .sge_count = 1};
    assert_int_equal(qp_post_receive(peer.qp, &receive), STATUS_OK);
    for (uint32_t i = 0; i < ROW; i++) {
        put_in_row(row, i, qp_number(peer.qp), i, 1024);
    }
    row[4 * LENGTH + 500] ^= 1; /* damaged */
    row[6 * LENGTH + 7] ^= 1;   /* ... where it says whose it is */
    receive_row(&process, row, sizeof row);
    for (uint32_t i = 0; i < ROW; i++) {
        assert_int_equal(buffer[i * 1024 + 1023], i < 4 ? i + 1 : 0);
    }
    assert_int_equal(counters->refused[REFUSED_ICRC], 2);
    assert_int_equal(counters->values[COUNTER_PACKETS_RECEIVED], 8);
    assert_int_equal(counters->values[COUNTER_OUT_OF_SEQUENCE], 4);
    row[4 * LENGTH + 500] ^= 1;
    row[6 * LENGTH + 7] ^= 1;
    receive_row(&process, row, sizeof row);
    check_mixed(&process, &peer, file);
    for (uint32_t i = 0; i < ROW + 2; i++) {
        assert_int_equal(buffer[i * 1024 + 1023], i + 1);
    }
    assert_int_equal(counters->values[COUNTER_DUPLICATE_REQUESTS], 4);
    assert_int_equal(memory_deregister(device_memory(device), key), STATUS_OK);
    disconnect_peer(&peer);
    stop(&process);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_not_taken_for_another_identification),
        cmocka_unit_test(strangers_teach_nothing),
        cmocka_unit_test(one_port_at_two_addresses),
        cmocka_unit_test(a_flood_is_not_handed_to_everybody),
        cmocka_unit_test(a_complaint_finds_whom_it_concerns),
        cmocka_unit_test(what_is_sent_to_all_is_nobodys),
        cmocka_unit_test(damage_corrects_no_steering),
        cmocka_unit_test(a_row_is_taken_up_to_what_is_damaged),
        cmocka_unit_test(a_reject_without_our_id_finds_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
