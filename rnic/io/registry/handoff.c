#include "rnic/io/registry/handoff.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/raw_socket.h"

#define RECEIVE_BUDGET 16u
#define WAKES_MAX      128u /* read besides, so that none makes the thread wake up again */
#define BYTES_MAX      65536u
#define KEPT_MAX       256u       /* for one slot, */
#define KEPT_BYTES_MAX (1u << 20) /* likewise; */
#define ALL_BYTES_MAX  (8u << 20) /* and for all */
#define KEPT_NS        50000000u  /* then the peer does not run at all */
#define GONE_NS        500000000u /* who is found gone comes back with another slot, or much later */

enum handoff_kind {
    HANDOFF_PACKETS,
    HANDOFF_RELAYED,
    HANDOFF_COMPLAINT,
};

/* Both ends are of one registry version, hence of one layout. In front of it stands the receiver's
 * token, which alone is a wake-up. */
struct handoff_header {
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
    uint32_t length; /* of the bytes behind this struct */
    struct handoff_header header;
};

/* What waits for one slot, oldest first. */
struct waiting {
    struct kept *first, **last;
    uint32_t count, bytes;
    bool is_stopped; /* the last that waited did so in vain: nothing waits longer than a flush */
    struct instant gone; /* when a message of the relay found no process there */
};

struct handoff {
    const struct registry *registry;
    int descriptor, sender;
    uint64_t token;     /* ours */
    uint64_t connected; /* of which name the socket is that `sender` goes to; 0: none */
    struct handoff_relay_receiver *relay_receiver;
    size_t kept_bytes;
    uint64_t waits[SLOT_COUNT / 64]; /* slots for which something does, */
    bool any_waits;                  /* and whether there may be one */
    struct waiting waiting[SLOT_COUNT];
    struct handoff_counters counters;
    uint8_t bytes[BYTES_MAX];
};

/* "\0weir-SECRET"; returns the length of the address. */
static socklen_t make_name(uint64_t secret, struct sockaddr_un *ret_name)
{
    char *text = ret_name->sun_path + 1;
    memset(ret_name, 0, sizeof *ret_name);
    ret_name->sun_family = AF_UNIX;
    int length = snprintf(text, sizeof ret_name->sun_path - 1, "weir-%016" PRIx64, secret);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* A name is to be seen in /proc/net/unix, by any user, and the kernel lets few datagrams wait: so
 * what does not begin with the token is dropped as it is sent. Where a kernel does not do that, it
 * is refused as it is read. */
static void let_kernel_drop(int descriptor, uint64_t token)
{
    uint32_t words[2];
    memcpy(words, &token, sizeof words);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(words[0]), 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, sizeof words[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(words[1]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX), /* whole */
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program;
    memset(&program, 0, sizeof program); /* as in steering.c */
    program.len = sizeof steps / sizeof steps[0];
    program.filter = steps;
    int result = setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    (void)result;
}

/* Which name and token a slot has stands in the registry, which other users cannot read. Each
 * holder draws them anew: nobody can take the name before its holder has, and who takes it
 * afterwards learns a token that is nobody's. */
static enum status bind_name(struct handoff *handoff)
{
    struct registry_slot *slot = &handoff->registry->file->slots[handoff->registry->slot];
    uint64_t secrets[2] = {0};
    struct sockaddr_un name;
    if (getrandom(secrets, sizeof secrets, 0) != (ssize_t)sizeof secrets || secrets[0] == 0) {
        return STATUS_NO_MEMORY;
    }
    handoff->token = secrets[1];
    let_kernel_drop(handoff->descriptor, handoff->token);
    socklen_t length = make_name(secrets[0], &name);
    if (bind(handoff->descriptor, (struct sockaddr *)&name, length) != 0) {
        return STATUS_NO_MEMORY;
    }
    atomic_store(&slot->handoff_token, handoff->token);
    atomic_store(&slot->handoff_name, secrets[0]);
    return STATUS_OK;
}

static int open_socket(void)
{
    return raw_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

enum status handoff_create(const struct registry *registry, struct handoff **ret_handoff)
{
    struct handoff *handoff = calloc(1, sizeof *handoff);
    if (handoff == NULL) {
        return STATUS_NO_MEMORY;
    }
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        handoff->waiting[i].last = &handoff->waiting[i].first;
    }
    handoff->registry = registry;
    handoff->descriptor = open_socket();
    handoff->sender = open_socket();
    if (handoff->descriptor < 0 || handoff->sender < 0 || bind_name(handoff) != STATUS_OK) {
        handoff_destroy(handoff);
        return STATUS_NO_MEMORY;
    }
    *ret_handoff = handoff;
    return STATUS_OK;
}

static void forget_first(struct handoff *handoff, uint32_t slot)
{
    struct waiting *waiting = &handoff->waiting[slot];
    struct kept *kept = waiting->first;
    waiting->first = kept->next;
    if (waiting->first == NULL) {
        waiting->last = &waiting->first;
        handoff->waits[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    }
    waiting->count--;
    waiting->bytes -= kept->length;
    handoff->kept_bytes -= kept->length;
    free(kept);
}

static void close_one(int *descriptor)
{
    if (*descriptor >= 0) {
        raw_close(*descriptor);
        *descriptor = -1;
    }
}

void handoff_abandon(struct handoff *handoff)
{
    close_one(&handoff->descriptor);
    close_one(&handoff->sender);
}

void handoff_destroy(struct handoff *handoff)
{
    if (handoff == NULL) {
        return;
    }
    /* Before the name is anybody's. */
    atomic_store(&handoff->registry->file->slots[handoff->registry->slot].handoff_name, 0);
    handoff_abandon(handoff);
    for (uint32_t slot = 0; slot < SLOT_COUNT; slot++) {
        while (handoff->waiting[slot].first != NULL) {
            forget_first(handoff, slot);
        }
    }
    free(handoff);
}

/* Datagrams that a stopped process does not read count against the socket that sent them, until it
 * can send to nobody. They stay where they are when it is closed, as many as the kernel lets each
 * receiver have; another goes on. True: try again. */
static bool renew_sender(struct handoff *handoff)
{
    int unread = 0, most = 0;
    socklen_t size = sizeof most;
    if (ioctl(handoff->sender, SIOCOUTQ, &unread) != 0 ||
        getsockopt(handoff->sender, SOL_SOCKET, SO_SNDBUF, &most, &size) != 0 ||
        unread + 1 < most) {
        return false;
    }
    int sender = open_socket();
    if (sender < 0) {
        return false;
    }
    raw_close(handoff->sender);
    handoff->sender = sender;
    handoff->connected = 0;
    return true;
}

/* To who holds the slot. From his death to his burial any user can take his name: so he must live
 * once we have his socket, to which all goes from then on. False and errno. */
static bool connect_to(struct handoff *handoff, uint32_t slot, uint64_t secret)
{
    struct sockaddr_un name;
    if (handoff->connected == secret) {
        return true;
    }
    socklen_t length = make_name(secret, &name);
    handoff->connected = 0;
    if (raw_connect(handoff->sender, (struct sockaddr *)&name, length) != 0) {
        return false;
    }
    if (!registry_slot_lives(handoff->registry, slot)) {
        errno = ECONNREFUSED;
        return false;
    }
    handoff->connected = secret;
    return true;
}

/* FULL: no room in the peer's queue now. CLOSED: no peer. `header` NULL: a wake-up, which goes to
 * many in turn, and to whoever has the name: it says nothing. The token is read before the name, so
 * that one holder's is not sent to the name of the one before. */
static enum status send_message(struct handoff *handoff, uint32_t slot,
                                const struct handoff_header *header, const uint8_t *bytes,
                                uint32_t length)
{
    const struct registry_slot *entry = &handoff->registry->file->slots[slot];
    uint64_t token = atomic_load(&entry->handoff_token);
    uint64_t secret = atomic_load(&entry->handoff_name);
    bool wakes = header == NULL;
    struct sockaddr_un name;
    struct iovec places[3] = {
        {&token, sizeof token},
        {(void *)header, sizeof *header},
        {(void *)bytes, length},
    };
    struct msghdr message = {.msg_iov = places, .msg_iovlen = wakes ? 1 : 3};
    if (wakes) {
        message.msg_name = &name;
        message.msg_namelen = make_name(secret, &name);
    }
    if (secret == 0) {
        return STATUS_CLOSED;
    }
    do {
        if ((wakes || connect_to(handoff, slot, secret)) &&
            raw_send_one(handoff->sender, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            return STATUS_OK;
        }
        if (errno == ECONNREFUSED || errno == ENOENT || errno == ENOTCONN) {
            handoff->connected = 0;
            return STATUS_CLOSED;
        }
    } while (renew_sender(handoff));
    return STATUS_FULL;
}

static enum status try_send(struct handoff *handoff, uint32_t slot,
                            const struct handoff_header *header, const uint8_t *bytes,
                            uint32_t length)
{
    enum status status = send_message(handoff, slot, header, bytes, length);
    if (status == STATUS_OK) {
        handoff->waiting[slot].is_stopped = false;
        handoff->counters.packets_sent += header->kind == HANDOFF_PACKETS;
        handoff->counters.relayed += header->kind == HANDOFF_RELAYED;
        handoff->counters.complaints_sent += header->kind == HANDOFF_COMPLAINT;
    }
    return status;
}

static bool keep(struct handoff *handoff, struct instant now, uint32_t slot,
                 const struct handoff_header *header, const uint8_t *bytes, uint32_t length)
{
    struct waiting *waiting = &handoff->waiting[slot];
    if (waiting->count == KEPT_MAX || waiting->bytes + length > KEPT_BYTES_MAX ||
        handoff->kept_bytes + length > ALL_BYTES_MAX) {
        return false;
    }
    struct kept *kept = malloc(sizeof *kept + length);
    if (kept == NULL) {
        return false;
    }
    *kept = (struct kept){.since = now, .length = length, .header = *header};
    if (length > 0) {
        memcpy(kept + 1, bytes, length);
    }
    *waiting->last = kept;
    waiting->last = &kept->next;
    waiting->count++;
    waiting->bytes += length;
    handoff->kept_bytes += length;
    handoff->waits[slot / 64] |= UINT64_C(1) << slot % 64;
    handoff->any_waits = true;
    return true;
}

static void count_dropped(struct handoff *handoff, const struct handoff_header *header,
                          uint32_t length)
{
    handoff->counters.dropped++;
    if (header->kind == HANDOFF_PACKETS) {
        handoff->counters.packets_dropped += (length + header->segment - 1) / header->segment;
    }
}

enum status handoff_send(struct handoff *handoff, struct instant now, uint32_t slot,
                         const struct udp_datagrams *datagrams)
{
    struct handoff_header header = {
        .kind = HANDOFF_PACKETS,
        .from = handoff->registry->slot,
        .family = datagrams->family,
        .segment = datagrams->segment,
        .first_place = datagrams->first_place,
        .arrival = datagrams->arrival,
    };
    /* Behind those that wait, for the order. */
    enum status status = STATUS_FULL;
    if (handoff->waiting[slot].first == NULL) {
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
    count_dropped(handoff, &header, datagrams->length);
    return status == STATUS_CLOSED ? STATUS_CLOSED : STATUS_OK;
}

void handoff_send_complaint(struct handoff *handoff, uint32_t slot,
                            const struct complaint *complaint)
{
    struct handoff_header header = {
        .kind = HANDOFF_COMPLAINT,
        .from = handoff->registry->slot,
    };
    enum status status =
        try_send(handoff, slot, &header, (const uint8_t *)complaint, sizeof *complaint);
    handoff->counters.dropped += status == STATUS_FULL;
}

enum status handoff_send_relayed(struct handoff *handoff, struct instant now, uint32_t slot,
                                 const struct relay_message *message, const uint8_t *bytes,
                                 uint32_t length)
{
    struct handoff_header header = {
        .kind = HANDOFF_RELAYED,
        .from = handoff->registry->slot,
        .message = *message,
    };
    struct instant gone = handoff->waiting[slot].gone;
    if (gone.ns != 0 && instant_elapsed_ns(gone, now) < GONE_NS) {
        return STATUS_CLOSED;
    }
    if (!keep(handoff, now, slot, &header, bytes, length)) {
        count_dropped(handoff, &header, length);
    }
    return STATUS_OK;
}

bool handoff_wake(struct handoff *handoff, uint32_t slot)
{
    return send_message(handoff, slot, NULL, NULL, 0) == STATUS_OK;
}

/* In order. */
static void flush_slot(struct handoff *handoff, struct instant now, uint32_t slot)
{
    struct waiting *waiting = &handoff->waiting[slot];
    while (waiting->first != NULL) {
        const struct kept *kept = waiting->first;
        const uint8_t *bytes = (const uint8_t *)(kept + 1);
        enum status status = try_send(handoff, slot, &kept->header, bytes, kept->length);
        if (status == STATUS_FULL && !waiting->is_stopped) {
            if (instant_elapsed_ns(kept->since, now) < KEPT_NS) {
                return;
            }
            waiting->is_stopped = true;
        }
        if (status == STATUS_CLOSED && kept->header.kind == HANDOFF_RELAYED) {
            waiting->gone = now;
        }
        if (status != STATUS_OK) {
            count_dropped(handoff, &kept->header, kept->length);
        }
        forget_first(handoff, slot);
    }
}

bool handoff_flush(struct handoff *handoff, struct instant now)
{
    uint64_t left = 0;
    if (!handoff->any_waits) {
        return true;
    }
    for (uint32_t i = 0; i < SLOT_COUNT / 64; i++) {
        for (uint64_t slots = handoff->waits[i]; slots != 0; slots &= slots - 1) {
            flush_slot(handoff, now, i * 64 + (uint32_t)__builtin_ctzll(slots));
        }
        left |= handoff->waits[i];
    }
    handoff->any_waits = left != 0;
    return left == 0;
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

/* Hearsay, whatever the other makes of it: what is certain concerns who has sent the packet. */
static bool take_complaint(struct handoff *handoff, size_t length, struct udp_receiver *receiver)
{
    struct complaint complaint;
    if (length != sizeof complaint || receiver->hear == NULL) {
        return false;
    }
    memcpy(&complaint, handoff->bytes, sizeof complaint);
    complaint.trouble.certain = false;
    complaint.handed_on = true;
    handoff->counters.complaints_received++;
    receiver->hear(receiver, &complaint);
    return true;
}

static bool take(struct handoff *handoff, const struct handoff_header *header, size_t length,
                 struct udp_receiver *receiver)
{
    if (length < sizeof *header || header->from >= SLOT_COUNT) {
        return false;
    }
    if (header->kind == HANDOFF_RELAYED) {
        return take_relayed(handoff, header, (uint32_t)(length - sizeof *header));
    }
    if (header->kind == HANDOFF_COMPLAINT) {
        return take_complaint(handoff, length - sizeof *header, receiver);
    }
    if (header->kind != HANDOFF_PACKETS || length == sizeof *header || header->segment == 0 ||
        header->segment > BYTES_MAX || header->family >= UDP_FAMILY_COUNT) {
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
    uint32_t taken = 0, others = 0, wakes = 0;
    while (others < RECEIVE_BUDGET && wakes < WAKES_MAX) {
        struct handoff_header header;
        uint64_t token = 0;
        struct iovec places[3] = {
            {&token, sizeof token},
            {&header, sizeof header},
            {handoff->bytes, sizeof handoff->bytes},
        };
        struct msghdr message = {.msg_iov = places, .msg_iovlen = 3};
        ssize_t length = raw_receive_one(handoff->descriptor, &message, MSG_DONTWAIT);
        if (length < 0) {
            break;
        }
        bool ours = (message.msg_flags & MSG_TRUNC) == 0 && length >= (ssize_t)sizeof token &&
                    token == handoff->token;
        if (ours && length == sizeof token) {
            handoff->counters.wake_ups++;
            wakes++;
            continue;
        }
        others++;
        if (ours && take(handoff, &header, (size_t)length - sizeof token, receiver)) {
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
