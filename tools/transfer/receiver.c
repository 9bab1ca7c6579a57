#include "tools/transfer/receiver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/digest.h"
#include "tools/transfer/place.h"
#include "tools/transfer/tree.h"

/* Answers a peer may leave lying before it is taken for dead or hostile. */
#define ANSWERS_MAX 4096

/* Chunks are not granted again while the peer leaves more than so many answers lying. */
#define GRANT_BACKLOG_MAX 64
/* Bytes taken out of a chunk at a time: few enough to stay in the processor's cache. */
#define PRIVATE_LENGTH (128u << 10)

enum receiver_state {
    RECEIVER_ENTRIES,
    RECEIVER_FILE, /* one that goes by chunks */
    RECEIVER_DONE,
};

struct current_file {
    uint32_t id;
    uint64_t size, position;
    bool discarded; /* it cannot be placed; its bytes still come for a while */
    struct place_attributes attributes;
    struct place place;
};

struct receiver {
    struct receiver_options options;
    enum receiver_state state;
    uint32_t last_id;
    int last_source; /* -1: none yet */
    unsigned sources_seen;
    struct tree tree;
    uint64_t dead_depth; /* directories below one that could not be made */
    struct current_file file;
    struct digest *digest;
    uint8_t *memory;
    uint16_t sequence;
    bool is_granted[RECEIVER_CHUNK_COUNT]; /* the peer may put into it; else it is free to grant */
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t private[PRIVATE_LENGTH];
};

struct receiver *receiver_create(const struct receiver_options *options)
{
    struct receiver *receiver = calloc(1, sizeof(*receiver));
    if (receiver == NULL) {
        return NULL;
    }
    receiver->options = *options;
    receiver->last_source = -1;
    receiver->file.place.fd = -1;
    receiver->digest = digest_create();
    if (receiver->digest == NULL) {
        free(receiver);
        return NULL;
    }
    tree_init(&receiver->tree, options->target->directory, options->target->display);
    place_sweep(options->target->directory);
    return receiver;
}

void receiver_destroy(struct receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    place_abandon(&receiver->file.place);
    tree_fini(&receiver->tree);
    digest_destroy(receiver->digest);
    free(receiver);
}

bool receiver_is_done(const struct receiver *receiver)
{
    return receiver->state == RECEIVER_DONE;
}

bool receiver_is_in_file(const struct receiver *receiver)
{
    return receiver->state == RECEIVER_FILE && !receiver->file.discarded;
}

static void send_message(struct receiver *receiver, const struct message *message)
{
    const struct weir_piece piece = {receiver->head, protocol_pack(message, receiver->head)};
    struct link *link = receiver->options.link;
    link->operations->send(link, &piece, 1);
}

bool receiver_start(struct receiver *receiver, struct weir_error *ret_error)
{
    struct link *link = receiver->options.link;
    struct message message = {.type = MESSAGE_REGION};
    receiver->memory =
        link->operations->allocate(link, (size_t)RECEIVER_CHUNK_LENGTH * RECEIVER_CHUNK_COUNT,
                                   WEIR_REMOTE_WRITE, &message.region.remote, ret_error);
    if (receiver->memory == NULL) {
        return false;
    }
    memset(receiver->is_granted, true, sizeof(receiver->is_granted));
    message.region.chunk_length = RECEIVER_CHUNK_LENGTH;
    message.region.chunk_count = RECEIVER_CHUNK_COUNT;
    send_message(receiver, &message);
    return true;
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static const char *place_error_text(int error)
{
    switch (error) {
    case EEXIST:
        return "exists already (--force replaces it)";
    case EISDIR:
        return "is a directory already";
    case EMEDIUMTYPE:
        return "is a device, a socket or a FIFO already, and is not replaced";
    case ELOOP:
        return "is a symbolic link already, and is not followed";
    case EXDEV:
        return "leads out of the target";
    case EILSEQ:
        return "is a name that stands for a file under way";
    default:
        return strerror(error);
    }
}

/* receiver->tree.path names what failed. */
static void fail_entry(struct receiver *receiver, uint32_t id, enum problem_code code,
                       const char *text)
{
    const struct problem problem = {
        .code = code, .path = span_of(receiver->tree.path), .text = span_of(text)};
    receiver->options.tally->failed++;
    receiver->options.report->problem(receiver->options.report->user, &problem);
    struct message message = {.type = MESSAGE_FAILED};
    message.problem.id = id;
    message.problem.code = code;
    message.problem.path = problem.path;
    message.problem.text = problem.text;
    send_message(receiver, &message);
}

static void fail_errno(struct receiver *receiver, uint32_t id, int error)
{
    fail_entry(receiver, id, problem_code_of_errno(error), place_error_text(error));
}

static void report_entry(const struct receiver *receiver, const struct message *message)
{
    const struct report *report = receiver->options.report;
    if (report->entry != NULL) {
        report->entry(report->user, message->entry.kind, receiver->tree.path, message->entry.size);
    }
}

static void begin_directory(struct receiver *receiver, const struct message *message,
                            const char *name)
{
    const struct tree_attributes attributes = {
        .force = receiver->options.force,
        .fsync = receiver->options.fsync,
        .mode = message->entry.mode,
        .mtime = {.tv_sec = message->entry.mtime_s, .tv_nsec = message->entry.mtime_ns},
    };
    int error = tree_enter(&receiver->tree, name, message->entry.id, &attributes);
    if (error == 0) {
        receiver->options.tally->directories++;
        return;
    }
    if (error == ENOTDIR) {
        fail_entry(receiver, message->entry.id, PROBLEM_WRONG_KIND,
                   "exists already and is not a directory");
    } else {
        fail_errno(receiver, message->entry.id, error);
    }
    receiver->dead_depth = 1;
    tree_forget(&receiver->tree);
}

static struct place_attributes attributes_of(const struct receiver *receiver,
                                             const struct message *message)
{
    return (struct place_attributes){
        .mode = message->entry.mode,
        .mtime = {.tv_sec = message->entry.mtime_s, .tv_nsec = message->entry.mtime_ns},
        .fsync = receiver->options.fsync,
    };
}

static void place_eager(struct receiver *receiver, const struct message *message, const char *name)
{
    uint8_t digest[DIGEST_LENGTH];
    const struct span data = message->entry.data;
    digest_of(data.bytes, data.length, digest);
    if (memcmp(digest, message->entry.digest, DIGEST_LENGTH) != 0) {
        fail_entry(receiver, message->entry.id, PROBLEM_DIGEST,
                   "the bytes that arrived are not those that were read (digest)");
        return;
    }
    struct place place;
    int error = place_begin(&place, tree_directory(&receiver->tree), name, receiver->options.force);
    if (error == 0) {
        error = place_write(&place, data.bytes, data.length, 0);
        if (error == 0) {
            const struct place_attributes attributes = attributes_of(receiver, message);
            error = place_commit(&place, data.length, &attributes);
        } else {
            place_abandon(&place);
        }
    }
    if (error != 0) {
        fail_errno(receiver, message->entry.id, error);
        return;
    }
    receiver->options.tally->files++;
    receiver->options.tally->bytes += data.length;
}

/* A file that goes by chunks. The path stays appended until its end, for what may be said of it. */
static void begin_file(struct receiver *receiver, const struct message *message, const char *name)
{
    receiver->state = RECEIVER_FILE;
    receiver->file = (struct current_file){
        .id = message->entry.id,
        .size = message->entry.size,
        .attributes = attributes_of(receiver, message),
        .place = {.fd = -1},
    };
    digest_start(receiver->digest);
    if (receiver->dead_depth > 0) {
        receiver->file.discarded = true;
        return;
    }
    int error = place_begin(&receiver->file.place, tree_directory(&receiver->tree), name,
                            receiver->options.force);
    if (error != 0) {
        receiver->file.discarded = true;
        fail_errno(receiver, message->entry.id, error);
    }
}

static void place_link(struct receiver *receiver, const struct message *message, const char *name)
{
    char target[PATH_MAX];
    memcpy(target, message->entry.data.bytes, message->entry.data.length);
    target[message->entry.data.length] = 0;
    const struct place_attributes attributes = attributes_of(receiver, message);
    int error = place_symlink(tree_directory(&receiver->tree), name, target, &attributes,
                              receiver->options.force);
    if (error != 0) {
        fail_errno(receiver, message->entry.id, error);
        return;
    }
    receiver->options.tally->symlinks++;
}

/* What the entry is called here. NULL: the peer may not say this now. */
static const char *entry_name(struct receiver *receiver, const struct message *message,
                              char buffer[NAME_LENGTH_MAX + 1])
{
    memcpy(buffer, message->entry.name.bytes, message->entry.name.length);
    buffer[message->entry.name.length] = 0;
    if (receiver->tree.depth > 0 || receiver->dead_depth > 0) {
        return buffer[0] != 0 ? buffer : NULL;
    }
    if (message->entry.source >= receiver->options.source_count ||
        (int)message->entry.source <= receiver->last_source) {
        return NULL;
    }
    receiver->last_source = message->entry.source;
    receiver->sources_seen++;
    const char *name = buffer;
    if (!receiver->options.target->into) {
        name = receiver->options.target->name;
    } else if (receiver->options.names != NULL) {
        name = receiver->options.names[message->entry.source];
    }
    return name[0] != 0 || message->entry.kind == ENTRY_DIRECTORY ? name : NULL;
}

static bool entry_is_allowed(const struct receiver *receiver, const struct message *message,
                             const char **ret_reason)
{
    if (receiver->state != RECEIVER_ENTRIES) {
        *ret_reason = "an entry in the middle of a file";
    } else if (message->entry.id != receiver->last_id + 1) {
        *ret_reason = "an entry out of order";
    } else if (!receiver->options.recursive && message->entry.kind != ENTRY_FILE) {
        *ret_reason = "a directory or link where only files were asked for";
    } else {
        return true;
    }
    return false;
}

static bool receive_entry(struct receiver *receiver, const struct message *message,
                          const char **ret_reason)
{
    char buffer[NAME_LENGTH_MAX + 1];
    if (!entry_is_allowed(receiver, message, ret_reason)) {
        return false;
    }
    const char *name = entry_name(receiver, message, buffer);
    if (name == NULL) {
        *ret_reason = "an entry that belongs to no source, or has no name";
        return false;
    }
    receiver->last_id++;
    if (receiver->dead_depth > 0) { /* its directory was reported; the rest says nothing new */
        if (message->entry.kind == ENTRY_DIRECTORY) {
            receiver->dead_depth++;
        } else if (message->entry.kind == ENTRY_FILE && !message->entry.eager) {
            begin_file(receiver, message, name);
        }
        return true;
    }
    tree_name(&receiver->tree, name);
    report_entry(receiver, message);
    if (message->entry.kind == ENTRY_DIRECTORY) {
        begin_directory(receiver, message, name);
        return true;
    }
    if (message->entry.kind == ENTRY_FILE && !message->entry.eager) {
        begin_file(receiver, message, name);
        return true;
    }
    if (message->entry.kind == ENTRY_FILE) {
        place_eager(receiver, message, name);
    } else {
        place_link(receiver, message, name);
    }
    tree_forget(&receiver->tree);
    return true;
}

static void discard_file(struct receiver *receiver, int error)
{
    place_abandon(&receiver->file.place);
    receiver->file.discarded = true;
    receiver->options.tally->bytes -= receiver->file.position;
    fail_errno(receiver, receiver->file.id, error);
}

static bool receive_hole(struct receiver *receiver, uint64_t length, const char **ret_reason)
{
    struct current_file *file = &receiver->file;
    if (receiver->state != RECEIVER_FILE || length == 0 || length > file->size - file->position) {
        *ret_reason = "a hole outside a file";
        return false;
    }
    digest_hole(receiver->digest, file->position, length);
    file->position += length;
    if (!file->discarded) {
        receiver->options.tally->bytes += length;
    }
    return true;
}

static void commit_file(struct receiver *receiver, const struct message *message)
{
    struct current_file *file = &receiver->file;
    uint8_t digest[DIGEST_LENGTH];
    digest_result(receiver->digest, digest);
    if (memcmp(digest, message->end.digest, DIGEST_LENGTH) != 0) {
        receiver->options.tally->bytes -= file->position;
        place_abandon(&file->place);
        fail_entry(receiver, file->id, PROBLEM_DIGEST,
                   "the bytes that arrived are not those that were read (digest)");
        return;
    }
    int error = place_commit(&file->place, file->size, &file->attributes);
    if (error != 0) {
        receiver->options.tally->bytes -= file->position;
        fail_errno(receiver, file->id, error);
        return;
    }
    receiver->options.tally->files++;
}

static void report_source_problem(struct receiver *receiver, enum problem_code code,
                                  struct span path, struct span text)
{
    const struct problem problem = {
        .code = code, .remote = true, .at_source = true, .path = path, .text = text};
    if (code == PROBLEM_WARNING) {
        receiver->options.tally->warnings++;
    } else {
        receiver->options.tally->failed++;
    }
    receiver->options.report->problem(receiver->options.report->user, &problem);
}

static bool receive_end(struct receiver *receiver, const struct message *message,
                        const char **ret_reason)
{
    struct current_file *file = &receiver->file;
    if (receiver->state != RECEIVER_FILE) {
        *ret_reason = "the end of a file that was not begun";
        return false;
    }
    if (message->end.code == PROBLEM_NONE && file->position != file->size) {
        *ret_reason = "the end of a file before its last byte";
        return false;
    }
    if (!file->discarded && message->end.code == PROBLEM_NONE) {
        commit_file(receiver, message);
    } else if (!file->discarded) {
        receiver->options.tally->bytes -= file->position;
        place_abandon(&file->place);
        report_source_problem(receiver, message->end.code, message->end.path, message->end.text);
    }
    receiver->state = RECEIVER_ENTRIES;
    tree_forget(&receiver->tree);
    return true;
}

static bool receive_leave(struct receiver *receiver, const char **ret_reason)
{
    if (receiver->state != RECEIVER_ENTRIES ||
        (receiver->tree.depth == 0 && receiver->dead_depth == 0)) {
        *ret_reason = "left a directory it was not in";
        return false;
    }
    if (receiver->dead_depth > 0) {
        receiver->dead_depth--;
        return true;
    }
    uint32_t id;
    int error = tree_leave(&receiver->tree, &id);
    if (error != 0) {
        fail_errno(receiver, id, error);
    }
    tree_forget(&receiver->tree);
    return true;
}

/* Where nothing failed, every source and every file has come. */
static bool is_complete(const struct receiver *receiver, const struct message *message)
{
    const struct tally *tally = receiver->options.tally;
    return tally->failed > 0 || (receiver->sources_seen == receiver->options.source_count &&
                                 message->totals.files == tally->files);
}

static bool receive_finished(struct receiver *receiver, const struct message *finished,
                             const char **ret_reason)
{
    if (receiver->state != RECEIVER_ENTRIES || receiver->tree.depth > 0 ||
        receiver->dead_depth > 0) {
        *ret_reason = "finished in the middle of a file or directory";
        return false;
    }
    if (!is_complete(receiver, finished)) {
        *ret_reason = "finished before everything had come";
        return false;
    }
    const struct tally *tally = receiver->options.tally;
    struct message message = {.type = MESSAGE_SUMMARY};
    message.summary.files = tally->files;
    message.summary.directories = tally->directories;
    message.summary.symlinks = tally->symlinks;
    message.summary.bytes = tally->bytes;
    message.summary.failed = tally->failed;
    send_message(receiver, &message);
    receiver->state = RECEIVER_DONE;
    return true;
}

bool receiver_receive(struct receiver *receiver, const struct message *message,
                      const char **ret_reason)
{
    struct tally *tally = receiver->options.tally;
    if (receiver->state == RECEIVER_DONE) {
        *ret_reason = "something after the end";
        return false;
    }
    if (receiver->options.link->backlog_count > ANSWERS_MAX) {
        *ret_reason = "it does not take our answers";
        return false;
    }
    switch (message->type) {
    case MESSAGE_ENTRY:
        return receive_entry(receiver, message, ret_reason);
    case MESSAGE_HOLE:
        return receive_hole(receiver, message->hole.length, ret_reason);
    case MESSAGE_END:
        return receive_end(receiver, message, ret_reason);
    case MESSAGE_LEAVE:
        return receive_leave(receiver, ret_reason);
    case MESSAGE_SKIPPED:
        report_source_problem(receiver, message->problem.code, message->problem.path,
                              message->problem.text);
        return true;
    case MESSAGE_TOTALS:
        tally->totals_known = true;
        tally->total_files = message->totals.files;
        tally->total_bytes = message->totals.bytes;
        return true;
    case MESSAGE_FINISHED:
        return receive_finished(receiver, message, ret_reason);
    default:
        *ret_reason = "a message that a sender does not send";
        return false;
    }
}

static bool notice_is_allowed(const struct receiver *receiver, uint32_t notice, size_t length,
                              const char **ret_reason)
{
    uint16_t chunk = notice_chunk(notice);
    const struct current_file *file = &receiver->file;
    if (receiver->state != RECEIVER_FILE) {
        *ret_reason = "data outside a file";
    } else if (chunk >= RECEIVER_CHUNK_COUNT) {
        *ret_reason = "data in a chunk that does not exist";
    } else if (!receiver->is_granted[chunk]) {
        *ret_reason = "data in a chunk that was not granted";
    } else if (notice_sequence(notice) != receiver->sequence) {
        *ret_reason = "data out of order";
    } else if (length == 0 || length > RECEIVER_CHUNK_LENGTH ||
               length > file->size - file->position) {
        *ret_reason = "data beyond the end of its file";
    } else {
        return true;
    }
    return false;
}

void receiver_pump(struct receiver *receiver)
{
    const struct link *link = receiver->options.link;
    struct message message = {.type = MESSAGE_GRANT};
    for (uint16_t chunk = 0; chunk < RECEIVER_CHUNK_COUNT; chunk++) {
        if (!receiver->is_granted[chunk] && link->backlog_count < GRANT_BACKLOG_MAX) {
            receiver->is_granted[chunk] = true;
            message.grant.chunk = chunk;
            send_message(receiver, &message);
        }
    }
}

/* The peer can write to a chunk at any time: each byte is fetched once, and what is written to the
 * file is what the digest was taken of. */
static int take_data(struct receiver *receiver, const uint8_t *bytes, size_t length)
{
    struct current_file *file = &receiver->file;
    int error = 0;
    for (size_t done = 0; done < length && error == 0;) {
        size_t count = length - done < PRIVATE_LENGTH ? length - done : PRIVATE_LENGTH;
        memcpy(receiver->private, bytes + done, count);
        digest_data(receiver->digest, receiver->private, count);
        error = place_write(&file->place, receiver->private, count, file->position + done);
        done += count;
    }
    return error;
}

bool receiver_notice(struct receiver *receiver, uint32_t notice, size_t length,
                     const char **ret_reason)
{
    if (!notice_is_allowed(receiver, notice, length, ret_reason)) {
        return false;
    }
    struct current_file *file = &receiver->file;
    uint16_t chunk = notice_chunk(notice);
    const uint8_t *bytes = receiver->memory + (size_t)chunk * RECEIVER_CHUNK_LENGTH;
    receiver->sequence++;
    if (!file->discarded) {
        int error = take_data(receiver, bytes, length);
        if (error != 0) {
            discard_file(receiver, error);
        } else {
            receiver->options.tally->bytes += length;
        }
    }
    file->position += length;
    receiver->is_granted[chunk] = false;
    receiver_pump(receiver);
    return true;
}
