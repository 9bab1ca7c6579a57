/* A thread that does what takes long, piece by piece and in order, behind the one who receives.
 *
 * Here: the thread, what waits for it, and what it has done. Not here: what a piece is about.
 * Bounded: WRITER_ROOM pieces. What the work touches is the thread's from the first piece that is
 * given until writer_wait has returned. One thread uses a writer. */
#ifndef TOOLS_TRANSFER_WRITER_H
#define TOOLS_TRANSFER_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WRITER_ROOM 32

struct writer;

struct writer_piece {
    const uint8_t *bytes; /* borrowed until it is taken back; NULL: a hole */
    size_t length;
    uint64_t position;
    unsigned chunk;
    int error; /* result */
};

struct writer_options {
    /* In the thread. 0 or an error; what was given behind it comes back undone. */
    int (*work)(void *user, const struct writer_piece *piece);
    /* In the thread: a piece is done. */
    void (*done)(void *user);
    void *user;
};

/* NULL: there is no thread to be had. */
struct writer *writer_create(const struct writer_options *options);
/* After what it was given; NULL is fine. */
void writer_destroy(struct writer *writer);
/* False: there is no room before something is taken back. */
bool writer_give(struct writer *writer, const struct writer_piece *piece);
/* The oldest piece that is done and was not taken back. False: there is none. */
bool writer_take(struct writer *writer, struct writer_piece *ret_piece);
/* Something that was given is not done. NULL is fine. */
bool writer_is_at_work(struct writer *writer);
/* Until everything is done; it is still to be taken back. NULL is fine. */
void writer_wait(struct writer *writer);

#endif
