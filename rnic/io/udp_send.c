/* The way out: packets gather in runs. A run that is full leaves at once, so that the peer works on
 * it while the next is made, in the same bytes, which are still in the cache; the others leave in
 * batches, with the flush.
 *
 * Invariant: packets of one queue pair leave in the order in which they came. The ICRC of a packet
 * in a run is made for the identification that the kernel will give it: its place in the run where
 * the run leaves as one segmented send, else 0. */
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/io/address.h"
#include "rnic/io/clock.h"
#include "rnic/io/raw_socket.h"
#include "rnic/io/registry.h"
#include "rnic/io/udp_private.h"

#define HOP_LIMIT_DEFAULT 64
#define HOP_LIMIT_GROUP   1 /* a multicast stays on its network unless told otherwise */
#define ASK_AGAIN_NS      UINT64_C(1000000000) /* for an interface that was not there */
#define PASSES_NS         UINT64_C(1000000000) /* what passed an interface still does, so long */
#define UNASKED           1200u                /* bytes that pass any interface worth the name */

struct control_buffer {
    uint8_t bytes[UDP_CONTROL_BYTES] __attribute__((aligned(__alignof__(struct cmsghdr))));
};

static enum udp_family family_of(const struct gid *gid)
{
    return gid_is_ipv4(gid) ? UDP_IPV4 : UDP_IPV6;
}

static uint32_t block_of(const uint8_t *header)
{
    return registry_slot_of_qpn(packet_destination(header));
}

static uint32_t run_slot(const struct udp *udp, uint32_t index)
{
    return (udp->run_first + index) % UDP_RUNS;
}

/* The run that takes `length` more bytes of that path, or NULL where a new one is needed. Only the
 * newest run of path and block will do, for the order. */
static struct udp_run *find_run(struct udp *udp, const struct path *path, uint32_t block,
                                uint32_t length)
{
    for (uint32_t i = udp->run_count; i > 0; i--) {
        struct udp_run *run = &udp->runs[run_slot(udp, i - 1)];
        if (run->block != block || memcmp(&run->path, path, sizeof *path) != 0) {
            continue;
        }
        bool fits = !run->closed && run->sent == 0 && length <= run->segment &&
                    run->count < UDP_RUN_SEGMENTS && run->length + length <= UDP_RUN_BYTES;
        return fits ? run : NULL;
    }
    return NULL;
}

static struct udp_run *start_run(struct udp *udp, const struct path *path, uint32_t block,
                                 uint32_t segment)
{
    if (udp->run_count == UDP_RUNS) {
        return NULL;
    }
    struct udp_run *run = &udp->runs[run_slot(udp, udp->run_count++)];
    *run = (struct udp_run){
        .path = *path, .block = block, .segment = segment, .single = !udp->segmentation};
    return run;
}

static uint8_t *run_end(struct udp *udp, const struct udp_run *run)
{
    return udp->run_bytes[run - udp->runs] + run->length;
}

static void put_icrc(struct udp *udp, const struct path *path, uint32_t identification,
                     uint8_t *bytes, uint32_t length_before)
{
    struct roce_ip ip = {.identification = (uint16_t)identification, .dont_fragment = true};
    uint32_t icrc = roce_icrc_in_series(&udp->series, path, &ip, bytes, length_before);
    roce_icrc_store(bytes + length_before, icrc);
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

static bool send_some(struct udp *udp);

/* Hands the runs to the kernel. False: its buffers are full. */
static bool send_all(struct udp *udp)
{
    bool blocked = false;
    while (udp->run_count > 0 && !blocked) {
        blocked = !send_some(udp);
    }
    udp->counters.blocked += blocked;
    return !blocked;
}

/* Room for a packet of `length` bytes with its ICRC, at the end of *ret_run; NULL: none. */
static uint8_t *make_room(struct udp *udp, const struct path *path, uint32_t block, uint32_t length,
                          struct udp_run **ret_run)
{
    struct udp_run *run = find_run(udp, path, block, length);
    if (run == NULL) {
        run = start_run(udp, path, block, length);
    }
    if (run == NULL && send_all(udp)) {
        run = start_run(udp, path, block, length);
    }
    if (run == NULL) {
        return NULL;
    }
    *ret_run = run;
    return run_end(udp, run);
}

/* The packet stands at the run's end; gives it its ICRC. */
static void seal(struct udp *udp, struct udp_run *run, uint32_t length)
{
    uint8_t *bytes = run_end(udp, run);
    put_icrc(udp, &run->path, run->single ? 0 : run->count, bytes, length - ICRC_LENGTH);
    run->closed = length < run->segment;
    run->length += length;
    run->count++;
}

static void send_if_full(struct udp *udp, const struct udp_run *run)
{
    if (run->count == UDP_RUN_SEGMENTS || run->length + run->segment > UDP_RUN_BYTES) {
        (void)send_all(udp); /* what is left waits for the flush */
    }
}

/* A flat packet, without its ICRC. False: no room. */
static bool append_flat(struct udp *udp, const struct path *path, const uint8_t *bytes,
                        uint32_t length, bool corrupt)
{
    struct udp_run *run;
    uint8_t *room = make_room(udp, path, block_of(bytes), length + ICRC_LENGTH, &run);
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
    uint8_t *room = make_room(udp, path, block_of(outgoing->header), length, &run);
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
static bool emit_faulty(struct udp *udp, const struct path *path, const struct outgoing *outgoing,
                        uint32_t length)
{
    struct fault_verdict verdict = fault_decide(&udp->fault);
    bool faulty = verdict.lose || verdict.delay || verdict.duplicate || verdict.corrupt;
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
    if (!send_all(udp)) {
        return false;
    }
    uint64_t refused = udp->counters.dropped_too_long;
    if (!append(udp, path, outgoing, length)) {
        return false;
    }
    bool sent = send_all(udp);
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
    if (udp->sockets[family_of(&outgoing->path->remote)] < 0) {
        udp->counters.dropped_unreachable++;
        snprintf(udp->message, sizeof udp->message, "the host does not have the peer's IP version");
        return true;
    }
    struct path path = *outgoing->path;
    path.source_port =
        udp_source_port(udp, family_of(&path.remote), &path, packet_destination(outgoing->header));
    if (udp->has_fault) {
        return emit_faulty(udp, &path, outgoing, length);
    }
    bool watched = outgoing->ret_takes != NULL && length > UNASKED;
    return watched && !has_passed(udp, &path, length) ? emit_watched(udp, &path, outgoing, length)
                                                      : append(udp, &path, outgoing, length);
}

/* Link-local sources need their interface named; so do IPv6 multicasts, which no route tells where
 * to go. For an IPv4 one the kernel goes by the source address. */
static uint32_t interface_of(struct udp *udp, const struct path *path)
{
    const struct gid *local = &path->local;
    bool is_link_local = local->bytes[0] == 0xfe && (local->bytes[1] & 0xc0) == 0x80;
    if (!is_link_local && path->remote.bytes[0] != 0xff) {
        return 0;
    }
    struct instant now = clock_now();
    for (uint32_t i = 0; i < UDP_LINK_LOCAL_MAX; i++) {
        if (gid_equal(&udp->link_local[i].gid, local) &&
            (udp->link_local[i].interface_index != 0 ||
             instant_elapsed_ns(udp->link_local[i].asked, now) < ASK_AGAIN_NS)) {
            return udp->link_local[i].interface_index;
        }
    }
    struct address_table table;
    const struct address *address =
        address_read(&table) == STATUS_OK ? address_find(&table, local) : NULL;
    uint32_t slot = udp->link_local_next++ % UDP_LINK_LOCAL_MAX;
    udp->link_local[slot].gid = *local;
    udp->link_local[slot].interface_index = address != NULL ? address->interface_index : 0;
    udp->link_local[slot].asked = now;
    return udp->link_local[slot].interface_index;
}

static struct cmsghdr *add_control(struct msghdr *message, int level, int type, const void *value,
                                   size_t length)
{
    struct cmsghdr *control =
        (struct cmsghdr *)((uint8_t *)message->msg_control + message->msg_controllen);
    CHECK(message->msg_controllen + CMSG_SPACE(length) <= UDP_CONTROL_BYTES);
    control->cmsg_level = level;
    control->cmsg_type = type;
    control->cmsg_len = CMSG_LEN(length);
    memcpy(CMSG_DATA(control), value, length);
    message->msg_controllen += CMSG_SPACE(length);
    return control;
}

/* Addresses and marks of a run's packets; `segment` is not 0 for a segmented send. */
static void address_message(struct udp *udp, const struct path *path, uint16_t segment,
                            struct sockaddr_storage *name, struct control_buffer *control,
                            struct msghdr *ret_message)
{
    int traffic_class = path->traffic_class;
    int unspecified = gid_is_multicast(&path->remote) ? HOP_LIMIT_GROUP : HOP_LIMIT_DEFAULT;
    int hop_limit = path->hop_limit != 0 ? path->hop_limit : unspecified;
    uint32_t interface = interface_of(udp, path);
    memset(control, 0, sizeof *control);
    *ret_message = (struct msghdr){
        .msg_name = name,
        .msg_namelen = address_to_socket(&path->remote, udp->port, interface, name),
        .msg_control = control->bytes,
    };
    if (family_of(&path->remote) == UDP_IPV4) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, path->local.bytes + 12, 4);
        add_control(ret_message, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
        add_control(ret_message, IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
        add_control(ret_message, IPPROTO_IP, IP_TTL, &hop_limit, sizeof hop_limit);
    } else {
        struct in6_pktinfo info = {.ipi6_ifindex = interface};
        memcpy(&info.ipi6_addr, path->local.bytes, 16);
        ((struct sockaddr_in6 *)name)->sin6_flowinfo = htonl(path->flow_label);
        add_control(ret_message, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
        add_control(ret_message, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof traffic_class);
        add_control(ret_message, IPPROTO_IPV6, IPV6_HOPLIMIT, &hop_limit, sizeof hop_limit);
    }
    if (segment != 0) {
        add_control(ret_message, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
    }
}

/* An error may be an earlier packet's, told by ICMP; then it is in the error queue, and the call is
 * made again. */
static int send_messages(struct udp *udp, enum udp_family family, uint16_t source_port,
                         struct mmsghdr *messages, uint32_t count)
{
    int descriptor = udp_sending_socket(udp, family, source_port);
    udp->counters.send_calls++;
    int sent = raw_send(descriptor, messages, count, MSG_DONTWAIT);
    if (sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        return sent;
    }
    int error = errno;
    if (udp_take_errors(udp, family) > 0) {
        return raw_send(descriptor, messages, count, MSG_DONTWAIT);
    }
    errno = error;
    return -1;
}

static void explain(struct udp *udp, const struct udp_run *run, int error)
{
    if (udp->counters.dropped_too_long + udp->counters.dropped_unreachable +
            udp->counters.dropped_other >
        1) {
        return; /* the first is told, the others are counted */
    }
    if (error != EMSGSIZE) {
        snprintf(udp->message, sizeof udp->message, "packets could not be sent: %s",
                 strerror(error));
    } else {
        snprintf(udp->message, sizeof udp->message,
                 "packets of %u bytes do not fit the way to the peer", run->segment);
    }
}

/* A packet of the run that the kernel refused. */
static void count_dropped(struct udp *udp, const struct udp_run *run, const uint8_t *bytes,
                          uint32_t length, int error)
{
    switch (error) {
    case EMSGSIZE:
        udp->counters.dropped_too_long++;
        udp_complain(udp, &run->path, bytes, length);
        break;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case ENETDOWN:
    case EINVAL: /* the source address is none of the host's */
    case EPERM:
    case EACCES:
        udp->counters.dropped_unreachable++;
        break;
    default:
        udp->counters.dropped_other++;
        break;
    }
    explain(udp, run, error);
}

/* Sends a run's packets one by one from run->sent on. False: the kernel is full. Packets that it
 * refuses are dropped; their number is added to *ret_dropped. */
static bool send_singly(struct udp *udp, struct udp_run *run, uint32_t *ret_dropped)
{
    struct control_buffer control;
    struct sockaddr_storage name;
    struct msghdr model;
    struct iovec places[UDP_RUN_SEGMENTS];
    struct mmsghdr messages[UDP_RUN_SEGMENTS];
    uint8_t *bytes = run_end(udp, run) - run->length;
    address_message(udp, &run->path, 0, &name, &control, &model);
    for (uint32_t i = 0; i < run->count; i++) {
        uint32_t start = i * run->segment;
        uint32_t length = run->length - start < run->segment ? run->length - start : run->segment;
        places[i] = (struct iovec){bytes + start, length};
        messages[i] = (struct mmsghdr){.msg_hdr = model};
        messages[i].msg_hdr.msg_iov = &places[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    enum udp_family family = family_of(&run->path.remote);
    while (run->sent < run->count) {
        int sent = send_messages(udp, family, run->path.source_port, messages + run->sent,
                                 run->count - run->sent);
        if (sent > 0) {
            run->sent += (uint32_t)sent;
            udp->counters.packets_sent += (uint32_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return false;
        } else if (errno != EINTR) {
            count_dropped(udp, run, places[run->sent].iov_base, (uint32_t)places[run->sent].iov_len,
                          errno);
            run->sent++;
            ++*ret_dropped;
        }
    }
    return true;
}

static void make_single(struct udp *udp, struct udp_run *run)
{
    uint8_t *bytes = run_end(udp, run) - run->length;
    run->single = true;
    for (uint32_t start = 0; start < run->length; start += run->segment) {
        uint32_t length = run->length - start < run->segment ? run->length - start : run->segment;
        put_icrc(udp, &run->path, 0, bytes + start, length - ICRC_LENGTH);
    }
}

/* A segmented send was refused: sends the run in single packets. If those pass, the kernel or the
 * device cannot segment, and no more is tried. False: the kernel is full. */
static bool fall_back(struct udp *udp, struct udp_run *run, int error)
{
    make_single(udp, run);
    uint32_t dropped = 0;
    run->closed = true;
    bool done = send_singly(udp, run, &dropped);
    if (dropped == 0 && run->sent > 0 && error != ENOBUFS && error != ENOMEM) {
        udp->segmentation = false;
        for (uint32_t i = 1; i < udp->run_count; i++) {
            make_single(udp, &udp->runs[run_slot(udp, i)]);
        }
    }
    return done;
}

static void pop_runs(struct udp *udp, uint32_t count)
{
    udp->run_count -= count;
    udp->run_first = udp->run_count > 0 ? run_slot(udp, count) : 0;
}

/* Hands the oldest runs of one family to the kernel, each as one message; returns how many it
 * took, or -1 with errno. */
static int send_runs(struct udp *udp)
{
    struct control_buffer control[UDP_RUNS];
    struct sockaddr_storage names[UDP_RUNS];
    struct iovec places[UDP_RUNS];
    struct mmsghdr messages[UDP_RUNS];
    enum udp_family family = family_of(&udp->runs[udp->run_first].path.remote);
    uint16_t source_port = udp->runs[udp->run_first].path.source_port;
    uint32_t count = 0;
    for (; count < udp->run_count; count++) {
        struct udp_run *run = &udp->runs[run_slot(udp, count)];
        if (family_of(&run->path.remote) != family || run->path.source_port != source_port ||
            (run->single && run->count > 1)) {
            break;
        }
        uint16_t segment = run->count > 1 ? (uint16_t)run->segment : 0;
        address_message(udp, &run->path, segment, &names[count], &control[count],
                        &messages[count].msg_hdr);
        places[count] = (struct iovec){run_end(udp, run) - run->length, run->length};
        messages[count].msg_hdr.msg_iov = &places[count];
        messages[count].msg_hdr.msg_iovlen = 1;
    }
    int sent = send_messages(udp, family, source_port, messages, count);
    for (int i = 0; i < sent; i++) {
        uint32_t packets = udp->runs[run_slot(udp, (uint32_t)i)].count;
        udp->counters.packets_sent += packets;
        udp->counters.segmented_sends += packets > 1;
    }
    return sent;
}

/* Sends the oldest run or more. False: the kernel is full. */
static bool send_some(struct udp *udp)
{
    struct udp_run *run = &udp->runs[udp->run_first];
    uint32_t dropped = 0;
    if (run->single && run->count > 1) {
        if (!send_singly(udp, run, &dropped)) {
            return false;
        }
        pop_runs(udp, 1);
        return true;
    }
    int sent = send_runs(udp);
    if (sent > 0) {
        pop_runs(udp, (uint32_t)sent);
        return true;
    }
    int error = errno;
    if (error == EINTR) {
        return true;
    }
    if (error == EAGAIN || error == EWOULDBLOCK) {
        return false;
    }
    if (run->count > 1) {
        if (!fall_back(udp, run, error)) {
            return false;
        }
    } else {
        count_dropped(udp, run, run_end(udp, run) - run->length, run->length, error);
    }
    pop_runs(udp, 1);
    return true;
}

bool udp_flush(struct udp *udp)
{
    if (udp->delayed_count > 0) {
        release_delayed(udp, true);
    }
    return send_all(udp);
}

bool udp_has_waiting(const struct udp *udp)
{
    return udp->run_count > 0 || udp->delayed_count > 0;
}

enum udp_family udp_waiting_family(const struct udp *udp)
{
    return family_of(&udp->runs[udp->run_first].path.remote);
}
