#include "rnic/io/udp/lender.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "rnic/base/check.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/raw_socket.h"
#include "rnic/io/udp/udp.h"

#define COPIED       64u  /* bytes of a run, which take the address along */
#define PAGE         4096 /* a pipe holds as many pages as a run has */
#define FAILURES_MAX 8u   /* in a row */
/* What is in flight, twice, and a quarter for headers and what runs leave of their last pages. */
#define RING   (2 * (UDP_FLIGHT_MAX + UDP_FLIGHT_MAX / 4))
#define LENGTH ((size_t)LENDER_STREAMS * RING)

/* Where it cannot, it does not try again. */
static bool open_lender(struct lender *lender)
{
    if (lender->open || lender->denied) {
        return lender->open;
    }
    lender->denied = true;
    if (lender->bytes == NULL) {
        void *bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (bytes == MAP_FAILED) {
            return false;
        }
        lender->bytes = bytes;
        int result = madvise(bytes, RING, MADV_POPULATE_WRITE);
        (void)result; /* the first stream's; else at their first touch */
    }
    if (raw_pipe(lender->pipe) != 0) {
        return false;
    }
    lender->denied = false;
    lender->open = true;
    return true;
}

static void close_pipe(struct lender *lender)
{
    raw_close(lender->pipe[0]);
    raw_close(lender->pipe[1]);
    lender->open = false;
}

void lender_close(struct lender *lender)
{
    if (lender->open) {
        close_pipe(lender);
    }
    if (lender->bytes != NULL) {
        munmap(lender->bytes, LENGTH);
        lender->bytes = NULL;
    }
    lender->denied = true;
}

static struct lender_stream *find_vacant(struct lender *lender)
{
    for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
        if (!lender->streams[i].admitted) {
            return &lender->streams[i];
        }
    }
    return NULL;
}

/* Those that have taken nothing since the last time make room. Only who needs it asks the clock. */
static void sweep(struct lender *lender)
{
    struct instant now = clock_now();
    if (instant_elapsed_ns(lender->swept, now) < LENDER_IDLE_NS) {
        return;
    }
    lender->swept = now;
    for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
        lender->streams[i].admitted = lender->streams[i].used;
        lender->streams[i].used = false;
    }
}

static struct lender_stream *admit(struct lender *lender, const struct path *path,
                                   struct qpn destination)
{
    for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
        struct lender_stream *stream = &lender->streams[i];
        if (qpn_equal(stream->destination, destination) &&
            memcmp(&stream->path, path, sizeof *path) == 0) {
            return stream;
        }
    }
    struct lender_stream *vacant = find_vacant(lender);
    if (vacant == NULL) {
        sweep(lender);
        vacant = find_vacant(lender);
    }
    if (vacant != NULL) {
        vacant->path = *path;
        vacant->destination = destination;
    }
    return vacant;
}

uint8_t *lender_take(struct lender *lender, const struct path *path, struct qpn destination)
{
    if (lender->failures[gid_is_ipv4(&path->remote) ? 0 : 1] >= FAILURES_MAX ||
        !open_lender(lender)) {
        return NULL;
    }
    struct lender_stream *stream = admit(lender, path, destination);
    if (stream == NULL) {
        return NULL;
    }
    stream->admitted = stream->used = true;
    if (stream->filled) {
        return NULL;
    }
    stream->filled = true;
    if (stream->next + LENDER_PLACE > RING) {
        stream->next = 0;
    }
    return lender->bytes + (size_t)(stream - lender->streams) * RING + stream->next;
}

static struct lender_stream *stream_of(struct lender *lender, const uint8_t *bytes)
{
    size_t number = (size_t)(bytes - lender->bytes) / RING;
    CHECK(number < LENDER_STREAMS);
    return &lender->streams[number];
}

void lender_give_back(struct lender *lender, const uint8_t *bytes)
{
    stream_of(lender, bytes)->filled = false;
}

static void note_lent(struct lender_stream *stream, uint32_t length)
{
    stream->filled = false;
    stream->next += (length + PAGE - 1) / PAGE * PAGE;
}

/* The rest of what is corked, by copying. False: nothing is. */
static bool complete(int descriptor, uint8_t *bytes, size_t length)
{
    struct iovec place = {bytes, length};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
    return raw_send_one(descriptor, &message, MSG_DONTWAIT) >= 0;
}

/* splice(2) has taken `lent` bytes of the rest, or said why not. */
static bool recover(struct lender *lender, uint32_t *failures, int descriptor,
                    const struct iovec *rest, ssize_t lent)
{
    bool passing = lent < 0 && (errno == ENOBUFS || errno == EINTR); /* a full queue, a signal */
    size_t gone = lent > 0 ? (size_t)lent : 0;
    *failures += !passing;
    close_pipe(lender); /* with what is in it */
    bool completed = complete(descriptor, (uint8_t *)rest->iov_base + gone, rest->iov_len - gone);
    if (!completed && gone > 0) {
        *failures = FAILURES_MAX; /* sends each page by itself: IPv6 before Linux 6.5 */
    }
    return completed;
}

/* The address goes with a few bytes, which are copied; the pages follow. */
bool lender_send(struct lender *lender, int descriptor, const struct msghdr *address,
                 uint8_t *bytes, uint32_t length)
{
    CHECK(length >= LENDER_LEAST && length <= LENDER_PLACE);
    uint32_t *failures =
        &lender->failures[((const struct sockaddr *)address->msg_name)->sa_family == AF_INET6];
    struct iovec head = {bytes, COPIED}, rest = {bytes + COPIED, length - COPIED};
    struct msghdr message = *address;
    message.msg_iov = &head;
    message.msg_iovlen = 1;
    if (!lender->open || raw_send_one(descriptor, &message, MSG_DONTWAIT | MSG_MORE) < 0) {
        return false;
    }
    ssize_t lent = raw_lend(lender->pipe[1], &rest);
    if (lent == (ssize_t)rest.iov_len) {
        lent = raw_splice(lender->pipe[0], descriptor, rest.iov_len);
    } else {
        lender->denied = true; /* the kernel's pipes are too short, or not for us */
        lent = 0;
    }
    if (lent == (ssize_t)rest.iov_len) {
        *failures = 0;
    } else if (!recover(lender, failures, descriptor, &rest, lent)) {
        return false;
    }
    note_lent(stream_of(lender, bytes), length);
    return true;
}
