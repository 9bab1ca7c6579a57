#include "tools/transfer/protocol.h"

#include <errno.h>
#include <string.h>

/* One cursor for both directions would hide the difference that matters: reading can fail. */
struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static const uint8_t *reader_take(struct reader *reader, size_t length)
{
    static const uint8_t zeros[DIGEST_LENGTH + WEIR_REMOTE_LENGTH];
    if (reader->failed || (size_t)(reader->end - reader->at) < length) {
        reader->failed = true;
        return length <= sizeof(zeros) ? zeros : NULL;
    }
    const uint8_t *bytes = reader->at;
    reader->at += length;
    return bytes;
}

static uint64_t reader_number(struct reader *reader, unsigned length)
{
    const uint8_t *bytes = reader_take(reader, length);
    uint64_t value = 0;
    for (unsigned i = 0; i < length; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static struct span reader_rest(struct reader *reader, size_t length)
{
    const uint8_t *bytes = reader_take(reader, length);
    return reader->failed ? (struct span){"", 0} : (struct span){bytes, length};
}

static struct span reader_span(struct reader *reader, size_t length_max)
{
    size_t length = reader_number(reader, 2);
    if (length > length_max) {
        reader->failed = true;
    }
    return reader_rest(reader, length);
}

/* A path for the system: no NUL in it. */
static struct span reader_path(struct reader *reader)
{
    struct span path = reader_span(reader, PATH_LENGTH_MAX);
    if (memchr(path.bytes, 0, path.length) != NULL) {
        reader->failed = true;
    }
    return path;
}

static bool reader_flag(struct reader *reader)
{
    uint64_t value = reader_number(reader, 1);
    if (value > 1) {
        reader->failed = true;
    }
    return value == 1;
}

static enum problem_code reader_code(struct reader *reader)
{
    uint64_t value = reader_number(reader, 1);
    if (value >= PROBLEM_CODE_COUNT) {
        reader->failed = true;
        return PROBLEM_NONE;
    }
    return (enum problem_code)value;
}

static void parse_hello(struct reader *reader, struct message *message)
{
    if (reader_number(reader, 4) != PROTOCOL_MAGIC) {
        reader->failed = true;
    }
    message->hello.version = reader_number(reader, 2);
    uint64_t direction = reader_number(reader, 1);
    if (direction != DIRECTION_PUSH && direction != DIRECTION_PULL) {
        reader->failed = true;
    }
    message->hello.direction = (enum direction)direction;
    message->hello.recursive = reader_flag(reader);
    message->hello.force = reader_flag(reader);
    message->hello.fsync = reader_flag(reader);
    message->hello.totals = reader_flag(reader);
    message->hello.preserve = reader_number(reader, 2);
    message->hello.sources = reader_number(reader, 2);
    if (message->hello.preserve > PRESERVE_EVERYTHING || message->hello.sources == 0 ||
        message->hello.sources > TRANSFER_SOURCES_MAX) {
        reader->failed = true;
    }
    message->hello.path = reader_path(reader);
}

static void parse_region(struct reader *reader, struct message *message)
{
    message->region.chunk_length = reader_number(reader, 4);
    message->region.chunk_count = reader_number(reader, 2);
    message->region.remote = weir_remote_unpack(reader_take(reader, WEIR_REMOTE_LENGTH));
    uint64_t length = (uint64_t)message->region.chunk_length * message->region.chunk_count;
    if (message->region.chunk_length == 0 || message->region.chunk_length > CHUNK_LENGTH_MAX ||
        message->region.chunk_count == 0 || message->region.chunk_count > CHUNK_COUNT_MAX ||
        message->region.remote.length < length) {
        reader->failed = true;
    }
}

static bool entry_is_sound(const struct message *message)
{
    if (message->entry.id == 0 || message->entry.mode > 07777 ||
        message->entry.mtime_ns >= 1000000000u || message->entry.size > INT64_MAX ||
        (message->entry.name.length > 0 &&
         !name_is_valid(message->entry.name.bytes, message->entry.name.length))) {
        return false;
    }
    switch (message->entry.kind) {
    case ENTRY_FILE:
        return !message->entry.eager || message->entry.size <= EAGER_LENGTH_MAX;
    case ENTRY_DIRECTORY:
        return !message->entry.eager && message->entry.size == 0;
    case ENTRY_SYMLINK:
        return !message->entry.eager && message->entry.size >= 1 &&
               message->entry.size <= PATH_LENGTH_MAX;
    case ENTRY_HARD_LINK:
        return !message->entry.eager && message->entry.first > 0 &&
               message->entry.first < message->entry.id;
    case ENTRY_FIFO:
    case ENTRY_SOCKET:
        return !message->entry.eager && message->entry.size == 0;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        return !message->entry.eager;
    }
    return false;
}

/* Eight bytes that mean something else for each kind. */
static void parse_number(struct message *message, uint64_t number)
{
    switch (message->entry.kind) {
    case ENTRY_HARD_LINK:
        message->entry.first = number <= UINT32_MAX ? (uint32_t)number : 0;
        return;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        message->entry.major = (uint32_t)(number >> 32);
        message->entry.minor = (uint32_t)number;
        return;
    default:
        message->entry.size = number;
    }
}

/* Of a user, group or attribute. */
static struct span reader_name(struct reader *reader)
{
    struct span name = reader_span(reader, NAME_LENGTH_MAX);
    if (memchr(name.bytes, 0, name.length) != NULL) {
        reader->failed = true;
    }
    return name;
}

static void parse_entry(struct reader *reader, struct message *message)
{
    message->entry.id = reader_number(reader, 4);
    message->entry.kind = (enum entry_kind)reader_number(reader, 1);
    message->entry.eager = reader_flag(reader);
    message->entry.source = reader_number(reader, 2);
    message->entry.mode = reader_number(reader, 2);
    message->entry.mtime_s = (int64_t)reader_number(reader, 8);
    message->entry.mtime_ns = reader_number(reader, 4);
    message->entry.uid = reader_number(reader, 4);
    message->entry.gid = reader_number(reader, 4);
    message->entry.names = reader_number(reader, 4);
    parse_number(message, reader_number(reader, 8));
    message->entry.name = reader_span(reader, NAME_LENGTH_MAX);
    message->entry.user = reader_name(reader);
    message->entry.group = reader_name(reader);
    if (reader->failed || !entry_is_sound(message)) {
        reader->failed = true;
        return;
    }
    message->entry.data = (struct span){"", 0};
    if (message->entry.eager) {
        memcpy(message->entry.digest, reader_take(reader, DIGEST_LENGTH), DIGEST_LENGTH);
    }
    if (message->entry.eager || message->entry.kind == ENTRY_SYMLINK) {
        message->entry.data = reader_rest(reader, message->entry.size);
    }
    if (message->entry.kind == ENTRY_SYMLINK &&
        memchr(message->entry.data.bytes, 0, message->entry.data.length) != NULL) {
        reader->failed = true;
    }
}

static void parse_problem(struct reader *reader, struct message *message)
{
    message->problem.id = reader_number(reader, 4);
    message->problem.code = reader_code(reader);
    message->problem.path = reader_path(reader);
    message->problem.text = reader_span(reader, TEXT_LENGTH_MAX);
    if (message->problem.code == PROBLEM_NONE) {
        reader->failed = true;
    }
}

static void parse_summary(struct reader *reader, struct message *message)
{
    message->summary.files = reader_number(reader, 8);
    message->summary.directories = reader_number(reader, 8);
    message->summary.symlinks = reader_number(reader, 8);
    message->summary.bytes = reader_number(reader, 8);
    message->summary.failed = reader_number(reader, 8);
}

static void parse_attribute(struct reader *reader, struct message *message)
{
    message->attribute.more = reader_flag(reader);
    message->attribute.name = reader_name(reader);
    size_t length = reader_number(reader, 4);
    if (message->attribute.name.length == 0 || length > EAGER_LENGTH_MAX) {
        reader->failed = true;
        return;
    }
    message->attribute.value = reader_rest(reader, length);
}

static void parse_body(struct reader *reader, struct message *message)
{
    switch (message->type) {
    case MESSAGE_HELLO:
        parse_hello(reader, message);
        return;
    case MESSAGE_SOURCE:
        message->source.path = reader_path(reader);
        return;
    case MESSAGE_WELCOME:
        message->welcome.version = reader_number(reader, 2);
        message->welcome.device = reader_span(reader, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_REFUSED:
        message->refused.code = reader_code(reader);
        message->refused.text = reader_span(reader, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_REGION:
        parse_region(reader, message);
        return;
    case MESSAGE_GRANT:
        message->grant.chunk = reader_number(reader, 2);
        return;
    case MESSAGE_ENTRY:
        parse_entry(reader, message);
        return;
    case MESSAGE_HOLE:
        message->hole.length = reader_number(reader, 8);
        return;
    case MESSAGE_END:
        message->end.code = reader_code(reader);
        memcpy(message->end.digest, reader_take(reader, DIGEST_LENGTH), DIGEST_LENGTH);
        message->end.path = reader_path(reader);
        message->end.text = reader_span(reader, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_LEAVE:
        return;
    case MESSAGE_SKIPPED:
    case MESSAGE_FAILED:
        parse_problem(reader, message);
        return;
    case MESSAGE_TOTALS:
    case MESSAGE_FINISHED:
        message->totals.files = reader_number(reader, 8);
        message->totals.bytes = reader_number(reader, 8);
        return;
    case MESSAGE_SUMMARY:
        parse_summary(reader, message);
        return;
    case MESSAGE_ATTRIBUTE:
        parse_attribute(reader, message);
        return;
    }
    reader->failed = true;
}

bool protocol_parse(const void *bytes, size_t length, struct message *ret_message)
{
    struct reader reader = {.at = bytes, .end = (const uint8_t *)bytes + length};
    struct message message;
    memset(&message, 0, sizeof(message));
    message.type = (enum message_type)reader_number(&reader, 1);
    parse_body(&reader, &message);
    if (reader.failed || reader.at != reader.end) {
        return false;
    }
    *ret_message = message;
    return true;
}

static void put_number(uint8_t **at, unsigned length, uint64_t value)
{
    for (unsigned i = 0; i < length; i++) {
        (*at)[i] = (uint8_t)(value >> 8 * (length - 1 - i));
    }
    *at += length;
}

static void put_bytes(uint8_t **at, const void *bytes, size_t length)
{
    if (length > 0) {
        memcpy(*at, bytes, length);
        *at += length;
    }
}

static void put_span(uint8_t **at, struct span span, size_t length_max)
{
    size_t length = span.length < length_max ? span.length : length_max;
    put_number(at, 2, length);
    put_bytes(at, span.bytes, length);
}

static void pack_hello(uint8_t **at, const struct message *message)
{
    put_number(at, 4, PROTOCOL_MAGIC);
    put_number(at, 2, message->hello.version);
    put_number(at, 1, message->hello.direction);
    put_number(at, 1, message->hello.recursive);
    put_number(at, 1, message->hello.force);
    put_number(at, 1, message->hello.fsync);
    put_number(at, 1, message->hello.totals);
    put_number(at, 2, message->hello.preserve);
    put_number(at, 2, message->hello.sources);
    put_span(at, message->hello.path, PATH_LENGTH_MAX);
}

static void pack_region(uint8_t **at, const struct message *message)
{
    put_number(at, 4, message->region.chunk_length);
    put_number(at, 2, message->region.chunk_count);
    weir_remote_pack(&message->region.remote, *at);
    *at += WEIR_REMOTE_LENGTH;
}

static uint64_t number_of(const struct message *message)
{
    switch (message->entry.kind) {
    case ENTRY_HARD_LINK:
        return message->entry.first;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        return (uint64_t)message->entry.major << 32 | message->entry.minor;
    default:
        return message->entry.size;
    }
}

static void pack_entry(uint8_t **at, const struct message *message)
{
    put_number(at, 4, message->entry.id);
    put_number(at, 1, message->entry.kind);
    put_number(at, 1, message->entry.eager);
    put_number(at, 2, message->entry.source);
    put_number(at, 2, message->entry.mode);
    put_number(at, 8, (uint64_t)message->entry.mtime_s);
    put_number(at, 4, message->entry.mtime_ns);
    put_number(at, 4, message->entry.uid);
    put_number(at, 4, message->entry.gid);
    put_number(at, 4, message->entry.names);
    put_number(at, 8, number_of(message));
    put_span(at, message->entry.name, NAME_LENGTH_MAX);
    put_span(at, message->entry.user, NAME_LENGTH_MAX);
    put_span(at, message->entry.group, NAME_LENGTH_MAX);
    if (message->entry.eager) {
        put_bytes(at, message->entry.digest, DIGEST_LENGTH);
    }
}

static void pack_end(uint8_t **at, const struct message *message)
{
    put_number(at, 1, message->end.code);
    put_bytes(at, message->end.digest, DIGEST_LENGTH);
    put_span(at, message->end.path, PATH_LENGTH_MAX);
    put_span(at, message->end.text, TEXT_LENGTH_MAX);
}

static void pack_problem(uint8_t **at, const struct message *message)
{
    put_number(at, 4, message->problem.id);
    put_number(at, 1, message->problem.code);
    put_span(at, message->problem.path, PATH_LENGTH_MAX);
    put_span(at, message->problem.text, TEXT_LENGTH_MAX);
}

static void pack_summary(uint8_t **at, const struct message *message)
{
    put_number(at, 8, message->summary.files);
    put_number(at, 8, message->summary.directories);
    put_number(at, 8, message->summary.symlinks);
    put_number(at, 8, message->summary.bytes);
    put_number(at, 8, message->summary.failed);
}

static void pack_body(uint8_t **at, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_HELLO:
        pack_hello(at, message);
        return;
    case MESSAGE_SOURCE:
        put_span(at, message->source.path, PATH_LENGTH_MAX);
        return;
    case MESSAGE_WELCOME:
        put_number(at, 2, message->welcome.version);
        put_span(at, message->welcome.device, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_REFUSED:
        put_number(at, 1, message->refused.code);
        put_span(at, message->refused.text, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_REGION:
        pack_region(at, message);
        return;
    case MESSAGE_GRANT:
        put_number(at, 2, message->grant.chunk);
        return;
    case MESSAGE_ENTRY:
        pack_entry(at, message);
        return;
    case MESSAGE_HOLE:
        put_number(at, 8, message->hole.length);
        return;
    case MESSAGE_END:
        pack_end(at, message);
        return;
    case MESSAGE_LEAVE:
        return;
    case MESSAGE_SKIPPED:
    case MESSAGE_FAILED:
        pack_problem(at, message);
        return;
    case MESSAGE_TOTALS:
    case MESSAGE_FINISHED:
        put_number(at, 8, message->totals.files);
        put_number(at, 8, message->totals.bytes);
        return;
    case MESSAGE_SUMMARY:
        pack_summary(at, message);
        return;
    case MESSAGE_ATTRIBUTE:
        put_number(at, 1, message->attribute.more);
        put_span(at, message->attribute.name, NAME_LENGTH_MAX);
        put_number(at, 4, message->attribute.value.length);
        return;
    }
}

size_t protocol_pack(const struct message *message, uint8_t ret_head[MESSAGE_HEAD_MAX])
{
    uint8_t *at = ret_head;
    put_number(&at, 1, message->type);
    pack_body(&at, message);
    return (size_t)(at - ret_head);
}

bool name_is_valid(const void *name, size_t length)
{
    if (length == 0 || length > NAME_LENGTH_MAX || memchr(name, '/', length) != NULL ||
        memchr(name, 0, length) != NULL) {
        return false;
    }
    return !(length == 1 && memcmp(name, ".", 1) == 0) &&
           !(length == 2 && memcmp(name, "..", 2) == 0);
}

uint32_t notice_pack(uint16_t chunk, uint16_t sequence)
{
    return (uint32_t)sequence << 16 | chunk;
}

uint16_t notice_chunk(uint32_t notice)
{
    return (uint16_t)notice;
}

uint16_t notice_sequence(uint32_t notice)
{
    return (uint16_t)(notice >> 16);
}

static const char *const code_names[PROBLEM_CODE_COUNT] = {
    [PROBLEM_NONE] = "none",
    [PROBLEM_WARNING] = "warning",
    [PROBLEM_NOT_FOUND] = "not-found",
    [PROBLEM_EXISTS] = "exists",
    [PROBLEM_DENIED] = "denied",
    [PROBLEM_READ_ONLY] = "read-only",
    [PROBLEM_NO_SPACE] = "no-space",
    [PROBLEM_CONFINED] = "confined",
    [PROBLEM_WRONG_KIND] = "wrong-kind",
    [PROBLEM_NAME] = "name",
    [PROBLEM_CHANGED] = "changed",
    [PROBLEM_VANISHED] = "vanished",
    [PROBLEM_DIGEST] = "digest",
    [PROBLEM_INPUT_OUTPUT] = "input-output",
    [PROBLEM_BUSY] = "busy",
    [PROBLEM_PROTOCOL] = "protocol",
};

const char *problem_code_name(enum problem_code code)
{
    return (unsigned)code < PROBLEM_CODE_COUNT ? code_names[code] : "unknown";
}

static const struct {
    int error;
    enum problem_code code;
} code_of_errno[] = {
    {ENOENT, PROBLEM_NOT_FOUND},   {EEXIST, PROBLEM_EXISTS},
    {EACCES, PROBLEM_DENIED},      {EPERM, PROBLEM_DENIED},
    {EROFS, PROBLEM_READ_ONLY},    {ENOSPC, PROBLEM_NO_SPACE},
    {EDQUOT, PROBLEM_NO_SPACE},    {EXDEV, PROBLEM_CONFINED},
    {ELOOP, PROBLEM_CONFINED},     {EISDIR, PROBLEM_WRONG_KIND},
    {ENOTDIR, PROBLEM_WRONG_KIND}, {ENAMETOOLONG, PROBLEM_NAME},
    {EILSEQ, PROBLEM_NAME},        {ESTALE, PROBLEM_CHANGED},
    {EFBIG, PROBLEM_NO_SPACE},     {EMEDIUMTYPE, PROBLEM_WRONG_KIND},
};

enum problem_code problem_code_of_errno(int error)
{
    for (size_t i = 0; i < sizeof(code_of_errno) / sizeof(code_of_errno[0]); i++) {
        if (code_of_errno[i].error == error) {
            return code_of_errno[i].code;
        }
    }
    return PROBLEM_INPUT_OUTPUT;
}
