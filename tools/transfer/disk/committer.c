#include "tools/transfer/disk/committer.h"

#include <pthread.h>
#include <stdlib.h>

#include "tools/transfer/disk/quiet_thread.h"

/* So many files are worth waking a thread for. */
#define WAKING_COUNT 8

struct slot {
    struct commit commit; /* of the one who has begun it, until it is done */
    bool is_done;
};

struct committer {
    struct slot slots[COMMITTER_ROOM]; /* a ring */
    uint64_t taken;                    /* the owner's alone */
    pthread_t thread;
    bool has_thread, had_none; /* the owner's alone: there was none to be had */
    pthread_mutex_t lock;      /* of all below, and of what is done */
    pthread_cond_t given_some, done_one;
    uint64_t given, begun;
    bool sleeps, ends;
    bool is_awaited; /* the owner waits for one that is begun */
};

static struct slot *slot_at(struct committer *committer, uint64_t number)
{
    return &committer->slots[number % COMMITTER_ROOM];
}

/* Under the lock, which is let go of meanwhile. */
static void commit_next(struct committer *committer)
{
    struct slot *slot = slot_at(committer, committer->begun++);
    struct commit *commit = &slot->commit;
    pthread_mutex_unlock(&committer->lock);
    commit->attributes.xattrs = &commit->xattrs;
    commit->error = place_commit(&commit->place, commit->length, &commit->attributes);
    pthread_mutex_lock(&committer->lock);
    slot->is_done = true;
    if (committer->is_awaited) {
        committer->is_awaited = false;
        pthread_cond_signal(&committer->done_one);
    }
}

static void *run(void *argument)
{
    struct committer *committer = argument;
    pthread_mutex_lock(&committer->lock);
    while (!committer->ends) {
        if (committer->begun < committer->given) {
            commit_next(committer);
            continue;
        }
        committer->sleeps = true;
        pthread_cond_wait(&committer->given_some, &committer->lock);
    }
    pthread_mutex_unlock(&committer->lock);
    return NULL;
}

struct committer *committer_create(void)
{
    struct committer *committer = calloc(1, sizeof(*committer));
    if (committer == NULL) {
        return NULL;
    }
    pthread_mutex_init(&committer->lock, NULL);
    pthread_cond_init(&committer->given_some, NULL);
    pthread_cond_init(&committer->done_one, NULL);
    return committer;
}

void committer_destroy(struct committer *committer)
{
    if (committer == NULL) {
        return;
    }
    pthread_mutex_lock(&committer->lock);
    committer->ends = true;
    pthread_cond_signal(&committer->given_some);
    pthread_mutex_unlock(&committer->lock);
    if (committer->has_thread) {
        pthread_join(committer->thread, NULL);
    }
    pthread_cond_destroy(&committer->done_one);
    pthread_cond_destroy(&committer->given_some);
    pthread_mutex_destroy(&committer->lock);
    free(committer);
}

bool committer_is_full(const struct committer *committer)
{
    return committer->given - committer->taken == COMMITTER_ROOM;
}

bool committer_is_empty(const struct committer *committer)
{
    return committer->given == committer->taken;
}

/* Under the lock. */
static void wake(struct committer *committer)
{
    if (committer->sleeps) {
        committer->sleeps = false;
        pthread_cond_signal(&committer->given_some);
    }
}

/* A copy of a few files needs none. */
static void want_thread(struct committer *committer)
{
    if (!committer->has_thread && !committer->had_none) {
        committer->has_thread = quiet_thread_start(&committer->thread, run, committer);
        committer->had_none = !committer->has_thread;
    }
}

void committer_give(struct committer *committer, const struct commit *commit)
{
    struct slot *slot = slot_at(committer, committer->given);
    slot->commit = *commit;
    slot->is_done = false;
    pthread_mutex_lock(&committer->lock);
    committer->given++;
    bool many = committer->given - committer->begun >= WAKING_COUNT;
    if (many) {
        wake(committer);
    }
    pthread_mutex_unlock(&committer->lock);
    if (many) {
        want_thread(committer);
    }
}

bool committer_take(struct committer *committer, struct commit *ret_commit)
{
    if (committer_is_empty(committer)) {
        return false;
    }
    struct slot *slot = slot_at(committer, committer->taken);
    pthread_mutex_lock(&committer->lock);
    bool is_done = slot->is_done;
    pthread_mutex_unlock(&committer->lock);
    if (is_done) {
        *ret_commit = slot->commit;
        committer->taken++;
    }
    return is_done;
}

void committer_urge(struct committer *committer)
{
    pthread_mutex_lock(&committer->lock);
    while (!committer->has_thread && committer->begun < committer->given) {
        commit_next(committer);
    }
    if (committer->begun < committer->given) {
        wake(committer);
    }
    pthread_mutex_unlock(&committer->lock);
}

void committer_help(struct committer *committer)
{
    pthread_mutex_lock(&committer->lock);
    if (committer->begun < committer->given) {
        commit_next(committer);
    } else if (!slot_at(committer, committer->taken)->is_done) {
        committer->is_awaited = true;
        while (committer->is_awaited) {
            pthread_cond_wait(&committer->done_one, &committer->lock);
        }
    }
    pthread_mutex_unlock(&committer->lock);
}
