/* A file that is read while others may write to it: its extents, and whether it stayed the same.
 *
 * What comes out is the file as it was when it was looked at first, or a problem. */
#ifndef TOOLS_TRANSFER_SOURCE_H
#define TOOLS_TRANSFER_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tools/transfer/wire/protocol.h"

struct source {
    int fd; /* -1: none */
    struct stat status;
    bool sparse;
    uint64_t size;
    uint64_t position; /* up to here it has been read */
    bool ended;        /* it was seen to end where its size says */
    uint64_t data_end; /* where the data at the position ends; the position itself: not known yet */
};

/* Takes the descriptor, of a regular file whose status this is. Waits some milliseconds where it
 * has only just been changed. */
void source_open(struct source *source, int fd, const struct stat *status);
void source_close(struct source *source);

/* Moves over the hole at the position, if there is one, and returns its length; finds data_end. */
uint64_t source_skip_hole(struct source *source);
/* Reads `length` bytes of data at the position and moves it. PROBLEM_NONE, or why not. `bytes` have
 * room for so many: where that is more, at the end one more is asked for, and source_check need not
 * ask once again. */
enum problem_code source_read(struct source *source, void *bytes, size_t length, size_t room,
                              const char **ret_text);
/* The same file, and nothing has been done to it: the time of modification can be set back, that of
 * the last change of any kind cannot. */
bool source_is_unchanged(const struct stat *before, const struct stat *after);
/* At the end: the file is still the one of that status, and ends where its size said. */
enum problem_code source_check(const struct source *source, const char **ret_text);

#endif
