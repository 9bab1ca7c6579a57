/* Send queues as an adapter keeps them: a slot is free again when a completion that covers it was
 * polled, not when the work is done; and what a posted request sends is to stay as it was until the
 * work is done. */
#include "rnic/strict/sends.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/strict/strict.h"

#define DIGEST_MAX (1u << 20) /* bytes of one request */

/* What was posted looked like this. */
struct posted {
    bool signaled;
    bool has_digest;
    uint64_t digest;
    struct trace where;
};

struct sends {
    struct sends *next;
    uint32_t qpn;
    uint32_t capacity;
    uint64_t posted;    /* ever, as the following */
    uint64_t ended;     /* done by the transport */
    uint64_t reclaimed; /* covered by a polled completion */
    uint64_t signaled;  /* of those between reclaimed and posted: how many ask for one */
    uint64_t in_order;  /* ended so, one that failed included */
    bool is_answered;   /* the peer is there: a receive was polled, or rdma_cm has heard it */
    struct gid peer;    /* zero: not connected yet */
    struct qpn peer_qpn;
    bool failed;          /* an error was polled, or is no news: what covers what is not known */
    struct posted ring[]; /* capacity, by position */
};

#define BUCKETS 4096u /* numbers of queue pairs follow one another */

static struct {
    pthread_mutex_t lock;
    struct sends *buckets[BUCKETS];
} queues = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&queues.lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static struct sends **find(uint32_t qpn)
{
    struct sends **link = &queues.buckets[qpn % BUCKETS];
    while (*link != NULL && (*link)->qpn != qpn) {
        link = &(*link)->next;
    }
    return link;
}

void strict_sends_begin(struct qpn qpn, uint32_t capacity)
{
    struct sends *sends = calloc(1, sizeof *sends + capacity * sizeof sends->ring[0]);
    if (sends == NULL) {
        return; /* this one is as lenient as ever */
    }
    sends->qpn = qpn.value;
    sends->capacity = capacity;
    pthread_mutex_lock(&queues.lock);
    struct sends **bucket = &queues.buckets[qpn.value % BUCKETS];
    sends->next = *bucket;
    *bucket = sends;
    pthread_mutex_unlock(&queues.lock);
}

void strict_sends_end(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends **link = find(qpn.value);
    struct sends *sends = *link;
    if (sends != NULL) {
        *link = sends->next;
    }
    pthread_mutex_unlock(&queues.lock);
    free(sends);
}

void strict_sends_reset(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->ended = sends->reclaimed = sends->posted;
        sends->signaled = 0;
        sends->failed = false;
        sends->in_order = 0;
        sends->is_answered = false;
        sends->peer = (struct gid){0};
    }
    pthread_mutex_unlock(&queues.lock);
}

void strict_sends_connect(struct qpn qpn, const struct gid *peer, struct qpn peer_qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->peer = *peer;
        sends->peer_qpn = peer_qpn;
    }
    pthread_mutex_unlock(&queues.lock);
}

static void describe_peer(const struct sends *sends, char ret_text[SENDS_PEER])
{
    char address[INET6_ADDRSTRLEN] = "";
    ret_text[0] = 0;
    if (sends == NULL || gid_is_zero(&sends->peer)) {
        return;
    }
    if (gid_is_ipv4(&sends->peer)) {
        inet_ntop(AF_INET, sends->peer.bytes + 12, address, sizeof address);
    } else {
        inet_ntop(AF_INET6, sends->peer.bytes, address, sizeof address);
    }
    snprintf(ret_text, SENDS_PEER, " (%s, QP 0x%x)", address, sends->peer_qpn.value);
}

void sends_peer(struct qpn qpn, char ret_text[SENDS_PEER])
{
    pthread_mutex_lock(&queues.lock);
    describe_peer(*find(qpn.value), ret_text);
    pthread_mutex_unlock(&queues.lock);
}

/* The position of the oldest signaled request that no polled completion covers. There is one, and
 * none of its like was posted over, as they are where the queue has failed. */
static uint64_t next_signaled(const struct sends *sends)
{
    uint64_t at = sends->reclaimed;
    while (!sends->ring[at % sends->capacity].signaled) {
        at++;
    }
    return at;
}

uint32_t strict_sends_room(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    const struct sends *sends = *find(qpn.value);
    bool known = sends != NULL && !sends->failed;
    uint32_t capacity = known ? sends->capacity : 0;
    uint64_t used = known ? sends->posted - sends->reclaimed : 0;
    bool is_full = known && used >= capacity;
    bool has_signaled = is_full && sends->signaled != 0;
    bool waits = has_signaled && next_signaled(sends) < sends->ended; /* to be polled */
    pthread_mutex_unlock(&queues.lock);
    if (!known) {
        return UINT32_MAX;
    }
    if (is_full && !has_signaled) {
        pitfall_warn(PITFALL_UNSIGNALED_FULL, NULL, "posted at",
                     "QP 0x%x: the send queue is full of %u requests, none of which asks for a "
                     "completion: it stays full",
                     qpn.value, capacity);
    } else if (waits) {
        pitfall_warn(PITFALL_UNPOLLED, NULL, "posted at",
                     "QP 0x%x: the send queue (%u requests) is full while completions of its "
                     "requests wait to be polled",
                     qpn.value, capacity);
    }
    return is_full ? 0 : (uint32_t)(capacity - used);
}

#define LANES 4

static uint64_t mix(uint64_t digest, uint64_t word)
{
    return (digest ^ word) * 0x9e3779b97f4a7c15;
}

/* Order matters, as bytes that changed places are changed. Several words at a time, each in its own
 * chain: the processor need not wait for one product before it begins the next. */
static uint64_t digest_of(uint64_t digest, const uint8_t *bytes, uint64_t length)
{
    uint64_t lanes[LANES] = {digest, ~digest, digest + 1, digest - 2};
    uint64_t words[LANES];
    for (; length >= sizeof words; bytes += sizeof words, length -= sizeof words) {
        memcpy(words, bytes, sizeof words);
        for (int i = 0; i < LANES; i++) {
            lanes[i] = mix(lanes[i], words[i]);
        }
    }
    memset(words, 0, sizeof words);
    memcpy(words, bytes, length);
    for (int i = 0; i < LANES; i++) {
        lanes[i] = mix(lanes[i], words[i]);
        digest = mix(digest ^ digest >> 29, lanes[i] ^ lanes[i] >> 31);
    }
    return digest;
}

/* In pieces of a packet, as the requester reads them: of a longer range memory_check says nothing
 * about what is there. False: not all of it may be read. */
static bool digest_sge(const struct memory *memory, struct domain domain, const struct sge *sge,
                       uint64_t *digest)
{
    for (uint32_t done = 0; done < sge->length;) {
        uint32_t left = sge->length - done;
        const struct memory_request request = {
            .domain = domain,
            .key = sge->key,
            .address = sge->address + done,
            .length = left < PACKET_PAYLOAD_MAX ? left : PACKET_PAYLOAD_MAX};
        uint8_t *bytes;
        if (memory_check(memory, &request, &bytes) != MEMORY_GRANTED) {
            return false;
        }
        *digest = digest_of(*digest, bytes, request.length);
        done += (uint32_t)request.length;
    }
    return true;
}

/* False: not all of it may be read, or it is too long to be read twice. */
static bool digest_sges(const struct memory *memory, struct domain domain, const struct sge *sges,
                        uint32_t count, uint64_t *ret_digest)
{
    uint64_t digest = 0, length = 0;
    for (uint32_t i = 0; i < count; i++) {
        length += sges[i].length;
        if (length > DIGEST_MAX || !digest_sge(memory, domain, &sges[i], &digest)) {
            return false;
        }
    }
    *ret_digest = digest;
    return true;
}

static bool sends_bytes(enum work_kind kind)
{
    return kind == WORK_SEND || kind == WORK_SEND_IMMEDIATE || kind == WORK_SEND_INVALIDATE ||
           kind == WORK_WRITE || kind == WORK_WRITE_IMMEDIATE;
}

void strict_sends_post(struct qpn qpn, const struct memory *memory, struct domain domain,
                       const struct send_request *request, bool signaled)
{
    struct posted posted = {.signaled = signaled};
    if (!request->inline_data && sends_bytes(request->kind)) {
        posted.has_digest =
            digest_sges(memory, domain, request->sges, request->sge_count, &posted.digest);
        trace_take(&posted.where);
    }
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->ring[sends->posted++ % sends->capacity] = posted;
        sends->signaled += signaled;
    }
    pthread_mutex_unlock(&queues.lock);
}

void strict_sends_unpost(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->posted--;
        sends->signaled -= sends->ring[sends->posted % sends->capacity].signaled;
    }
    pthread_mutex_unlock(&queues.lock);
}

void sends_ended(const struct memory *memory, struct domain domain, struct qpn qpn,
                 const struct send_slot *slot, bool in_order)
{
    struct posted posted = {0};
    uint64_t digest;
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL && sends->ended != sends->posted) {
        posted = sends->ring[sends->ended++ % sends->capacity];
        sends->in_order += in_order;
    }
    pthread_mutex_unlock(&queues.lock);
    if (posted.has_digest &&
        digest_sges(memory, domain, send_slot_sges(slot), slot->sge_count, &digest) &&
        digest != posted.digest) {
        pitfall_warn(
            PITFALL_BUFFER_REUSE, &posted.where, "posted at",
            "QP 0x%x: the buffer of %s (%u bytes) was changed before the work was done", qpn.value,
            slot->kind == WORK_WRITE || slot->kind == WORK_WRITE_IMMEDIATE ? "an RDMA WRITE"
                                                                           : "a SEND",
            slot->length);
    }
}

void strict_sends_answered(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->is_answered = true;
    }
    pthread_mutex_unlock(&queues.lock);
}

/* A peer that falls silent may have died, which is nobody's mistake; one that was never there is
 * somebody's. */
static void warn_if_never_answered(struct qpn qpn)
{
    char peer[SENDS_PEER];
    pthread_mutex_lock(&queues.lock);
    const struct sends *sends = *find(qpn.value);
    bool is_news = sends != NULL && sends->in_order <= 1 && !sends->is_answered;
    describe_peer(is_news ? sends : NULL, peer);
    pthread_mutex_unlock(&queues.lock);
    if (peer[0] != 0) {
        pitfall_warn(PITFALL_UNANSWERED, NULL, "polled at",
                     "QP 0x%x gives up: its peer%s has never answered it", qpn.value, peer);
    }
}

void strict_polled(const struct completion *completion)
{
    if (completion->kind >= COMPLETED_RECEIVE && completion->status == COMPLETION_SUCCESS) {
        strict_sends_answered(completion->qpn);
        return;
    }
    bool too_long = completion->status == COMPLETION_RETRY_EXCEEDED ||
                    completion->status == COMPLETION_LOCAL_LENGTH_ERROR;
    if (too_long && completion->detail != 0) {
        pitfall_warn(PITFALL_PATH_MTU, NULL, "polled at",
                     "queue pair %u failed since its packets are longer than the %u bytes that the "
                     "way to its peer takes",
                     completion->qpn.value, completion->detail);
    } else if (completion->status == COMPLETION_RETRY_EXCEEDED) {
        warn_if_never_answered(completion->qpn);
    }
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(completion->qpn.value);
    if (sends != NULL && completion->status != COMPLETION_SUCCESS) {
        sends->failed = true;
    } else if (sends != NULL && !sends->failed && sends->signaled != 0) {
        sends->reclaimed = next_signaled(sends) + 1;
        sends->signaled--;
    }
    pthread_mutex_unlock(&queues.lock);
}

void strict_sends_give_up(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->failed = true;
    }
    pthread_mutex_unlock(&queues.lock);
}

void strict_unseen(const struct completion *completion, const char *status)
{
    pthread_mutex_lock(&queues.lock);
    const struct sends *sends = *find(completion->qpn.value);
    bool is_news = sends != NULL && !sends->failed;
    pthread_mutex_unlock(&queues.lock);
    if (is_news) {
        pitfall_warn(PITFALL_UNPOLLED, NULL, "given up at",
                     "QP 0x%x: a request failed (%s), and its completion was never polled",
                     completion->qpn.value, status);
    }
}
