/* --chmod: what becomes of the modes that are copied. */
#ifndef TOOLS_TRANSFER_MODES_H
#define TOOLS_TRANSFER_MODES_H

#include <stdbool.h>
#include <sys/types.h>

#define MODE_CHANGES_MAX 64

enum mode_subject {
    MODE_OF_ALL,
    MODE_OF_DIRECTORIES, /* "D" before it */
    MODE_OF_OTHERS,      /* "F" */
};

struct mode_change {
    enum mode_subject subject;
    mode_t clear, set;
    mode_t set_if_executable; /* "X": for directories, and what has an x already */
    mode_t clear_if_executable;
    mode_t copied; /* 0700, 0070 or 0007: whose bits "g=u" gives others; or 0 */
    mode_t set_copied;
    mode_t clear_copied;
};

struct mode_changes {
    unsigned count;
    struct mode_change list[MODE_CHANGES_MAX];
};

/* Adds what a comma-separated list says, as chmod(1) and rsync(1) take it: "D755,F644",
 * "u+rwX,go-w", "g=u". `mask` is the process's umask, which holds where nobody is named ("+w").
 * False: it is none, or too many. */
bool modes_parse(const char *text, mode_t mask, struct mode_changes *changes);

/* All of them in turn. `changes` may be NULL. A link keeps what it has: it is not to be asked for.
 */
mode_t modes_apply(const struct mode_changes *changes, mode_t mode, bool is_directory);

#endif
