/* The side that writes: entries and chunks become files below one target directory.
 *
 * Here: what the peer may say when, directories under way, checking digests. Not here: how a file
 * gets its name (place.h).
 * The peer is not trusted: every name is one component, created relative to a directory that is
 * held open and reached through no symbolic link; every chunk, length and offset is checked.
 * Who pulls gets no name that was not asked for. Nothing is written outside the target, and no name
 * appears before its contents are proven. */
#ifndef TOOLS_TRANSFER_RECEIVER_H
#define TOOLS_TRANSFER_RECEIVER_H

#include <stdbool.h>

#include "tools/transfer/choice/target.h"
#include "tools/transfer/disk/modes.h"
#include "tools/transfer/disk/owners.h"
#include "tools/transfer/ends/report.h"
#include "tools/transfer/wire/link.h"

#define RECEIVER_CHUNK_LENGTH (1u << 20)
#define RECEIVER_CHUNK_COUNT  16

struct receiver;

struct receiver_options {
    struct link *link;
    struct target *target; /* borrowed */
    unsigned source_count;
    uint32_t before; /* entries up to here have been said on earlier connections of this copy */
    uint64_t *identities; /* see session_copy; borrowed, may be NULL */
    unsigned depth_max;   /* of directories in each other; 0: any */
    /* What the sources are called here; NULL: as the peer says (a push). */
    const char *const *names;
    const struct wishes *wishes;       /* borrowed */
    bool rules;                        /* something may have been left out at the peer */
    const struct filter *filter;       /* borrowed; NULL: none, or the peer says it (a push) */
    int rules_root;                    /* as the walk's */
    const struct listing *listing;     /* borrowed; of the one source only that. NULL: all */
    bool super;                        /* may do what only root may */
    const struct owner_choice *owners; /* by enum owner_kind */
    const struct mode_changes *modes;  /* NULL: they are kept */
    const struct report *report;
    struct tally *tally;
};

/* NULL: no memory. */
struct receiver *receiver_create(const struct receiver_options *options);
/* Throws away what is under way, unless it can be resumed. */
void receiver_destroy(struct receiver *receiver);
/* Gets memory for chunks and tells the peer, unless the link carries data. False: see ret_error. */
bool receiver_start(struct receiver *receiver, struct weir_error *ret_error);
/* RULE, ASK, ENTRY, HOLE, KEEP, END, LEAVE, SKIPPED, TOTALS or FINISHED. False: the peer broke the
 * protocol, and ret_reason says how. */
bool receiver_receive(struct receiver *receiver, const struct message *message,
                      const char **ret_reason);
bool receiver_notice(struct receiver *receiver, uint32_t notice, size_t length,
                     const char **ret_reason);
/* The same from a link that carries data. */
bool receiver_data(struct receiver *receiver, const void *bytes, size_t length,
                   const char **ret_reason);
/* Grants the chunks that are free, as far as the peer takes answers, and answers questions; called
 * again and again. True: there is more to do without waiting for anything. */
bool receiver_pump(struct receiver *receiver);
/* A thread of its own has not yet written what has come. */
bool receiver_is_writing(const struct receiver *receiver);
/* FINISHED has come and the summary is on its way. */
bool receiver_is_done(const struct receiver *receiver);
/* The number of the last entry that came. */
uint32_t receiver_last_id(const struct receiver *receiver);
/* A file is half written. */
bool receiver_is_in_file(const struct receiver *receiver);
/* What an interrupted copy had left of it. */
uint64_t receiver_kept_in_part(const struct receiver *receiver);
/* And what there is of it stays, for a copy that goes on with it. */
bool receiver_keeps_file(const struct receiver *receiver);

#endif
