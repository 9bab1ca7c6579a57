#include "rnic/io/udp/lender.h"

#include <string.h>
#include <sys/mman.h>

#include "rnic/base/check.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/raw_socket.h"
#include "rnic/io/udp/udp.h"

#define COPIED       64u /* bytes of a run, which take the address along */
#define IN_FLIGHT    (UDP_FLIGHT_MAX / LENDER_LEAST + 1) /* lent runs of a stream */
#define PLACES       (2 * IN_FLIGHT * LENDER_STREAMS)
#define FAILURES_MAX 8u
#define LENGTH       ((size_t)PLACES * LENDER_PLACE)

/* Where it cannot, it does not try again. */
static bool open_lender(struct lender *lender)
{
    if (lender->open || lender->failures >= FAILURES_MAX) {
        return lender->open;
    }
    lender->failures = FAILURES_MAX;
    if (lender->bytes == NULL) {
        void *bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (bytes == MAP_FAILED) {
            return false;
        }
        lender->bytes = bytes;
    }
    if (raw_pipe(lender->pipe) != 0) {
        return false;
    }
    lender->failures = 0;
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
    lender->failures = FAILURES_MAX;
}

/* Bytes of this stream may still be under way. */
static bool is_borrower(const struct lender *lender, const struct lender_stream *stream)
{
    return stream->latest != 0 && lender->taken - stream->latest < PLACES;
}

static struct lender_stream *admit(struct lender *lender, const struct path *path,
                                   struct qpn destination)
{
    struct lender_stream *vacant = NULL;
    for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
        struct lender_stream *stream = &lender->streams[i];
        if (!is_borrower(lender, stream)) {
            vacant = stream;
        } else if (qpn_equal(stream->destination, destination) &&
                   memcmp(&stream->path, path, sizeof *path) == 0) {
            return stream;
        }
    }
    if (vacant != NULL) {
        *vacant = (struct lender_stream){.path = *path, .destination = destination};
    }
    return vacant;
}

static uint32_t count_borrowers(const struct lender *lender)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LENDER_STREAMS; i++) {
        count += is_borrower(lender, &lender->streams[i]);
    }
    return count;
}

/* As few places as will do for those who borrow stay in the cache. */
uint8_t *lender_take(struct lender *lender, const struct path *path, struct qpn destination)
{
    struct lender_stream *stream = open_lender(lender) ? admit(lender, path, destination) : NULL;
    if (stream == NULL) {
        return NULL;
    }
    stream->latest = ++lender->taken;
    uint32_t places = 2 * IN_FLIGHT * count_borrowers(lender);
    uint32_t place = lender->place < places ? lender->place : 0;
    lender->place = place + 1;
    return lender->bytes + (size_t)place * LENDER_PLACE;
}

void lender_give_back(struct lender *lender, const uint8_t *bytes)
{
    if (lender->bytes + (size_t)lender->place * LENDER_PLACE == bytes + LENDER_PLACE) {
        lender->place--;
    }
}

/* The rest of what is corked, by copying. False: nothing is. */
static bool complete(int descriptor, uint8_t *bytes, size_t length)
{
    struct iovec place = {bytes, length};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
    return raw_send_one(descriptor, &message, MSG_DONTWAIT) >= 0;
}

/* The address goes with a few bytes, which are copied; the pages follow. */
bool lender_send(struct lender *lender, int descriptor, const struct msghdr *address,
                 uint8_t *bytes, uint32_t length)
{
    CHECK(length >= LENDER_LEAST && length <= LENDER_PLACE);
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
        lender->failures = FAILURES_MAX; /* the kernel's pipes are too short, or not for us */
        lent = 0;
    }
    if (lent == (ssize_t)rest.iov_len) {
        return true;
    }
    lender->failures++;
    close_pipe(lender); /* with what is in it */
    size_t gone = lent > 0 ? (size_t)lent : 0;
    return complete(descriptor, bytes + COPIED + gone, rest.iov_len - gone);
}
