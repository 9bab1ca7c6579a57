#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/disk/compare.h"
#include "tools/transfer/ends/sender_private.h"
#include "tools/transfer/ends/summary.h"
#include "tools/transfer/wire/clock.h"

/* Between two looks at the link. */
#define STEPS_AT_ONCE 64
#define BYTES_AT_ONCE (4u << 20)

enum progress {
    PROGRESS_MADE,
    PROGRESS_BLOCKED, /* until the peer or the link says something */
};

/* Of names of one file the next is sent where the first is left: so each must be known of. */
static enum asking asking_of(const struct wishes *wishes)
{
    bool names = (wishes->bits & (WISH_EXISTING | WISH_IGNORE_EXISTING)) != 0 &&
                 (wishes->preserve & PRESERVE_HARD_LINKS) != 0;
    return names ? ASK_NODES : compare_is_wanted(wishes) ? ASK_FILES : ASK_NOTHING;
}

/* What is in one of the sources may have the name of something else there: the later one stays. */
static bool may_overlap(const struct sender_options *options)
{
    char name[256];
    bool nameless = false;
    for (unsigned i = 0; i < options->source_count && options->source_count > 1; i++) {
        const char *source = options->sources[i];
        nameless |= source != NULL && walk_base_name(source, name) && name[0] == 0;
    }
    return nameless;
}

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
    sender->pace = pace_start(options->wishes->rate, now_ns());
    bool totals = (options->wishes->bits & WISH_TOTALS) != 0;
    struct walk *walk = walk_create(&options->walk, options->sources, options->source_count);
    if (walk != NULL) {
        sender->lookahead = lookahead_create(options->link, walk, asking_of(options->wishes));
    }
    if (sender->lookahead == NULL) {
        walk_destroy(walk);
    }
    if (sender->lookahead != NULL && may_overlap(options)) {
        lookahead_part_sources(sender->lookahead);
    }
    if (totals) {
        sender->scan = walk_create(&options->walk, options->sources, options->source_count);
    }
    if (!pieces_init(&sender->pieces) || sender->digest == NULL || sender->lookahead == NULL ||
        (totals && sender->scan == NULL)) {
        sender_destroy(sender);
        return NULL;
    }
    return sender;
}

void sender_close_file(struct sender *sender)
{
    source_close(&sender->file.source);
    sender->file = (struct current_file){.source = {.fd = -1}};
}

void sender_destroy(struct sender *sender)
{
    if (sender == NULL) {
        return;
    }
    sender_close_file(sender);
    pieces_fini(&sender->pieces);
    digest_destroy(sender->digest);
    lookahead_destroy(sender->lookahead);
    walk_destroy(sender->scan);
    hard_links_clear(&sender->links);
    sender_end_answers(sender);
    free(sender->directories);
    free(sender->roots);
    sent_names_clear(&sender->names);
    free(sender);
}

bool sender_is_over(const struct sender *sender)
{
    return sender->state >= SENDER_FINISHED;
}

uint32_t sender_last_id(const struct sender *sender)
{
    return sender->last_id;
}

uint64_t sender_kept_in_part(const struct sender *sender)
{
    return sender->state == SENDER_FILE ? sender->options.tally->kept - sender->file.kept : 0;
}

bool sender_is_done(const struct sender *sender)
{
    return sender->state == SENDER_DONE;
}

bool sender_lacks_memory(const struct sender *sender)
{
    return sender->lacks_memory;
}

static void finish(struct sender *sender)
{
    struct message message = {.type = MESSAGE_FINISHED};
    message.finished.entries = sender->entries;
    message.finished.sources = (uint16_t)sender->sources;
    sender_look_at_device(sender, true);
    sender_send_plain(sender, &message);
    sender->state = SENDER_FINISHED;
}

/* The file that the step was about needs no more. */
static void end_step(struct sender *sender)
{
    lookahead_pop(sender->lookahead);
    sender->state = SENDER_ENTRIES;
}

static void next_entry(struct sender *sender, const struct look *look)
{
    const struct walk_step *step = &look->step;
    sender_remember_name(sender, step);
    switch (step->kind) {
    case WALK_FILE:
        if (sender_begin_file(sender, look)) {
            return;
        }
        break;
    case WALK_DIRECTORY:
        sender_send_directory(sender, step);
        break;
    case WALK_LEAVE:
        sender_leave_directory(sender);
        break;
    case WALK_SYMLINK:
    case WALK_SPECIAL:
        sender_send_node(sender, look);
        break;
    case WALK_FAILED:
        sender_skip_step(sender, step, step->error);
        break;
    case WALK_EXCLUDED:
        break;
    case WALK_END:
        finish(sender);
        return;
    }
    end_step(sender);
}

static enum progress continue_entries(struct sender *sender)
{
    const struct look *look = lookahead_head(sender->lookahead);
    if (look == NULL) {
        return lookahead_may_go_on(sender->lookahead) ? PROGRESS_MADE : PROGRESS_BLOCKED;
    }
    next_entry(sender, look);
    return PROGRESS_MADE;
}

static const char *path_of_file(struct sender *sender)
{
    return lookahead_head(sender->lookahead)->step.path;
}

static bool is_worth_another_try(const struct sender *sender, enum problem_code code)
{
    return (code == PROBLEM_CHANGED || code == PROBLEM_VANISHED) && !sender->file.rejected &&
           sender->file.tries + 1 < SENDER_TRIES;
}

/* The file is over, or comes again. */
static void leave_file(struct sender *sender, bool whole, bool again)
{
    unsigned tries = sender->file.tries + 1;
    sender_close_file(sender);
    if (whole && (sender->options.wishes->bits & WISH_VERIFY) != 0) {
        sender->state = SENDER_READ_BACK;
        return;
    }
    if (!again || !sender_send_again(sender, &lookahead_head(sender->lookahead)->step, tries)) {
        end_step(sender);
    }
}

/* Ends the file. With a code, the peer throws away what it has of it. */
static void end_file(struct sender *sender, enum problem_code code, const char *text)
{
    char told[TEXT_LENGTH_MAX];
    struct message message = {.type = MESSAGE_END};
    message.end.code = code;
    message.end.again = is_worth_another_try(sender, code);
    if (code == PROBLEM_NONE) {
        pieces_result(&sender->pieces, message.end.digest);
        sender->options.tally->files++;
        sender->entries++;
    } else {
        const char *path = path_of_file(sender);
        sender_drop_chunks(sender);
        message.end.path = (struct span){path, strlen(path)};
        message.end.text = (struct span){text, strlen(text)};
        hard_links_withdraw(&sender->links, &sender->file.source.status, &sender->birth);
        sender->options.tally->bytes = sender->file.sent_bytes;
        sender->options.tally->kept = sender->file.kept;
        if (message.end.again) {
            snprintf(told, sizeof(told), "%s" TEXT_AGAIN, text);
            message.end.text = (struct span){told, strlen(told)};
            sender->sources -= lookahead_head(sender->lookahead)->step.folder == NULL;
            sender_report(sender, PROBLEM_WARNING, path, told);
        } else if (!sender->file.rejected) {
            sender_report(sender, code, path, text);
        }
    }
    sender_send_plain(sender, &message);
    leave_file(sender, code == PROBLEM_NONE, message.end.again);
}

static void next_extent(struct sender *sender)
{
    struct source *source = &sender->file.source;
    struct message message = {.type = MESSAGE_HOLE};
    message.hole.length = source_skip_hole(source);
    if (message.hole.length > 0) {
        sender_send_plain(sender, &message);
        pieces_hole(&sender->pieces, message.hole.length);
        sender->options.tally->bytes += message.hole.length;
    }
}

/* Of the data up to `end`. */
static enum progress read_chunk(struct sender *sender, uint64_t end)
{
    const char *text;
    if (!sender_has_room(sender)) {
        return PROGRESS_BLOCKED;
    }
    enum problem_code code = sender_read_chunk(sender, end, &text);
    if (code != PROBLEM_NONE) {
        end_file(sender, code, text);
    }
    return PROGRESS_MADE;
}

/* Nothing is to be said before the data that comes next. */
static bool data_comes_next(const struct sender *sender)
{
    const struct current_file *file = &sender->file;
    return file->source.position < file->source.data_end && !sender_has_claims(sender);
}

/* Nothing is sent while a large file is read: the peer is not to take that for silence. */
static void say_alive(struct sender *sender)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - sender->alive_s >= ALIVE_INTERVAL_S) {
        sender->alive_s = now.tv_sec;
        sender_send_plain(sender, &(struct message){.type = MESSAGE_ALIVE});
    }
}

static enum progress continue_file(struct sender *sender)
{
    const struct source *source = &sender->file.source;
    if (sender->file.rejected) {
        end_file(sender, PROBLEM_WARNING, "given up by the other side");
        return PROGRESS_MADE;
    }
    if (sender_put_chunk(sender)) {
        return PROGRESS_MADE;
    }
    if (sender->ahead.count > 0 && !data_comes_next(sender)) {
        return PROGRESS_BLOCKED;
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
    uint64_t end = source->data_end;
    const char *text = "";
    enum problem_code code = PROBLEM_NONE;
    switch (sender_claimed(sender, &end, &code, &text)) {
    case CLAIMED:
        return PROGRESS_MADE;
    case CLAIMED_SO_FAR:
        say_alive(sender);
        return PROGRESS_MADE;
    case CLAIMED_LATER:
        return PROGRESS_BLOCKED;
    case CLAIMED_UNREAD:
        end_file(sender, code, text);
        return PROGRESS_MADE;
    case CLAIMED_NOT:
        break;
    }
    return read_chunk(sender, end);
}

/* A piece of the file whose digest decides; holes count as zeros. */
static void continue_digest(struct sender *sender)
{
    struct source *source = &sender->file.source;
    const struct look *look = lookahead_head(sender->lookahead);
    const char *text = "";
    enum problem_code code = PROBLEM_NONE;
    for (unsigned i = 0; i < 16 && code == PROBLEM_NONE && source->position < source->size; i++) {
        uint64_t left = source->size - source->position;
        size_t length = left < EAGER_LENGTH_MAX ? (size_t)left : EAGER_LENGTH_MAX;
        code = source_read(source, sender->eager, length, length, &text);
        digest_data(sender->digest, sender->eager, length);
        sender->gone_over += length;
    }
    say_alive(sender);
    if (code == PROBLEM_NONE && source->position < source->size) {
        return;
    }
    bool by_chunks = code == PROBLEM_NONE ? sender_end_digest(sender, look)
                                          : sender_miss_digest(sender, look, code, text);
    if (!by_chunks) {
        end_step(sender);
    }
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

static enum progress make_progress(struct sender *sender)
{
    bool sends = sender->state == SENDER_ENTRIES || sender->state == SENDER_FILE;
    if (sends && !pace_allows(&sender->pace, now_ns())) {
        return PROGRESS_BLOCKED;
    }
    switch (sender->state) {
    case SENDER_ENTRIES:
        return continue_entries(sender);
    case SENDER_DIGEST:
        continue_digest(sender);
        return PROGRESS_MADE;
    case SENDER_FILE:
        return continue_file(sender);
    case SENDER_READ_BACK:
    case SENDER_FINISHED:
    case SENDER_DONE:
        return PROGRESS_BLOCKED;
    }
    return PROGRESS_BLOCKED;
}

/* Before all else. */
static void tell_rules(struct sender *sender)
{
    const struct filter *filter = sender->options.walk.filter;
    unsigned count = sender->options.tells_rules ? filter_count(filter) : 0;
    for (unsigned i = 0; i < count; i++) {
        struct message message = {.type = MESSAGE_RULE};
        message.rule.pattern = filter_rule(filter, i, &message.rule.bits);
        sender_send_plain(sender, &message);
    }
    sender->options.tells_rules = false;
}

/* What has been read waits for a grant, which may have come by now. */
static bool waits_for_grant(const struct sender *sender)
{
    return sender->ahead.count > 0 && sender->granted.count == 0;
}

/* Bytes that were sent, or only read. */
static uint64_t bytes_moved(const struct sender *sender)
{
    return sender->options.tally->bytes + sender->gone_over;
}

bool sender_pump(struct sender *sender)
{
    bool more = sender_answer(sender);
    tell_rules(sender);
    sender_look_at_device(sender, false);
    if (sender->state != SENDER_FINISHED && sender->state != SENDER_DONE) {
        more |= scan(sender);
        if (sender->link->backlog_length < SENDER_BACKLOG) {
            more |= lookahead_pump(sender->lookahead);
        }
    }
    uint64_t before = bytes_moved(sender);
    for (unsigned i = 0; i < STEPS_AT_ONCE && bytes_moved(sender) - before < BYTES_AT_ONCE; i++) {
        if (sender->link->backlog_length >= SENDER_BACKLOG ||
            make_progress(sender) == PROGRESS_BLOCKED) {
            return more;
        }
        if (waits_for_grant(sender)) {
            return true;
        }
    }
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
    if ((sender->options.wishes->preserve & PRESERVE_HARD_LINKS) != 0 && id <= sender->last_id) {
        hard_links_refused(&sender->links, id);
    }
    for (unsigned i = 0; i < sender->depth; i++) {
        if (sender->directories[i].id == id) {
            walk_prune(sender->directories[i].folder);
        }
    }
}

/* What the peer's owner is told, and ours, too. */
static void receive_warned(struct sender *sender, const struct message *message)
{
    const struct problem problem = {.code = PROBLEM_WARNING,
                                    .remote = true,
                                    .path = message->problem.path,
                                    .text = message->problem.text};
    sender->options.tally->warnings++;
    sender->options.report->problem(sender->options.report->user, &problem);
}

static bool receive_item(struct sender *sender, const struct message *message,
                         const char **ret_reason)
{
    const struct report *report = sender->options.report;
    if ((sender->options.wishes->bits & WISH_ITEMS) == 0) {
        *ret_reason = "items that were not asked for";
        return false;
    }
    const struct item item = {.kind = message->item.kind,
                              .changes = message->item.changes,
                              .size = message->item.size,
                              .path = message->item.path};
    if (report->item != NULL) {
        report->item(report->user, &item);
    }
    return true;
}

static bool receive_summary(struct sender *sender, const struct message *message,
                            const char **ret_reason)
{
    if (sender->state != SENDER_FINISHED) {
        *ret_reason = "a summary before the end";
        return false;
    }
    if (message->summary.failed == 0 && summary_entries(message) != sender->entries) {
        *ret_reason = "a summary that leaves out files";
        return false;
    }
    sender_look_at_device(sender, true);
    summary_take(message, sender->options.tally);
    sender->state = SENDER_DONE;
    return true;
}

static bool receive_read_back(struct sender *sender, uint32_t id, const char **ret_reason)
{
    if (sender->state != SENDER_READ_BACK || id != sender->last_id) {
        *ret_reason = "that it read back what was not asked for";
        return false;
    }
    end_step(sender);
    return true;
}

bool sender_receive(struct sender *sender, const struct message *message, const char **ret_reason)
{
    switch (message->type) {
    case MESSAGE_REGION:
        return sender_receive_region(sender, message, ret_reason);
    case MESSAGE_GRANT:
        return sender_receive_grant(sender, message->grant.chunk, ret_reason);
    case MESSAGE_FAILED:
        receive_failed(sender, message);
        return true;
    case MESSAGE_WARNED:
        receive_warned(sender, message);
        return true;
    case MESSAGE_PROVEN:
    case MESSAGE_PROVEN_ALL:
        return sender_receive_proven(sender, message, ret_reason);
    case MESSAGE_READ_BACK:
        return receive_read_back(sender, message->read_back.id, ret_reason);
    case MESSAGE_ANSWERS:
        if (!lookahead_answer(sender->lookahead, message)) {
            *ret_reason = "answers to what was not asked";
            return false;
        }
        return true;
    case MESSAGE_ASK:
        return sender_ask(sender, message, ret_reason);
    case MESSAGE_ITEM:
        return receive_item(sender, message, ret_reason);
    case MESSAGE_ALIVE:
        return true;
    case MESSAGE_SUMMARY:
        return receive_summary(sender, message, ret_reason);
    default:
        *ret_reason = "a message that a receiver does not send";
        return false;
    }
}
