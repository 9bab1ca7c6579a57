/* Invariants: a lane that is mapped here is in `lanes`; one that is watched is also in `watched`,
 * and its `watched` word is set, or its bit in `rung` is, or it is empty. */
#include "rnic/io/inbox.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rnic/io/inbox_private.h"
#include "rnic/io/payload_here.h"

#define LANE_BURST  32u    /* packets in a row from one lane */
#define UNEXPECTED  4u     /* records of a batch before others are looked out for */
#define IDLE_ROUNDS 65536u /* then another lane may be watched in its place */

struct lane {
    struct inbox_lane *memory;
    struct ring_consumer ring;
    struct inbox_route routes[INBOX_ROUTES]; /* copies, for the sender can write to its own */
    uint32_t route_count;
    struct pull_identity sender; /* a copy, too */
    uint32_t idle;               /* rounds without a packet */
    bool closed;                 /* it held what none of ours writes */
    bool met;                    /* a packet has come */
    bool pulls;                  /* what lies in the sender's memory */
};

struct inbox {
    int descriptor;
    struct inbox_head *head;
    struct direct_announcement *announcements;
    struct direct_shown *shown;
    struct lane *lanes[INBOX_LANES]; /* NULL: never rung */
    uint32_t watched[INBOX_WATCHED];
    uint32_t watched_count;
    bool may_refer;
    bool cut_short; /* a lane had more than its share */
    struct inbox_room *room;
    struct inbox_counters counters;
};

static bool file_may_be_so_long(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

static bool map_all(struct inbox *inbox, bool direct)
{
    inbox->head = inbox_map(inbox->descriptor, 0, INBOX_HEAD_BYTES);
    if (inbox->head != NULL && direct) {
        inbox->announcements = inbox_map(inbox->descriptor, INBOX_ANNOUNCED, INBOX_ANNOUNCED_BYTES);
        inbox->shown = inbox_map(inbox->descriptor, INBOX_SHOWN, INBOX_SHOWN_BYTES);
    }
    return inbox->head != NULL &&
           (!direct || (inbox->announcements != NULL && inbox->shown != NULL));
}

enum status inbox_create(uint64_t incarnation, bool direct, struct inbox **ret_inbox)
{
    CHECK(incarnation != 0);
    uint64_t bytes = direct ? INBOX_DIRECT_BYTES : INBOX_FILE_BYTES;
    struct inbox *inbox = calloc(1, sizeof *inbox);
    if (inbox == NULL) {
        return STATUS_NO_MEMORY;
    }
    inbox->descriptor =
        file_may_be_so_long(bytes) ? memfd_create(INBOX_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    if (inbox->descriptor < 0 || ftruncate(inbox->descriptor, (off_t)bytes) != 0 ||
        fcntl(inbox->descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        inbox_destroy(inbox);
        return STATUS_UNSUPPORTED;
    }
    if (!map_all(inbox, direct)) {
        inbox_destroy(inbox);
        return STATUS_NO_MEMORY;
    }
    inbox->head->incarnation = incarnation;
    inbox->head->magic = INBOX_MAGIC;
    *ret_inbox = inbox;
    return STATUS_OK;
}

void inbox_abandon(struct inbox *inbox)
{
    if (inbox->descriptor >= 0) {
        close(inbox->descriptor);
        inbox->descriptor = -1;
    }
}

void inbox_destroy(struct inbox *inbox)
{
    if (inbox == NULL) {
        return;
    }
    bool ours = inbox->descriptor >= 0; /* else it was the parent's, and is not mapped here */
    for (uint32_t i = 0; i < INBOX_LANES; i++) {
        if (inbox->lanes[i] != NULL && ours) {
            munmap(inbox->lanes[i]->memory, INBOX_LANE_BYTES);
        }
        free(inbox->lanes[i]);
    }
    if (inbox->head != NULL && ours) {
        munmap(inbox->head, INBOX_HEAD_BYTES);
    }
    if (inbox->announcements != NULL && ours) {
        munmap(inbox->announcements, INBOX_ANNOUNCED_BYTES);
    }
    if (inbox->shown != NULL && ours) {
        munmap(inbox->shown, INBOX_SHOWN_BYTES);
    }
    inbox_abandon(inbox);
    free(inbox);
}

void inbox_let_refer(struct inbox *inbox)
{
    inbox->may_refer = true;
}

void inbox_tell_of_room(struct inbox *inbox, struct inbox_room *room)
{
    inbox->room = room;
}

int inbox_descriptor(const struct inbox *inbox)
{
    return inbox->descriptor;
}

const struct inbox_counters *inbox_counters(const struct inbox *inbox)
{
    return &inbox->counters;
}

struct direct_shown *inbox_shown(const struct inbox *inbox)
{
    return inbox->shown;
}

struct waiter {
    struct direct_waiter waiter; /* first */
    const struct inbox *inbox;
    uint64_t only;
    inbox_patience *ask;
    void *context;
};

static bool is_concerned(struct direct_waiter *direct_waiter, uint32_t index)
{
    const struct waiter *waiter = (const struct waiter *)direct_waiter;
    uint64_t sender = atomic_load(&waiter->inbox->head->senders[index]);
    return sender != 0 && (waiter->only == 0 || sender == waiter->only);
}

static enum direct_patience ask(struct direct_waiter *direct_waiter, uint32_t index,
                                uint32_t thread, uint64_t waited_ns)
{
    const struct waiter *waiter = (const struct waiter *)direct_waiter;
    uint64_t sender = atomic_load(&waiter->inbox->head->senders[index]);
    return sender == 0 ? DIRECT_PASS : waiter->ask(waiter->context, sender, thread, waited_ns);
}

bool inbox_settle(const struct inbox *inbox, uint64_t only, inbox_patience *patience, void *context)
{
    struct waiter waiter = {{is_concerned, ask}, inbox, only, patience, context};
    return direct_settle(inbox->shown, inbox->announcements, &inbox->head->lane_end, INBOX_LANES,
                         &waiter.waiter);
}

/* NULL: no memory for it. */
static struct lane *find_lane(struct inbox *inbox, uint32_t number)
{
    struct lane *lane = inbox->lanes[number];
    if (lane != NULL) {
        return lane;
    }
    lane = calloc(1, sizeof *lane);
    if (lane == NULL) {
        return NULL;
    }
    lane->memory = inbox_map(inbox->descriptor, inbox_lane_offset(number), INBOX_LANE_BYTES);
    if (lane->memory == NULL) {
        free(lane);
        return NULL;
    }
    ring_consume(&lane->ring, inbox_ring(lane->memory), INBOX_RING_BYTES);
    inbox->lanes[number] = lane;
    inbox->counters.lanes++;
    return lane;
}

static const struct inbox_route *find_route(struct lane *lane, uint32_t index)
{
    if (index >= lane->route_count) {
        uint32_t count = atomic_load_explicit(&lane->memory->route_count, memory_order_acquire);
        count = count < INBOX_ROUTES ? count : INBOX_ROUTES;
        for (; lane->route_count < count; lane->route_count++) {
            lane->routes[lane->route_count] = lane->memory->routes[lane->route_count];
        }
    }
    return index < lane->route_count ? &lane->routes[index] : NULL;
}

/* The first packet of a lane has come: what its sender says of itself stands. */
static void meet(struct inbox *inbox, struct lane *lane)
{
    lane->met = true;
    lane->sender = lane->memory->sender;
    if (inbox->may_refer && lane->sender.address != 0) {
        lane->pulls = pull(&lane->sender, NULL, 0, 0, NULL, 0);
        inbox->counters.readable += lane->pulls;
        inbox->counters.opaque += !lane->pulls;
        atomic_store_explicit(&lane->memory->pulls, lane->pulls, memory_order_release);
    }
}

/* A payload in the sender's memory, or in the record. */
struct lane_reader {
    struct payload_reader reader; /* first */
    const struct lane *lane;
    struct inbox_reference reference;
    struct payload_here carried;
    struct pull_piece pieces[PULL_PIECES_MAX];
};

static bool is_withdrawn(const struct lane_reader *reader)
{
    const struct inbox_reference *reference = &reader->reference;
    return atomic_load(&reader->lane->memory->withdrawals[reference->place]) !=
           reference->withdrawal;
}

static bool read_payload(struct payload_reader *payload_reader, uint32_t offset,
                         const struct payload_place *places, uint32_t count)
{
    const struct lane_reader *reader = (const struct lane_reader *)payload_reader;
    return !is_withdrawn(reader) &&
           pull(&reader->lane->sender, reader->pieces, reader->reference.piece_count, offset,
                places, count) &&
           !is_withdrawn(reader);
}

/* Behind the headers, to the record's end. */
static bool find_carried(const uint8_t *bytes, uint32_t length, struct lane_reader *reader)
{
    const struct inbox_reference *reference = &reader->reference;
    uint32_t begin = INBOX_CARRIED(reference->header_length) - sizeof(struct inbox_record);
    payload_here_init(&reader->carried, bytes + begin, reference->length);
    return reference->length > 0 && reference->length <= INBOX_CARRIED_MAX &&
           length == begin + reference->length;
}

/* What stands behind the record's first bytes, copied once. False: none of ours writes that. */
static bool find_reference(const struct lane *lane, const uint8_t *bytes, uint32_t length,
                           struct lane_reader *ret_reader, uint32_t *ret_taken)
{
    struct inbox_reference *reference = &ret_reader->reference;
    ret_reader->reader.read = read_payload;
    ret_reader->lane = lane;
    if (length < sizeof *reference) {
        return false;
    }
    memcpy(reference, bytes, sizeof *reference);
    uint32_t taken =
        (uint32_t)(sizeof *reference + reference->piece_count * sizeof ret_reader->pieces[0]);
    *ret_taken = taken;
    if (reference->piece_count == 0) {
        return find_carried(bytes, length, ret_reader);
    }
    if (!lane->pulls || reference->piece_count > PULL_PIECES_MAX ||
        length - sizeof *reference < taken - sizeof *reference + reference->header_length) {
        return false;
    }
    memcpy(ret_reader->pieces, bytes + sizeof *reference, taken - sizeof *reference);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < reference->piece_count; i++) {
        sum += ret_reader->pieces[i].length;
    }
    return sum == reference->length && sum > 0 && sum <= REFERENCE_MAX;
}

static bool pass_reference(struct inbox *inbox, const struct lane *lane,
                           struct inbox_receiver *receiver, const struct arrival *arrival,
                           const uint8_t *bytes, uint32_t length, uint32_t *ret_packets)
{
    struct lane_reader reader;
    uint32_t taken;
    if (!find_reference(lane, bytes, length, &reader, &taken)) {
        return false;
    }
    bool in_record = reader.reference.piece_count == 0;
    struct payload_reference reference = {
        .reader = in_record ? &reader.carried.reader : &reader.reader,
        .length = reader.reference.length,
        .segment_shift = reader.reference.segment_shift,
    };
    receiver->receive(receiver, arrival, bytes + taken, reader.reference.header_length, &reference);
    inbox->counters.long_records += in_record;
    *ret_packets = 1 + reference.length / PACKET_PAYLOAD_MAX;
    return true;
}

/* False: it is what none of ours writes. */
static bool pass_on(struct inbox *inbox, struct lane *lane, struct inbox_receiver *receiver,
                    const uint8_t *bytes, uint32_t length, uint32_t *ret_packets)
{
    struct inbox_record record;
    if (length < sizeof record || length > INBOX_RECORD_MAX) {
        return false;
    }
    memcpy(&record, bytes, sizeof record);
    const struct inbox_route *route = find_route(lane, record.route);
    if (route == NULL) {
        return false;
    }
    struct arrival arrival = {
        .path = {.local = route->remote,
                 .remote = route->local,
                 .source_port = record.source_port,
                 .traffic_class = record.traffic_class,
                 .hop_limit = record.hop_limit,
                 .flow_label = (record.flow_label_high & 0xfu) << 16 | record.flow_label_low},
        .is_near = true,
        .acknowledges = (record.flow_label_high & INBOX_ACKNOWLEDGES) != 0,
        .acknowledged = psn_make(record.acknowledged),
    };
    bytes += sizeof record;
    length -= (uint32_t)sizeof record;
    if ((record.flow_label_high & INBOX_REFERS) != 0) {
        return pass_reference(inbox, lane, receiver, &arrival, bytes, length, ret_packets);
    }
    *ret_packets = 1;
    receiver->receive(receiver, &arrival, bytes, length, NULL);
    return true;
}

/* After room was given back; `all`: there is nothing more to take. A sender that waits is told of a
 * part of the ring that is worth a wake-up. */
static void give_room(struct inbox *inbox, uint32_t number, bool all)
{
    struct lane *lane = inbox->lanes[number];
    if (atomic_load_explicit(&lane->memory->waits, memory_order_relaxed) == 0 ||
        (!all && !ring_settle_part(&lane->ring))) {
        return;
    }
    ring_settle(&lane->ring);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with outbox_put */
    if (atomic_exchange(&lane->memory->waits, 0) != 0 && inbox->room != NULL) {
        inbox->room->given(inbox->room, atomic_load(&inbox->head->senders[number]));
    }
}

/* Not at a batch's beginning: who sends one packet at a time writes where this would look. */
static void expect_next(const struct lane *lane, struct inbox_receiver *receiver, uint32_t records)
{
    const uint8_t *bytes =
        records < UNEXPECTED || receiver->expect == NULL ? NULL : ring_guess(&lane->ring, 2);
    if (bytes != NULL) {
        receiver->expect(receiver, bytes + sizeof(struct inbox_record));
    }
}

static uint32_t drain(struct inbox *inbox, uint32_t number, struct inbox_receiver *receiver,
                      uint32_t budget)
{
    struct lane *lane = inbox->lanes[number];
    uint32_t count = 0, records = 0, packets;
    const uint8_t *bytes;
    uint32_t length;
    while (count < budget && !lane->closed) {
        enum status status = ring_peek(&lane->ring, &bytes, &length);
        if (status == STATUS_EMPTY) {
            ring_settle(&lane->ring);
            give_room(inbox, number, true);
            break;
        }
        if (!lane->met) {
            meet(inbox, lane);
        }
        if (status == STATUS_OK) {
            expect_next(lane, receiver, records);
        }
        if (status != STATUS_OK || !pass_on(inbox, lane, receiver, bytes, length, &packets)) {
            lane->closed = true;
            inbox->counters.malformed++;
            break;
        }
        ring_release(&lane->ring);
        give_room(inbox, number, false);
        count += packets;
        records++;
    }
    inbox->cut_short |= count >= budget;
    lane->idle = count > 0 ? 0 : lane->idle + 1;
    inbox->counters.packets_received += records;
    return count;
}

static bool has_packet(const struct lane *lane)
{
    return !lane->closed && ring_has_record(&lane->ring);
}

/* The sender sets the lane's bit in future; what came before is found now. */
static void unwatch(struct inbox *inbox, uint32_t index)
{
    uint32_t number = inbox->watched[index];
    struct lane *lane = inbox->lanes[number];
    inbox->watched[index] = inbox->watched[--inbox->watched_count];
    atomic_store_explicit(&lane->memory->watched, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (has_packet(lane)) {
        atomic_fetch_or(&inbox->head->rung[number / 64], UINT64_C(1) << number % 64);
    }
}

static bool is_watched(const struct inbox *inbox, uint32_t number)
{
    for (uint32_t i = 0; i < inbox->watched_count; i++) {
        if (inbox->watched[i] == number) {
            return true;
        }
    }
    return false;
}

/* A bit that stands for what is there already is harmless: it leads to an empty lane. */
static void watch(struct inbox *inbox, uint32_t number)
{
    if (is_watched(inbox, number)) {
        return;
    }
    if (inbox->watched_count == INBOX_WATCHED) {
        uint32_t idlest = 0;
        for (uint32_t i = 1; i < INBOX_WATCHED; i++) {
            if (inbox->lanes[inbox->watched[i]]->idle >
                inbox->lanes[inbox->watched[idlest]]->idle) {
                idlest = i;
            }
        }
        if (inbox->lanes[inbox->watched[idlest]]->idle < IDLE_ROUNDS) {
            return;
        }
        unwatch(inbox, idlest);
    }
    inbox->watched[inbox->watched_count++] = number;
    inbox->lanes[number]->idle = 0;
    atomic_store_explicit(&inbox->lanes[number]->memory->watched, 1, memory_order_release);
}

static uint32_t rung_words(const struct inbox *inbox)
{
    uint32_t end = atomic_load_explicit(&inbox->head->lane_end, memory_order_relaxed);
    return ((end < INBOX_LANES ? end : INBOX_LANES) + 63) / 64;
}

/* A lane that is not done with keeps its bit. */
static uint32_t receive_rung(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t word,
                             uint32_t budget)
{
    uint32_t count = 0;
    uint64_t bits = atomic_exchange(&inbox->head->rung[word], 0);
    for (; bits != 0; bits &= bits - 1) {
        uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(bits);
        struct lane *lane = find_lane(inbox, number);
        if (lane == NULL) {
            continue; /* its packets are lost */
        }
        uint32_t left = count < budget ? budget - count : 0;
        watch(inbox, number);
        count += drain(inbox, number, receiver, left < LANE_BURST ? left : LANE_BURST);
        if (has_packet(lane) && !is_watched(inbox, number)) {
            atomic_fetch_or(&inbox->head->rung[word], UINT64_C(1) << number % 64);
        }
    }
    return count;
}

uint32_t inbox_receive(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget)
{
    uint32_t count = 0;
    do {
        inbox->cut_short = false;
        for (uint32_t i = 0; i < inbox->watched_count && count < budget; i++) {
            uint32_t left = budget - count;
            count +=
                drain(inbox, inbox->watched[i], receiver, left < LANE_BURST ? left : LANE_BURST);
        }
        uint32_t words = rung_words(inbox);
        for (uint32_t i = 0; i < words && count < budget; i++) {
            if (atomic_load_explicit(&inbox->head->rung[i], memory_order_relaxed) != 0) {
                count += receive_rung(inbox, receiver, i, budget - count);
            }
        }
    } while (inbox->cut_short && count < budget);
    return count;
}

static bool has_any_packet(const struct inbox *inbox)
{
    for (uint32_t i = 0; i < inbox->watched_count; i++) {
        if (has_packet(inbox->lanes[inbox->watched[i]])) {
            return true;
        }
    }
    for (uint32_t i = 0, words = rung_words(inbox); i < words; i++) {
        if (atomic_load_explicit(&inbox->head->rung[i], memory_order_relaxed) != 0) {
            return true;
        }
    }
    return false;
}

bool inbox_fall_asleep(struct inbox *inbox)
{
    atomic_store_explicit(&inbox->head->asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with outbox_flush */
    if (!has_any_packet(inbox)) {
        return true;
    }
    inbox_wake_up(inbox);
    return false;
}

bool inbox_is_asleep(const struct inbox *inbox)
{
    return atomic_load_explicit(&inbox->head->asleep, memory_order_relaxed) != 0;
}

void inbox_wake_up(struct inbox *inbox)
{
    atomic_store_explicit(&inbox->head->asleep, 0, memory_order_relaxed);
}

static void forget_lane(struct inbox *inbox, uint32_t number)
{
    for (uint32_t i = 0; i < inbox->watched_count; i++) {
        if (inbox->watched[i] == number) {
            inbox->watched[i] = inbox->watched[--inbox->watched_count];
            break;
        }
    }
    struct lane *lane = inbox->lanes[number];
    if (lane != NULL) {
        munmap(lane->memory, INBOX_LANE_BYTES);
        free(lane);
        inbox->lanes[number] = NULL;
        inbox->counters.lanes--;
    }
}

/* The hole reads as zeroes: an empty lane. Its last act makes it another's. */
static void free_lane(struct inbox *inbox, uint32_t number)
{
    if (fallocate(inbox->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)inbox_lane_offset(number), INBOX_LANE_BYTES) != 0) {
        return; /* it stays taken */
    }
    forget_lane(inbox, number);
    atomic_store(&inbox->head->senders[number], 0);
    inbox->counters.reclaimed++;
}

void inbox_reclaim(struct inbox *inbox, bool (*lives)(void *context, uint64_t incarnation),
                   void *context)
{
    uint32_t end = rung_words(inbox) * 64;
    for (uint32_t i = 0; i < end; i++) {
        uint64_t sender = atomic_load(&inbox->head->senders[i]);
        if (sender == 0 || lives(context, sender)) {
            continue;
        }
        const struct lane *lane = find_lane(inbox, i);
        if (lane == NULL || !has_packet(lane)) {
            free_lane(inbox, i);
        } else if (!is_watched(inbox, i)) { /* it died before it could ring */
            atomic_fetch_or(&inbox->head->rung[i / 64], UINT64_C(1) << i % 64);
        }
    }
}
