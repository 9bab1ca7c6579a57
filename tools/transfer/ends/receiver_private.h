/* What the parts of a receiver share: receiver.c (what the peer may say when), receiver_asked.c
 * (which names may come), receiver_say.c (what is said of what came), receiver_place.c (what
 * becomes of entries), receiver_small.c (of small files), receiver_data.c (chunks and what is in
 * them), receiver_end.c (of a file that goes by them), receiver_answer.c (which files need not
 * come), receiver_resume.c (which parts of one need not), receiver_verify.c (what storage says of
 * it) and receiver_delete.c (what is to go). */
#ifndef TOOLS_TRANSFER_RECEIVER_PRIVATE_H
#define TOOLS_TRANSFER_RECEIVER_PRIVATE_H

#include <time.h>

#include "tools/transfer/choice/lookahead.h"
#include "tools/transfer/choice/turn.h"
#include "tools/transfer/disk/clear.h"
#include "tools/transfer/disk/committer.h"
#include "tools/transfer/disk/hard_links.h"
#include "tools/transfer/disk/journal.h"
#include "tools/transfer/disk/owners.h"
#include "tools/transfer/disk/place.h"
#include "tools/transfer/disk/tree.h"
#include "tools/transfer/disk/writer.h"
#include "tools/transfer/ends/receiver.h"
#include "tools/transfer/ends/sent_names.h"
#include "tools/transfer/wire/digest.h"
#include "tools/transfer/wire/pieces.h"

/* Answers a peer may leave lying before it is taken for dead or hostile. */
#define ANSWERS_MAX 4096

/* Bytes that are gone over at a time: few enough to stay in the processor's cache. */
#define CACHED_LENGTH (128u << 10)

/* A file from here on is written by a thread of its own: a smaller one is over before that pays. */
#define BEHIND_LENGTH_MIN (16u << 20)

enum receiver_state {
    RECEIVER_ENTRIES,
    RECEIVER_FILE,      /* one that goes by chunks */
    RECEIVER_VERIFYING, /* it has come, and is read back */
    RECEIVER_DELETING,  /* everything has come */
    RECEIVER_DONE,
};

struct current_file {
    uint32_t id;
    uint16_t source;
    uint64_t size, position;
    uint64_t kept;  /* of these, what an interrupted copy had left */
    bool discarded; /* it cannot be placed; its bytes still come for a while */
    bool left;      /* discarded, because it is not to be placed */
    bool behind;    /* the writer writes it: see receiver_settle */
    bool waits;     /* for its name, when it has come */
    uint32_t names;
    uint32_t changes; /* bits of enum change */
    struct attributes attributes;
    struct xattrs xattrs;
    struct place place;
};

/* What is noted of the file under way, and what an interrupted copy has noted. */
enum reading {
    READS_ON, /* so far it does */
    READS_RIGHT,
    READS_WRONG,
    READS_NOT, /* errno says why */
};

struct resuming {
    struct journal journal;
    struct journal_claims claims;
    bool awaited;      /* the peer waits for what we have */
    unsigned proven;   /* claims up to here have been read, */
    uint64_t read;     /* and so much of the next, */
    unsigned answered; /* and up to here the peer has answered */
    unsigned offered;  /* in between */
    unsigned wrong;
    uint64_t wrong_at; /* the first of these */
};

/* A file of more pieces cannot be read back, which is said. */
#define READ_BACK_PIECES_MAX (1u << 20) /* a power of two */
#define READ_BACK_AT_ONCE    (4u << 20)

/* What the file under way must hold. */
struct verifying {
    struct piece *list;
    unsigned count, capacity;
    bool overflow; /* there were more */
    unsigned next; /* to be read */
    uint64_t read; /* so much of it has been */
    uint64_t at;   /* up to here it is right */
};

/* A file as it was when its digest was taken. */
struct digested {
    uint64_t key; /* of its source and path */
    struct stat status;
    uint8_t digest[DIGEST_LENGTH];
};

/* Questions of the peer, answered in order. */
struct answering {
    struct {
        uint8_t *bytes;
        size_t length;
    } asks[ASKS_MAX]; /* the oldest first */
    unsigned count;
    size_t position; /* in the oldest */
    char base[NAME_LENGTH_MAX + 1];
    int directory;   /* of the questions at hand; -1: it is not there, */
    bool is_left;    /* and nothing is to be made there; */
    bool is_unknown; /* or nobody can say */
    uint16_t source;
    char path[NAME_LENGTH_MAX + PATH_LENGTH_MAX + 4]; /* of it, below the target */
    int fd;                                           /* the file whose digest is taken; -1: none */
    struct digested of;
    uint64_t read;
    struct digest *digest;
    struct digested *notes; /* a ring of DIGESTED_MAX: those before `notes_begin` are used up */
    uint64_t notes_begin, notes_end;
    uint64_t again; /* bytes that may still be read again in this turn */
    uint8_t answers[ASK_NAMES_MAX * ANSWER_LENGTH_MAX];
    size_t length;
    unsigned answered;
};

struct deleting {
    char **sources;              /* what each is called here that is a directory; else NULL */
    char **names;                /* and what the peer calls it */
    const struct filter *filter; /* that this side holds names against; else NULL */
    struct filter *said;         /* by the peer */
    struct sent_names came;      /* below the target, folded: see is_what_came */
    struct turn turn;            /* with the rules */
    struct lookahead *lookahead;
};

/* What has the name that an entry is to have. */
struct present {
    bool exists;
    struct stat status;
};

struct receiver {
    struct receiver_options options;
    enum receiver_state state;
    uint32_t last_id;
    int last_source; /* -1: none yet */
    unsigned sources_seen;
    struct tree tree;
    struct clearing clearing;
    uint64_t dead_depth;      /* directories below one that could not be made */
    bool dead_left;           /* or was not to be made */
    uint64_t entries;         /* that came whole, directories not counted */
    uint64_t source_failures; /* of what the peer could not read */
    time_t alive_s;           /* when the peer last heard that something large is being read */
    struct answering answering;
    struct deleting deleting;
    struct current_file file;
    struct large_pages large; /* the writer's, as the file is */
    struct pieces pieces;
    struct resuming resuming;
    struct verifying verifying;
    struct digest *proof;
    struct xattrs xattrs; /* of the entry to come */
    struct owners owners;
    struct hard_links links;
    uint8_t *memory;
    uint16_t sequence;
    bool is_granted[RECEIVER_CHUNK_COUNT]; /* the peer may put into it; else it is free to grant, */
    bool is_taken[RECEIVER_CHUNK_COUNT];   /* unless the writer has it */
    struct writer *writer;                 /* NULL: none yet */
    struct committer *committer;
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t stored[CACHED_LENGTH]; /* what was read of storage */
};

/* receiver_say.c */
void receiver_send(struct receiver *receiver, const struct message *message);
/* The entry or file under way failed: told to our owner and to the peer; receiver->tree.path names
 * it. */
void receiver_fail(struct receiver *receiver, uint32_t id, enum problem_code code,
                   const char *text);
/* The same with an errno, or a failure of attributes.h. */
void receiver_fail_errno(struct receiver *receiver, uint32_t id, int error);
/* The same for another path, with the target before it. */
void receiver_fail_path(struct receiver *receiver, uint32_t id, enum problem_code code,
                        const char *path, const char *text);
/* What became of a path below the target. */
void receiver_tell_path(struct receiver *receiver, enum entry_kind kind, const char *path,
                        uint64_t size, uint32_t changes);
/* What became of the entry that receiver->tree.path names. */
void receiver_tell(struct receiver *receiver, enum entry_kind kind, uint64_t size,
                   uint32_t changes);
/* An entry that needed nothing or was not to be touched: `counter` of the tally counts it, unless
 * an earlier connection of this copy has gone over it. */
void receiver_count_untouched(struct receiver *receiver, uint32_t id, enum entry_kind kind,
                              uint64_t size, uint64_t *counter);
/* The peer could not read something. */
void receiver_report_source(struct receiver *receiver, enum problem_code code, struct span path,
                            struct span text);
/* Nothing is sent while a large file is read: the peer is not to take that for silence. */
void receiver_say_alive(struct receiver *receiver);
/* The target is as it is to be, or not; nothing more comes. */
void receiver_send_summary(struct receiver *receiver);

/* Those that came before the entry become its own. */
static inline struct xattrs receiver_take_xattrs(struct receiver *receiver)
{
    struct xattrs xattrs = receiver->xattrs;
    receiver->xattrs = (struct xattrs){0};
    return xattrs;
}
/* What came of the file under way does not count. */
static inline void receiver_uncount_file(struct receiver *receiver)
{
    receiver->options.tally->bytes -= receiver->file.position;
    receiver->options.tally->kept -= receiver->file.kept;
}
/* The file under way cannot be placed. */
void receiver_discard_file(struct receiver *receiver, int error);

/* compare_file, of which a file that was left half new is neither the same nor newer. */
enum answer receiver_compare(const struct receiver *receiver, int directory, const char *name,
                             const struct stat *there, uint64_t size, const struct timespec *mtime,
                             uint32_t *ret_left);
/* The same of a further name of a file that has come. */
enum answer receiver_compare_link(const struct receiver *receiver, const struct message *message,
                                  const char *name, const struct stat *there, uint32_t *ret_left);
bool receiver_find(int directory, const char *name, struct stat *ret_status);
static inline bool receiver_wishes(const struct receiver *receiver, uint32_t bits)
{
    return (receiver->options.wishes->bits & bits) != 0;
}

/* receiver_small.c */
/* The file may wait for its name while others come, if there is room. */
bool receiver_may_wait(const struct receiver *receiver, const struct message *message);
/* The file under way, which may wait, has come whole. */
void receiver_give_file(struct receiver *receiver);
/* Files that wait for their names are out of the way of this entry, and there is room for it. */
void receiver_make_room(struct receiver *receiver, const struct message *message);
/* One that has come whole, under this name. */
void receiver_place_small(struct receiver *receiver, const struct message *message,
                          const char *name, const struct present *present,
                          const struct attributes *attributes, uint32_t changes);
/* All have their names, and it is said what came of them. tree->path names the file under way after
 * that, or nothing. */
void receiver_settle_small(struct receiver *receiver);
/* What there was too little of may be held by those that wait: descriptors, or the room of the
 * files they replace. True: they have let go of it, and what ended with this error may be tried
 * again. */
bool receiver_let_go(struct receiver *receiver, int error, const char *name);
/* Before anything is said of another entry, which has this name and goes on having it. */
void receiver_speak_in_turn(struct receiver *receiver, const char *name);
/* For now nothing more comes. */
void receiver_urge_small(struct receiver *receiver);

/* receiver_data.c: the chunks that are free, as far as the peer takes answers. */
void receiver_grant(struct receiver *receiver);
/* The file under way may be written by the writer from here on, where that pays: its descriptor,
 * pieces, journal and what is noted of it are the writer's until receiver_settle. */
void receiver_write_behind(struct receiver *receiver);
/* What comes next of the file under way. */
void receiver_take_part(struct receiver *receiver, const struct writer_piece *piece);
/* Takes back what the writer has done. */
void receiver_take_back(struct receiver *receiver);
/* The same when it has done everything; what is said of the file after that holds. */
void receiver_settle(struct receiver *receiver);

/* receiver_resume.c */
/* As place_begin, for the large file under way, with what an interrupted copy left of it where that
 * is wished. Not 0: it cannot be kept, and is to be begun otherwise. */
int receiver_begin_kept(struct receiver *receiver, struct place *place, const char *name,
                        enum replacing replacing);
/* The file under way has come or gone. */
void receiver_end_resuming(struct receiver *receiver);
/* The peer is gone: what can be resumed stays. */
void receiver_leave_file(struct receiver *receiver);
/* Nothing more of it can be had, or written: the same where a later copy may go on with it by the
 * same option; else it goes, for others may need the room. */
void receiver_drop_file(struct receiver *receiver);
void receiver_piece_ended(void *user, const struct piece *piece);
/* Reads a piece that is noted, and tells the peer; true: there is more. */
bool receiver_prove(struct receiver *receiver);
/* Something else comes for the next so many bytes of the file. 0 or an errno. */
int receiver_overwrite(struct receiver *receiver, uint64_t length);
bool receiver_receive_keep(struct receiver *receiver, uint64_t length, const char **ret_reason);
/* Whether the file under way reads so: READ_BACK_AT_ONCE bytes of it, behind the `done` that have
 * been read of this piece. Whoever announces a large file may have large pieces. */
enum reading receiver_read_piece(struct receiver *receiver, const struct piece *piece,
                                 uint64_t *done);

/* receiver_verify.c, where that is wished: */
void receiver_note_piece(struct receiver *receiver, const struct piece *piece);
void receiver_forget_pieces(struct receiver *receiver);
/* All of the file has come. 0 or an errno. */
int receiver_begin_verifying(struct receiver *receiver);
/* The same for a small one, at once. EBADMSG: storage has something else. */
int receiver_read_back(struct receiver *receiver, const struct place *place,
                       const struct span *data);
/* Reads a part; true: there is more. */
bool receiver_verify(struct receiver *receiver);

/* receiver_end.c */
bool receiver_receive_end(struct receiver *receiver, const struct message *message,
                          const char **ret_reason);
/* All of the file has come, and there was no error with it, or this one. */
void receiver_end_file(struct receiver *receiver, int error);
static inline bool receiver_has_file(const struct receiver *receiver)
{
    return receiver->state == RECEIVER_FILE || receiver->state == RECEIVER_VERIFYING;
}

/* receiver_asked.c: the path below the target, in a source, is one that the peer was asked for. */
bool receiver_is_asked_for(const struct receiver *receiver, unsigned source, const char *path,
                           bool is_directory);
/* The peer was asked for all that is there, so that it knows what is to go. */
bool receiver_may_lose(const struct receiver *receiver, unsigned source, const char *path);

/* receiver_answer.c */
bool receiver_ask(struct receiver *receiver, const struct message *message,
                  const char **ret_reason);
/* A slice of it; true: there is more. */
bool receiver_answer(struct receiver *receiver);
/* The entry is one that the peer, by our digest, takes for what `name` is here: it is that still.
 * tree->path names it. */
bool receiver_still_has(struct receiver *receiver, const struct message *message, const char *name,
                        const struct stat *there);
void receiver_end_answers(struct receiver *receiver);
/* What a source is called here, of which the peer says `name`. */
const char *receiver_source_name(const struct receiver *receiver, unsigned source,
                                 const char *name);

/* receiver_delete.c: what the sources have not goes, after everything has come. */
/* A source that is a directory is called so here, and so by the peer. False: no memory. */
bool receiver_remember_source(struct receiver *receiver, unsigned source, const char *name,
                              struct span said);
/* The entry that tree->path names has come, whatever becomes of it. */
void receiver_note_name(struct receiver *receiver);
/* False: it comes when none may. */
bool receiver_receive_rule(struct receiver *receiver, const struct message *message,
                           const char **ret_reason);
bool receiver_begin_deleting(struct receiver *receiver);
/* What it says and counts of a directory in the way. */
struct clearing receiver_clearing(struct receiver *receiver);
/* A slice of it; true: there is more to do without waiting for anything. */
bool receiver_delete(struct receiver *receiver, bool *ret_done);
void receiver_end_deleting(struct receiver *receiver);

/* receiver_place.c: what becomes of an entry that may come now, under this name. */
void receiver_begin_directory(struct receiver *receiver, const struct message *message,
                              const char *name);
/* One that goes by chunks is under way then. Its path stays in the tree until its end, for what may
 * be said of it. */
void receiver_place_file(struct receiver *receiver, const struct message *message,
                         const char *name);
/* A file by chunks in a directory that is not there. */
void receiver_begin_dead_file(struct receiver *receiver, const struct message *message);
/* With its END: true if it is what was read. */
bool receiver_check_file(struct receiver *receiver, const struct message *message);
void receiver_commit_file(struct receiver *receiver);
/* Begins the file that is to have the name. 0 or an errno. */
int receiver_begin_place(struct receiver *receiver, struct place *place, const char *name,
                         const struct present *present, const struct attributes *attributes);
/* What has just been placed has more names, which are still to come. */
void receiver_remember_names(struct receiver *receiver, uint32_t id, uint32_t names);
/* A symbolic link, device, FIFO or socket. */
void receiver_place_node(struct receiver *receiver, const struct message *message,
                         const char *name);
/* A further name of what has been placed. */
void receiver_place_link(struct receiver *receiver, const struct message *message,
                         const char *name);

#endif
