#include "rnic/io/same_host/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rnic/base/bytes.h"
#include "rnic/base/seldom.h"
#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/same_host/responses.h"
#include "rnic/io/system/bell.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/heavy_fence.h"
#include "rnic/io/system/processor.h"
#include "rnic/io/system/raw_file.h"

#define SHORT_HEADERS   ((uint32_t)sizeof(struct inbox_record) + BTH_LENGTH)
#define REFERENCE_LEAST 16384u /* bytes; below, two copies cost less than the system call */

struct outbox {
    struct inbox_head *head;
    struct inbox_lane *lane;
    void *announcements;              /* the page with ours; NULL: */
    const struct direct_shown *shown; /* the owner's memory is not touched */
    struct direct_reach reach;
    uint32_t number;
    int bell;        /* a copy of the owner's; -1: none */
    uint32_t sleep;  /* of the owner's, which is ours to end */
    bool takes_part; /* in heavy fences of other processes */
    struct ring_producer ring;
    struct inbox_route routes[INBOX_ROUTES]; /* what the lane says, in memory of our own */
    uint32_t route_count;
    uint32_t route;                          /* the one used last */
    uint32_t withdrawals[INBOX_WITHDRAWALS]; /* as the lane has them */
    struct referred {
        uint64_t start,
            end;           /* all that the records put so since they were last consumed refer to */
        uint64_t produced; /* the ring's, behind the last of them */
    } referred;
    struct responses responses;
};

/* -1: not there, or not a file that no one can cut short. */
static int open_inbox(pid_t thread, int descriptor, bool *ret_direct, enum status *ret_status)
{
    struct stat stat;
    int file = sealed_file_open(thread, descriptor, INBOX_LINK, &stat, ret_status);
    if (file < 0) {
        return -1;
    }
    *ret_direct = stat.st_size == (off_t)INBOX_DIRECT_BYTES;
    bool sound = *ret_direct || stat.st_size == (off_t)INBOX_FILE_BYTES;
    if (!sound || stat.st_uid != geteuid()) {
        *ret_status = sound ? STATUS_DENIED : STATUS_NOT_FOUND;
        raw_close(file);
        return -1;
    }
    return file;
}

static void raise_lane_end(struct inbox_head *head, uint32_t end)
{
    uint32_t before = atomic_load(&head->lane_end);
    while (before < end && !atomic_compare_exchange_weak(&head->lane_end, &before, end)) {
    }
}

/* Free lanes are looked for from the bottom, so that few are ever used. */
static enum status take_lane(struct outbox *outbox, int file, uint64_t incarnation)
{
    for (uint32_t i = 0; i < INBOX_LANES; i++) {
        uint64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&outbox->head->senders[i], &nobody, incarnation)) {
            continue;
        }
        outbox->lane = inbox_map(file, inbox_lane_offset(i), INBOX_LANE_BYTES);
        if (outbox->lane == NULL) {
            atomic_store(&outbox->head->senders[i], 0);
            return STATUS_NO_MEMORY;
        }
        outbox->number = i;
        ring_produce(&outbox->ring, inbox_ring(outbox->lane), INBOX_RING_BYTES);
        ring_touch_by(&outbox->ring, inbox_touch);
        raise_lane_end(outbox->head, i + 1);
        return STATUS_OK;
    }
    return STATUS_FULL;
}

static void end_access(struct outbox *outbox)
{
    if (outbox->announcements != NULL && outbox->shown != NULL) {
        direct_reach_end(&outbox->reach);
    }
    inbox_unmap(outbox->announcements, INBOX_PAGE);
    inbox_unmap(outbox->shown, INBOX_SHOWN_BYTES);
    outbox->announcements = NULL;
    outbox->shown = NULL;
}

/* Without it everything goes by packets. */
static void let_access(struct outbox *outbox, int file, pid_t thread)
{
    uint64_t offset = outbox->number * sizeof(struct direct_announcement);
    outbox->announcements =
        inbox_map(file, INBOX_ANNOUNCED + offset / INBOX_PAGE * INBOX_PAGE, INBOX_PAGE);
    outbox->shown = inbox_find_shown(thread, outbox->head->shown);
    if (outbox->announcements == NULL || outbox->shown == NULL) {
        end_access(outbox); /* of the one that is there */
        return;
    }
    void *own = (uint8_t *)outbox->announcements + offset % INBOX_PAGE;
    direct_reach_init(&outbox->reach, outbox->shown, own, (uint32_t)thread);
}

enum status outbox_open(pid_t thread, int descriptor, uint64_t its_incarnation,
                        uint64_t our_incarnation, const struct pull_identity *identity, bool direct,
                        struct outbox **ret_outbox)
{
    CHECK(our_incarnation != 0);
    enum status status = STATUS_OK;
    bool may_be_direct;
    int file = open_inbox(thread, descriptor, &may_be_direct, &status);
    if (file < 0) {
        return status;
    }
    struct outbox *outbox = calloc(1, sizeof *outbox);
    if (outbox != NULL) {
        outbox->bell = -1;
        outbox->takes_part = heavy_fence_prepare();
        outbox->head = inbox_map(file, 0, INBOX_HEAD_BYTES);
    }
    if (outbox == NULL || outbox->head == NULL) {
        status = STATUS_NO_MEMORY;
    } else if (outbox->head->magic != INBOX_MAGIC || outbox->head->incarnation != its_incarnation) {
        status = STATUS_NOT_FOUND;
    } else {
        status = take_lane(outbox, file, our_incarnation);
    }
    if (status == STATUS_OK && direct && may_be_direct) {
        let_access(outbox, file, thread);
    }
    if (status == STATUS_OK && outbox->shown != NULL) {
        outbox->bell = bell_borrow(thread, outbox->head->bell, descriptor, file);
    }
    raw_close(file);
    if (status != STATUS_OK) {
        outbox_close(outbox);
        return status;
    }
    if (identity != NULL) {
        outbox->lane->sender = *identity;
    }
    *ret_outbox = outbox;
    return STATUS_OK;
}

static void forget_bell(struct outbox *outbox)
{
    if (outbox->bell >= 0) {
        raw_close(outbox->bell);
    }
}

void outbox_close(struct outbox *outbox)
{
    if (outbox == NULL) {
        return;
    }
    inbox_unmap(outbox->lane, INBOX_LANE_BYTES);
    inbox_unmap(outbox->head, INBOX_HEAD_BYTES);
    end_access(outbox);
    forget_bell(outbox);
    free(outbox);
}

void outbox_abandon(struct outbox *outbox)
{
    forget_bell(outbox);
    free(outbox); /* the mappings did not come along */
}

static bool is_route_of(const struct inbox_route *route, const struct path *path)
{
    return gid_equal(&route->remote, &path->remote) && gid_equal(&route->local, &path->local);
}

static SELDOM bool find_another_route(struct outbox *outbox, const struct path *path)
{
    for (outbox->route = 0; outbox->route < outbox->route_count; outbox->route++) {
        if (is_route_of(&outbox->routes[outbox->route], path)) {
            return true;
        }
    }
    if (outbox->route_count == INBOX_ROUTES) {
        outbox->route = 0;
        return false;
    }
    outbox->routes[outbox->route] = (struct inbox_route){path->local, path->remote};
    outbox->lane->routes[outbox->route] = outbox->routes[outbox->route];
    atomic_store_explicit(&outbox->lane->route_count, ++outbox->route_count, memory_order_release);
    return true;
}

static inline bool find_route(struct outbox *outbox, const struct path *path)
{
    bool again = outbox->route_count > 0 && is_route_of(&outbox->routes[outbox->route], path);
    return again || find_another_route(outbox, path);
}

uint32_t outbox_reach(struct outbox *outbox, const struct path *path)
{
    bool pulls = atomic_load_explicit(&outbox->lane->pulls, memory_order_acquire) != 0;
    uint32_t most = pulls ? REFERENCE_MAX : INBOX_CARRIED_MAX;
    return find_route(outbox, path) ? most : 0;
}

static uint32_t withdrawal_place(struct qpn destination, bool responses)
{
    return (destination.value * 2 + responses) % INBOX_WITHDRAWALS;
}

/* Pairs with the reader's second look: what it has read until then was ours to show. */
static void withdraw(struct outbox *outbox, uint32_t place)
{
    outbox->withdrawals[place]++;
    atomic_store(&outbox->lane->withdrawals[place], outbox->withdrawals[place]);
}

void outbox_withdraw(struct outbox *outbox, struct qpn destination, bool responses)
{
    withdraw(outbox, withdrawal_place(destination, responses));
}

uint32_t outbox_access(struct outbox *outbox, const struct direct_access *accesses, uint32_t count,
                       bool *ret_stores)
{
    if (outbox->shown == NULL) {
        return 0;
    }
    uint32_t done = direct_reach_access(&outbox->reach, accesses, count);
    *ret_stores = outbox->reach.stores;
    return done;
}

bool outbox_has_wished(struct outbox *outbox)
{
    if (!outbox->reach.wishes) {
        return false;
    }
    outbox->reach.wishes = false;
    atomic_fetch_add(&outbox->head->wishes, 1);
    return true;
}

static uint8_t *append(uint8_t *to, const void *bytes, uint32_t length)
{
    memcpy(to, bytes, length);
    return to + length;
}

/* How a payload travels. */
enum way {
    WAY_PLAIN,    /* with the packet, which stands for itself only */
    WAY_CARRIED,  /* in the record */
    WAY_REFERRED, /* not at all */
};

static enum way choose_way(const struct outbox *outbox, const struct outgoing *outgoing)
{
    if (outgoing->reference_shift == 0) {
        return WAY_PLAIN;
    }
    bool pulls = atomic_load_explicit(&outbox->lane->pulls, memory_order_relaxed) != 0;
    bool is_short = outgoing->payload_length < (pulls ? REFERENCE_LEAST : INBOX_CARRIED_MAX + 1);
    return is_short ? WAY_CARRIED : WAY_REFERRED;
}

/* Of the record. */
static uint32_t record_length(const struct outgoing *outgoing, enum way way)
{
    uint32_t headers = (uint32_t)sizeof(struct inbox_record) + outgoing->header_length;
    if (way == WAY_CARRIED) {
        return INBOX_CARRIED(outgoing->header_length) + outgoing->payload_length;
    }
    if (way == WAY_PLAIN) {
        return headers + outgoing->payload_length + packet_pad(outgoing->payload_length);
    }
    return headers + (uint32_t)(sizeof(struct inbox_reference) +
                                outgoing->fragment_count * sizeof(struct pull_piece));
}

static void put_reference(const struct outbox *outbox, const struct outgoing *outgoing,
                          uint8_t *bytes)
{
    uint32_t place = withdrawal_place(packet_destination(outgoing->header), outgoing->is_response);
    struct inbox_reference reference = {
        .length = outgoing->payload_length,
        .withdrawal = outbox->withdrawals[place],
        .place = (uint8_t)place,
        .segment_shift = outgoing->reference_shift,
        .piece_count = (uint8_t)outgoing->fragment_count,
        .header_length = (uint8_t)outgoing->header_length,
    };
    bytes = append(bytes, &reference, sizeof reference);
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        struct pull_piece piece = {(uintptr_t)outgoing->fragments[i].bytes,
                                   outgoing->fragments[i].length, 0};
        bytes = append(bytes, &piece, sizeof piece);
    }
    (void)append(bytes, outgoing->header, outgoing->header_length);
}

bool outbox_refers_to(struct outbox *outbox, const uint8_t *bytes, uint64_t length)
{
    struct referred *referred = &outbox->referred;
    if (ring_is_consumed(&outbox->ring, referred->produced)) {
        referred->start = referred->end = 0;
    }
    uint64_t start = (uintptr_t)bytes;
    return start < referred->end && referred->start < start + length;
}

static struct response *find_response(struct outbox *outbox, const uint8_t *bytes, uint64_t length,
                                      struct instant until)
{
    if (outbox->responses.count == 0) {
        return NULL;
    }
    (void)ring_is_consumed(&outbox->ring, outbox->responses.produced);
    return responses_find(&outbox->responses, bytes, length, until, outbox->ring.consumed);
}

bool outbox_responds_with(struct outbox *outbox, const uint8_t *bytes, uint64_t length,
                          struct instant until)
{
    return find_response(outbox, bytes, length, until) != NULL;
}

void outbox_revoke(struct outbox *outbox, const uint8_t *bytes, uint64_t length,
                   struct instant until)
{
    struct response *response;
    while ((response = find_response(outbox, bytes, length, until)) != NULL) {
        bool any = response->place == RESPONSES_ANY_PLACE;
        for (uint32_t place = 0; place < INBOX_WITHDRAWALS; place++) {
            if (any || place == response->place) {
                withdraw(outbox, place);
            }
        }
        *response = (struct response){0};
    }
}

static void note_response(struct outbox *outbox, const struct outgoing *outgoing)
{
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        uint64_t start = (uintptr_t)outgoing->fragments[i].bytes;
        struct response response = {
            .start = start,
            .end = start + outgoing->fragments[i].length,
            .produced = outbox->ring.produced,
            .put = clock_now(),
            .place = withdrawal_place(packet_destination(outgoing->header), true),
        };
        responses_add(&outbox->responses, &response, outbox->ring.consumed);
    }
}

/* The record put last. */
static void note_reference(struct outbox *outbox, const struct outgoing *outgoing)
{
    if (outgoing->is_response) {
        note_response(outbox, outgoing);
    }
    struct referred *referred = &outbox->referred;
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        uint64_t start = (uintptr_t)outgoing->fragments[i].bytes;
        uint64_t end = start + outgoing->fragments[i].length;
        bool is_first = referred->end == 0;
        referred->start = is_first || start < referred->start ? start : referred->start;
        referred->end = is_first || end > referred->end ? end : referred->end;
    }
    referred->produced = outbox->ring.produced;
}

static uint8_t *append_payload(uint8_t *bytes, const struct outgoing *outgoing)
{
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        const struct fragment *fragment = &outgoing->fragments[i];
        bytes = append(bytes, fragment->bytes, fragment->length);
    }
    return bytes;
}

static void put_carried(const struct outgoing *outgoing, uint8_t *bytes)
{
    struct inbox_reference reference = {
        .length = outgoing->payload_length,
        .segment_shift = outgoing->reference_shift,
        .header_length = (uint8_t)outgoing->header_length,
    };
    uint8_t *payload = bytes + INBOX_CARRIED(outgoing->header_length) - sizeof(struct inbox_record);
    bytes = append(bytes, &reference, sizeof reference);
    (void)append(bytes, outgoing->header, outgoing->header_length);
    (void)append_payload(payload, outgoing);
}

static void put_plain(const struct outgoing *outgoing, uint8_t *bytes)
{
    bytes = append(bytes, outgoing->header, outgoing->header_length);
    bytes = append_payload(bytes, outgoing);
    memset(bytes, 0, packet_pad(outgoing->payload_length));
}

/* Where there is no room the owner is told that we wait; some may have been given before that. */
static uint8_t *reserve(struct outbox *outbox, uint32_t length)
{
    uint8_t *bytes = ring_reserve(&outbox->ring, length);
    if (bytes == NULL) {
        atomic_store(&outbox->lane->waits, 1);
        atomic_thread_fence(memory_order_seq_cst); /* pairs with give_room */
        bytes = ring_reserve(&outbox->ring, length);
    }
    return bytes;
}

bool outbox_has_room(struct outbox *outbox)
{
    return ring_has_room(&outbox->ring, INBOX_RECORD_MAX);
}

static inline struct inbox_record describe(const struct outbox *outbox, const struct path *path,
                                           unsigned flags, struct psn acknowledged)
{
    return (struct inbox_record){
        .route = (uint8_t)outbox->route,
        .traffic_class = path->traffic_class,
        .hop_limit = path->hop_limit,
        .flow_label_high = (uint8_t)((path->flow_label >> 16 & 0xf) | flags),
        .flow_label_low = (uint16_t)path->flow_label,
        .source_port = path->source_port,
        .acknowledged = acknowledged.value,
    };
}

/* What is written in small pieces and read in large ones is waited for, so the pieces go where they
 * belong at once. */
bool outbox_put_short(struct outbox *outbox, const struct outgoing_short *outgoing)
{
    const struct path *path = outgoing->path;
    uint32_t pad = packet_pad(outgoing->length);
    uint32_t headers = SHORT_HEADERS + (outgoing->has_immediate ? IMMDT_LENGTH : 0);
    uint32_t length = headers + outgoing->length + pad;
    if (length > RING_LINE_MAX || !find_route(outbox, path)) {
        return false;
    }
    uint8_t *bytes = ring_open_line(&outbox->ring);
    if (bytes == NULL) {
        return false;
    }
    *(struct inbox_record *)(void *)bytes = describe(
        outbox, path, outgoing->acknowledges ? INBOX_ACKNOWLEDGES : 0, outgoing->acknowledged);
    bytes += sizeof(struct inbox_record);
    bytes_store_u32(bytes, outgoing->bth[0]);
    bytes_store_u32(bytes + 4, outgoing->bth[1]);
    bytes_store_u32(bytes + 8, outgoing->bth[2]);
    bytes += BTH_LENGTH;
    if (outgoing->has_immediate) {
        memcpy(bytes, &outgoing->immediate, IMMDT_LENGTH);
        bytes += IMMDT_LENGTH;
    }
    if (pad > 0) {
        memset(bytes + (outgoing->length & ~3u), 0, sizeof(uint32_t));
    }
    bytes_copy_short(bytes, outgoing->payload, outgoing->length);
    ring_show_line(&outbox->ring, length);
    return true;
}

enum status outbox_put(struct outbox *outbox, const struct outgoing *outgoing)
{
    if (!find_route(outbox, outgoing->path)) {
        return STATUS_OUT_OF_RANGE;
    }
    enum way way = choose_way(outbox, outgoing);
    uint32_t length = record_length(outgoing, way);
    CHECK(length <= INBOX_RECORD_MAX);
    uint8_t *bytes = reserve(outbox, length);
    if (bytes == NULL) {
        return STATUS_FULL;
    }
    unsigned flags =
        (way != WAY_PLAIN ? INBOX_REFERS : 0) | (outgoing->acknowledges ? INBOX_ACKNOWLEDGES : 0);
    struct inbox_record record = describe(outbox, outgoing->path, flags, outgoing->acknowledged);
    bytes = append(bytes, &record, sizeof record);
    if (way == WAY_REFERRED) {
        put_reference(outbox, outgoing, bytes);
    } else if (way == WAY_CARRIED) {
        put_carried(outgoing, bytes);
    } else {
        put_plain(outgoing, bytes);
    }
    ring_publish(&outbox->ring, length);
    if (way == WAY_REFERRED) {
        note_reference(outbox, outgoing);
    }
    return STATUS_OK;
}

static inline void fence(const struct outbox *outbox)
{
    atomic_signal_fence(memory_order_seq_cst);
    bool for_us = outbox->takes_part &&
                  atomic_load_explicit(&outbox->head->fences_for_all, memory_order_acquire) != 0;
    if (!for_us) {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

bool outbox_flush(struct outbox *outbox)
{
    struct inbox_head *head = outbox->head;
    ring_show(&outbox->ring);
    fence(outbox); /* pairs with unwatch and inbox_fall_asleep */
    if (atomic_load_explicit(&outbox->lane->watched, memory_order_relaxed) == 0) {
        _Atomic uint64_t *word = &head->rung[outbox->number / 64];
        uint64_t bit = UINT64_C(1) << outbox->number % 64;
        atomic_fetch_or(word, bit);
    }
    outbox->sleep = atomic_load_explicit(&head->asleep, memory_order_relaxed);
    return outbox->sleep != 0;
}

bool outbox_wake(struct outbox *outbox)
{
    atomic_store_explicit(&outbox->head->rung_on, processor_here(), memory_order_relaxed);
    return bell_ring(outbox->bell);
}

/* Not before: others would count on us, who may be stopped or killed with it undone. */
void outbox_has_woken(struct outbox *outbox)
{
    (void)atomic_compare_exchange_strong(&outbox->head->asleep, &outbox->sleep, 0);
}
