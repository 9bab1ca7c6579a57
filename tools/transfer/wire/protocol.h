/* What the two ends of a transfer say to each other: messages and their bytes.
 *
 * Here: packing, and a parser that trusts nothing. Not here: what a message means at a given moment
 * (session.h, sender.h, receiver.h), and file data in bulk, which is put into chunks of the
 * receiver's memory and announced by a put's notice.
 *
 * The client says HELLO, with the number of its copy, by which it is known where it comes again
 * after its connection was lost, and for a pull the RULES of what is left out, what alone is LISTED
 * of the source, and the SOURCES it wants; the server answers WELCOME or REFUSED. Then, whichever
 * side sends: receiver: REGION once, all chunks granted by it; GRANT for each chunk that is free
 * again; FAILED for each entry that could not be placed; WARNED for what its owner is to know; ITEM
 * for each that changed, where that is wished; SUMMARY at the end. sender: ASK about many files at
 * a time, far ahead of their turn, which the receiver answers in order with ANSWERS: which of them
 * it has already. ENTRY for each file, directory and symbolic link, device and further name of a
 * file; before it its extended attributes, in pieces of ATTRIBUTE. A small file's bytes ride along.
 * A larger one goes on with puts (data, in order) and HOLE messages, closed by END. Where an
 * interrupted copy is to be resumed (protocol_is_resumed) the receiver first says what it has of
 * it: PROVEN for each piece (pieces.h) that it has read and found as it was noted, then PROVEN_ALL;
 * the sender answers a piece that its file still has with KEEP, and any other with data. An END may
 * say that the file comes again. One that the receiver has goes without bytes, for its attributes.
 * A directory is followed by its entries and closed by LEAVE. SKIPPED for what could not be read,
 * TOTALS when they are known, RETRANSMITTED when its device had to send something again, FINISHED
 * at the end. Nothing needs a round trip for each file. Where the receiver is to delete what the
 * source has not, it then ASKs about all it has, and the sender answers; what has gone since it was
 * sent is SKIPPED, and not answered to be GONE. It keeps what the rules protect by itself where
 * they name files of rules in directories, which it has its own of: a client that pushes says the
 * RULES then, before all entries. ALIVE from one who is busy with a large file for long.
 *
 * Bytes: one octet of type, then fields in big-endian without padding; a text or name is preceded
 * by its length in 16 bits. A message with bytes left over is malformed. How several of them share
 * one of the link's is in pack.h. */
#ifndef TOOLS_TRANSFER_PROTOCOL_H
#define TOOLS_TRANSFER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/fabric.h>

#define PROTOCOL_MAGIC       0x57656972u /* "Weir" */
#define PROTOCOL_VERSION     18
#define NAME_LENGTH_MAX      255
#define PATH_LENGTH_MAX      4095
#define TEXT_LENGTH_MAX      512
#define EAGER_LENGTH_MAX     (32u << 10) /* a file up to this rides in its ENTRY */
#define DIGEST_LENGTH        16
#define CHUNK_LENGTH_MAX     (16u << 20)
#define CHUNK_COUNT_MAX      256
#define MESSAGE_HEAD_MAX     (64 + PATH_LENGTH_MAX + TEXT_LENGTH_MAX)
#define MESSAGE_LENGTH_MAX   (EAGER_LENGTH_MAX + 1024)
#define TRANSFER_SOURCES_MAX 4096
#define FILTER_RULES_MAX     32768
#define LISTED_MAX           (1u << 20)
#define ASK_NAMES_MAX        512
#define ASK_LENGTH_MAX       (16u << 10) /* of the questions in one ASK */
#define ASKS_MAX             8           /* whose answers have not all come */
#define ALIVE_INTERVAL_S     5           /* between two ALIVEs */
#define ID_UNKNOWN           UINT32_MAX  /* the owner has a name only */
#define RESUMED_LENGTH_MIN   (4u << 20)  /* a file from here on can be resumed */
#define CLAIMS_MAX           64          /* pieces said to be PROVEN, and not yet answered */
#define COPY_ID_LENGTH       16

enum message_type {
    MESSAGE_HELLO = 1,
    MESSAGE_SOURCE,
    MESSAGE_WELCOME,
    MESSAGE_REFUSED,
    MESSAGE_REGION,
    MESSAGE_GRANT,
    MESSAGE_ENTRY,
    MESSAGE_HOLE,
    MESSAGE_END,
    MESSAGE_LEAVE,
    MESSAGE_SKIPPED,
    MESSAGE_TOTALS,
    MESSAGE_FINISHED,
    MESSAGE_FAILED,
    MESSAGE_SUMMARY,
    MESSAGE_ATTRIBUTE,
    MESSAGE_RULE,
    MESSAGE_ASK,
    MESSAGE_ANSWERS,
    MESSAGE_ITEM,
    MESSAGE_ALIVE,
    MESSAGE_WARNED,
    MESSAGE_PROVEN,
    MESSAGE_PROVEN_ALL,
    MESSAGE_KEEP,
    MESSAGE_READ_BACK,
    MESSAGE_RETRANSMITTED,
    MESSAGE_LISTED,
};

/* Bytes that belong to somebody else: in a parsed message, to the received buffer. */
struct span {
    const void *bytes;
    size_t length;
};

enum direction {
    DIRECTION_PUSH = 1, /* client to server */
    DIRECTION_PULL,
};

enum entry_kind {
    ENTRY_FILE = 1,
    ENTRY_DIRECTORY,
    ENTRY_SYMLINK,
    ENTRY_HARD_LINK, /* a further name of a file, symbolic link or device that has come already */
    ENTRY_FIFO,
    ENTRY_SOCKET,
    ENTRY_CHARACTER_DEVICE,
    ENTRY_BLOCK_DEVICE,
};

/* What a client wants done: bits in its HELLO. Each means what the option of that name means to
 * rsync. */
enum wish {
    WISH_RECURSIVE = 1 << 0,
    WISH_FSYNC = 1 << 1,
    WISH_TOTALS = 1 << 2, /* count everything beside sending, for an estimate of the end */
    WISH_DRY_RUN = 1 << 3,
    WISH_ITEMS = 1 << 4,     /* the receiver says of each entry what changed */
    WISH_ALL_ITEMS = 1 << 5, /* also where nothing did */
    WISH_CHECKSUM = 1 << 6,
    WISH_UPDATE = 1 << 7,
    WISH_IGNORE_TIMES = 1 << 8,
    WISH_SIZE_ONLY = 1 << 9,
    WISH_EXISTING = 1 << 10,
    WISH_IGNORE_EXISTING = 1 << 11,
    WISH_WINDOW = 1 << 12, /* window_s counts; else times are compared in nanoseconds */
    WISH_FORCE = 1 << 13,  /* a directory in the way goes with all that is in it */
    WISH_PERMS = 1 << 14,  /* attributes also for the target directory itself */
    WISH_DELETE = 1 << 15,
    WISH_DELETE_EXCLUDED = 1 << 16,
    WISH_INPLACE = 1 << 17,
    WISH_RESUME = 1 << 18,          /* what an interrupted copy left is gone on with */
    WISH_VERIFY = 1 << 19,          /* what was written is read back from storage */
    WISH_MAX_DELETE = 1 << 20,      /* deletions_max counts */
    WISH_IGNORE_ERRORS = 1 << 21,   /* what could not be read holds up no deletion */
    WISH_MAX_SIZE = 1 << 22,        /* size_max counts */
    WISH_ONE_FILE_SYSTEM = 1 << 23, /* what is mounted below a source is an empty directory */
    WISH_LISTED = 1 << 24,     /* of the one source only what a list names, and what leads there */
    WISH_EXPAND = 1 << 25,     /* paths of the list may be patterns, where the server has no root */
    WISH_MAKE_PATH = 1 << 26,  /* the directories that lead to the target are made, too */
    WISH_NO_FOLDERS = 1 << 27, /* a directory that the list names wants WISH_RECURSIVE; else it is
                                  copied without what is in it */
    WISH_KEEP_TARGET = 1 << 28, /* it keeps its attributes, or those of any new directory */
    WISH_EVERYTHING = (1 << 29) - 1,
};

/* What is kept besides contents, permissions and times: bits, as the client asks in its HELLO. The
 * receiver applies what it may and was asked for, whatever the sender says. */
enum preserve {
    PRESERVE_SET_IDS = 1 << 0,
    PRESERVE_GROUP = 1 << 1,
    PRESERVE_OWNER = 1 << 2,
    PRESERVE_DEVICES = 1 << 3,
    PRESERVE_SPECIALS = 1 << 4, /* FIFOs and sockets */
    PRESERVE_HARD_LINKS = 1 << 5,
    PRESERVE_ACLS = 1 << 6,
    PRESERVE_XATTRS = 1 << 7,
    PRESERVE_NUMBERS = 1 << 8, /* owners by number, not by name */
    PRESERVE_SPARSE = 1 << 9,  /* what is all zeros becomes a hole */
    PRESERVE_EVERYTHING = (1 << 10) - 1,
};

/* What the path of a push was found to be: a client that comes again says what its first WELCOME
 * said, for what it has made since is not to be taken for what was there. */
enum target_is {
    TARGET_UNKNOWN,
    TARGET_DIRECTORY, /* what comes goes into it */
    TARGET_MADE,      /* the same, and there was none before */
    TARGET_NAME,      /* what comes is called so */
    TARGET_IS_COUNT,
};

struct wishes {
    uint32_t bits;          /* of enum wish */
    uint16_t preserve;      /* of enum preserve */
    uint32_t window_s;      /* with WISH_WINDOW: times that differ by so much are the same */
    uint64_t rate;          /* of contents, in bytes a second; 0: as fast as it goes */
    uint32_t deletions_max; /* with WISH_MAX_DELETE */
    uint64_t size_min;      /* smaller files are left as they are, */
    uint64_t size_max;      /* and with WISH_MAX_SIZE larger ones */
};

/* A rule about names: bits. Of the two sides it is for both where none is said, or, with
 * WISH_DELETE_EXCLUDED, for the sender's. */
enum rule_bits {
    RULE_INCLUDE = 1 << 0,
    RULE_HIDES = 1 << 1,      /* the sender's side: it says what is sent */
    RULE_PROTECTS = 1 << 2,   /* the receiver's: what of that which is not sent is not deleted */
    RULE_NEGATED = 1 << 3,    /* for what the pattern does not match */
    RULE_PERISHABLE = 1 << 4, /* not for what is in a directory that is to go itself */
    /* No pattern but the name of a file in which each directory may have rules: for itself and what
     * is below it, or by RULE_ALONE for itself. By RULE_PATTERNS each line is the pattern of an
     * exclusion or, with RULE_INCLUDE, of an inclusion; else a rule. The sides and RULE_PERISHABLE
     * are given to each of its rules. A slash at the start: the directories above the transfer may
     * have it, too. */
    RULE_MERGES = 1 << 5,
    RULE_ALONE = 1 << 6,
    RULE_PATTERNS = 1 << 7,
    /* Held against the path from the root of the file system, or of what a server serves; given to
     * each rule of a file, too. */
    RULE_ABSOLUTE = 1 << 8,
    RULE_ZEROS = 1 << 9, /* of a file: a byte 0 ends each line */
    RULE_EVERYTHING = (1 << 10) - 1,
    RULE_WORDS = RULE_NEGATED, /* of a file: white space ends each, not only the line */
    RULE_CVS = RULE_ALONE | RULE_PATTERNS | RULE_WORDS, /* and "!" forgets those before it */
};

/* What of a file goes with its ENTRY. */
enum content {
    CONTENT_CHUNKS,   /* it follows */
    CONTENT_EAGER,    /* all of it */
    CONTENT_NOT_SENT, /* the receiver has it, or does not want it, as it answered */
    CONTENT_DRY,      /* would be sent */
    CONTENT_COUNT,
};

/* To a question about one name. */
enum answer {
    ANSWER_WANTED, /* the file is to be sent */
    ANSWER_SAME,
    ANSWER_LEFT,   /* it is left as it is, or not made; with all that is below it */
    ANSWER_DIGEST, /* it is the same if its contents have this digest, holes counted as zeros */
    ANSWER_GONE,   /* of a sender: there is no such name, and none is left out */
    ANSWER_COUNT,
};

/* What is to be known of a name. The directory it is in comes before it, and holds for those that
 * follow. */
struct question {
    bool is_directory;
    uint16_t source;  /* directory: of which source */
    bool top;         /* directory: the one that the source itself goes into */
    struct span path; /* directory: below the source, "" for the source */
    struct span name; /* the file's; of the source's own where it is not empty */
    bool names_directory;
    uint64_t size;
    int64_t mtime_s;
    uint32_t mtime_ns;
};

/* What became of an entry: bits. */
enum change {
    CHANGE_NEW = 1 << 0,
    CHANGE_SENT = 1 << 1,     /* the contents crossed, or would */
    CHANGE_MADE = 1 << 2,     /* a directory, link or device was made, or a link's target changed */
    CHANGE_CONTENTS = 1 << 3, /* they are known to differ, by digest; or what a link or device is */
    CHANGE_SIZE = 1 << 4,
    CHANGE_TIME = 1 << 5,
    CHANGE_MODE = 1 << 6,
    CHANGE_OWNER = 1 << 7,
    CHANGE_GROUP = 1 << 8,
    CHANGE_ACL = 1 << 9,
    CHANGE_XATTR = 1 << 10,
    CHANGE_DELETED = 1 << 11,
    LEFT_NEWER = 1 << 12, /* nothing was done: the receiver's is newer, */
    LEFT_EXISTS = 1 << 13,
    LEFT_MISSING = 1 << 14, /* or it has none, and none is to be made, */
    LEFT_SIZE = 1 << 15,    /* or no file of this size is to be sent */
    LEFT_EVERYTHING = LEFT_NEWER | LEFT_EXISTS | LEFT_MISSING | LEFT_SIZE,
    CHANGE_LINKED = 1 << 16, /* no change: it is a further name of something of its kind */
    CHANGE_NOTHING = LEFT_EVERYTHING | CHANGE_LINKED,
    CHANGE_EVERYTHING = (1 << 17) - 1,
};

/* Why something could not be copied, for programs. WARNING does not make the transfer fail. */
enum problem_code {
    PROBLEM_NONE = 0,
    PROBLEM_WARNING,      /* left out on purpose: a device, a socket, a FIFO */
    PROBLEM_NOT_FOUND,    /* */
    PROBLEM_EXISTS,       /* the target is there and --force is not */
    PROBLEM_DENIED,       /* permission */
    PROBLEM_READ_ONLY,    /* */
    PROBLEM_NO_SPACE,     /* also quota */
    PROBLEM_CONFINED,     /* the path leads out of the served folder */
    PROBLEM_WRONG_KIND,   /* a directory where a file should be, or the reverse */
    PROBLEM_NAME,         /* too long, or not a name here */
    PROBLEM_CHANGED,      /* the source changed while it was read */
    PROBLEM_VANISHED,     /* the source was removed while it was read */
    PROBLEM_DIGEST,       /* the bytes that arrived are not those that were read */
    PROBLEM_INPUT_OUTPUT, /* anything else the system says */
    PROBLEM_PROTOCOL,     /* not the same version, or not a transfer at all */
    PROBLEM_BUSY,         /* the server takes no more transfers now */
    PROBLEM_CODE_COUNT,
};

#define PROTOCOL_OTHER_DIRECTORY                                                                   \
    "is not the directory any more that it was when the copy began, as if it had been unmounted: " \
    "nothing of it is copied, and nothing deleted for it"
/* The source is the directory that it was when it was first said, as now or in `identities`, which
 * may be NULL. */
bool protocol_is_identity(uint64_t *identities, unsigned source, uint64_t identity);

const char *problem_code_name(enum problem_code code);
enum problem_code problem_code_of_errno(int error);

struct message {
    enum message_type type;
    union {
        struct {
            uint16_t version;
            enum direction direction;
            struct wishes wishes;
            uint16_t sources;             /* 1 at least */
            uint16_t rules;               /* pull: of what is left out */
            uint32_t listed;              /* pull, with WISH_LISTED: paths in the list */
            uint8_t copy[COPY_ID_LENGTH]; /* chosen at random */
            enum target_is target;        /* push */
            uint32_t before;   /* push: entries up to here have been said on earlier connections */
            struct span path;  /* push: the target; pull: empty */
            struct span named; /* push: the name of the only source; empty: it has none, or there
                                  are more */
        } hello;               /* of another version, nothing but that is known */
        struct {
            struct span path;
        } source;
        struct {
            struct span path; /* below the source */
        } listed;
        struct {
            uint16_t version;
            enum target_is target; /* push */
            struct span device;    /* text: what carries the data at the server */
        } welcome;
        struct {
            enum problem_code code;
            struct span text;
        } refused;
        struct {
            uint32_t chunk_length;
            uint16_t chunk_count;
            struct weir_remote remote;
        } region;
        struct {
            uint16_t chunk;
        } grant;
        struct {
            uint32_t id; /* counts up from 1 */
            enum entry_kind kind;
            enum content content; /* of a file */
            uint16_t source;      /* counts from 0 in the order of the HELLO */
            uint16_t mode;
            int64_t mtime_s;
            uint32_t mtime_ns;
            uint32_t uid, gid;       /* or ID_UNKNOWN */
            uint32_t names;          /* how many the file has, where the peer must know; or 0 */
            uint64_t size;           /* of a file */
            uint32_t first;          /* hard link: the entry it is another name of, */
            enum entry_kind of;      /* and what that is */
            uint32_t major, minor;   /* device */
            uint64_t identity;       /* directory: a source's own, to know it again; or 0 */
            struct span name;        /* one component; empty only for a source itself */
            struct span user, group; /* of uid and gid; empty: they have none */
            uint8_t digest[DIGEST_LENGTH]; /* eager only */
            struct span data;              /* eager: the file; symlink: its target */
        } entry;
        struct {
            uint64_t length;
        } hole;
        struct {
            enum problem_code code; /* WARNING: it is the receiver that gave it up */
            bool again;             /* it is no failure yet: the file comes again */
            uint8_t digest[DIGEST_LENGTH];
            struct span path, text; /* where code is not NONE */
        } end;
        struct {
            uint32_t id; /* of the entry; also in PROVEN_ALL */
            uint64_t offset, length;
            uint8_t digest[DIGEST_LENGTH];
        } proven;
        struct {
            uint64_t length;
        } keep;
        struct {
            uint32_t id;
        } read_back;
        struct {
            uint32_t id; /* 0 in SKIPPED */
            enum problem_code code;
            struct span path, text;
        } problem; /* SKIPPED, FAILED and WARNED */
        struct {
            uint64_t files, bytes;
        } totals;
        struct {
            uint64_t count; /* by the sender's device since the session began */
        } retransmitted;
        struct {
            uint64_t entries; /* that came whole, directories not counted */
            uint16_t sources; /* that were not left out */
        } finished;
        struct {
            uint64_t files, directories, symlinks, bytes, failed, same, left, deleted, kept;
            uint64_t held_back; /* from deletion, by WISH_MAX_DELETE */
            uint64_t again_files, again_symlinks, again_bytes;
            uint64_t untouched_symlinks, specials, untouched_specials;
            bool undeleted; /* nothing was, since the source could not be read in full */
        } summary;
        struct {
            bool more;         /* the next one goes on with this value */
            struct span name;  /* without NUL */
            struct span value; /* EAGER_LENGTH_MAX at most */
        } attribute;
        struct {
            uint16_t bits; /* of enum rule_bits */
            struct span pattern;
        } rule;
        struct {
            uint16_t names;        /* questions that are no directories; 1 at least */
            struct span questions; /* sound; one after the other by protocol_next_question */
        } ask;
        struct {
            uint16_t count;
            struct span answers; /* sound; by protocol_next_answer */
        } answers;
        struct {
            enum entry_kind kind;
            uint32_t changes; /* bits of enum change */
            uint64_t size;
            struct span path; /* below the target */
        } item;
    };
};

/* True if `bytes` are one whole, well-formed message; spans then point into `bytes`. */
bool protocol_parse(const void *bytes, size_t length, struct message *ret_message);

/* Takes the first question or answer off a span of them. */
void protocol_next_question(struct span *questions, struct question *ret_question);
enum answer protocol_next_answer(struct span *answers, uint8_t ret_digest[DIGEST_LENGTH]);
#define QUESTION_LENGTH_MAX (16 + PATH_LENGTH_MAX + NAME_LENGTH_MAX + 32)
#define ANSWER_LENGTH_MAX   (1 + DIGEST_LENGTH)
/* Their lengths. */
size_t protocol_pack_question(const struct question *question,
                              uint8_t ret_bytes[QUESTION_LENGTH_MAX]);
size_t protocol_pack_answer(enum answer answer, const uint8_t digest[DIGEST_LENGTH],
                            uint8_t ret_bytes[ANSWER_LENGTH_MAX]);
/* What follows the packed head of a message on the wire. */
struct span protocol_data(const struct message *message);

/* Writes everything of the message but what protocol_data gives, which follows it on the wire,
 * and returns the length. Texts longer than TEXT_LENGTH_MAX are cut. The message must be one that
 * parses. */
size_t protocol_pack(const struct message *message, uint8_t ret_head[MESSAGE_HEAD_MAX]);

/* The receiver says of a file of this size, which goes by chunks, what it has of it. */
static inline bool protocol_is_resumed(const struct wishes *wishes, uint64_t size)
{
    return (wishes->bits & WISH_RESUME) != 0 && size >= RESUMED_LENGTH_MIN;
}

/* A name that may be created in a directory: one component, neither "." nor "..". */
bool name_is_valid(const void *name, size_t length);

/* Bits of enum rule_bits that go together, and with that pattern. */
bool protocol_is_rule(unsigned bits, struct span pattern);

/* The notice of a put: which chunk, and which put it is, so that one out of order is noticed. */
uint32_t notice_pack(uint16_t chunk, uint16_t sequence);
uint16_t notice_chunk(uint32_t notice);
uint16_t notice_sequence(uint32_t notice);

#endif
