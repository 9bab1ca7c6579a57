/* The way out: packets gather in runs. A run that is full leaves at once, so that the peer works on
 * it while the next is made, in the same bytes, which are still in the cache; the others leave in
 * batches, with the flush.
 *
 * Invariant: packets of one queue pair leave in the order in which they came. The ICRC of a packet
 * in a run is made for the identification that the kernel will give it: its place in the run where
 * the run leaves as one segmented send, else 0. */
#include <stdio.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/prefetch.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/slots.h"
#include "rnic/io/udp/udp_private.h"

#define PASSES_NS UINT64_C(1000000000) /* what passed an interface still does, so long */
#define UNASKED   1200u                /* bytes that pass any interface worth the name */
#define AHEAD     2u                   /* packets whose payloads are asked for before their turn */
#define AHEAD_MAX 1024u                /* bytes of each, where that is done */

BUILD_CHECK(UDP_RUN_BYTES <= LENDER_PLACE);

static uint32_t block_of(const uint8_t *header)
{
    return slot_of_qpn(packet_destination(header));
}

/* The run that takes `length` more bytes of that path, or NULL where a new one is needed. Only the
 * newest run of path and block will do, for the order. */
static struct udp_run *find_run(struct udp *udp, const struct path *path, uint32_t block,
                                uint32_t length)
{
    for (uint32_t i = udp->run_count; i > 0; i--) {
        struct udp_run *run = &udp->runs[udp_run_slot(udp, i - 1)];
        if (run->block != block || memcmp(&run->path, path, sizeof *path) != 0) {
            continue;
        }
        bool fits = !run->closed && run->sent == 0 && length <= run->segment &&
                    run->count < UDP_RUN_SEGMENTS && run->length + length <= UDP_RUN_BYTES;
        return fits ? run : NULL;
    }
    return NULL;
}

/* Many packets to come, of a request that is acknowledged. */
static bool may_be_lent(const struct udp *udp, const uint8_t *header)
{
    return udp->segmentation && (header[0] == OPCODE(SERVICE_RC, FORM_WRITE_MIDDLE) ||
                                 header[0] == OPCODE(SERVICE_RC, FORM_SEND_MIDDLE));
}

/* For a packet with that header. `lends`: others like it follow, for which the lender has room. */
static struct udp_run *start_run(struct udp *udp, const struct path *path, const uint8_t *header,
                                 uint32_t segment, bool lends)
{
    if (udp->run_count == UDP_RUNS) {
        return NULL;
    }
    uint32_t slot = udp_run_slot(udp, udp->run_count++);
    struct udp_run *run = &udp->runs[slot];
    *run = (struct udp_run){.path = *path,
                            .destination = packet_destination(header),
                            .block = block_of(header),
                            .segment = segment,
                            .single = !udp->segmentation};
    run->trains = lends && may_be_lent(udp, header);
    if (run->trains && trial_is_second(&udp->lender.trial)) {
        run->bytes = lender_take(&udp->lender, path, run->destination);
        run->borrowed = run->bytes != NULL;
    }
    if (!run->borrowed) {
        run->bytes = udp->run_bytes[slot];
    }
    return run;
}

static void flatten(const struct outgoing *outgoing, uint8_t *ret_bytes)
{
    memcpy(ret_bytes, outgoing->header, outgoing->header_length);
    ret_bytes += outgoing->header_length;
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        if (outgoing->fragments[i].length > 0) {
            memcpy(ret_bytes, outgoing->fragments[i].bytes, outgoing->fragments[i].length);
            ret_bytes += outgoing->fragments[i].length;
        }
    }
    memset(ret_bytes, 0, packet_pad(outgoing->payload_length));
}

/* Room for a packet of `length` bytes with its ICRC, at the end of *ret_run; NULL: none. */
static uint8_t *make_room(struct udp *udp, const struct path *path, const uint8_t *header,
                          uint32_t length, bool lends, struct udp_run **ret_run)
{
    struct udp_run *run = find_run(udp, path, block_of(header), length);
    if (run == NULL) {
        run = start_run(udp, path, header, length, lends);
    }
    if (run == NULL && udp_send_all(udp)) {
        run = start_run(udp, path, header, length, lends);
    }
    if (run == NULL) {
        return NULL;
    }
    run->mixed |= !qpn_equal(run->destination, packet_destination(header));
    *ret_run = run;
    return udp_run_end(run);
}

/* The packet stands at the run's end; gives it its ICRC. */
static void seal(struct udp *udp, struct udp_run *run, uint32_t length)
{
    uint8_t *bytes = udp_run_end(run);
    udp_put_icrc(udp, &run->path, run->single ? 0 : run->count, bytes, length - ICRC_LENGTH);
    run->closed = length < run->segment;
    run->length += length;
    run->count++;
}

static void send_if_full(struct udp *udp, const struct udp_run *run)
{
    if (run->count == UDP_RUN_SEGMENTS || run->length + run->segment > UDP_RUN_BYTES) {
        (void)udp_send_all(udp); /* what is left waits for the flush */
    }
}

/* A flat packet, without its ICRC. False: no room. */
static bool append_flat(struct udp *udp, const struct path *path, const uint8_t *bytes,
                        uint32_t length, bool corrupt)
{
    struct udp_run *run;
    uint8_t *room = make_room(udp, path, bytes, length + ICRC_LENGTH, false, &run);
    if (room == NULL) {
        return false;
    }
    memcpy(room, bytes, length);
    seal(udp, run, length + ICRC_LENGTH);
    if (corrupt) {
        fault_corrupt(&udp->fault, room, length + ICRC_LENGTH);
    }
    send_if_full(udp, run);
    return true;
}

static struct udp_delayed *delay(struct udp *udp)
{
    for (uint32_t i = 0; i < UDP_DELAYED_MAX; i++) {
        if (!udp->delayed[i].used) {
            udp->delayed_count++;
            udp->delayed[i].used = true;
            udp->delayed[i].seen_flush = false;
            udp->delayed[i].packets_to_go = fault_delay(&udp->fault);
            return &udp->delayed[i];
        }
    }
    return NULL;
}

/* Lets delayed packets go: by one more packet that has passed, or by a flush. */
static void release_delayed(struct udp *udp, bool flush)
{
    for (uint32_t i = 0; i < UDP_DELAYED_MAX && udp->delayed_count > 0; i++) {
        struct udp_delayed *delayed = &udp->delayed[i];
        if (!delayed->used) {
            continue;
        }
        bool due = flush ? delayed->seen_flush : delayed->packets_to_go <= 1;
        delayed->seen_flush |= flush;
        delayed->packets_to_go -= !flush && !due;
        if (due && append_flat(udp, &delayed->path, delayed->bytes, delayed->length, false)) {
            delayed->used = false;
            udp->delayed_count--;
        }
    }
}

/* False: no room. */
static bool append(struct udp *udp, const struct path *path, const struct outgoing *outgoing,
                   uint32_t length)
{
    struct udp_run *run;
    uint8_t *room = make_room(udp, path, outgoing->header, length, false, &run);
    if (room == NULL) {
        return false;
    }
    flatten(outgoing, room);
    seal(udp, run, length);
    send_if_full(udp, run);
    return true;
}

/* Makes the packet that `verdict` is about apart from the runs. False: no room. */
static bool damage(struct udp *udp, const struct path *path, const struct outgoing *outgoing,
                   uint32_t length, struct fault_verdict verdict)
{
    struct udp_delayed *delayed = verdict.delay && !verdict.lose ? delay(udp) : NULL;
    if (delayed != NULL) {
        delayed->path = *path;
        delayed->length = length - ICRC_LENGTH;
        flatten(outgoing, delayed->bytes);
        return true;
    }
    if (verdict.lose) {
        return true;
    }
    uint8_t bytes[UDP_DATAGRAM_MAX];
    flatten(outgoing, bytes);
    bool taken = append_flat(udp, path, bytes, length - ICRC_LENGTH, verdict.corrupt);
    if (taken && verdict.duplicate) {
        (void)append_flat(udp, path, bytes, length - ICRC_LENGTH, false);
    }
    return taken;
}

/* Who meets no fault costs what it would cost without: losses are to be measured, not this. */
static bool emit_decided(struct udp *udp, const struct path *path, const struct outgoing *outgoing,
                         uint32_t length, struct fault_verdict verdict)
{
    bool faulty = fault_befalls(&verdict);
    udp->counters.faults += faulty;
    bool taken =
        faulty ? damage(udp, path, outgoing, length, verdict) : append(udp, path, outgoing, length);
    if (udp->delayed_count > 0) {
        release_delayed(udp, false);
    }
    return taken;
}

static struct udp_way *way_of(struct udp *udp, const struct path *path)
{
    const uint8_t *bytes = path->remote.bytes;
    return &udp->ways[(bytes[13] * 7u + bytes[14] * 3u + bytes[15]) % UDP_WAYS];
}

static bool has_passed(struct udp *udp, const struct path *path, uint32_t length)
{
    const struct udp_way *way = way_of(udp, path);
    return length <= way->length && gid_equal(&way->remote, &path->remote) &&
           gid_equal(&way->local, &path->local) &&
           instant_elapsed_ns(way->passed, clock_now()) < PASSES_NS;
}

/* Who sends this one hears of its loss in no other way: it leaves at once and alone, for the kernel
 * to say whether the interface takes it. False: no room. */
static bool emit_watched(struct udp *udp, const struct path *path, const struct outgoing *outgoing,
                         uint32_t length)
{
    if (!udp_send_all(udp)) {
        return false;
    }
    uint64_t refused = udp->counters.dropped_too_long;
    if (!append(udp, path, outgoing, length)) {
        return false;
    }
    bool sent = udp_send_all(udp);
    if (udp->counters.dropped_too_long != refused) {
        *outgoing->ret_takes = udp_interface_mtu(path, length);
    } else if (sent) {
        *way_of(udp, path) = (struct udp_way){path->local, path->remote, length, clock_now()};
    }
    return true;
}

bool udp_emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct udp *udp = (struct udp *)((char *)sink - offsetof(struct udp, sink));
    uint32_t length = outgoing->header_length + outgoing->payload_length +
                      packet_pad(outgoing->payload_length) + ICRC_LENGTH;
    CHECK(length <= UDP_DATAGRAM_MAX);
    if (udp->sockets[udp_family_of(&outgoing->path->remote)] < 0) {
        udp->counters.dropped_unreachable++;
        snprintf(udp->message, sizeof udp->message, "the host does not have the peer's IP version");
        return true;
    }
    struct path path = *outgoing->path;
    path.source_port = udp_source_port(udp, udp_family_of(&path.remote), &path,
                                       packet_destination(outgoing->header));
    if (udp->has_fault) {
        return emit_decided(udp, &path, outgoing, length, fault_decide(&udp->fault));
    }
    bool watched = outgoing->ret_takes != NULL && length > UNASKED;
    return watched && !has_passed(udp, &path, length) ? emit_watched(udp, &path, outgoing, length)
                                                      : append(udp, &path, outgoing, length);
}

/* How many packets of `length` bytes the run still takes, at least one. */
static uint32_t places_left(const struct udp_run *run, uint32_t length)
{
    uint32_t most = UDP_RUN_SEGMENTS - run->count, fit = (UDP_RUN_BYTES - run->length) / length;
    return length < run->segment ? 1 : most < fit ? most : fit;
}

/* What a program writes and its engine sends lies in another core's cache. Where a copy leads the
 * processor sees for itself in longer payloads only. */
static void fetch_ahead(const struct train *train, uint32_t next)
{
    uint32_t length = train->payload_length;
    if (length <= AHEAD_MAX && next < train->count) {
        prefetch_to_read(train->bytes + (size_t)next * length, length);
    }
}

/* Packets of the train from `next` on to before `end`, as far as the run goes, whose end is `room`;
 * returns the next. */
static uint32_t fill_run(struct udp *udp, struct udp_run *run, const struct train *train,
                         uint32_t next, uint32_t end, uint8_t *room)
{
    uint32_t length = train->header_length + train->payload_length + ICRC_LENGTH;
    uint32_t left = places_left(run, length);
    struct psn psn = packet_psn(train->header);
    struct instant began = udp_time_asked(udp);
    for (uint32_t stop = end - next < left ? end : next + left; next < stop; next++) {
        memcpy(room, train->header, train->header_length);
        packet_put_psn(room, psn_add(psn, next));
        memcpy(room + train->header_length, train->bytes + (size_t)next * train->payload_length,
               train->payload_length);
        fetch_ahead(train, next + AHEAD);
        seal(udp, run, length);
        room += length;
    }
    run->ns += udp_time_since(udp, began);
    return next;
}

/* Packets of the train from `first` on; returns how many were taken. */
static uint32_t append_train(struct udp *udp, const struct path *path, const struct train *train,
                             uint32_t first, uint32_t count)
{
    uint32_t length = train->header_length + train->payload_length + ICRC_LENGTH;
    uint32_t next = first, end = first + count;
    bool lends = train->under_way <= UDP_FLIGHT_MAX;
    struct udp_run *run;
    uint8_t *room;
    while (next < end &&
           (room = make_room(udp, path, train->header, length, lends, &run)) != NULL) {
        next = fill_run(udp, run, train, next, end, room);
        send_if_full(udp, run);
    }
    return next - first;
}

/* What meets a fault goes by itself, as does what lets delayed packets go; the others stay a train.
 */
static uint32_t append_train_faulty(struct udp *udp, const struct path *path,
                                    const struct train *train)
{
    uint32_t length = train->header_length + train->payload_length + ICRC_LENGTH;
    for (uint32_t next = 0; next < train->count; next++) {
        uint32_t rest = udp->delayed_count > 0 ? 1 : train->count - next;
        struct fault_verdict verdict = {.lose = false};
        uint32_t spared = fault_spares(&udp->fault, rest, &verdict);
        uint32_t together = udp->delayed_count > 0 ? 0 : spared;
        uint32_t taken = append_train(udp, path, train, next, together);
        next += taken;
        if (taken < together || next == train->count) {
            return next;
        }
        uint8_t header[PACKET_HEADER_MAX];
        struct fragment payload;
        struct outgoing outgoing;
        train_packet(train, next, header, &payload, &outgoing);
        if (!emit_decided(udp, path, &outgoing, length, verdict)) {
            return next;
        }
    }
    return train->count;
}

uint32_t udp_emit_train(struct packet_sink *sink, const struct train *train)
{
    struct udp *udp = (struct udp *)((char *)sink - offsetof(struct udp, sink));
    enum udp_family family = udp_family_of(&train->path->remote);
    if (udp->sockets[family] < 0) {
        return train_emit_singly(sink, train);
    }
    struct path path = *train->path;
    path.source_port = udp_source_port(udp, family, &path, packet_destination(train->header));
    return udp->has_fault ? append_train_faulty(udp, &path, train)
                          : append_train(udp, &path, train, 0, train->count);
}

bool udp_flush(struct udp *udp)
{
    if (udp->delayed_count > 0) {
        release_delayed(udp, true);
    }
    return udp_send_all(udp);
}

bool udp_has_waiting(const struct udp *udp)
{
    return udp->run_count > 0 || udp->delayed_count > 0;
}

int udp_waiting_descriptor(struct udp *udp)
{
    const struct path *path = &udp->runs[udp->run_first].path;
    return udp_sending_socket(udp, udp_family_of(&path->remote), path->source_port);
}
