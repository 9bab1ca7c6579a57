#include <errno.h>
#include <string.h>

#include "tools/transfer/wire/protocol.h"

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
    if (message->hello.version != PROTOCOL_VERSION) {
        return;
    }
    put_number(at, 1, message->hello.direction);
    put_number(at, 4, message->hello.wishes.bits);
    put_number(at, 2, message->hello.wishes.preserve);
    put_number(at, 4, message->hello.wishes.window_s);
    put_number(at, 8, message->hello.wishes.rate);
    put_number(at, 4, message->hello.wishes.deletions_max);
    put_number(at, 8, message->hello.wishes.size_min);
    put_number(at, 8, message->hello.wishes.size_max);
    put_number(at, 2, message->hello.sources);
    put_number(at, 2, message->hello.rules);
    put_number(at, 4, message->hello.listed);
    put_bytes(at, message->hello.copy, COPY_ID_LENGTH);
    put_number(at, 1, message->hello.target);
    put_number(at, 4, message->hello.before);
    put_span(at, message->hello.path, PATH_LENGTH_MAX);
    put_span(at, message->hello.named, NAME_LENGTH_MAX);
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
        return (uint64_t)message->entry.of << 32 | message->entry.first;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        return (uint64_t)message->entry.major << 32 | message->entry.minor;
    case ENTRY_DIRECTORY:
        return message->entry.identity;
    default:
        return message->entry.size;
    }
}

static void pack_entry(uint8_t **at, const struct message *message)
{
    put_number(at, 4, message->entry.id);
    put_number(at, 1, message->entry.kind);
    put_number(at, 1, message->entry.content);
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
    if (message->entry.content == CONTENT_EAGER) {
        put_bytes(at, message->entry.digest, DIGEST_LENGTH);
    }
}

static void pack_end(uint8_t **at, const struct message *message)
{
    put_number(at, 1, message->end.code);
    put_number(at, 1, message->end.again);
    put_bytes(at, message->end.digest, DIGEST_LENGTH);
    put_span(at, message->end.path, PATH_LENGTH_MAX);
    put_span(at, message->end.text, TEXT_LENGTH_MAX);
}

static void pack_item(uint8_t **at, const struct message *message)
{
    put_number(at, 1, message->item.kind);
    put_number(at, 4, message->item.changes);
    put_number(at, 8, message->item.size);
    put_span(at, message->item.path, PATH_LENGTH_MAX);
}

static void pack_attribute(uint8_t **at, const struct message *message)
{
    put_number(at, 1, message->attribute.more);
    put_span(at, message->attribute.name, NAME_LENGTH_MAX);
    put_number(at, 4, message->attribute.value.length);
}

/* HOLE, PROVEN, PROVEN_ALL, KEEP or READ_BACK. */
static void pack_piece(uint8_t **at, const struct message *message)
{
    if (message->type == MESSAGE_HOLE) {
        put_number(at, 8, message->hole.length);
        return;
    }
    if (message->type == MESSAGE_READ_BACK) {
        put_number(at, 4, message->read_back.id);
        return;
    }
    if (message->type == MESSAGE_KEEP) {
        put_number(at, 8, message->keep.length);
        return;
    }
    if (message->type == MESSAGE_RETRANSMITTED) {
        put_number(at, 8, message->retransmitted.count);
        return;
    }
    put_number(at, 4, message->proven.id);
    if (message->type == MESSAGE_PROVEN) {
        put_number(at, 8, message->proven.offset);
        put_number(at, 8, message->proven.length);
        put_bytes(at, message->proven.digest, DIGEST_LENGTH);
    }
}

static void pack_problem(uint8_t **at, const struct message *message)
{
    put_number(at, 4, message->problem.id);
    put_number(at, 1, message->problem.code);
    put_span(at, message->problem.path, PATH_LENGTH_MAX);
    put_span(at, message->problem.text, TEXT_LENGTH_MAX);
}

static void pack_finished(uint8_t **at, const struct message *message)
{
    put_number(at, 8, message->finished.entries);
    put_number(at, 2, message->finished.sources);
}

static void pack_summary(uint8_t **at, const struct message *message)
{
    put_number(at, 8, message->summary.files);
    put_number(at, 8, message->summary.directories);
    put_number(at, 8, message->summary.symlinks);
    put_number(at, 8, message->summary.bytes);
    put_number(at, 8, message->summary.failed);
    put_number(at, 8, message->summary.same);
    put_number(at, 8, message->summary.left);
    put_number(at, 8, message->summary.deleted);
    put_number(at, 8, message->summary.kept);
    put_number(at, 8, message->summary.held_back);
    put_number(at, 8, message->summary.again_files);
    put_number(at, 8, message->summary.again_symlinks);
    put_number(at, 8, message->summary.again_bytes);
    put_number(at, 8, message->summary.untouched_symlinks);
    put_number(at, 8, message->summary.specials);
    put_number(at, 8, message->summary.untouched_specials);
    put_number(at, 1, message->summary.undeleted);
}

static void pack_handshake(uint8_t **at, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_HELLO:
        pack_hello(at, message);
        return;
    case MESSAGE_SOURCE:
        put_span(at, message->source.path, PATH_LENGTH_MAX);
        return;
    case MESSAGE_LISTED:
        put_span(at, message->listed.path, PATH_LENGTH_MAX);
        return;
    case MESSAGE_WELCOME:
        put_number(at, 2, message->welcome.version);
        put_number(at, 1, message->welcome.target);
        put_span(at, message->welcome.device, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_REFUSED:
        put_number(at, 1, message->refused.code);
        put_span(at, message->refused.text, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_RULE:
        put_number(at, 2, message->rule.bits);
        put_span(at, message->rule.pattern, PATH_LENGTH_MAX);
        return;
    case MESSAGE_REGION:
        pack_region(at, message);
        return;
    case MESSAGE_GRANT:
        put_number(at, 2, message->grant.chunk);
        return;
    default:
        return;
    }
}

static void pack_body(uint8_t **at, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_HELLO:
    case MESSAGE_SOURCE:
    case MESSAGE_LISTED:
    case MESSAGE_RULE:
    case MESSAGE_WELCOME:
    case MESSAGE_REFUSED:
    case MESSAGE_REGION:
    case MESSAGE_GRANT:
        pack_handshake(at, message);
        return;
    case MESSAGE_ENTRY:
        pack_entry(at, message);
        return;
    case MESSAGE_END:
        pack_end(at, message);
        return;
    case MESSAGE_LEAVE:
    case MESSAGE_ALIVE:
        return;
    case MESSAGE_HOLE:
    case MESSAGE_PROVEN:
    case MESSAGE_PROVEN_ALL:
    case MESSAGE_KEEP:
    case MESSAGE_READ_BACK:
    case MESSAGE_RETRANSMITTED:
        pack_piece(at, message);
        return;
    case MESSAGE_SKIPPED:
    case MESSAGE_FAILED:
    case MESSAGE_WARNED:
        pack_problem(at, message);
        return;
    case MESSAGE_TOTALS:
        put_number(at, 8, message->totals.files);
        put_number(at, 8, message->totals.bytes);
        return;
    case MESSAGE_FINISHED:
        pack_finished(at, message);
        return;
    case MESSAGE_SUMMARY:
        pack_summary(at, message);
        return;
    case MESSAGE_ATTRIBUTE:
        pack_attribute(at, message);
        return;
    case MESSAGE_ASK:
        put_number(at, 2, message->ask.names);
        return;
    case MESSAGE_ANSWERS:
        put_number(at, 2, message->answers.count);
        return;
    case MESSAGE_ITEM:
        pack_item(at, message);
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

size_t protocol_pack_question(const struct question *question,
                              uint8_t ret_bytes[QUESTION_LENGTH_MAX])
{
    uint8_t *at = ret_bytes;
    put_number(&at, 1, question->is_directory);
    if (question->is_directory) {
        put_number(&at, 2, question->source);
        put_number(&at, 1, question->top);
        put_span(&at, question->path, PATH_LENGTH_MAX);
    }
    put_span(&at, question->name, NAME_LENGTH_MAX);
    if (!question->is_directory) {
        put_number(&at, 1, question->names_directory);
        put_number(&at, 8, question->size);
        put_number(&at, 8, (uint64_t)question->mtime_s);
        put_number(&at, 4, question->mtime_ns);
    }
    return (size_t)(at - ret_bytes);
}

size_t protocol_pack_answer(enum answer answer, const uint8_t digest[DIGEST_LENGTH],
                            uint8_t ret_bytes[ANSWER_LENGTH_MAX])
{
    uint8_t *at = ret_bytes;
    put_number(&at, 1, answer);
    if (answer == ANSWER_DIGEST) {
        put_bytes(&at, digest, DIGEST_LENGTH);
    }
    return (size_t)(at - ret_bytes);
}

struct span protocol_data(const struct message *message)
{
    switch (message->type) {
    case MESSAGE_ENTRY:
        return message->entry.data;
    case MESSAGE_ATTRIBUTE:
        return message->attribute.value;
    case MESSAGE_ASK:
        return message->ask.questions;
    case MESSAGE_ANSWERS:
        return message->answers.answers;
    default:
        return (struct span){NULL, 0};
    }
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
    {ENOENT, PROBLEM_NOT_FOUND},  {EEXIST, PROBLEM_EXISTS},          {EACCES, PROBLEM_DENIED},
    {EPERM, PROBLEM_DENIED},      {EROFS, PROBLEM_READ_ONLY},        {ENOSPC, PROBLEM_NO_SPACE},
    {EDQUOT, PROBLEM_NO_SPACE},   {EXDEV, PROBLEM_CONFINED},         {ELOOP, PROBLEM_CONFINED},
    {EISDIR, PROBLEM_WRONG_KIND}, {ENOTDIR, PROBLEM_WRONG_KIND},     {ENAMETOOLONG, PROBLEM_NAME},
    {EILSEQ, PROBLEM_NAME},       {ESTALE, PROBLEM_CHANGED},         {EPROTO, PROBLEM_DIGEST},
    {EBADMSG, PROBLEM_DIGEST},

    {EFBIG, PROBLEM_NO_SPACE},    {EMEDIUMTYPE, PROBLEM_WRONG_KIND},
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
