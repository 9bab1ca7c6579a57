#include "tools/transfer/sender.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/digest.h"
#include "tools/transfer/source.h"

enum sender_state {
    SENDER_ENTRIES,  /* between two entries */
    SENDER_FILE,     /* in the middle of one that goes by chunks */
    SENDER_FINISHED, /* everything sent, the peer's summary to come */
    SENDER_DONE,
};

enum progress {
    PROGRESS_MADE,
    PROGRESS_BLOCKED, /* until the peer or the link says something */
};

/* Chunk numbers that are free: a stack. */
struct chunk_pool {
    uint16_t numbers[CHUNK_COUNT_MAX];
    unsigned count;
};

struct current_file {
    struct source source;
    bool rejected;
    char *path;
};

struct sender {
    struct sender_options options;
    struct link *link;
    struct walk *walk, *scan;
    enum sender_state state;
    uint32_t last_id;
    uint32_t *directory_ids; /* by depth */
    unsigned directory_capacity;
    struct current_file file;
    struct digest *digest;

    uint8_t *memory;
    uint32_t chunk_length;
    struct weir_remote remote;
    uint32_t remote_chunk_length;
    uint16_t remote_chunk_count;
    struct chunk_pool local, granted;
    bool is_granted[CHUNK_COUNT_MAX];
    uint16_t sequence;

    uint64_t scanned_files, scanned_bytes;
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t eager[EAGER_LENGTH_MAX];
};

struct sender *sender_create(const struct sender_options *options)
{
    struct sender *sender = calloc(1, sizeof(*sender));
    if (sender == NULL) {
        return NULL;
    }
    sender->options = *options;
    sender->link = options->link;
    sender->file.source.fd = -1;
    sender->digest = digest_create();
    sender->walk = walk_create(&options->walk, options->sources, options->source_count);
    if (options->totals) {
        sender->scan = walk_create(&options->walk, options->sources, options->source_count);
    }
    if (sender->digest == NULL || sender->walk == NULL ||
        (options->totals && sender->scan == NULL)) {
        sender_destroy(sender);
        return NULL;
    }
    return sender;
}

static void close_file(struct sender *sender)
{
    source_close(&sender->file.source);
    free(sender->file.path);
    sender->file = (struct current_file){.source = {.fd = -1}};
}

void sender_destroy(struct sender *sender)
{
    if (sender == NULL) {
        return;
    }
    close_file(sender);
    digest_destroy(sender->digest);
    walk_destroy(sender->walk);
    walk_destroy(sender->scan);
    free(sender->directory_ids);
    free(sender);
}

bool sender_is_done(const struct sender *sender)
{
    return sender->state == SENDER_DONE;
}

static void send_message(struct sender *sender, const struct message *message, struct span data)
{
    struct weir_piece pieces[2] = {
        {sender->head, protocol_pack(message, sender->head)},
        {data.bytes, data.length},
    };
    sender->link->operations->send(sender->link, pieces, data.length > 0 ? 2 : 1);
}

static void send_plain(struct sender *sender, const struct message *message)
{
    send_message(sender, message, (struct span){NULL, 0});
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static void count_problem(struct sender *sender, enum problem_code code)
{
    if (code == PROBLEM_WARNING) {
        sender->options.tally->warnings++;
    } else {
        sender->options.tally->failed++;
    }
}

/* Our own side could not read something: told to our owner and, by the caller, to the peer. */
static void report_here(struct sender *sender, enum problem_code code, const char *path,
                        const char *text)
{
    const struct problem problem = {
        .code = code, .at_source = true, .path = span_of(path), .text = span_of(text)};
    count_problem(sender, code);
    sender->options.report->problem(sender->options.report->user, &problem);
}

static enum problem_code code_of_walk_error(int error)
{
    switch (error) {
    case WALK_ERROR_SPECIAL:
    case WALK_ERROR_TEMPORARY:
        return PROBLEM_WARNING;
    case WALK_ERROR_SPECIAL_SOURCE:
    case WALK_ERROR_NOT_RECURSIVE:
        return PROBLEM_WRONG_KIND;
    case WALK_ERROR_PARENT:
        return PROBLEM_CONFINED;
    default:
        return problem_code_of_errno(error);
    }
}

static void skip(struct sender *sender, enum problem_code code, const char *path, const char *text)
{
    struct message message = {.type = MESSAGE_SKIPPED};
    message.problem.code = code;
    message.problem.path = span_of(path);
    message.problem.text = span_of(text);
    report_here(sender, code, path, text);
    send_plain(sender, &message);
}

static void skip_step(struct sender *sender, const struct walk_step *step, int error)
{
    skip(sender, code_of_walk_error(error), step->path, walk_error_text(error));
}

static struct message entry_of(struct sender *sender, const struct walk_step *step,
                               const struct stat *status, enum entry_kind kind)
{
    struct message message = {.type = MESSAGE_ENTRY};
    message.entry.id = ++sender->last_id;
    message.entry.kind = kind;
    message.entry.source = (uint16_t)step->source;
    message.entry.mode = status->st_mode & 07777;
    message.entry.mtime_s = status->st_mtim.tv_sec;
    message.entry.mtime_ns = (uint32_t)status->st_mtim.tv_nsec;
    message.entry.name = span_of(step->name);
    return message;
}

static void report_entry(struct sender *sender, enum entry_kind kind, const char *path,
                         uint64_t size)
{
    if (sender->options.report->entry != NULL) {
        sender->options.report->entry(sender->options.report->user, kind, path, size);
    }
}

/* A small file: read whole, checked, and sent with its entry. */
static void send_eager(struct sender *sender, const struct walk_step *step, struct source *source)
{
    const char *text = NULL;
    size_t length = (size_t)source->size;
    enum problem_code code = source_read(source, sender->eager, length, &text);
    if (code == PROBLEM_NONE) {
        code = source_check(source, &text);
    }
    if (code != PROBLEM_NONE) {
        skip(sender, code, step->path, text);
        return;
    }
    struct message message = entry_of(sender, step, &source->status, ENTRY_FILE);
    message.entry.eager = true;
    message.entry.size = length;
    digest_of(sender->eager, length, message.entry.digest);
    send_message(sender, &message, (struct span){sender->eager, length});
    sender->options.tally->files++;
    sender->options.tally->bytes += length;
}

static void begin_chunks(struct sender *sender, const struct walk_step *step,
                         const struct source *source)
{
    struct message message = entry_of(sender, step, &source->status, ENTRY_FILE);
    message.entry.size = source->size;
    posix_fadvise(source->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    digest_start(sender->digest);
    send_plain(sender, &message);
    sender->state = SENDER_FILE;
}

static void begin_file(struct sender *sender, const struct walk_step *step)
{
    struct stat status;
    struct source source;
    int fd = walk_open_file(sender->walk, step, &status);
    if (fd < 0) {
        skip_step(sender, step, -fd);
        return;
    }
    source_open(&source, fd, &status);
    report_entry(sender, ENTRY_FILE, step->path, source.size);
    if (source.size <= EAGER_LENGTH_MAX) {
        send_eager(sender, step, &source);
        source_close(&source);
        return;
    }
    char *path = strdup(step->path);
    if (path == NULL) {
        source_close(&source);
        skip_step(sender, step, ENOMEM);
        return;
    }
    sender->file = (struct current_file){.source = source, .path = path};
    begin_chunks(sender, step, &source);
}

static bool remember_directory(struct sender *sender, uint32_t id)
{
    unsigned depth = walk_depth(sender->walk);
    if (depth > sender->directory_capacity) {
        unsigned capacity = 2 * depth + 16;
        uint32_t *ids = realloc(sender->directory_ids, capacity * sizeof(*ids));
        if (ids == NULL) {
            return false;
        }
        sender->directory_ids = ids;
        sender->directory_capacity = capacity;
    }
    sender->directory_ids[depth - 1] = id;
    return true;
}

static void send_directory(struct sender *sender, const struct walk_step *step)
{
    struct message message = entry_of(sender, step, &step->status, ENTRY_DIRECTORY);
    if (!remember_directory(sender, message.entry.id)) {
        walk_prune(sender->walk, walk_depth(sender->walk) - 1);
    }
    report_entry(sender, ENTRY_DIRECTORY, step->path, 0);
    send_plain(sender, &message);
    sender->options.tally->directories++;
}

static void send_symlink(struct sender *sender, const struct walk_step *step)
{
    struct message message = entry_of(sender, step, &step->status, ENTRY_SYMLINK);
    message.entry.size = strlen(step->target);
    report_entry(sender, ENTRY_SYMLINK, step->path, 0);
    send_message(sender, &message, span_of(step->target));
    sender->options.tally->symlinks++;
}

static void finish(struct sender *sender)
{
    struct message message = {.type = MESSAGE_FINISHED};
    message.totals.files = sender->options.tally->files;
    message.totals.bytes = sender->options.tally->bytes;
    send_plain(sender, &message);
    sender->state = SENDER_FINISHED;
}

static void next_entry(struct sender *sender)
{
    struct walk_step step;
    walk_next(sender->walk, &step);
    switch (step.kind) {
    case WALK_FILE:
        begin_file(sender, &step);
        return;
    case WALK_DIRECTORY:
        send_directory(sender, &step);
        return;
    case WALK_LEAVE:
        send_plain(sender, &(struct message){.type = MESSAGE_LEAVE});
        return;
    case WALK_SYMLINK:
        send_symlink(sender, &step);
        return;
    case WALK_FAILED:
        skip_step(sender, &step, step.error);
        return;
    case WALK_END:
        finish(sender);
        return;
    }
}

/* Ends the file. With a code, the peer throws away what it has of it. */
static void end_file(struct sender *sender, enum problem_code code, const char *text)
{
    struct message message = {.type = MESSAGE_END};
    message.end.code = code;
    if (code == PROBLEM_NONE) {
        digest_result(sender->digest, message.end.digest);
        sender->options.tally->files++;
    } else {
        message.end.path = span_of(sender->file.path);
        message.end.text = span_of(text);
        if (!sender->file.rejected) {
            report_here(sender, code, sender->file.path, text);
        }
    }
    send_plain(sender, &message);
    close_file(sender);
    sender->state = SENDER_ENTRIES;
}

static void next_extent(struct sender *sender)
{
    struct source *source = &sender->file.source;
    uint64_t from = source->position;
    struct message message = {.type = MESSAGE_HOLE};
    message.hole.length = source_skip_hole(source);
    if (message.hole.length > 0) {
        send_plain(sender, &message);
        digest_hole(sender->digest, from, message.hole.length);
        sender->options.tally->bytes += message.hole.length;
    }
}

/* Takes a free chunk on each side and sends `length` bytes that lie in ours. */
static void put_chunk(struct sender *sender, size_t length)
{
    uint16_t local = sender->local.numbers[--sender->local.count];
    uint16_t remote = sender->granted.numbers[--sender->granted.count];
    const struct link_put put = {
        .offset = (size_t)local * sender->chunk_length,
        .length = length,
        .remote = sender->remote,
        .remote_offset = (uint64_t)remote * sender->remote_chunk_length,
        .notice = notice_pack(remote, sender->sequence++),
    };
    sender->is_granted[remote] = false;
    sender->link->operations->put(sender->link, &put);
    sender->options.tally->bytes += length;
}

static enum progress send_chunk(struct sender *sender)
{
    struct source *source = &sender->file.source;
    if (sender->local.count == 0 || sender->granted.count == 0) {
        return PROGRESS_BLOCKED;
    }
    const char *text;
    uint64_t left = source->data_end - source->position;
    size_t length = left < sender->chunk_length ? (size_t)left : sender->chunk_length;
    uint8_t *bytes = sender->memory +
                     (size_t)sender->local.numbers[sender->local.count - 1] * sender->chunk_length;
    enum problem_code code = source_read(source, bytes, length, &text);
    if (code != PROBLEM_NONE) {
        end_file(sender, code, text);
        return PROGRESS_MADE;
    }
    digest_data(sender->digest, bytes, length);
    put_chunk(sender, length);
    return PROGRESS_MADE;
}

static enum progress continue_file(struct sender *sender)
{
    const struct source *source = &sender->file.source;
    if (sender->file.rejected) {
        end_file(sender, PROBLEM_INPUT_OUTPUT, "given up by the other side");
        return PROGRESS_MADE;
    }
    if (source->position == source->size) {
        const char *text = "";
        enum problem_code code = source_check(source, &text);
        end_file(sender, code, text);
        return PROGRESS_MADE;
    }
    if (source->position == source->data_end) {
        next_extent(sender);
        return PROGRESS_MADE;
    }
    return send_chunk(sender);
}

/* Counts ahead, a few entries at a time. */
static bool scan(struct sender *sender)
{
    for (unsigned i = 0; i < 32 && sender->scan != NULL; i++) {
        struct walk_step step;
        walk_next(sender->scan, &step);
        if (step.kind == WALK_FILE) {
            sender->scanned_files++;
            sender->scanned_bytes += (uint64_t)step.status.st_size;
        } else if (step.kind == WALK_END) {
            struct message message = {.type = MESSAGE_TOTALS};
            message.totals.files = sender->scanned_files;
            message.totals.bytes = sender->scanned_bytes;
            sender->options.tally->totals_known = true;
            sender->options.tally->total_files = sender->scanned_files;
            sender->options.tally->total_bytes = sender->scanned_bytes;
            send_plain(sender, &message);
            walk_destroy(sender->scan);
            sender->scan = NULL;
        }
    }
    return sender->scan != NULL;
}

bool sender_pump(struct sender *sender)
{
    if (sender->state == SENDER_FINISHED || sender->state == SENDER_DONE) {
        return false;
    }
    bool scanning = scan(sender);
    for (unsigned slice = 0; slice < 8; slice++) {
        enum progress progress = PROGRESS_MADE;
        if (sender->link->backlog_length >= SENDER_BACKLOG) {
            progress = PROGRESS_BLOCKED;
        } else if (sender->state == SENDER_FILE) {
            progress = continue_file(sender);
        } else if (sender->state == SENDER_ENTRIES) {
            next_entry(sender);
        } else {
            return false;
        }
        if (progress == PROGRESS_BLOCKED) {
            return scanning;
        }
    }
    return true;
}

static bool receive_region(struct sender *sender, const struct message *message,
                           const char **ret_reason)
{
    if (sender->memory != NULL) {
        *ret_reason = "a second region";
        return false;
    }
    sender->remote = message->region.remote;
    sender->remote_chunk_length = message->region.chunk_length;
    sender->remote_chunk_count = message->region.chunk_count;
    sender->chunk_length = message->region.chunk_length < SENDER_CHUNK_LENGTH
                               ? message->region.chunk_length
                               : SENDER_CHUNK_LENGTH;
    static _Thread_local struct weir_error error;
    struct weir_remote unused;
    size_t length = (size_t)sender->chunk_length * SENDER_CHUNK_COUNT;
    sender->memory =
        sender->link->operations->allocate(sender->link, length, WEIR_LOCAL, &unused, &error);
    if (sender->memory == NULL) {
        *ret_reason = error.message;
        return false;
    }
    for (uint16_t i = 0; i < SENDER_CHUNK_COUNT; i++) {
        sender->local.numbers[sender->local.count++] = i;
    }
    for (uint16_t i = 0; i < sender->remote_chunk_count; i++) {
        sender->granted.numbers[sender->granted.count++] = i;
        sender->is_granted[i] = true;
    }
    return true;
}

static bool receive_grant(struct sender *sender, uint16_t chunk, const char **ret_reason)
{
    if (chunk >= sender->remote_chunk_count || sender->is_granted[chunk]) {
        *ret_reason = "a grant of a chunk that was not in use";
        return false;
    }
    sender->is_granted[chunk] = true;
    sender->granted.numbers[sender->granted.count++] = chunk;
    return true;
}

/* The peer could not place an entry: the rest of it need not be sent. */
static void receive_failed(struct sender *sender, const struct message *message)
{
    uint32_t id = message->problem.id;
    const struct problem problem = {
        /* what was not placed is no warning, whatever the peer calls it */
        .code =
            message->problem.code == PROBLEM_WARNING ? PROBLEM_INPUT_OUTPUT : message->problem.code,
        .remote = true,
        .path = message->problem.path,
        .text = message->problem.text,
    };
    sender->options.tally->failed++;
    sender->options.report->problem(sender->options.report->user, &problem);
    if (sender->state == SENDER_FILE && id == sender->last_id) {
        sender->file.rejected = true;
    }
    for (unsigned i = 0; i < walk_depth(sender->walk); i++) {
        if (i < sender->directory_capacity && sender->directory_ids[i] == id) {
            walk_prune(sender->walk, i);
        }
    }
}

static bool receive_summary(struct sender *sender, const struct message *message,
                            const char **ret_reason)
{
    struct tally *tally = sender->options.tally;
    if (sender->state != SENDER_FINISHED) {
        *ret_reason = "a summary before the end";
        return false;
    }
    if (message->summary.failed == 0 && message->summary.files != tally->files) {
        *ret_reason = "a summary that leaves out files";
        return false;
    }
    tally->files = message->summary.files;
    tally->directories = message->summary.directories;
    tally->symlinks = message->summary.symlinks;
    tally->bytes = message->summary.bytes;
    if (tally->failed < message->summary.failed) {
        tally->failed = message->summary.failed;
    }
    sender->state = SENDER_DONE;
    return true;
}

bool sender_receive(struct sender *sender, const struct message *message, const char **ret_reason)
{
    switch (message->type) {
    case MESSAGE_REGION:
        return receive_region(sender, message, ret_reason);
    case MESSAGE_GRANT:
        return receive_grant(sender, message->grant.chunk, ret_reason);
    case MESSAGE_FAILED:
        receive_failed(sender, message);
        return true;
    case MESSAGE_SUMMARY:
        return receive_summary(sender, message, ret_reason);
    default:
        *ret_reason = "a message that a receiver does not send";
        return false;
    }
}

void sender_put_done(struct sender *sender, size_t offset)
{
    sender->local.numbers[sender->local.count++] = (uint16_t)(offset / sender->chunk_length);
}
