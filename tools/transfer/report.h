/* What a transfer tells its owner while it runs: problems, entries, and numbers. The owner prints;
 * the transfer never does. */
#ifndef TOOLS_TRANSFER_REPORT_H
#define TOOLS_TRANSFER_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/transfer/protocol.h"

struct problem {
    enum problem_code code;
    bool remote;    /* the path is the peer's, and so are the words: not to be trusted */
    bool at_source; /* the side that reads; else the one that writes */
    struct span path, text;
};

struct report {
    void (*problem)(void *user, const struct problem *problem);
    /* An entry begins. */
    void (*entry)(void *user, enum entry_kind kind, const char *path, uint64_t size);
    void *user;
};

struct tally {
    uint64_t files, directories, symlinks;
    uint64_t bytes; /* of contents, holes included */
    uint64_t failed, warnings;
    bool totals_known;
    uint64_t total_files, total_bytes;
};

#endif
