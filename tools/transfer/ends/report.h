/* What a transfer tells its owner while it runs: problems, what changed, and numbers. The owner
 * prints; the transfer never does. */
#ifndef TOOLS_TRANSFER_REPORT_H
#define TOOLS_TRANSFER_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

struct problem {
    enum problem_code code;
    bool remote;    /* the path is the peer's, and so are the words: not to be trusted */
    bool at_source; /* the side that reads; else the one that writes */
    struct span path, text;
};

/* What became of an entry. */
struct item {
    enum entry_kind kind;
    uint32_t changes; /* bits of enum change; 0: it was the same */
    uint64_t size;    /* of a file */
    struct span path; /* below the target; empty for the target itself */
};

struct report {
    void (*problem)(void *user, const struct problem *problem);
    /* NULL: nobody wants to know. */
    void (*item)(void *user, const struct item *item);
    void *user;
};

struct tally {
    uint64_t files, directories, symlinks;
    uint64_t bytes;        /* of contents, holes included */
    uint64_t kept;         /* of these bytes, that an interrupted copy had left */
    uint64_t kept_in_part; /* of these, of a file that did not come whole */
    uint64_t same;         /* nothing needed to be sent */
    uint64_t left;         /* not to be touched: newer, there, or not there */
    /* What earlier connections of this copy had brought or gone over, and was found as it is to be:
     * neither `same` nor `left`. */
    uint64_t again_files, again_symlinks, again_bytes;
    uint64_t untouched_symlinks; /* of `same` and `left` */
    uint64_t specials;           /* of `files`: devices, FIFOs and sockets */
    uint64_t untouched_specials; /* of `same` and `left` */
    uint64_t deleted;
    uint64_t held_back; /* more was to be deleted than wished */
    bool undeleted;     /* none was, since the source could not be read in full */
    uint64_t spared;    /* bytes of what was the same, left or there again */
    uint64_t failed, warnings;
    bool totals_known;
    uint64_t total_files, total_bytes;
    bool retransmissions_known; /* the device of who sends counts them */
    uint64_t retransmissions;
};

#endif
