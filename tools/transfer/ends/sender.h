/* The side that reads: turns a walk over the sources into entries and chunks.
 *
 * Here: reading, extents and holes, digests, noticing that a file changed. Not here: who may read
 * what (walk.h, confine.h) and the handshake (session.h).
 * Bounded: at most SENDER_BACKLOG bytes of messages the peer has not taken, and SENDER_CHUNK_COUNT
 * chunks, which is how far a file is read ahead, too, whatever the files' sizes. */
#ifndef TOOLS_TRANSFER_SENDER_H
#define TOOLS_TRANSFER_SENDER_H

#include <stdbool.h>

#include "tools/transfer/choice/walk.h"
#include "tools/transfer/disk/modes.h"
#include "tools/transfer/disk/owners.h"
#include "tools/transfer/ends/report.h"
#include "tools/transfer/wire/link.h"

#define SENDER_BACKLOG (2u << 20)
/* Answers a peer may leave lying before it is taken for dead or hostile. */
#define ANSWERS_BACKLOG_MAX 4096
#define SENDER_CHUNK_LENGTH (1u << 20)
#define SENDER_CHUNK_COUNT  32 /* at most: as many as the peer has */

struct sender;

struct sender_options {
    struct link *link;
    struct walk_options walk;
    const char *const *sources; /* borrowed */
    unsigned source_count;
    bool tells_rules;            /* of walk.filter, which the receiver is to have */
    bool answers_at_once;        /* for nobody else waits meanwhile; else in slices */
    uint32_t before;             /* as the receiver's */
    uint64_t *identities;        /* see session_copy; borrowed, may be NULL */
    const struct wishes *wishes; /* borrowed */
    bool super;                  /* extended attributes that are not the user's are read, too */
    const struct owner_choice *owners; /* by enum owner_kind */
    const struct mode_changes *modes;  /* NULL: they are kept */
    const struct report *report;
    struct tally *tally;
};

/* NULL: no memory. */
struct sender *sender_create(const struct sender_options *options);
void sender_destroy(struct sender *sender);
/* REGION, GRANT, ANSWERS, PROVEN, FAILED, WARNED, ITEM or SUMMARY. False: the peer broke the
 * protocol, or memory could not be had: the reason is in ret_reason. */
bool sender_receive(struct sender *sender, const struct message *message, const char **ret_reason);
/* It was the latter. */
bool sender_lacks_memory(const struct sender *sender);
void sender_put_done(struct sender *sender, size_t offset);
/* Does a slice of what can be done now. True: there is more to do without waiting for anything. */
bool sender_pump(struct sender *sender);
/* The peer's SUMMARY has come. */
bool sender_is_done(const struct sender *sender);
/* All has been sent. */
bool sender_is_over(const struct sender *sender);
/* The number of the last entry that was sent. */
uint32_t sender_last_id(const struct sender *sender);
/* What an interrupted copy had left of the file under way. */
uint64_t sender_kept_in_part(const struct sender *sender);

#endif
