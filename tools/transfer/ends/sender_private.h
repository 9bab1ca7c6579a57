/* What the parts of a sender share: sender.c (when what is sent, and what the peer answers),
 * sender_entry.c (what is said of a step of the walk), sender_data.c (chunks and what is in them)
 * and sender_resume.c (which parts of a file the peer has). */
#ifndef TOOLS_TRANSFER_SENDER_PRIVATE_H
#define TOOLS_TRANSFER_SENDER_PRIVATE_H

#include <time.h>

#include "tools/transfer/choice/lookahead.h"
#include "tools/transfer/disk/hard_links.h"
#include "tools/transfer/disk/owners.h"
#include "tools/transfer/disk/source.h"
#include "tools/transfer/ends/pace.h"
#include "tools/transfer/ends/sender.h"
#include "tools/transfer/ends/sent_names.h"
#include "tools/transfer/wire/digest.h"
#include "tools/transfer/wire/pieces.h"

enum sender_state {
    SENDER_ENTRIES,   /* between two entries */
    SENDER_DIGEST,    /* in the middle of a file whose digest the receiver's is compared with */
    SENDER_FILE,      /* in the middle of one that goes by chunks */
    SENDER_READ_BACK, /* behind one, while the peer reads it back */
    SENDER_FINISHED,  /* everything sent, the peer's summary to come */
    SENDER_DONE,
};

/* Chunk numbers that are free: a stack. */
struct chunk_pool {
    uint16_t numbers[CHUNK_COUNT_MAX];
    unsigned count;
};

/* Chunks of ours that have been read and wait for one of the peer's, in order: a ring. */
struct read_ahead {
    struct chunk_ahead {
        uint16_t number;
        size_t length;
    } chunks[SENDER_CHUNK_COUNT];
    unsigned first, count;
    uint64_t bytes;
};

/* Pieces that the peer has, from the position on. */
struct claims {
    bool awaited; /* there may be more */
    struct piece list[CLAIMS_MAX];
    unsigned first, count; /* a ring */
    uint64_t end;          /* of the last */
    uint64_t read;         /* so much of the first has been gone over */
};
/* Of a piece: whoever announces a large file may have large pieces. */
#define GONE_OVER_AT_ONCE (4u << 20)

/* How often a file is sent that changes meanwhile, before it is given up. */
#define SENDER_TRIES 3

struct current_file {
    struct source source;
    bool rejected;
    unsigned tries;            /* that were in vain */
    uint64_t sent_bytes, kept; /* the tally's when it was begun */
    struct claims claims;
};

/* A directory that the receiver is in. */
struct open_directory {
    uint32_t id;
    struct walk_folder *folder; /* the look-ahead's, up to its WALK_LEAVE */
};

/* A source that is a directory, to know it again: what is no more there is deleted at the peer. */
struct source_root {
    bool sent;
    dev_t device;
    ino_t inode;
};

/* What its device has sent again. */
struct again_at_device {
    uint64_t before; /* the session began */
    uint64_t said;
    bool is_said;
    uint64_t looked_ns;
};

struct inquiry;

struct sender {
    struct sender_options options;
    struct link *link;
    struct lookahead *lookahead;
    struct walk *scan;
    enum sender_state state;
    uint32_t last_id;
    struct open_directory *directories; /* by depth */
    unsigned depth, directory_capacity;
    uint64_t entries;          /* sent, directories not counted, nor files that were withdrawn */
    unsigned sources;          /* of which something was sent */
    struct source_root *roots; /* by source, where deletions are wished */
    struct sent_names names;   /* likewise */
    time_t alive_s;            /* when the peer last heard that a long file is being read */
    struct current_file file;  /* of the look-ahead's head, which stays until it is done with */
    struct pieces pieces;
    struct digest *digest;
    struct pace pace;
    struct again_at_device again;
    struct owners owners;
    struct hard_links links;
    struct birth birth;      /* of the last file of several names that was to be sent */
    struct inquiry *inquiry; /* NULL: nothing has been asked */

    uint8_t *memory;
    bool lacks_memory;
    uint32_t chunk_length;
    struct weir_remote remote;
    uint32_t remote_chunk_length;
    uint16_t remote_chunk_count;
    struct chunk_pool local, granted;
    struct read_ahead ahead; /* of the file under way */
    bool is_granted[CHUNK_COUNT_MAX];
    uint16_t sequence;

    uint64_t gone_over; /* bytes that were read, and not to be sent */
    uint64_t scanned_files, scanned_bytes;
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t eager[EAGER_LENGTH_MAX + 1]; /* one more than is sent, to see a file's end */
};

void sender_send(struct sender *sender, const struct message *message, struct span data);
void sender_send_plain(struct sender *sender, const struct message *message);
/* Our own side could not read something: told to our owner and, by the caller, to the peer. */
void sender_report(struct sender *sender, enum problem_code code, const char *path,
                   const char *text);
/* Of a file that is read again: what is said of it. */
#define TEXT_AGAIN "; it is read again"

/* Each step of the walk becomes one of these. A file that goes by chunks, or whose digest is asked
 * for, is sender->file then, and true is returned: it needs more than this call. */
bool sender_begin_file(struct sender *sender, const struct look *look);
/* The digest of sender->file is known. True: the file goes by chunks. */
bool sender_end_digest(struct sender *sender, const struct look *look);
/* Or it cannot be, and why. A file that has changed meanwhile is sent, whatever it was. */
bool sender_miss_digest(struct sender *sender, const struct look *look, enum problem_code code,
                        const char *text);
void sender_send_directory(struct sender *sender, const struct walk_step *step);
void sender_leave_directory(struct sender *sender);
void sender_send_node(struct sender *sender, const struct look *look);
void sender_skip_step(struct sender *sender, const struct walk_step *step, int error);
void sender_skip(struct sender *sender, enum problem_code code, const char *path, const char *text);
/* Opens the file of the step anew, after it has changed, and begins with it. True: it goes by
 * chunks. */
bool sender_send_again(struct sender *sender, const struct walk_step *step, unsigned tries);

/* sender_data.c. The file is read ahead of the peer's chunks, as far as there is room in ours: the
 * peer writes them to storage a few at a time, and meanwhile the processor has nothing else to do.
 */
bool sender_receive_region(struct sender *sender, const struct message *message,
                           const char **ret_reason);
bool sender_receive_grant(struct sender *sender, uint16_t chunk, const char **ret_reason);
bool sender_has_room(const struct sender *sender);
/* Reads what comes next of the file under way, before `end`. There is room. */
enum problem_code sender_read_chunk(struct sender *sender, uint64_t end, const char **ret_text);
/* Sends the oldest chunk that has been read. False: there is none, or none of the peer's. */
bool sender_put_chunk(struct sender *sender);
/* What has been read of the file need not be sent. */
void sender_drop_chunks(struct sender *sender);

/* sender_resume.c: what the peer has of the file, from its position on. */
/* There is or may be something. */
static inline bool sender_has_claims(const struct sender *sender)
{
    return sender->file.claims.awaited || sender->file.claims.count > 0;
}
enum claimed {
    CLAIMED,        /* a piece is there, and was gone over */
    CLAIMED_SO_FAR, /* it is, as far as it was gone over */
    CLAIMED_NOT,    /* up to `end`, which is lowered, nothing is */
    CLAIMED_LATER,  /* it is to be heard */
    CLAIMED_UNREAD,
};
enum claimed sender_claimed(struct sender *sender, uint64_t *end, enum problem_code *ret_code,
                            const char **ret_text);
bool sender_receive_proven(struct sender *sender, const struct message *message,
                           const char **ret_reason);

/* sender_answer.c: which names the sources have, after everything was sent. */
bool sender_ask(struct sender *sender, const struct message *message, const char **ret_reason);
/* A slice of the answers, which ends sooner the longer paths and rules are; true: there is more. */
bool sender_answer(struct sender *sender);
void sender_end_answers(struct sender *sender);
/* A source that is a directory is to be sent. False: no memory, or it is not the one any more that
 * it was on an earlier connection, which has been said. */
bool sender_remember_root(struct sender *sender, const struct walk_step *step);
/* What the step names is not gone for this copy, whatever becomes of it. */
void sender_remember_name(struct sender *sender, const struct walk_step *step);
/* Of a directory that sender_remember_root remembers; of another 0. */
uint64_t sender_identity(const struct sender *sender, const struct walk_step *step);
/* sender_device.c: tells ours and the peer what it had to send again, if it is time. */
void sender_look_at_device(struct sender *sender, bool is_end);
/* The file is not open any more. */
void sender_close_file(struct sender *sender);

#endif
