/* What the two ends of a transfer say to each other: messages and their bytes.
 *
 * Here: packing, and a parser that trusts nothing. Not here: what a message means at a given moment
 * (session.h, sender.h, receiver.h), and file data in bulk, which is put into chunks of the
 * receiver's memory and announced by a put's notice.
 *
 * The client says HELLO, and for a pull the SOURCES it wants; the server answers WELCOME or
 * REFUSED. Then, whichever side sends: receiver: REGION once, all chunks granted by it; GRANT for
 * each chunk that is free again; FAILED for each entry that could not be placed; SUMMARY at the
 * end. sender:   ENTRY for each file, directory and symbolic link, device and further name of a
 * file; before it its extended attributes, in pieces of ATTRIBUTE. A small file's bytes ride along.
 * A larger one goes on with puts (data, in order) and HOLE messages, closed by END. A directory is
 * followed by its entries and closed by LEAVE. SKIPPED for what could not be read, TOTALS when they
 * are known, FINISHED at the end. Nothing needs a round trip for each file.
 *
 * Bytes: one octet of type, then fields in big-endian without padding; a text or name is preceded
 * by its length in 16 bits. A message with bytes left over is malformed. */
#ifndef TOOLS_TRANSFER_PROTOCOL_H
#define TOOLS_TRANSFER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/fabric.h>

#define PROTOCOL_MAGIC       0x57656972u /* "Weir" */
#define PROTOCOL_VERSION     2
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
#define ID_UNKNOWN           UINT32_MAX /* the owner has a name only */

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

const char *problem_code_name(enum problem_code code);
enum problem_code problem_code_of_errno(int error);

/* Bytes that belong to somebody else: in a parsed message, to the received buffer. */
struct span {
    const void *bytes;
    size_t length;
};

struct message {
    enum message_type type;
    union {
        struct {
            uint16_t version;
            enum direction direction;
            bool recursive, force, fsync, totals;
            uint16_t preserve; /* bits of enum preserve */
            uint16_t sources;  /* 1 at least */
            struct span path;  /* push: the target; pull: empty */
        } hello;
        struct {
            struct span path;
        } source;
        struct {
            uint16_t version;
            struct span device; /* text: what carries the data at the server */
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
            bool eager;
            uint16_t source; /* counts from 0 in the order of the HELLO */
            uint16_t mode;
            int64_t mtime_s;
            uint32_t mtime_ns;
            uint32_t uid, gid;       /* or ID_UNKNOWN */
            uint32_t names;          /* how many the file has, where the peer must know; or 0 */
            uint64_t size;           /* of a file */
            uint32_t first;          /* hard link: the entry it is another name of */
            uint32_t major, minor;   /* device */
            struct span name;        /* one component; empty only for a source itself */
            struct span user, group; /* of uid and gid; empty: they have none */
            uint8_t digest[DIGEST_LENGTH]; /* eager only */
            struct span data;              /* eager: the file; symlink: its target */
        } entry;
        struct {
            uint64_t length;
        } hole;
        struct {
            enum problem_code code;
            uint8_t digest[DIGEST_LENGTH];
            struct span path, text; /* where code is not NONE */
        } end;
        struct {
            uint32_t id; /* 0 in SKIPPED */
            enum problem_code code;
            struct span path, text;
        } problem; /* SKIPPED and FAILED */
        struct {
            uint64_t files, bytes;
        } totals; /* TOTALS and FINISHED */
        struct {
            uint64_t files, directories, symlinks, bytes, failed;
        } summary;
        struct {
            bool more;         /* the next one goes on with this value */
            struct span name;  /* without NUL */
            struct span value; /* EAGER_LENGTH_MAX at most */
        } attribute;
    };
};

/* True if `bytes` are one whole, well-formed message; spans then point into `bytes`. */
bool protocol_parse(const void *bytes, size_t length, struct message *ret_message);

/* Writes everything of the message but entry.data and attribute.value, which follow it on the wire,
 * and returns the length. Texts longer than TEXT_LENGTH_MAX are cut. The message must be one that
 * parses. */
size_t protocol_pack(const struct message *message, uint8_t ret_head[MESSAGE_HEAD_MAX]);

/* A name that may be created in a directory: one component, neither "." nor "..". */
bool name_is_valid(const void *name, size_t length);

/* The notice of a put: which chunk, and which put it is, so that one out of order is noticed. */
uint32_t notice_pack(uint16_t chunk, uint16_t sequence);
uint16_t notice_chunk(uint32_t notice);
uint16_t notice_sequence(uint32_t notice);

#endif
