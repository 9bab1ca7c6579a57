/* What is proven of a large file under way, kept beside it so that a later copy can go on: the
 * source's identity and, for each piece that is in the file, its digest.
 *
 * Bytes, in big-endian: a head of JOURNAL_HEAD_LENGTH octets, then records of
 * JOURNAL_RECORD_LENGTH, each with a checksum (XXH3) of its own, and with its number and the
 * journal's random number in it, so that a record that is torn, flipped, of another journal or in
 * another place is no record.
 *
 * Order of writing: a record is written when the data it speaks of have been written; where
 * storage is asked for (`durable`), JOURNAL_BATCH of them when the data are on it, and then they
 * are made so themselves. Nothing depends on it: what a journal says is a claim, which is proven by
 * reading the data again, and compared with the source, before it counts. Without `durable` a power
 * cut may have kept records and lost their data; these pieces are then found and sent again. */
#ifndef TOOLS_TRANSFER_JOURNAL_H
#define TOOLS_TRANSFER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/pieces.h"

#define JOURNAL_VERSION       1
#define JOURNAL_HEAD_LENGTH   128
#define JOURNAL_RECORD_LENGTH 64
#define JOURNAL_RECORDS_MAX   (1u << 20)  /* beyond, nothing more is recorded */
#define JOURNAL_PIECE_MIN     (64u << 10) /* smaller pieces are not worth a record */
#define JOURNAL_BATCH         16

struct journal_head {
    uint64_t size; /* the source's */
    int64_t mtime_s;
    uint32_t mtime_ns;
    uint64_t inode;              /* of the file that it is about */
    uint8_t name[DIGEST_LENGTH]; /* digest of the name that the file is to have */
    uint64_t random;
};

enum journal_state {
    JOURNAL_SOUND,
    JOURNAL_MISSING, /* or not a file of ours that nobody else can write to */
    JOURNAL_NONE,    /* too short, or something else */
    JOURNAL_OTHER_VERSION,
    JOURNAL_DAMAGED,      /* its head is not what was written */
    JOURNAL_OTHER_FILE,   /* it is about another file */
    JOURNAL_OTHER_SOURCE, /* which has another size or time */
};

/* One that a journal speaks of. */
struct journal_claim {
    struct piece piece;
    uint32_t number; /* of its record */
    bool gone;       /* struck out, or not to be believed */
};

/* What is in one. */
struct journal_claims {
    struct journal_claim *list; /* in order of their places, apart from each other */
    unsigned count;
    uint32_t records; /* whole ones */
    unsigned damaged; /* of these */
    bool torn;        /* and a part of one at the end */
    uint64_t random;
};

/* For an error message. */
const char *journal_state_text(enum journal_state state);

void journal_pack_head(const struct journal_head *head, uint8_t ret_bytes[JOURNAL_HEAD_LENGTH]);
void journal_pack_record(uint64_t random, uint32_t number, bool struck, const struct piece *piece,
                         uint8_t ret_bytes[JOURNAL_RECORD_LENGTH]);
/* Reads the bytes of one that is to have `expected` as its head, but for its random number. The
 * claims are to be cleared, whatever comes out; they are empty unless it is sound. */
enum journal_state journal_parse(const void *bytes, size_t length,
                                 const struct journal_head *expected,
                                 struct journal_claims *ret_claims);
void journal_claims_clear(struct journal_claims *claims);

struct journal {
    int fd; /* -1: none */
    bool durable;
    int lost; /* 0, or why storage did not take data: it says so once, and not to who asks next */
    uint64_t random;
    uint32_t next;  /* number of the next record */
    uint32_t count; /* of records that wait for their data to be durable */
    uint8_t waiting[JOURNAL_BATCH * JOURNAL_RECORD_LENGTH];
};

/* Makes one of this name in the directory, in the place of what has the name. The head's random
 * number is chosen. 0 or an errno. */
int journal_create(struct journal *journal, int directory, const char *name,
                   const struct journal_head *head, bool durable);
/* Opens one to go on with. Not sound: there is none open. */
enum journal_state journal_open(struct journal *journal, int directory, const char *name,
                                const struct journal_head *expected, bool durable,
                                struct journal_claims *ret_claims);
/* The piece is in the file `data`. Failures only cost what a later copy could have kept, but for
 * what has been `lost`. */
void journal_add(struct journal *journal, int data, const struct piece *piece);
/* What the records of these claims say is about to become untrue: they are `gone` after that. */
void journal_strike(struct journal *journal, struct journal_claim *claims, unsigned count);
/* Lets go of it; the file stays. */
void journal_close(struct journal *journal, int data);
/* Something is in it. */
bool journal_is_of_use(const struct journal *journal);

#endif
