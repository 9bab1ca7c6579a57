#include "rnic/io/same_host/same_host_private.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rnic/base/container.h"
#include "rnic/base/random.h"
#include "rnic/base/seldom.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/life.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/transport/acknowledge.h"
#include "rnic/wire/packet.h"

/* The slot stands in an incarnation, so that who has it needs no search. */
static uint64_t make_incarnation(uint64_t seed, uint32_t slot)
{
    struct random random;
    random_seed(&random, seed);
    return (random_u64(&random) | UINT64_C(1) << 63) / SLOT_COUNT * SLOT_COUNT + slot;
}

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing);
static bool emit_short(struct packet_sink *sink, const struct outgoing_short *outgoing);
static uint32_t emit_train(struct packet_sink *sink, const struct train *train);
static void room_given(struct inbox_room *room, uint64_t sender);
static uint64_t hold_ns(struct packet_sink *sink, const struct path *path, struct qpn destination,
                        uint64_t *mark);
static uint32_t reach(struct packet_sink *sink, const struct path *path, struct qpn destination);
static void withdraw(struct packet_sink *sink, const struct path *path, struct qpn destination,
                     bool responses);

/* Whether one process may read another is seen when they meet; whether any may at all, here. */
static bool let_refer(struct same_host *same_host, uint64_t seed)
{
    struct pull_identity identity;
    if (pull_identity_create(~seed, &identity) != STATUS_OK) {
        return false;
    }
    if (!pull(&identity, NULL, 0, 0, NULL, 0)) {
        pull_identity_destroy(&identity);
        return false;
    }
    same_host->identity = identity;
    inbox_let_refer(same_host->inbox);
    return true;
}

/* Not in the place of a standard stream, as the registry's file (registry.c). */
static void keep_spare(struct same_host *same_host)
{
    if (same_host->spare < 0) {
        same_host->spare =
            fcntl(inbox_descriptor(same_host->inbox), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    }
}

static void give_spare(struct same_host *same_host)
{
    if (same_host->spare >= 0) {
        raw_close(same_host->spare);
        same_host->spare = -1;
    }
}

static bool is_here(struct packet_sink *sink, const struct gid *address)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    return near_addresses_have(&same_host->near, address);
}

enum status same_host_create(const struct same_host_config *config,
                             struct same_host **ret_same_host)
{
    struct same_host *same_host = calloc(1, sizeof *same_host);
    if (same_host == NULL) {
        return STATUS_NO_MEMORY;
    }
    same_host->sink = (struct packet_sink){.emit = emit,
                                           .emit_short = emit_short,
                                           .emit_train = emit_train,
                                           .hold_ns = hold_ns,
                                           .carries_acknowledgements = true,
                                           .reach = reach,
                                           .withdraw = withdraw,
                                           .responds_with = same_host_responds_with,
                                           .revoke = same_host_revoke,
                                           .is_here = is_here,
                                           .run_packets = config->otherwise->run_packets,
                                           .run_bytes = config->otherwise->run_bytes};
    same_host->otherwise = config->otherwise;
    same_host->spare = -1;
    same_host->registry = config->registry;
    same_host->handoff = config->handoff;
    near_addresses_init(&same_host->near, config->bind);
    same_host->incarnation = make_incarnation(config->seed, registry_slot(config->registry));
    bool direct = !config->copies && direct_is_on();
    enum status status = STATUS_UNSUPPORTED;
    if (!config->off) {
        status = inbox_create(same_host->incarnation, direct, &same_host->inbox);
    }
    same_host->room.given = room_given;
    if (status == STATUS_OK) {
        inbox_tell_of_room(same_host->inbox, &same_host->room);
        keep_spare(same_host);
    }
    same_host->description =
        config->off           ? "UDP: so WEIR_LINK says, or WEIR_FAULT is set"
        : status != STATUS_OK ? "UDP: there is no memory to be shared, by the "
                                "kernel or a limit on file sizes"
        : config->copies      ? "memory, every payload copied: so WEIR_LINK says"
        : !let_refer(same_host, config->seed)
            ? "memory, every payload copied: process_vm_readv is refused"
        : direct && direct_makes_common() && common_is_likely()
            ? "memory, long payloads read from where they lie, regions mapped "
              "that are touched often"
            : "memory, long payloads read from where they lie, by system calls";
    if (status == STATUS_OK && direct) {
        same_host_let_access(same_host);
    }
    *ret_same_host = same_host;
    return STATUS_OK;
}

static void note_room(struct same_host *same_host, struct peer *peer)
{
    same_host->full_count -= !instant_is_never(peer->full_since);
    peer->full_since = INSTANT_NEVER;
}

static void forget_peer(struct same_host *same_host, uint32_t slot)
{
    struct peer *peer = same_host->peers[slot];
    same_host->counters.peers -= peer->outbox != NULL;
    same_host->latest.peer = NULL;
    outbox_close(peer->outbox);
    peer->outbox = NULL;
    peer->incarnation = 0;
    note_room(same_host, peer);
}

void same_host_destroy(struct same_host *same_host)
{
    if (same_host == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        if (same_host->peers[i] != NULL) {
            forget_peer(same_host, i);
            free(same_host->peers[i]);
        }
    }
    hot_regions_destroy(&same_host->hot);
    give_spare(same_host);
    inbox_destroy(same_host->inbox);
    pull_identity_destroy(&same_host->identity);
    free(same_host);
}

void same_host_abandon(struct same_host *same_host)
{
    same_host->direct.table = NULL; /* it is not mapped here */
    same_host->latest.peer = NULL;
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        if (same_host->peers[i] != NULL && same_host->peers[i]->outbox != NULL) {
            outbox_abandon(same_host->peers[i]->outbox);
            same_host->peers[i]->outbox = NULL;
        }
    }
    hot_regions_abandon(&same_host->hot);
    give_spare(same_host);
    if (same_host->inbox != NULL) {
        inbox_abandon(same_host->inbox);
    }
}

struct packet_sink *same_host_sink(struct same_host *same_host)
{
    return &same_host->sink;
}

struct direct_link *same_host_direct(struct same_host *same_host)
{
    return same_host->direct.table != NULL ? &same_host->direct : NULL;
}

void same_host_live(struct same_host *same_host)
{
    uint32_t thread = (uint32_t)syscall(SYS_gettid);
    if (same_host->inbox == NULL) {
        return;
    }
    same_host->identity.thread = thread;
    if (same_host->direct.table != NULL) {
        inbox_shown(same_host->inbox)->identity.thread = thread;
        (void)life_hold(&inbox_shown(same_host->inbox)->guard.life);
    }
    struct registry_inbox ours = {same_host->incarnation, thread,
                                  inbox_descriptor(same_host->inbox)};
    registry_publish_inbox(same_host->registry, &ours);
}

static enum status open_outbox(struct same_host *same_host, const struct registry_inbox *inbox,
                               struct outbox **ret_outbox)
{
    return outbox_open((pid_t)inbox->thread, inbox->descriptor, inbox->incarnation,
                       same_host->incarnation, &same_host->identity,
                       same_host->direct.table != NULL, ret_outbox);
}

/* A program that has all the descriptors that it may have is not to reach who comes by the other
 * link as long as he lives. */
static enum status open_in_any_case(struct same_host *same_host, const struct registry_inbox *inbox,
                                    struct outbox **ret_outbox)
{
    enum status status = open_outbox(same_host, inbox, ret_outbox);
    if (status == STATUS_NO_MEMORY) {
        give_spare(same_host);
        status = open_outbox(same_host, inbox, ret_outbox);
    }
    keep_spare(same_host);
    return status;
}

/* The process that has the slot now; NULL: none, or no memory for it. */
static struct peer *find_peer(struct same_host *same_host, uint32_t slot)
{
    struct registry_inbox inbox;
    if (!registry_find_inbox(same_host->registry, slot, &inbox)) {
        return NULL;
    }
    struct peer *peer = same_host->peers[slot];
    if (peer != NULL && peer->incarnation == inbox.incarnation) {
        return peer;
    }
    if (peer == NULL) {
        peer = same_host->peers[slot] = calloc(1, sizeof *peer);
        if (peer == NULL) {
            return NULL;
        }
        peer->full_since = INSTANT_NEVER;
    }
    forget_peer(same_host, slot);
    peer->incarnation = inbox.incarnation;
    if (open_in_any_case(same_host, &inbox, &peer->outbox) == STATUS_OK) {
        same_host->counters.peers++;
    } else {
        same_host->counters.unreachable++;
    }
    return peer;
}

/* The lane is full. True: the packet is given up. */
static SELDOM bool give_up(struct same_host *same_host, struct peer *peer)
{
    struct instant now = clock_now();
    if (instant_is_never(peer->full_since)) {
        peer->full_since = now;
        same_host->full_count++;
        same_host->counters.full++;
    }
    bool late = instant_elapsed_ns(peer->full_since, now) > SAME_HOST_PATIENCE_NS;
    same_host->counters.dropped += late;
    return late;
}

void same_host_remember(struct same_host *same_host, uint32_t slot, struct peer *peer)
{
    if (!peer->unflushed) {
        peer->unflushed = true;
        same_host->unflushed[same_host->unflushed_count++] = slot;
    }
}

/* Who waits for it may sleep by now: flushing wakes him. */
static void room_given(struct inbox_room *room, uint64_t sender)
{
    struct same_host *same_host = CONTAINER_OF(room, struct same_host, room);
    uint32_t slot = (uint32_t)(sender % SLOT_COUNT);
    struct peer *peer = find_peer(same_host, slot);
    if (peer != NULL && peer->outbox != NULL && peer->incarnation == sender) {
        same_host_remember(same_host, slot, peer);
    }
}

/* By the other link an acknowledgement is a packet of its own. */
static SELDOM bool emit_otherwise(struct same_host *same_host, const struct outgoing *outgoing)
{
    struct packet_sink *otherwise = same_host->otherwise;
    same_host->sink.others_may_go = false;
    if (outgoing->acknowledges) {
        uint8_t header[PACKET_HEADER_MAX];
        struct packet packet = {
            .opcode = OPCODE(outgoing->header[0] >> 5, FORM_ACKNOWLEDGE),
            .pkey = PKEY_DEFAULT,
            .destination = packet_destination(outgoing->header),
            .psn = outgoing->acknowledged,
            .aeth = {.kind = AETH_ACK,
                     .value = CREDITS_UNLIMITED,
                     .msn = outgoing->acknowledged_msn},
        };
        struct outgoing alone = {.path = outgoing->path,
                                 .header = header,
                                 .header_length = packet_build(&packet, header)};
        if (!otherwise->emit(otherwise, &alone)) {
            return false;
        }
    }
    return otherwise->emit(otherwise, outgoing);
}

/* Who could not be woken sleeps still, and is woken by the next flush, or by anybody else. */
static SELDOM void wake(struct same_host *same_host, uint32_t slot, struct peer *peer)
{
    same_host->counters.wake_ups++;
    if (outbox_wake(peer->outbox) || handoff_wake(same_host->handoff, slot)) {
        outbox_has_woken(peer->outbox);
    }
}

static void flush_to(struct same_host *same_host, uint32_t slot, struct peer *peer)
{
    if (peer->outbox != NULL && outbox_flush(peer->outbox)) {
        wake(same_host, slot, peer);
    }
}

/* A long one is shown at once, so that its receiver copies while we put the next. */
static bool put(struct same_host *same_host, uint32_t slot, struct peer *peer,
                const struct outgoing *outgoing)
{
    enum status status = outbox_put(peer->outbox, outgoing);
    if (status == STATUS_OUT_OF_RANGE) {
        same_host->counters.elsewhere++;
        return emit_otherwise(same_host, outgoing);
    }
    same_host_remember(same_host, slot, peer);
    if (status != STATUS_OK) {
        bool given_up = give_up(same_host, peer);
        same_host->stalled |= !given_up;
        same_host->sink.others_may_go = true;
        return given_up;
    }
    note_room(same_host, peer);
    if (outgoing->reference_shift != 0) {
        same_host->has_responded |= outgoing->is_response;
        flush_to(same_host, slot, peer);
    }
    same_host->counters.packets_sent++;
    same_host->counters.bytes_sent += outgoing->payload_length;
    return true;
}

static bool is_of_one_process(struct qpn qpn)
{
    return qpn.value >= SLOT_QPN_RESERVED && !qpn_equal(qpn, QPN_MULTICAST);
}

static struct peer *find_by_path(struct same_host *same_host, const struct path *path,
                                 struct qpn destination)
{
    if (same_host->inbox == NULL || !is_of_one_process(destination) ||
        !near_addresses_have(&same_host->near, &path->remote)) {
        return NULL;
    }
    struct peer *peer = find_peer(same_host, slot_of_qpn(destination));
    return peer != NULL && peer->outbox != NULL ? peer : NULL;
}

static inline struct peer *find(struct same_host *same_host, const struct path *path,
                                struct qpn destination)
{
    struct latest *latest = &same_host->latest;
    bool again = qpn_equal(latest->destination, destination) ||
                 (latest->slot == slot_of_qpn(destination) && is_of_one_process(destination));
    if (latest->peer != NULL && again && gid_equal(&latest->remote, &path->remote) &&
        !near_addresses_are_old(&same_host->near) &&
        registry_has_inbox(same_host->registry, latest->slot, latest->peer->incarnation)) {
        return latest->peer;
    }
    struct peer *peer = find_by_path(same_host, path, destination);
    *latest = (struct latest){peer, slot_of_qpn(destination), destination, path->remote};
    return peer;
}

struct peer *same_host_find(struct same_host *same_host, const struct path *path,
                            struct qpn destination)
{
    return find(same_host, path, destination);
}

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    struct qpn qpn = packet_destination(outgoing->header);
    struct peer *peer = find(same_host, outgoing->path, qpn);
    if (outgoing->reference_shift != 0 &&
        (peer == NULL || outbox_reach(peer->outbox, outgoing->path) < outgoing->payload_length)) {
        same_host->counters.withdrawn++; /* it was somebody else's a moment ago */
        return true;
    }
    return peer != NULL ? put(same_host, same_host->latest.slot, peer, outgoing)
                        : emit_otherwise(same_host, outgoing);
}

static bool emit_short(struct packet_sink *sink, const struct outgoing_short *outgoing)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    struct peer *peer = find(same_host, outgoing->path, (struct qpn){outgoing->bth[1]});
    if (same_host->unflushed_count > 0 || peer == NULL ||
        !outbox_put_short(peer->outbox, outgoing)) {
        return false; /* what waits to be shown is not to wait for longer */
    }
    note_room(same_host, peer);
    same_host->counters.packets_sent++;
    same_host->counters.bytes_sent += outgoing->length;
    if (outbox_flush(peer->outbox)) {
        wake(same_host, same_host->latest.slot, peer);
    }
    return true;
}

static uint32_t emit_train(struct packet_sink *sink, const struct train *train)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    struct packet_sink *otherwise = same_host->otherwise;
    bool near = find_by_path(same_host, train->path, packet_destination(train->header)) != NULL;
    sink->others_may_go = false;
    return near ? train_emit_singly(sink, train) : otherwise->emit_train(otherwise, train);
}

static uint64_t hold_ns(struct packet_sink *sink, const struct path *path, struct qpn destination,
                        uint64_t *mark)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    struct packet_sink *otherwise = same_host->otherwise;
    bool waits = otherwise->hold_ns != NULL && find(same_host, path, destination) == NULL;
    return waits ? otherwise->hold_ns(otherwise, path, destination, mark) : 0;
}

static uint32_t reach(struct packet_sink *sink, const struct path *path, struct qpn destination)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    struct peer *peer = find_by_path(same_host, path, destination);
    return peer == NULL ? 0 : outbox_reach(peer->outbox, path);
}

static void withdraw(struct packet_sink *sink, const struct path *path, struct qpn destination,
                     bool responses)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    uint32_t slot = slot_of_qpn(destination);
    struct peer *peer = slot < SLOT_COUNT ? same_host->peers[slot] : NULL;
    if (peer != NULL && peer->outbox != NULL) {
        outbox_withdraw(peer->outbox, destination, responses);
    }
}

bool same_host_flush(struct same_host *same_host)
{
    bool stalled = same_host->stalled;
    same_host->stalled = false;
    uint32_t count = same_host->unflushed_count;
    same_host->unflushed_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = same_host->unflushed[i];
        struct peer *peer = same_host->peers[slot];
        peer->unflushed = false;
        flush_to(same_host, slot, peer);
    }
    return !stalled;
}

uint32_t same_host_receive(struct same_host *same_host, struct inbox_receiver *receiver,
                           uint32_t budget)
{
    return same_host->inbox != NULL ? inbox_receive(same_host->inbox, receiver, budget) : 0;
}

uint32_t same_host_receive_next(struct same_host *same_host, struct inbox_receiver *receiver,
                                uint32_t budget)
{
    return same_host->inbox != NULL ? inbox_receive_next(same_host->inbox, receiver, budget) : 0;
}

bool same_host_is_quiet(const struct same_host *same_host)
{
    return same_host->inbox != NULL && inbox_is_quiet(same_host->inbox);
}

bool same_host_has_new_room(struct same_host *same_host)
{
    bool any = false;
    for (uint32_t i = 0; i < SLOT_COUNT && same_host->full_count > 0; i++) {
        struct peer *peer = same_host->peers[i];
        if (peer != NULL && !instant_is_never(peer->full_since) && outbox_has_room(peer->outbox)) {
            note_room(same_host, peer);
            any = true;
        }
    }
    return any;
}

bool same_host_lives(void *context, uint64_t incarnation)
{
    const struct same_host *same_host = context;
    struct registry_inbox inbox;
    return registry_find_inbox(same_host->registry, (uint32_t)(incarnation % SLOT_COUNT), &inbox) &&
           inbox.incarnation == incarnation;
}

bool same_host_tidy(struct same_host *same_host)
{
    bool any = false;
    if (same_host->inbox == NULL) {
        return false;
    }
    inbox_reclaim(same_host->inbox, same_host_lives, same_host);
    hot_regions_tidy(&same_host->hot);
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        struct peer *peer = same_host->peers[i];
        same_host->is_dead[i] = false;
        if (peer != NULL && peer->outbox != NULL &&
            !same_host_lives(same_host, peer->incarnation)) {
            struct registry_inbox next;
            same_host->is_dead[i] = !registry_find_inbox(same_host->registry, i, &next);
            any |= same_host->is_dead[i]; /* else whose queue pair it is cannot be told any more */
            forget_peer(same_host, i);
        }
    }
    return any;
}

bool same_host_is_of_dead(struct same_host *same_host, const struct path *path,
                          struct qpn destination)
{
    uint32_t slot = slot_of_qpn(destination);
    return slot < SLOT_COUNT && same_host->is_dead[slot] &&
           near_addresses_have(&same_host->near, &path->remote);
}

void same_host_addresses_changed(struct same_host *same_host)
{
    near_addresses_changed(&same_host->near);
}

const char *same_host_describe(const struct same_host *same_host)
{
    return same_host->description;
}

void same_host_count(const struct same_host *same_host, struct same_host_counters *ret_counters)
{
    *ret_counters = same_host->counters;
    ret_counters->address_reads = same_host->near.reads;
    ret_counters->common_regions = same_host->hot.count;
    ret_counters->common_made = same_host->hot.made;
    if (same_host->inbox != NULL) {
        const struct inbox_counters *inbox = inbox_counters(same_host->inbox);
        ret_counters->packets_received = inbox->packets_received;
        ret_counters->refused = inbox->malformed;
        ret_counters->long_records = inbox->long_records;
        ret_counters->readable = inbox->readable;
        ret_counters->opaque = inbox->opaque;
        ret_counters->lanes = inbox->lanes;
        ret_counters->reclaimed = inbox->reclaimed;
    }
}
