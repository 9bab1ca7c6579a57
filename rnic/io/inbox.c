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

#define LANE_BURST  32u    /* packets in a row from one lane */
#define IDLE_ROUNDS 65536u /* then another lane may be watched in its place */

struct lane {
    struct inbox_lane *memory;
    struct ring_consumer ring;
    struct inbox_route routes[INBOX_ROUTES]; /* copies, for the sender can write to its own */
    uint32_t route_count;
    uint32_t idle; /* rounds without a packet */
    bool closed;   /* it held what none of ours writes */
};

struct inbox {
    int descriptor;
    struct inbox_head *head;
    struct lane *lanes[INBOX_LANES]; /* NULL: never rung */
    uint32_t watched[INBOX_WATCHED];
    uint32_t watched_count;
    struct inbox_counters counters;
};

static bool file_may_be_so_long(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= INBOX_FILE_BYTES;
}

void *inbox_map(int file, uint64_t offset, size_t length)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, length, MADV_DONTFORK);
    (void)madvise(memory, length, MADV_DONTDUMP);
    return memory;
}

enum status inbox_create(uint64_t incarnation, struct inbox **ret_inbox)
{
    CHECK(incarnation != 0);
    struct inbox *inbox = calloc(1, sizeof *inbox);
    if (inbox == NULL) {
        return STATUS_NO_MEMORY;
    }
    inbox->descriptor =
        file_may_be_so_long() ? memfd_create(INBOX_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    if (inbox->descriptor < 0 || ftruncate(inbox->descriptor, (off_t)INBOX_FILE_BYTES) != 0 ||
        fcntl(inbox->descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        inbox_destroy(inbox);
        return STATUS_UNSUPPORTED;
    }
    inbox->head = inbox_map(inbox->descriptor, 0, INBOX_HEAD_BYTES);
    if (inbox->head == NULL) {
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
    inbox_abandon(inbox);
    free(inbox);
}

int inbox_descriptor(const struct inbox *inbox)
{
    return inbox->descriptor;
}

const struct inbox_counters *inbox_counters(const struct inbox *inbox)
{
    return &inbox->counters;
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

static bool pass_on(struct lane *lane, struct inbox_receiver *receiver, const uint8_t *bytes,
                    uint32_t length)
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
                 .flow_label = (uint32_t)record.flow_label_high << 16 | record.flow_label_low},
    };
    receiver->receive(receiver, &arrival, bytes + sizeof record, length - (uint32_t)sizeof record);
    return true;
}

static uint32_t drain(struct inbox *inbox, struct lane *lane, struct inbox_receiver *receiver,
                      uint32_t budget)
{
    uint32_t count = 0;
    const uint8_t *bytes;
    uint32_t length;
    while (count < budget && !lane->closed) {
        enum status status = ring_peek(&lane->ring, &bytes, &length);
        if (status == STATUS_EMPTY) {
            ring_settle(&lane->ring);
            break;
        }
        if (status != STATUS_OK || !pass_on(lane, receiver, bytes, length)) {
            lane->closed = true;
            inbox->counters.malformed++;
            break;
        }
        ring_release(&lane->ring);
        count++;
    }
    lane->idle = count > 0 ? 0 : lane->idle + 1;
    inbox->counters.packets_received += count;
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
        count += drain(inbox, lane, receiver, left < LANE_BURST ? left : LANE_BURST);
        if (has_packet(lane) && !is_watched(inbox, number)) {
            atomic_fetch_or(&inbox->head->rung[word], UINT64_C(1) << number % 64);
        }
    }
    return count;
}

uint32_t inbox_receive(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget)
{
    uint32_t count = 0, before;
    do {
        before = count;
        for (uint32_t i = 0; i < inbox->watched_count && count < budget; i++) {
            uint32_t left = budget - count;
            count += drain(inbox, inbox->lanes[inbox->watched[i]], receiver,
                           left < LANE_BURST ? left : LANE_BURST);
        }
        uint32_t words = rung_words(inbox);
        for (uint32_t i = 0; i < words && count < budget; i++) {
            if (atomic_load_explicit(&inbox->head->rung[i], memory_order_relaxed) != 0) {
                count += receive_rung(inbox, receiver, i, budget - count);
            }
        }
    } while (count != before && count < budget);
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
