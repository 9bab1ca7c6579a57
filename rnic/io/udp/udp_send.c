/* Runs to the kernel: each as one segmented send where it takes those, else packet by packet. */
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/raw_socket.h"
#include "rnic/io/udp/address.h"
#include "rnic/io/udp/udp_private.h"

#define HOP_LIMIT_DEFAULT 64
#define HOP_LIMIT_GROUP   1 /* a multicast stays on its network unless told otherwise */
#define ERRORS_MAX        1024u
#define TRIES_MAX         8u
#define UNHEARD_MAX       2u
#define REFUSALS_MAX      8u                   /* in a row */
#define ASK_AGAIN_NS      UINT64_C(1000000000) /* for an interface that was not there */

void udp_put_icrc(struct udp *udp, const struct path *path, uint32_t identification, uint8_t *bytes,
                  uint32_t length_before)
{
    struct roce_ip ip = {.identification = (uint16_t)identification, .dont_fragment = true};
    uint32_t icrc = roce_icrc_in_series(&udp->series, path, &ip, bytes, length_before);
    roce_icrc_store(bytes + length_before, icrc);
}

/* Link-local sources need their interface named; so do IPv6 multicasts, which no route tells where
 * to go. For an IPv4 one the kernel goes by the source address. */
static bool needs_interface(const struct path *path)
{
    const uint8_t *local = path->local.bytes;
    bool is_link_local = local[0] == 0xfe && (local[1] & 0xc0) == 0x80;
    return is_link_local || path->remote.bytes[0] == 0xff;
}

static uint32_t interface_of(struct udp *udp, const struct path *path)
{
    const struct gid *local = &path->local;
    if (!needs_interface(path)) {
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

/* A packet did not leave: the address may have gone to another interface, or its own been made anew
 * under another index. */
static void doubt_interface(struct udp *udp, const struct path *path)
{
    struct instant now = clock_now();
    for (uint32_t i = 0; needs_interface(path) && i < UDP_LINK_LOCAL_MAX; i++) {
        if (gid_equal(&udp->link_local[i].gid, &path->local) &&
            instant_elapsed_ns(udp->link_local[i].asked, now) >= ASK_AGAIN_NS) {
            udp->link_local[i].interface_index = 0;
        }
    }
}

void udp_addresses_changed(struct udp *udp)
{
    memset(udp->link_local, 0, sizeof udp->link_local);
    udp->radio.known = false;
}

static uint8_t *add_control(struct msghdr *message, int level, int type, const void *value,
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
    return CMSG_DATA(control);
}

/* `segment` is not 0 for a segmented send. The result must stay where it is. */
static void address_message(struct udp *udp, const struct path *path, uint16_t segment,
                            struct udp_address *ret_address)
{
    int traffic_class = path->traffic_class;
    int unspecified = gid_is_multicast(&path->remote) ? HOP_LIMIT_GROUP : HOP_LIMIT_DEFAULT;
    int hop_limit = path->hop_limit != 0 ? path->hop_limit : unspecified;
    uint32_t interface = interface_of(udp, path);
    struct sockaddr_storage *name = &ret_address->name;
    struct msghdr *message = &ret_address->message;
    memset(ret_address->control, 0, sizeof ret_address->control);
    *message = (struct msghdr){
        .msg_name = name,
        .msg_namelen = address_to_socket(&path->remote, udp->port, interface, name),
        .msg_control = ret_address->control,
    };
    if (udp_family_of(&path->remote) == UDP_IPV4) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, path->local.bytes + 12, 4);
        add_control(message, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
        add_control(message, IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
        add_control(message, IPPROTO_IP, IP_TTL, &hop_limit, sizeof hop_limit);
    } else {
        struct in6_pktinfo info = {.ipi6_ifindex = interface};
        memcpy(&info.ipi6_addr, path->local.bytes, 16);
        ((struct sockaddr_in6 *)name)->sin6_flowinfo = htonl(path->flow_label);
        add_control(message, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
        add_control(message, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof traffic_class);
        add_control(message, IPPROTO_IPV6, IPV6_HOPLIMIT, &hop_limit, sizeof hop_limit);
    }
    ret_address->segment = NULL;
    if (segment != 0) {
        ret_address->segment =
            add_control(message, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
    }
}

/* All that the kernel holds for the socket, within reason: while there is more, each call fails. */
static bool take_all_errors(struct udp *udp, int descriptor)
{
    uint32_t count, sum = 0;
    while (sum < ERRORS_MAX && (count = udp_take_errors_of(udp, descriptor)) > 0) {
        sum += count;
    }
    return sum > 0;
}

/* An error may be an earlier packet's, told by ICMP: then it is in the error queue, as a rule, and
 * the call is made again. Not for ever, for ICMP is forged as fast as somebody likes; and once
 * where nothing is there, for the queue may have been full, or read just before. */
static int send_messages(struct udp *udp, enum udp_family family, uint16_t source_port,
                         struct mmsghdr *messages, uint32_t count)
{
    int descriptor = udp_sending_socket(udp, family, source_port);
    uint32_t unheard = 0;
    udp->counters.send_calls++;
    for (uint32_t tries = 1;; tries++) {
        int sent = raw_send(descriptor, messages, count, MSG_DONTWAIT);
        if (sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
            return sent;
        }
        int error = errno;
        udp->refused_here = false;
        unheard += !take_all_errors(udp, descriptor);
        if (unheard == UNHEARD_MAX || udp->refused_here || tries == TRIES_MAX) {
            errno = error;
            return -1;
        }
    }
}

static void explain(struct udp *udp, const struct udp_run *run, int error)
{
    if (udp->counters.dropped_too_long + udp->counters.dropped_unreachable +
            udp->counters.dropped_other >
        1) {
        return; /* the first is told, the others are counted */
    }
    if (error != EMSGSIZE || !udp->refused_here) {
        snprintf(udp->message, sizeof udp->message, "packets could not be sent: %s",
                 strerror(error));
    } else {
        snprintf(udp->message, sizeof udp->message,
                 "packets of %u bytes do not fit the way to the peer", run->segment);
    }
}

/* No route, no such source address, forbidden. */
static bool is_unreachable(int error)
{
    switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case ENETDOWN:
    case ENODEV:
    case EINVAL: /* the source address is none of the host's */
    case EPERM:
    case EACCES:
        return true;
    default:
        return false;
    }
}

/* A packet of the run that the kernel refused. That it is too long is certain where our own host
 * says so: the same error comes of an ICMP message, which anybody can forge. */
static void count_dropped(struct udp *udp, const struct udp_run *run, const uint8_t *bytes,
                          uint32_t length, int error)
{
    if (error == EMSGSIZE && udp->refused_here) {
        udp->counters.dropped_too_long++;
        udp_complain(udp, &run->path, bytes, length);
    } else if (is_unreachable(error)) {
        udp->counters.dropped_unreachable++;
        doubt_interface(udp, &run->path);
    } else {
        udp->counters.dropped_other++;
    }
    explain(udp, run, error);
}

/* Sends a run's packets one by one from run->sent on. False: the kernel is full. Packets that it
 * refuses are dropped; their number is added to *ret_dropped. */
static bool send_singly(struct udp *udp, struct udp_run *run, uint32_t *ret_dropped)
{
    struct udp_address address;
    struct iovec places[UDP_RUN_SEGMENTS];
    struct mmsghdr messages[UDP_RUN_SEGMENTS];
    uint8_t *bytes = run->bytes;
    address_message(udp, &run->path, 0, &address);
    for (uint32_t i = 0; i < run->count; i++) {
        uint32_t start = i * run->segment;
        uint32_t length = run->length - start < run->segment ? run->length - start : run->segment;
        places[i] = (struct iovec){bytes + start, length};
        messages[i] = (struct mmsghdr){.msg_hdr = address.message};
        messages[i].msg_hdr.msg_iov = &places[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    enum udp_family family = udp_family_of(&run->path.remote);
    while (run->sent < run->count) {
        int sent = send_messages(udp, family, run->path.source_port, messages + run->sent,
                                 run->count - run->sent);
        if (sent > 0) {
            run->sent += (uint32_t)sent;
            udp->counters.packets_sent += (uint32_t)sent;
            backlog_give(udp_backlog(udp, family, run->path.source_port),
                         (uint32_t)sent * run->segment);
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
    uint8_t *bytes = run->bytes;
    run->single = true;
    for (uint32_t start = 0; start < run->length; start += run->segment) {
        uint32_t length = run->length - start < run->segment ? run->length - start : run->segment;
        udp_put_icrc(udp, &run->path, 0, bytes + start, length - ICRC_LENGTH);
    }
}

/* An error that says so, where the same packets pass singly. */
static bool cannot_segment(int error)
{
    return error == EINVAL || error == EIO || error == EMSGSIZE || error == EOPNOTSUPP;
}

/* A segmented send was refused: sends the run in single packets. If those pass, the kernel or the
 * device cannot segment, it may be; or an address, a device's MTU or an ICMP message came in
 * between. So it is tried some more times. False: the kernel is full. */
static bool fall_back(struct udp *udp, struct udp_run *run, int error)
{
    make_single(udp, run);
    uint32_t dropped = 0;
    run->closed = true;
    bool done = send_singly(udp, run, &dropped);
    bool passed = dropped == 0 && run->sent > 0 && cannot_segment(error);
    udp->counters.unsegmented++;
    udp->refusals += passed;
    if (passed && udp->refusals == REFUSALS_MAX) {
        udp->segmentation = false;
        for (uint32_t i = 1; i < udp->run_count; i++) {
            make_single(udp, &udp->runs[udp_run_slot(udp, i)]);
        }
    }
    return done;
}

static void pop_runs(struct udp *udp, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct udp_run *run = &udp->runs[udp_run_slot(udp, i)];
        if (run->borrowed) {
            lender_give_back(&udp->lender, run->bytes);
        }
    }
    udp->run_count -= count;
    udp->run_first = udp->run_count > 0 ? udp_run_slot(udp, count) : 0;
}

static uint16_t segment_of(const struct udp_run *run)
{
    return run->count > 1 ? (uint16_t)run->segment : 0;
}

static void count_sent(struct udp *udp, const struct udp_run *run)
{
    enum udp_family family = udp_family_of(&run->path.remote);
    backlog_give(udp_backlog(udp, family, run->path.source_port), run->length);
    udp->counters.packets_sent += run->count;
    udp->counters.segmented_sends += run->count > 1;
    udp->refusals = run->count > 1 ? 0 : udp->refusals;
}

/* As a rule it goes where the one before went. */
static const struct msghdr *address_run(struct udp *udp, const struct udp_run *run)
{
    uint16_t segment = segment_of(run);
    struct udp_address *address = &udp->addresses[segment != 0];
    if (memcmp(&udp->addressed, &run->path, sizeof run->path) != 0 || needs_interface(&run->path)) {
        udp->addressed = run->path;
        udp->addresses[0].message.msg_name = udp->addresses[1].message.msg_name = NULL;
    }
    if (address->message.msg_name == NULL) {
        address_message(udp, &run->path, segment, address);
    } else if (segment != 0) {
        memcpy(address->segment, &segment, sizeof segment);
    }
    return &address->message;
}

/* The only run. False: it has to be copied. An error may be as in send_messages: only this call is
 * told of it. */
static bool lend_run(struct udp *udp)
{
    struct udp_run *run = &udp->runs[udp->run_first];
    if (!run->borrowed || run->mixed || run->length < LENDER_LEAST) {
        return false;
    }
    enum udp_family family = udp_family_of(&run->path.remote);
    int descriptor = udp_sending_socket(udp, family, run->path.source_port);
    errno = 0;
    if (!lender_send(&udp->lender, descriptor, address_run(udp, run), run->bytes, run->length)) {
        if (errno != 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            (void)take_all_errors(udp, descriptor);
        }
        return false;
    }
    udp->counters.send_calls++;
    udp->counters.lent_runs++;
    run->borrowed = false;
    count_sent(udp, run);
    return true;
}

/* The only run, by copying; as send_runs. */
static int copy_run(struct udp *udp)
{
    struct udp_run *run = &udp->runs[udp->run_first];
    struct iovec place = {run->bytes, run->length};
    struct mmsghdr message = {.msg_hdr = *address_run(udp, run)};
    message.msg_hdr.msg_iov = &place;
    message.msg_hdr.msg_iovlen = 1;
    int sent =
        send_messages(udp, udp_family_of(&run->path.remote), run->path.source_port, &message, 1);
    if (sent > 0) {
        count_sent(udp, run);
    }
    return sent;
}

/* The only run; as send_runs. A full one of trains is a round of the lender's trial. */
static int send_run(struct udp *udp)
{
    struct udp_run *run = &udp->runs[udp->run_first];
    struct trial *trial = &udp->lender.trial;
    bool counts =
        run->length >= LENDER_LEAST && run->trains && run->borrowed == trial_is_second(trial);
    struct instant began = udp_time_asked(udp);
    int sent = lend_run(udp) ? 1 : copy_run(udp);
    if (sent > 0 && counts) {
        uint64_t ns = run->ns + udp_time_since(udp, began);
        trial_count(trial, (uint32_t)(ns * LENDER_PLACE / run->length));
    }
    return sent;
}

/* Hands the oldest runs of one family to the kernel, each as one message; returns how many it
 * took, or -1 with errno. */
static int send_runs(struct udp *udp)
{
    struct udp_address addresses[UDP_RUNS];
    struct iovec places[UDP_RUNS];
    struct mmsghdr messages[UDP_RUNS];
    enum udp_family family = udp_family_of(&udp->runs[udp->run_first].path.remote);
    uint16_t source_port = udp->runs[udp->run_first].path.source_port;
    uint32_t count = 0;
    for (; count < udp->run_count; count++) {
        struct udp_run *run = &udp->runs[udp_run_slot(udp, count)];
        if (udp_family_of(&run->path.remote) != family || run->path.source_port != source_port ||
            (run->single && run->count > 1)) {
            break;
        }
        address_message(udp, &run->path, segment_of(run), &addresses[count]);
        places[count] = (struct iovec){run->bytes, run->length};
        messages[count].msg_hdr = addresses[count].message;
        messages[count].msg_hdr.msg_iov = &places[count];
        messages[count].msg_hdr.msg_iovlen = 1;
    }
    int sent = send_messages(udp, family, source_port, messages, count);
    for (int i = 0; i < sent; i++) {
        count_sent(udp, &udp->runs[udp_run_slot(udp, (uint32_t)i)]);
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
    int sent = udp->run_count == 1 ? send_run(udp) : send_runs(udp);
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
        count_dropped(udp, run, run->bytes, run->length, error);
    }
    pop_runs(udp, 1);
    return true;
}

bool udp_send_all(struct udp *udp)
{
    bool blocked = false;
    while (udp->run_count > 0 && !blocked) {
        blocked = !send_some(udp);
    }
    udp->counters.blocked += blocked;
    return !blocked;
}
