/* Invariants: a lane that is mapped here is in `lanes`; one that is watched is also in `watched`,
 * and its `watched` word is set, or its bit in `rung` is, or it is empty. */
#include "rnic/io/same_host/inbox.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic/base/seldom.h"
#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/same_host/inbox_sleep.h"
#include "rnic/io/same_host/lane.h"
#include "rnic/io/system/bell.h"
#include "rnic/io/system/heavy_fence.h"
#include "rnic/io/system/own_file.h"

#define LANE_BURST  32u /* packets in a row from one lane */
#define UNEXPECTED  4u  /* records of a batch before others are looked out for */
#define GLANCES     4u
#define IDLE_ROUNDS 65536u /* then another lane may be watched in its place */

struct inbox {
    int descriptor;
    struct own_file file;
    int bell;
    int shown_file; /* -1: none */
    struct inbox_head *head;
    struct direct_announcement *announcements;
    struct direct_shown *shown;
    struct lane *lanes[INBOX_LANES]; /* NULL: never rung */
    uint32_t watched[INBOX_WATCHED];
    uint32_t watched_count;
    bool may_refer;
    bool cut_short;  /* a lane had more than its share */
    bool was_empty;  /* in the latest look: nothing was there */
    uint32_t streak; /* records that inbox_receive_next takes from a lane */
    uint32_t most;   /* ... that whoever looks now does; not 0 */
    struct inbox_sleep sleep;
    uint64_t long_seen; /* of the long records: those before inbox_is_crowded was asked last */
    /* For inbox_is_quiet: where all watched lanes show what comes next. More lanes than that, or
     * lanes that are not watched, are not looked after so. */
    _Atomic uint32_t glance_count;
    _Atomic(const _Atomic uint64_t *) glances[GLANCES];
    struct inbox_lane *mapped[INBOX_LANES]; /* as long as the inbox lives: see forget_lane */
    struct inbox_room *room;
    struct inbox_counters counters;
};

static bool has_file(const struct inbox *inbox)
{
    return own_file_is_at(inbox->descriptor, &inbox->file);
}

static bool map_all(struct inbox *inbox, bool direct)
{
    inbox->head = inbox->sleep.head = inbox_map(inbox->descriptor, 0, INBOX_HEAD_BYTES);
    if (inbox->head != NULL && direct) {
        inbox->announcements = inbox_map(inbox->descriptor, INBOX_ANNOUNCED, INBOX_ANNOUNCED_BYTES);
        inbox->shown = inbox_make_shown(&inbox->shown_file);
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
    inbox->bell = bell_create();
    inbox->shown_file = -1;
    inbox->descriptor = sealed_file_create(INBOX_NAME, bytes);
    if (inbox->descriptor < 0) {
        inbox_destroy(inbox);
        return STATUS_UNSUPPORTED;
    }
    if (!own_file_remember(inbox->descriptor, &inbox->file) || !map_all(inbox, direct)) {
        inbox_destroy(inbox);
        return STATUS_NO_MEMORY;
    }
    inbox->was_empty = true;
    (void)heavy_fence_prepare();
    inbox->head->incarnation = incarnation;
    inbox->head->bell = inbox->bell;
    inbox->head->shown = inbox->shown_file;
    inbox->head->magic = INBOX_MAGIC;
    *ret_inbox = inbox;
    return STATUS_OK;
}

void inbox_abandon(struct inbox *inbox)
{
    int *const files[] = {&inbox->descriptor, &inbox->bell, &inbox->shown_file};
    for (uint32_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (*files[i] >= 0) {
            close(*files[i]);
            *files[i] = -1;
        }
    }
}

void inbox_destroy(struct inbox *inbox)
{
    if (inbox == NULL) {
        return;
    }
    bool ours = inbox->descriptor >= 0; /* else it was the parent's, and is not mapped here */
    for (uint32_t i = 0; i < INBOX_LANES; i++) {
        if (inbox->mapped[i] != NULL && ours) {
            munmap(inbox->mapped[i], INBOX_LANE_BYTES);
        }
        free(inbox->lanes[i]);
    }
    if (ours) {
        inbox_unmap(inbox->head, INBOX_HEAD_BYTES);
        inbox_unmap(inbox->announcements, INBOX_ANNOUNCED_BYTES);
        inbox_unmap(inbox->shown, INBOX_SHOWN_BYTES);
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

uint32_t inbox_wishes(const struct inbox *inbox)
{
    return atomic_load_explicit(&inbox->head->wishes, memory_order_relaxed);
}

bool inbox_next_wish(const struct inbox *inbox, uint32_t *lane, struct memory_key *ret_key)
{
    uint32_t end = atomic_load(&inbox->head->lane_end);
    for (; *lane < INBOX_LANES && *lane < end; ++*lane) {
        ret_key->value = atomic_load(&inbox->announcements[*lane].wish);
        if (ret_key->value != 0) {
            return true;
        }
    }
    return false;
}

void inbox_clear_wish(struct inbox *inbox, uint32_t lane, struct memory_key key)
{
    (void)atomic_compare_exchange_strong(&inbox->announcements[lane].wish, &key.value, 0);
}

/* NULL: no memory for it. */
static SELDOM struct lane *find_lane(struct inbox *inbox, uint32_t number)
{
    struct lane *lane = inbox->lanes[number];
    if (lane != NULL) {
        return lane;
    }
    if (inbox->mapped[number] == NULL && has_file(inbox)) {
        inbox->mapped[number] =
            inbox_map(inbox->descriptor, inbox_lane_offset(number), INBOX_LANE_BYTES);
    }
    lane = inbox->mapped[number] != NULL ? calloc(1, sizeof *lane) : NULL;
    if (lane == NULL) {
        return NULL;
    }
    lane->memory = inbox->mapped[number];
    ring_consume(&lane->ring, inbox_ring(lane->memory), INBOX_RING_BYTES);
    inbox->lanes[number] = lane;
    inbox->counters.lanes++;
    return lane;
}

/* The first packet of a lane has come: what its sender says of itself stands. */
static SELDOM void meet(struct inbox *inbox, struct lane *lane)
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

/* After room was given back; `all`: there is nothing more to take. A sender that waits is told of a
 * part of the ring that is worth a wake-up. */
static SELDOM void give_waiting_room(struct inbox *inbox, uint32_t number, bool all)
{
    struct lane *lane = inbox->lanes[number];
    if (!all && !ring_settle_part(&lane->ring)) {
        return;
    }
    ring_settle(&lane->ring);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with outbox_put */
    if (atomic_exchange(&lane->memory->waits, 0) != 0 && inbox->room != NULL) {
        inbox->room->given(inbox->room, atomic_load(&inbox->head->senders[number]));
    }
}

static inline void give_room(struct inbox *inbox, uint32_t number, bool all)
{
    const struct lane *lane = inbox->lanes[number];
    if (atomic_load_explicit(&lane->memory->waits, memory_order_relaxed) != 0) {
        give_waiting_room(inbox, number, all);
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

/* The next record of a lane, after so many others. False: there is none. */
static inline bool take_record(struct inbox *inbox, uint32_t number,
                               struct inbox_receiver *receiver, uint32_t records,
                               struct lane_passed *ret_passed)
{
    struct lane *lane = inbox->lanes[number];
    const uint8_t *bytes;
    uint32_t length;
    enum status status = ring_peek(&lane->ring, &bytes, &length);
    if (status == STATUS_EMPTY) {
        ring_settle(&lane->ring);
        give_room(inbox, number, true);
        return false;
    }
    if (!lane->met) {
        meet(inbox, lane);
    }
    if (status == STATUS_OK) {
        expect_next(lane, receiver, records);
    }
    if (status != STATUS_OK || !lane_pass_on(lane, receiver, bytes, length, ret_passed)) {
        lane->closed = true;
        inbox->counters.malformed++;
        return false;
    }
    ring_release(&lane->ring);
    give_room(inbox, number, false);
    inbox->counters.packets_received++;
    inbox->counters.long_records += ret_passed->is_long;
    return true;
}

static uint32_t drain(struct inbox *inbox, uint32_t number, struct inbox_receiver *receiver,
                      uint32_t budget)
{
    struct lane *lane = inbox->lanes[number];
    struct lane_passed passed;
    uint32_t count = 0, records = 0;
    while (count < budget && records < inbox->most && !lane->closed &&
           take_record(inbox, number, receiver, records, &passed)) {
        count += passed.packets;
        records++;
    }
    inbox->was_empty &= records == 0;
    inbox->cut_short |= count >= budget;
    lane->idle = count > 0 ? 0 : lane->idle + 1;
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
    inbox_sleep_fence(&inbox->sleep);
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

/* Told without the lock, and so may be what was a moment ago. */
static inline void note_glances(struct inbox *inbox, uint32_t words)
{
    uint32_t count = words > 1 || inbox->watched_count > GLANCES ? 0 : inbox->watched_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct lane *lane = inbox->lanes[inbox->watched[i]];
        atomic_store_explicit(&inbox->glances[i], ring_next(&lane->ring), memory_order_relaxed);
    }
    atomic_store_explicit(&inbox->glance_count, count, memory_order_release);
}

bool inbox_is_quiet(const struct inbox *inbox)
{
    uint32_t count = atomic_load_explicit(&inbox->glance_count, memory_order_acquire);
    uint64_t any = atomic_load_explicit(&inbox->head->rung[0], memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        const _Atomic uint64_t *next =
            atomic_load_explicit(&inbox->glances[i], memory_order_relaxed);
        any |= atomic_load_explicit(next, memory_order_relaxed);
    }
    return count > 0 && any == 0;
}

static uint32_t receive(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget,
                        uint32_t most)
{
    uint32_t count = 0, words;
    inbox->most = most;
    inbox->was_empty = true;
    do {
        inbox->cut_short = false;
        for (uint32_t i = 0; i < inbox->watched_count && count < budget; i++) {
            uint32_t left = budget - count;
            count +=
                drain(inbox, inbox->watched[i], receiver, left < LANE_BURST ? left : LANE_BURST);
        }
        words = rung_words(inbox);
        for (uint32_t i = 0; i < words && count < budget; i++) {
            if (atomic_load_explicit(&inbox->head->rung[i], memory_order_relaxed) != 0) {
                count += receive_rung(inbox, receiver, i, budget - count);
            }
        }
    } while (inbox->cut_short && count < budget);
    note_glances(inbox, words);
    return count;
}

uint32_t inbox_receive(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget)
{
    return receive(inbox, receiver, budget, UINT32_MAX);
}

/* Where one lane is all there is to look at, and has a record: that one. False: it takes more. */
static bool take_only(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t *ret_count)
{
    uint32_t number = inbox->watched[0];
    struct lane_passed passed;
    if (inbox->watched_count != 1 || rung_words(inbox) != 1 ||
        atomic_load_explicit(&inbox->head->rung[0], memory_order_relaxed) != 0 ||
        !has_packet(inbox->lanes[number]) || !take_record(inbox, number, receiver, 0, &passed)) {
        return false;
    }
    inbox->was_empty = false;
    inbox->lanes[number]->idle = 0;
    note_glances(inbox, 1);
    *ret_count = passed.packets;
    return true;
}

uint32_t inbox_receive_next(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget)
{
    uint32_t longer = inbox->streak * 2, count;
    inbox->streak = inbox->was_empty ? 1 : longer < LANE_BURST ? longer : LANE_BURST;
    if (inbox->streak == 1 && take_only(inbox, receiver, &count)) {
        return count;
    }
    return receive(inbox, receiver, budget, inbox->streak);
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
    inbox_sleep_begin(&inbox->sleep);
    bool any = has_any_packet(inbox);
    if (any) {
        inbox_sleep_end(&inbox->sleep);
    }
    return !any;
}

struct inbox_sleep *inbox_sleep(struct inbox *inbox)
{
    return &inbox->sleep;
}

bool inbox_is_crowded(struct inbox *inbox)
{
    uint64_t seen = inbox->long_seen;
    inbox->long_seen = inbox->counters.long_records;
    return inbox->long_seen != seen && inbox_sleep_was_ended_here(&inbox->sleep);
}

int inbox_bell(const struct inbox *inbox)
{
    return inbox->bell;
}

/* It stays mapped: who looks without the lock (inbox_is_quiet) may still look there, and the next
 * lane of that number needs nothing that could be refused. */
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
        free(lane);
        inbox->lanes[number] = NULL;
        inbox->counters.lanes--;
    }
}

/* Who died at our memory is not at it any more, and who has the lane next may never be. */
static void end_announcement(const struct inbox *inbox, uint32_t number)
{
    if (inbox->announcements != NULL) {
        struct direct_turn turn = {.announcement = &inbox->announcements[number]};
        direct_turn_init(&turn);
    }
}

/* The hole reads as zeroes: an empty lane. Its last act makes it another's. */
static void free_lane(struct inbox *inbox, uint32_t number)
{
    if (!has_file(inbox) || fallocate(inbox->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                      (off_t)inbox_lane_offset(number), INBOX_LANE_BYTES) != 0) {
        return; /* it stays taken */
    }
    forget_lane(inbox, number);
    end_announcement(inbox, number);
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
