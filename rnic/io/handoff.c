#include "rnic/io/handoff.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rnic/io/raw_socket.h"
#include "rnic/io/registry_private.h"

#define HANDOFF_MAGIC  0x57656972u
#define WAKE_MAGIC     0x57616b65u /* a datagram of nothing else */
#define RECEIVE_BUDGET 16u
#define BYTES_MAX      65536u
#define KEPT_MAX       512u
#define KEPT_BYTES_MAX (4u << 20)
#define KEPT_NS        50000000u  /* then the peer does not run at all */
#define GONE_NS        500000000u /* who is found gone comes back with another slot, or much later */

enum handoff_kind {
    HANDOFF_PACKETS,
    HANDOFF_RELAYED,
};

/* Both ends are of one registry version, hence of one layout. */
struct handoff_header {
    uint32_t magic;
    uint32_t kind; /* of enum handoff_kind */
    uint32_t from; /* slot */
    uint32_t family;
    uint32_t segment;
    uint32_t first_place;
    struct arrival arrival;
    struct relay_message message;
};

/* A datagram that waits for room in its receiver's queue. */
struct kept {
    struct kept *next;
    struct instant since;
    uint32_t slot;
    uint32_t length; /* of the bytes behind this struct */
    struct handoff_header header;
};

struct handoff {
    int descriptor;
    int waker; /* only for wake-ups: what waits at others never leaves it without room */
    uint32_t slot;
    struct handoff_relay_receiver *relay_receiver;
    struct kept *first, **last;
    uint32_t kept_count;
    size_t kept_bytes;
    uint8_t cookie[REGISTRY_COOKIE];
    struct instant gone[REGISTRY_SLOTS]; /* when a request of the relay found no process there */
    struct handoff_counters counters;
    uint8_t bytes[BYTES_MAX];
};

/* "\0weir-COOKIE-SLOT"; returns the length of the address. */
static socklen_t make_name(const uint8_t *cookie, uint32_t slot, struct sockaddr_un *ret_name)
{
    char *text = ret_name->sun_path + 1;
    size_t room = sizeof ret_name->sun_path - 1;
    memset(ret_name, 0, sizeof *ret_name);
    ret_name->sun_family = AF_UNIX;
    size_t length = (size_t)snprintf(text, room, "weir-");
    for (uint32_t i = 0; i < REGISTRY_COOKIE; i++) {
        length += (size_t)snprintf(text + length, room - length, "%02x", cookie[i]);
    }
    length += (size_t)snprintf(text + length, room - length, "-%u", slot);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

enum status handoff_create(const struct registry *registry, struct handoff **ret_handoff)
{
    struct handoff *handoff = calloc(1, sizeof *handoff);
    if (handoff == NULL) {
        return STATUS_NO_MEMORY;
    }
    handoff->last = &handoff->first;
    handoff->slot = registry->slot;
    memcpy(handoff->cookie, registry->file->cookie, sizeof handoff->cookie);
    handoff->descriptor = raw_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    handoff->waker = raw_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, buffer = 4 << 20;
    struct sockaddr_un name;
    socklen_t length = make_name(handoff->cookie, registry->slot, &name);
    if (handoff->descriptor < 0 || handoff->waker < 0 ||
        setsockopt(handoff->descriptor, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        bind(handoff->descriptor, (struct sockaddr *)&name, length) != 0) {
        enum status status =
            handoff->descriptor >= 0 && errno == EADDRINUSE ? STATUS_IN_USE : STATUS_NO_MEMORY;
        handoff_destroy(handoff);
        return status;
    }
    int result = setsockopt(handoff->descriptor, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    (void)result; /* the default does, with more drops */
    *ret_handoff = handoff;
    return STATUS_OK;
}

static void forget(struct handoff *handoff, struct kept **place)
{
    struct kept *kept = *place;
    *place = kept->next;
    if (handoff->last == &kept->next) {
        handoff->last = place;
    }
    handoff->kept_count--;
    handoff->kept_bytes -= kept->length;
    free(kept);
}

void handoff_abandon(struct handoff *handoff)
{
    if (handoff->descriptor >= 0) {
        close(handoff->descriptor);
        handoff->descriptor = -1;
    }
    if (handoff->waker >= 0) {
        close(handoff->waker);
        handoff->waker = -1;
    }
}

void handoff_destroy(struct handoff *handoff)
{
    if (handoff != NULL) {
        handoff_abandon(handoff);
        while (handoff->first != NULL) {
            forget(handoff, &handoff->first);
        }
        free(handoff);
    }
}

/* FULL: no room in the peer's queue now. CLOSED: no peer. */
static enum status try_send(struct handoff *handoff, uint32_t slot,
                            const struct handoff_header *header, const uint8_t *bytes,
                            uint32_t length)
{
    struct iovec places[2] = {
        {(void *)header, sizeof *header},
        {(void *)bytes, length},
    };
    struct sockaddr_un name;
    struct msghdr message = {
        .msg_name = &name,
        .msg_namelen = make_name(handoff->cookie, slot, &name),
        .msg_iov = places,
        .msg_iovlen = 2,
    };
    if (sendmsg(handoff->descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        handoff->counters.packets_sent += header->kind == HANDOFF_PACKETS;
        handoff->counters.relayed += header->kind == HANDOFF_RELAYED;
        return STATUS_OK;
    }
    return errno == ECONNREFUSED || errno == ENOENT ? STATUS_CLOSED : STATUS_FULL;
}

static bool keep(struct handoff *handoff, struct instant now, uint32_t slot,
                 const struct handoff_header *header, const uint8_t *bytes, uint32_t length)
{
    if (handoff->kept_count == KEPT_MAX || handoff->kept_bytes >= KEPT_BYTES_MAX) {
        return false;
    }
    struct kept *kept = malloc(sizeof *kept + length);
    if (kept == NULL) {
        return false;
    }
    *kept = (struct kept){.since = now, .slot = slot, .length = length, .header = *header};
    if (length > 0) {
        memcpy(kept + 1, bytes, length);
    }
    *handoff->last = kept;
    handoff->last = &kept->next;
    handoff->kept_count++;
    handoff->kept_bytes += kept->length;
    return true;
}

enum status handoff_send(struct handoff *handoff, struct instant now, uint32_t slot,
                         const struct udp_datagrams *datagrams)
{
    struct handoff_header header = {
        .magic = HANDOFF_MAGIC,
        .kind = HANDOFF_PACKETS,
        .from = handoff->slot,
        .family = datagrams->family,
        .segment = datagrams->segment,
        .first_place = datagrams->first_place,
        .arrival = datagrams->arrival,
    };
    /* Behind those that wait, for the order. */
    enum status status = STATUS_FULL;
    if (handoff->first == NULL) {
        status = try_send(handoff, slot, &header, datagrams->bytes, datagrams->length);
    }
    if (status == STATUS_OK) {
        return STATUS_OK;
    }
    if (status == STATUS_FULL &&
        keep(handoff, now, slot, &header, datagrams->bytes, datagrams->length)) {
        handoff->counters.delayed++;
        return STATUS_OK;
    }
    handoff->counters.dropped++;
    return status == STATUS_CLOSED ? STATUS_CLOSED : STATUS_OK;
}

enum status handoff_send_relayed(struct handoff *handoff, struct instant now, uint32_t slot,
                                 const struct relay_message *message, const uint8_t *bytes,
                                 uint32_t length)
{
    struct handoff_header header = {
        .magic = HANDOFF_MAGIC,
        .kind = HANDOFF_RELAYED,
        .from = handoff->slot,
        .message = *message,
    };
    struct instant gone = handoff->gone[slot];
    if (gone.ns != 0 && instant_elapsed_ns(gone, now) < GONE_NS) {
        return STATUS_CLOSED;
    }
    if (!keep(handoff, now, slot, &header, bytes, length)) {
        handoff->counters.dropped++;
    }
    return STATUS_OK;
}

void handoff_wake(struct handoff *handoff, uint32_t slot)
{
    uint32_t magic = WAKE_MAGIC;
    struct sockaddr_un name;
    socklen_t length = make_name(handoff->cookie, slot, &name);
    ssize_t sent = sendto(handoff->waker, &magic, sizeof magic, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (struct sockaddr *)&name, length);
    (void)sent; /* where its queue is full it does not sleep */
}

/* In order for each slot; who has no room keeps nobody else waiting. */
bool handoff_flush(struct handoff *handoff, struct instant now)
{
    uint64_t full[REGISTRY_SLOTS / 64] = {0};
    struct kept **place = &handoff->first;
    while (*place != NULL) {
        const struct kept *kept = *place;
        uint64_t bit = UINT64_C(1) << kept->slot % 64, *word = &full[kept->slot / 64];
        enum status status = STATUS_FULL;
        if ((*word & bit) == 0) {
            status = try_send(handoff, kept->slot, &kept->header, (const uint8_t *)(kept + 1),
                              kept->length);
        }
        if (status == STATUS_FULL && instant_elapsed_ns(kept->since, now) < KEPT_NS) {
            *word |= bit;
            place = &(*place)->next;
            continue;
        }
        if (status == STATUS_CLOSED && kept->header.kind == HANDOFF_RELAYED) {
            handoff->gone[kept->slot] = now;
        }
        handoff->counters.dropped += status != STATUS_OK;
        forget(handoff, place);
    }
    return handoff->first == NULL;
}

static bool is_same_user(struct msghdr *message)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL;
         control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_CREDENTIALS) {
            struct ucred credentials;
            memcpy(&credentials, CMSG_DATA(control), sizeof credentials);
            return credentials.uid == geteuid();
        }
    }
    return false;
}

static bool take_relayed(struct handoff *handoff, const struct handoff_header *header,
                         uint32_t length)
{
    struct handoff_relay_receiver *receiver = handoff->relay_receiver;
    if (receiver == NULL) {
        return false;
    }
    handoff->counters.relayed_to_us++;
    receiver->receive(receiver, header->from, &header->message, handoff->bytes, length);
    return true;
}

static bool take(struct handoff *handoff, const struct handoff_header *header, size_t length,
                 struct udp_receiver *receiver)
{
    if (length < sizeof *header || header->magic != HANDOFF_MAGIC ||
        header->from >= REGISTRY_SLOTS) {
        return false;
    }
    if (header->kind == HANDOFF_RELAYED) {
        return take_relayed(handoff, header, (uint32_t)(length - sizeof *header));
    }
    if (header->kind != HANDOFF_PACKETS || length == sizeof *header || header->segment == 0 ||
        header->family >= UDP_FAMILY_COUNT) {
        return false;
    }
    struct udp_datagrams datagrams = {
        .arrival = header->arrival,
        .family = (enum udp_family)header->family,
        .bytes = handoff->bytes,
        .length = (uint32_t)(length - sizeof *header),
        .segment = header->segment,
        .first_place = header->first_place,
        .handed_on = true,
    };
    receiver->receive(receiver, &datagrams);
    return true;
}

uint32_t handoff_receive(struct handoff *handoff, struct udp_receiver *receiver)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < RECEIVE_BUDGET; i++) {
        struct handoff_header header;
        uint8_t control[CMSG_SPACE(sizeof(struct ucred))]
            __attribute__((aligned(__alignof__(struct cmsghdr))));
        struct iovec places[2] = {
            {&header, sizeof header},
            {handoff->bytes, sizeof handoff->bytes},
        };
        struct msghdr message = {
            .msg_iov = places,
            .msg_iovlen = 2,
            .msg_control = control,
            .msg_controllen = sizeof control,
        };
        ssize_t length = recvmsg(handoff->descriptor, &message, MSG_DONTWAIT);
        if (length < 0) {
            break;
        }
        bool same_user = (message.msg_flags & MSG_TRUNC) == 0 && is_same_user(&message);
        if (same_user && length == sizeof header.magic && header.magic == WAKE_MAGIC) {
            handoff->counters.wake_ups++;
        } else if (same_user && take(handoff, &header, (size_t)length, receiver)) {
            handoff->counters.packets_received += header.kind == HANDOFF_PACKETS;
            taken++;
        } else {
            handoff->counters.refused++;
        }
    }
    return taken;
}

void handoff_set_relay_receiver(struct handoff *handoff, struct handoff_relay_receiver *receiver)
{
    handoff->relay_receiver = receiver;
}

int handoff_descriptor(const struct handoff *handoff)
{
    return handoff->descriptor;
}

const struct handoff_counters *handoff_counters(const struct handoff *handoff)
{
    return &handoff->counters;
}
