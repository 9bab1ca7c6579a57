/* The descriptor is an eventfd that counts like a semaphore: one token for each record. A reader
 * takes a token first and a record second; the record may have been forgotten in between, then it
 * goes back to wait. */
#include "rnic/io/system/notify.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/system/cancel.h"
#include "rnic/io/system/raw_file.h"

#define NOTIFY_INITIAL 16u

struct notify {
    pthread_mutex_t posting; /* held from a record to its token; taken before `mutex` */
    pthread_mutex_t mutex;   /* covers all below; never held while blocking */
    int descriptor;
    struct notify_record *records; /* a ring, `capacity` a power of two */
    uint32_t capacity;
    uint32_t head, count;
    uint32_t generation; /* of the process that made it */
};

/* A forked child has the records to itself, but the descriptor, with its tokens, is the parent's.
 */
static uint32_t generation;

static void after_fork(void)
{
    generation++;
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

enum status notify_create(struct notify **ret_notify)
{
    struct notify *notify = calloc(1, sizeof *notify);
    if (notify == NULL) {
        return STATUS_NO_MEMORY;
    }
    notify->records = calloc(NOTIFY_INITIAL, sizeof *notify->records);
    notify->capacity = NOTIFY_INITIAL;
    notify->generation = generation;
    notify->descriptor = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (notify->records == NULL || notify->descriptor < 0) {
        if (notify->descriptor >= 0) {
            close(notify->descriptor);
        }
        free(notify->records);
        free(notify);
        return STATUS_NO_MEMORY;
    }
    pthread_mutex_init(&notify->posting, NULL);
    pthread_mutex_init(&notify->mutex, NULL);
    *ret_notify = notify;
    return STATUS_OK;
}

void notify_destroy(struct notify *notify)
{
    if (notify == NULL) {
        return;
    }
    if (notify->generation == generation) {   /* else a thread of the parent's may have held it */
        pthread_mutex_lock(&notify->posting); /* who has woken the last reader is done */
        pthread_mutex_unlock(&notify->posting);
    }
    int cancel = cancel_hold();
    close(notify->descriptor);
    cancel_restore(cancel);
    pthread_mutex_destroy(&notify->posting);
    pthread_mutex_destroy(&notify->mutex);
    free(notify->records);
    free(notify);
}

int notify_descriptor(const struct notify *notify)
{
    return notify->descriptor;
}

static struct notify_record *record_at(struct notify *notify, uint32_t index)
{
    return &notify->records[(notify->head + index) & (notify->capacity - 1)];
}

static void grow(struct notify *notify)
{
    struct notify_record *larger = calloc((size_t)notify->capacity * 2, sizeof *larger);
    CHECK(larger != NULL); /* a lost event would hang the application without a word */
    for (uint32_t i = 0; i < notify->count; i++) {
        larger[i] = *record_at(notify, i);
    }
    free(notify->records);
    notify->records = larger;
    notify->capacity *= 2;
    notify->head = 0;
}

static void put_record(struct notify *notify, const struct notify_record *record)
{
    pthread_mutex_lock(&notify->mutex);
    if (notify->count == notify->capacity) {
        grow(notify);
    }
    *record_at(notify, notify->count) = *record;
    notify->count++;
    pthread_mutex_unlock(&notify->mutex);
}

static void put_token(struct notify *notify)
{
    uint64_t token = 1;
    ssize_t written;
    do {
        written = raw_write(notify->descriptor, &token, sizeof token);
    } while (written < 0 && errno == EINTR);
}

/* The reader whom the token wakes runs at once, and must not find `mutex` taken. */
void notify_post(struct notify *notify, const struct notify_record *record)
{
    pthread_mutex_lock(&notify->posting);
    put_record(notify, record);
    put_token(notify);
    pthread_mutex_unlock(&notify->posting);
}

void notify_post_unless(struct notify *notify, const struct notify_record *record,
                        const atomic_bool *is_over)
{
    pthread_mutex_lock(&notify->posting);
    if (!atomic_load(is_over)) {
        put_record(notify, record);
        put_token(notify);
    }
    pthread_mutex_unlock(&notify->posting);
}

int notify_wait(struct notify *notify, struct notify_record *ret_record)
{
    return notify_wait_with(notify, NULL, ret_record);
}

int notify_wait_with(struct notify *notify, notify_taken *taken, struct notify_record *ret_record)
{
    for (;;) {
        uint64_t token;
        ssize_t length = read(notify->descriptor, &token, sizeof token);
        if (length != (ssize_t)sizeof token) {
            return length < 0 ? errno : EIO;
        }
        pthread_mutex_lock(&notify->mutex);
        bool found = notify->count > 0;
        if (found) {
            *ret_record = *record_at(notify, 0);
            notify->head = (notify->head + 1) & (notify->capacity - 1);
            notify->count--;
            if (taken != NULL) {
                taken(ret_record);
            }
        }
        pthread_mutex_unlock(&notify->mutex);
        if (found) {
            return 0;
        }
    }
}

/* Takes one token if there is one. A reader may be about to take the same: then it finds no record
 * and waits again. */
static void withdraw_token(int descriptor)
{
    uint64_t token;
    struct iovec place = {&token, sizeof token};
    if (preadv2(descriptor, &place, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) {
        return;
    }
    /* A kernel without RWF_NOWAIT for eventfds. */
    struct pollfd ready = {.fd = descriptor, .events = POLLIN};
    if (poll(&ready, 1, 0) == 1) {
        ssize_t length = read(descriptor, &token, sizeof token);
        (void)length;
    }
}

uint32_t notify_forget(struct notify *notify, const void *object)
{
    /* From before a fork: the tokens are the parent's, and its thread may have held the mutex. */
    if (notify->generation != generation) {
        return 0;
    }
    int cancel = cancel_hold();
    pthread_mutex_lock(&notify->posting); /* so each record has its token */
    pthread_mutex_lock(&notify->mutex);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < notify->count; i++) {
        struct notify_record record = *record_at(notify, i);
        if (record.object != object) {
            *record_at(notify, kept++) = record;
        }
    }
    uint32_t forgotten = notify->count - kept;
    notify->count = kept;
    for (uint32_t i = 0; i < forgotten; i++) {
        withdraw_token(notify->descriptor);
    }
    pthread_mutex_unlock(&notify->mutex);
    pthread_mutex_unlock(&notify->posting);
    cancel_restore(cancel);
    return forgotten;
}
