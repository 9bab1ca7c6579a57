#include "tools/transfer/wire/protocol.h"

#include <errno.h>
#include <string.h>

#include "tools/transfer/wire/listing.h"

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

static struct span reader_name(struct reader *reader)
{
    struct span name = reader_span(reader, NAME_LENGTH_MAX);
    if (memchr(name.bytes, 0, name.length) != NULL) {
        reader->failed = true;
    }
    return name;
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

static enum target_is reader_target(struct reader *reader)
{
    uint64_t value = reader_number(reader, 1);
    if (value >= TARGET_IS_COUNT) {
        reader->failed = true;
        return TARGET_UNKNOWN;
    }
    return (enum target_is)value;
}

static void parse_hello(struct reader *reader, struct message *message)
{
    if (reader_number(reader, 4) != PROTOCOL_MAGIC) {
        reader->failed = true;
    }
    message->hello.version = reader_number(reader, 2);
    if (message->hello.version != PROTOCOL_VERSION) { /* it may say other things, in other places */
        reader->at = reader->end;
        return;
    }
    uint64_t direction = reader_number(reader, 1);
    if (direction != DIRECTION_PUSH && direction != DIRECTION_PULL) {
        reader->failed = true;
    }
    message->hello.direction = (enum direction)direction;
    struct wishes *wishes = &message->hello.wishes;
    wishes->bits = reader_number(reader, 4);
    wishes->preserve = reader_number(reader, 2);
    wishes->window_s = reader_number(reader, 4);
    wishes->rate = reader_number(reader, 8);
    wishes->deletions_max = reader_number(reader, 4);
    wishes->size_min = reader_number(reader, 8);
    wishes->size_max = reader_number(reader, 8);
    message->hello.sources = reader_number(reader, 2);
    message->hello.rules = reader_number(reader, 2);
    message->hello.listed = reader_number(reader, 4);
    if (wishes->bits > WISH_EVERYTHING || wishes->preserve > PRESERVE_EVERYTHING ||
        message->hello.sources == 0 || message->hello.sources > TRANSFER_SOURCES_MAX ||
        message->hello.listed > LISTED_MAX) {
        reader->failed = true;
    }
    memcpy(message->hello.copy, reader_take(reader, COPY_ID_LENGTH), COPY_ID_LENGTH);
    message->hello.target = reader_target(reader);
    message->hello.before = reader_number(reader, 4);
    message->hello.path = reader_path(reader);
    message->hello.named = reader_name(reader);
    const struct span *named = &message->hello.named;
    reader->failed |= named->length > 0 && !name_is_valid(named->bytes, named->length);
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

static bool is_kind(uint64_t number)
{
    return number >= ENTRY_FILE && number <= ENTRY_BLOCK_DEVICE;
}

static bool entry_is_sound(const struct message *message)
{
    if (message->entry.id == 0 || message->entry.mode > 07777 ||
        message->entry.mtime_ns >= 1000000000u || message->entry.size > INT64_MAX ||
        (message->entry.name.length > 0 &&
         !name_is_valid(message->entry.name.bytes, message->entry.name.length))) {
        return false;
    }
    if (message->entry.kind != ENTRY_FILE && message->entry.content != CONTENT_CHUNKS) {
        return false;
    }
    switch (message->entry.kind) {
    case ENTRY_FILE:
        return message->entry.content < CONTENT_COUNT &&
               (message->entry.content != CONTENT_EAGER || message->entry.size <= EAGER_LENGTH_MAX);
    case ENTRY_SYMLINK:
        return message->entry.size >= 1 && message->entry.size <= PATH_LENGTH_MAX;
    case ENTRY_HARD_LINK:
        return message->entry.first > 0 && message->entry.first < message->entry.id &&
               is_kind(message->entry.of) && message->entry.of != ENTRY_DIRECTORY &&
               message->entry.of != ENTRY_HARD_LINK;
    case ENTRY_DIRECTORY:
    case ENTRY_FIFO:
    case ENTRY_SOCKET:
        return message->entry.size == 0;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        return true;
    }
    return false;
}

/* Eight bytes that mean something else for each kind. */
static void parse_number(struct message *message, uint64_t number)
{
    switch (message->entry.kind) {
    case ENTRY_HARD_LINK:
        message->entry.of = (enum entry_kind)(number >> 32);
        message->entry.first = (uint32_t)number;
        return;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        message->entry.major = (uint32_t)(number >> 32);
        message->entry.minor = (uint32_t)number;
        return;
    case ENTRY_DIRECTORY:
        message->entry.identity = number;
        return;
    default:
        message->entry.size = number;
    }
}

/* Of a user, group or attribute. */
static void parse_entry(struct reader *reader, struct message *message)
{
    message->entry.id = reader_number(reader, 4);
    message->entry.kind = (enum entry_kind)reader_number(reader, 1);
    message->entry.content = (enum content)reader_number(reader, 1);
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
    bool eager = message->entry.content == CONTENT_EAGER;
    if (eager) {
        memcpy(message->entry.digest, reader_take(reader, DIGEST_LENGTH), DIGEST_LENGTH);
    }
    if (eager || message->entry.kind == ENTRY_SYMLINK) {
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

static void parse_finished(struct reader *reader, struct message *message)
{
    message->finished.entries = reader_number(reader, 8);
    message->finished.sources = reader_number(reader, 2);
}

static void parse_totals(struct reader *reader, struct message *message)
{
    message->totals.files = reader_number(reader, 8);
    message->totals.bytes = reader_number(reader, 8);
}

static void parse_summary(struct reader *reader, struct message *message)
{
    message->summary.files = reader_number(reader, 8);
    message->summary.directories = reader_number(reader, 8);
    message->summary.symlinks = reader_number(reader, 8);
    message->summary.bytes = reader_number(reader, 8);
    message->summary.failed = reader_number(reader, 8);
    message->summary.same = reader_number(reader, 8);
    message->summary.left = reader_number(reader, 8);
    message->summary.deleted = reader_number(reader, 8);
    message->summary.kept = reader_number(reader, 8);
    message->summary.held_back = reader_number(reader, 8);
    message->summary.again_files = reader_number(reader, 8);
    message->summary.again_symlinks = reader_number(reader, 8);
    message->summary.again_bytes = reader_number(reader, 8);
    message->summary.untouched_symlinks = reader_number(reader, 8);
    message->summary.specials = reader_number(reader, 8);
    message->summary.untouched_specials = reader_number(reader, 8);
    message->summary.undeleted = reader_flag(reader);
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

static void parse_end(struct reader *reader, struct message *message)
{
    message->end.code = reader_code(reader);
    message->end.again = reader_flag(reader);
    memcpy(message->end.digest, reader_take(reader, DIGEST_LENGTH), DIGEST_LENGTH);
    message->end.path = reader_path(reader);
    message->end.text = reader_span(reader, TEXT_LENGTH_MAX);
    if (message->end.again && message->end.code == PROBLEM_NONE) {
        reader->failed = true;
    }
}

/* HOLE, PROVEN, PROVEN_ALL, KEEP or READ_BACK. */
static void parse_piece(struct reader *reader, struct message *message)
{
    if (message->type == MESSAGE_HOLE) {
        message->hole.length = reader_number(reader, 8);
        return;
    }
    if (message->type == MESSAGE_READ_BACK) {
        message->read_back.id = reader_number(reader, 4);
        return;
    }
    if (message->type == MESSAGE_KEEP) {
        message->keep.length = reader_number(reader, 8);
        return;
    }
    if (message->type == MESSAGE_RETRANSMITTED) {
        message->retransmitted.count = reader_number(reader, 8);
        return;
    }
    message->proven.id = reader_number(reader, 4);
    if (message->type == MESSAGE_PROVEN_ALL) {
        return;
    }
    message->proven.offset = reader_number(reader, 8);
    message->proven.length = reader_number(reader, 8);
    memcpy(message->proven.digest, reader_take(reader, DIGEST_LENGTH), DIGEST_LENGTH);
    if (message->proven.length == 0 || message->proven.length > INT64_MAX ||
        message->proven.offset > INT64_MAX - message->proven.length) {
        reader->failed = true;
    }
}

static struct question read_question(struct reader *reader)
{
    struct question question = {.is_directory = reader_flag(reader)};
    if (question.is_directory) {
        question.source = reader_number(reader, 2);
        question.top = reader_flag(reader);
        question.path = reader_path(reader);
    }
    question.name = reader_span(reader, NAME_LENGTH_MAX);
    if (!question.is_directory) {
        question.names_directory = reader_flag(reader);
        question.size = reader_number(reader, 8);
        question.mtime_s = (int64_t)reader_number(reader, 8);
        question.mtime_ns = reader_number(reader, 4);
    }
    bool named = question.name.length > 0;
    if ((named && !name_is_valid(question.name.bytes, question.name.length)) ||
        (!named && !question.is_directory) || question.size > INT64_MAX ||
        question.mtime_ns >= 1000000000u) {
        reader->failed = true;
    }
    return question;
}

static enum answer read_answer(struct reader *reader, uint8_t ret_digest[DIGEST_LENGTH])
{
    uint64_t answer = reader_number(reader, 1);
    if (answer >= ANSWER_COUNT) {
        reader->failed = true;
        return ANSWER_WANTED;
    }
    if (answer == ANSWER_DIGEST) {
        memcpy(ret_digest, reader_take(reader, DIGEST_LENGTH), DIGEST_LENGTH);
    }
    return (enum answer)answer;
}

static void parse_ask(struct reader *reader, struct message *message)
{
    message->ask.names = reader_number(reader, 2);
    size_t length = (size_t)(reader->end - reader->at), names = 0;
    message->ask.questions = (struct span){reader->at, length};
    bool first = true;
    while (!reader->failed && reader->at < reader->end) {
        struct question question = read_question(reader);
        reader->failed |= first && !question.is_directory;
        names += !question.is_directory;
        first = false;
    }
    if (length > ASK_LENGTH_MAX || names == 0 || names > ASK_NAMES_MAX ||
        names != message->ask.names) {
        reader->failed = true;
    }
}

static void parse_answers(struct reader *reader, struct message *message)
{
    uint8_t digest[DIGEST_LENGTH];
    size_t count = 0;
    message->answers.count = reader_number(reader, 2);
    message->answers.answers = (struct span){reader->at, (size_t)(reader->end - reader->at)};
    while (!reader->failed && reader->at < reader->end) {
        read_answer(reader, digest);
        count++;
    }
    if (count == 0 || count > ASK_NAMES_MAX || count != message->answers.count) {
        reader->failed = true;
    }
}

static void parse_item(struct reader *reader, struct message *message)
{
    uint64_t kind = reader_number(reader, 1);
    message->item.kind = (enum entry_kind)kind;
    message->item.changes = reader_number(reader, 4);
    message->item.size = reader_number(reader, 8);
    message->item.path = reader_path(reader);
    if (!is_kind(kind) || message->item.changes > CHANGE_EVERYTHING) {
        reader->failed = true;
    }
}

static struct reader reader_of(struct span span)
{
    return (struct reader){.at = span.bytes, .end = (const uint8_t *)span.bytes + span.length};
}

static struct span rest_of(const struct reader *reader)
{
    return (struct span){reader->at, (size_t)(reader->end - reader->at)};
}

void protocol_next_question(struct span *questions, struct question *ret_question)
{
    struct reader reader = reader_of(*questions);
    *ret_question = read_question(&reader);
    *questions = rest_of(&reader);
}

enum answer protocol_next_answer(struct span *answers, uint8_t ret_digest[DIGEST_LENGTH])
{
    struct reader reader = reader_of(*answers);
    enum answer answer = read_answer(&reader, ret_digest);
    *answers = rest_of(&reader);
    return answer;
}

bool protocol_is_rule(unsigned bits, struct span pattern)
{
    const unsigned of_files = RULE_ALONE | RULE_PATTERNS | RULE_ZEROS;
    const char *name = pattern.bytes;
    size_t slash = pattern.length > 0 && name[0] == '/';
    if (bits > RULE_EVERYTHING) {
        return false;
    }
    if ((bits & RULE_MERGES) == 0) {
        return (bits & of_files) == 0;
    }
    return ((bits & RULE_INCLUDE) == 0 || (bits & RULE_PATTERNS) != 0) && pattern.length > 0 &&
           name_is_valid(name + slash, pattern.length - slash);
}

static void parse_handshake(struct reader *reader, struct message *message)
{
    switch (message->type) {
    case MESSAGE_HELLO:
        parse_hello(reader, message);
        return;
    case MESSAGE_SOURCE:
        message->source.path = reader_path(reader);
        return;
    case MESSAGE_LISTED:
        message->listed.path = reader_path(reader);
        reader->failed |= !listing_is_path(message->listed.path);
        return;
    case MESSAGE_WELCOME:
        message->welcome.version = reader_number(reader, 2);
        message->welcome.target = reader_target(reader);
        message->welcome.device = reader_span(reader, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_REFUSED:
        message->refused.code = reader_code(reader);
        message->refused.text = reader_span(reader, TEXT_LENGTH_MAX);
        return;
    case MESSAGE_RULE:
        message->rule.bits = reader_number(reader, 2);
        message->rule.pattern = reader_path(reader);
        reader->failed |= !protocol_is_rule(message->rule.bits, message->rule.pattern);
        return;
    case MESSAGE_REGION:
        parse_region(reader, message);
        return;
    case MESSAGE_GRANT:
        message->grant.chunk = reader_number(reader, 2);
        return;
    default:
        return;
    }
}

static void parse_body(struct reader *reader, struct message *message)
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
        parse_handshake(reader, message);
        return;
    case MESSAGE_ENTRY:
        parse_entry(reader, message);
        return;
    case MESSAGE_END:
        parse_end(reader, message);
        return;
    case MESSAGE_HOLE:
    case MESSAGE_PROVEN:
    case MESSAGE_PROVEN_ALL:
    case MESSAGE_KEEP:
    case MESSAGE_READ_BACK:
    case MESSAGE_RETRANSMITTED:
        parse_piece(reader, message);
        return;
    case MESSAGE_LEAVE:
    case MESSAGE_ALIVE:
        return;
    case MESSAGE_SKIPPED:
    case MESSAGE_FAILED:
    case MESSAGE_WARNED:
        parse_problem(reader, message);
        return;
    case MESSAGE_TOTALS:
        parse_totals(reader, message);
        return;
    case MESSAGE_FINISHED:
        parse_finished(reader, message);
        return;
    case MESSAGE_SUMMARY:
        parse_summary(reader, message);
        return;
    case MESSAGE_ATTRIBUTE:
        parse_attribute(reader, message);
        return;
    case MESSAGE_ASK:
        parse_ask(reader, message);
        return;
    case MESSAGE_ANSWERS:
        parse_answers(reader, message);
        return;
    case MESSAGE_ITEM:
        parse_item(reader, message);
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

bool name_is_valid(const void *name, size_t length)
{
    if (length == 0 || length > NAME_LENGTH_MAX || memchr(name, '/', length) != NULL ||
        memchr(name, 0, length) != NULL) {
        return false;
    }
    return !(length == 1 && memcmp(name, ".", 1) == 0) &&
           !(length == 2 && memcmp(name, "..", 2) == 0);
}

bool protocol_is_identity(uint64_t *identities, unsigned source, uint64_t identity)
{
    if (identities == NULL) {
        return true;
    }
    if (identities[source] == 0) {
        identities[source] = identity;
    }
    return identities[source] == identity;
}
