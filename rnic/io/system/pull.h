/* Reading the memory of another process of this host, once, straight to where it is to go.
 *
 * A process number may be somebody else's by the time it is used, or mean another in a namespace of
 * its own. So who wants to be read shows where in its memory random words stand, and each read
 * brings those too, last: if they are right, all that was read before them was that process's.
 * They stand on a page that a forked child finds wiped.
 *
 * The kernel refuses it where one process may not trace the other (another user, Yama, a seccomp
 * filter): try it before relying on it. Not here: when what is read is worth reading (inbox.h). */
#ifndef WEIR_IO_PULL_H
#define WEIR_IO_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"
#include "rnic/wire/packet.h"

#define PULL_PIECES_MAX 34u
#define PULL_WORDS      2u

/* Plain numbers, for it goes to other processes. */
struct pull_identity {
    uint64_t thread;  /* any of the process that lives: its first one may have ended */
    uint64_t address; /* of the words, in that process; 0: it is not to be read */
    uint64_t words[PULL_WORDS];
};

struct pull_piece {
    uint64_t address; /* in that process */
    uint32_t length;
    uint32_t reserved;
};

/* This process, by the calling thread. NO_MEMORY. */
enum status pull_identity_create(uint64_t seed, struct pull_identity *ret_identity) MUST_USE;
void pull_identity_destroy(const struct pull_identity *identity);

/* Fills the places with what lies from `offset` on in the pieces, which hold as much; at most
 * PULL_PIECES_MAX of each. False: not all of it could be read or written, or it is not the process
 * that it was; the places may have been written to then. No places: whether it works at all. */
bool pull(const struct pull_identity *identity, const struct pull_piece *pieces, uint32_t count,
          uint32_t offset, const struct payload_place *places, uint32_t place_count) MUST_USE;

#endif
