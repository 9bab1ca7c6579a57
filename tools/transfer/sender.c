#include <stdlib.h>
#include <string.h>

#include "tools/transfer/sender_private.h"

enum progress {
    PROGRESS_MADE,
    PROGRESS_BLOCKED, /* until the peer or the link says something */
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
    hard_links_clear(&sender->links);
    free(sender->directory_ids);
    free(sender);
}

bool sender_is_done(const struct sender *sender)
{
    return sender->state == SENDER_DONE;
}

static void finish(struct sender *sender)
{
    struct message message = {.type = MESSAGE_FINISHED};
    message.totals.files = sender->options.tally->files;
    message.totals.bytes = sender->options.tally->bytes;
    sender_send_plain(sender, &message);
    sender->state = SENDER_FINISHED;
}

static void next_entry(struct sender *sender)
{
    struct walk_step step;
    walk_next(sender->walk, &step);
    switch (step.kind) {
    case WALK_FILE:
        sender_begin_file(sender, &step);
        return;
    case WALK_DIRECTORY:
        sender_send_directory(sender, &step);
        return;
    case WALK_LEAVE:
        sender_send_plain(sender, &(struct message){.type = MESSAGE_LEAVE});
        return;
    case WALK_SYMLINK:
    case WALK_SPECIAL:
        sender_send_node(sender, &step);
        return;
    case WALK_FAILED:
        sender_skip_step(sender, &step, step.error);
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
        message.end.path = (struct span){sender->file.path, strlen(sender->file.path)};
        message.end.text = (struct span){text, strlen(text)};
        hard_links_withdraw(&sender->links, &sender->file.source.status);
        if (!sender->file.rejected) {
            sender_report(sender, code, sender->file.path, text);
        }
    }
    sender_send_plain(sender, &message);
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
        sender_send_plain(sender, &message);
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
            sender_send_plain(sender, &message);
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
