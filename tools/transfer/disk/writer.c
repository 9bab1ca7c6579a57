#include "tools/transfer/disk/writer.h"

#include <pthread.h>
#include <stdlib.h>

#include "tools/transfer/disk/quiet_thread.h"

struct writer {
    struct writer_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t given_one, done_one;
    struct writer_piece pieces[WRITER_ROOM]; /* a ring */
    uint64_t given, done, taken;
    bool failed, ends;
};

static struct writer_piece *piece_at(struct writer *writer, uint64_t number)
{
    return &writer->pieces[number % WRITER_ROOM];
}

/* False: it is to end, and nothing is left. */
static bool next(struct writer *writer, struct writer_piece *ret_piece, bool *ret_failed)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->done == writer->given && !writer->ends) {
        pthread_cond_wait(&writer->given_one, &writer->lock);
    }
    bool more = writer->done < writer->given;
    if (more) {
        *ret_piece = *piece_at(writer, writer->done);
        *ret_failed = writer->failed;
    }
    pthread_mutex_unlock(&writer->lock);
    return more;
}

static void *run(void *argument)
{
    struct writer *writer = argument;
    struct writer_piece piece;
    bool failed;
    while (next(writer, &piece, &failed)) {
        int error = failed ? 0 : writer->options.work(writer->options.user, &piece);
        pthread_mutex_lock(&writer->lock);
        piece_at(writer, writer->done)->error = error;
        writer->failed |= error != 0;
        writer->done++;
        pthread_cond_broadcast(&writer->done_one);
        pthread_mutex_unlock(&writer->lock);
        writer->options.done(writer->options.user);
    }
    return NULL;
}

struct writer *writer_create(const struct writer_options *options)
{
    struct writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return NULL;
    }
    writer->options = *options;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->given_one, NULL);
    pthread_cond_init(&writer->done_one, NULL);
    if (!quiet_thread_start(&writer->thread, run, writer)) {
        free(writer);
        return NULL;
    }
    return writer;
}

void writer_destroy(struct writer *writer)
{
    if (writer == NULL) {
        return;
    }
    pthread_mutex_lock(&writer->lock);
    writer->ends = true;
    pthread_cond_signal(&writer->given_one);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    pthread_cond_destroy(&writer->done_one);
    pthread_cond_destroy(&writer->given_one);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

bool writer_give(struct writer *writer, const struct writer_piece *piece)
{
    pthread_mutex_lock(&writer->lock);
    bool has_room = writer->given - writer->taken < WRITER_ROOM;
    if (has_room) {
        *piece_at(writer, writer->given++) = *piece;
        pthread_cond_signal(&writer->given_one);
    }
    pthread_mutex_unlock(&writer->lock);
    return has_room;
}

bool writer_take(struct writer *writer, struct writer_piece *ret_piece)
{
    pthread_mutex_lock(&writer->lock);
    bool is_there = writer->taken < writer->done;
    if (is_there) {
        *ret_piece = *piece_at(writer, writer->taken++);
        writer->failed &= writer->taken < writer->given;
    }
    pthread_mutex_unlock(&writer->lock);
    return is_there;
}

bool writer_is_at_work(struct writer *writer)
{
    if (writer == NULL) {
        return false;
    }
    pthread_mutex_lock(&writer->lock);
    bool is_at_work = writer->done < writer->given;
    pthread_mutex_unlock(&writer->lock);
    return is_at_work;
}

void writer_wait(struct writer *writer)
{
    if (writer == NULL) {
        return;
    }
    pthread_mutex_lock(&writer->lock);
    while (writer->done < writer->given) {
        pthread_cond_wait(&writer->done_one, &writer->lock);
    }
    pthread_mutex_unlock(&writer->lock);
}
