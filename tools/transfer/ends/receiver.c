#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/disk/compare.h"
#include "tools/transfer/disk/half_mark.h"
#include "tools/transfer/ends/receiver_private.h"

struct receiver *receiver_create(const struct receiver_options *options)
{
    struct receiver *receiver = calloc(1, sizeof(*receiver));
    if (receiver == NULL) {
        return NULL;
    }
    receiver->options = *options;
    receiver->clearing = receiver_clearing(receiver);
    receiver->last_source = -1;
    receiver->file.place.fd = -1;
    receiver->answering.directory = receiver->answering.fd = -1;
    receiver->resuming.journal.fd = -1;
    receiver->proof = digest_create();
    receiver->committer = committer_create();
    if (!pieces_init(&receiver->pieces) || receiver->proof == NULL || receiver->committer == NULL) {
        pieces_fini(&receiver->pieces);
        digest_destroy(receiver->proof);
        committer_destroy(receiver->committer);
        free(receiver);
        return NULL;
    }
    receiver->pieces.ended = receiver_piece_ended;
    receiver->pieces.user = receiver;
    tree_init(&receiver->tree, options->target->directory, options->target->display);
    if (!receiver_wishes(receiver, WISH_DRY_RUN)) {
        place_sweep(options->target->directory);
    }
    return receiver;
}

void receiver_destroy(struct receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    receiver_leave_file(receiver);
    receiver_settle_small(receiver);
    committer_destroy(receiver->committer);
    writer_destroy(receiver->writer);
    receiver_forget_pieces(receiver);
    receiver_end_answers(receiver);
    receiver_end_deleting(receiver);
    tree_fini(&receiver->tree);
    xattrs_clear(&receiver->xattrs);
    xattrs_clear(&receiver->file.xattrs);
    hard_links_clear(&receiver->links);
    pieces_fini(&receiver->pieces);
    digest_destroy(receiver->proof);
    free(receiver);
}

uint32_t receiver_last_id(const struct receiver *receiver)
{
    return receiver->last_id;
}

bool receiver_is_done(const struct receiver *receiver)
{
    return receiver->state == RECEIVER_DONE;
}

bool receiver_is_in_file(const struct receiver *receiver)
{
    return receiver_has_file(receiver) && !receiver->file.discarded;
}

uint64_t receiver_kept_in_part(const struct receiver *receiver)
{
    return receiver_is_in_file(receiver) ? receiver->file.kept : 0;
}

bool receiver_start(struct receiver *receiver, struct weir_error *ret_error)
{
    struct link *link = receiver->options.link;
    struct message message = {.type = MESSAGE_REGION};
    memset(receiver->is_granted, true, sizeof(receiver->is_granted));
    if (link->carries_data) {
        return true;
    }
    receiver->memory =
        link->operations->allocate(link, (size_t)RECEIVER_CHUNK_LENGTH * RECEIVER_CHUNK_COUNT,
                                   WEIR_REMOTE_WRITE, &message.region.remote, ret_error);
    if (receiver->memory == NULL) {
        return false;
    }
    message.region.chunk_length = RECEIVER_CHUNK_LENGTH;
    message.region.chunk_count = RECEIVER_CHUNK_COUNT;
    receiver_send(receiver, &message);
    return true;
}

bool receiver_find(int directory, const char *name, struct stat *ret_status)
{
    return directory >= 0 && fstatat(directory, name, ret_status, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Its time may be of its last write, and its size what it is to be: only one that has its source's
 * time is whole. */
static bool may_be_half(const struct stat *there, const struct timespec *mtime)
{
    return there != NULL && S_ISREG(there->st_mode) &&
           (there->st_mtim.tv_sec != mtime->tv_sec || there->st_mtim.tv_nsec != mtime->tv_nsec);
}

enum answer receiver_compare(const struct receiver *receiver, int directory, const char *name,
                             const struct stat *there, uint64_t size, const struct timespec *mtime,
                             uint32_t *ret_left)
{
    enum answer answer = compare_file(receiver->options.wishes, there, size, mtime, ret_left);
    bool by_time_or_size =
        answer == ANSWER_SAME || (answer == ANSWER_LEFT && *ret_left == LEFT_NEWER);
    if (by_time_or_size && may_be_half(there, mtime) && half_mark_is_on(directory, name)) {
        *ret_left = 0;
        return ANSWER_WANTED;
    }
    return answer;
}

enum answer receiver_compare_link(const struct receiver *receiver, const struct message *message,
                                  const char *name, const struct stat *there, uint32_t *ret_left)
{
    const struct wishes *wishes = receiver->options.wishes;
    const struct timespec mtime = {.tv_sec = message->entry.mtime_s,
                                   .tv_nsec = message->entry.mtime_ns};
    enum answer answer = compare_other(wishes, there, false, ret_left);
    if (answer == ANSWER_WANTED && there != NULL && compare_is_newer(wishes, there, &mtime) &&
        !half_mark_is_on(tree_directory(&receiver->tree), name)) {
        *ret_left = LEFT_NEWER;
        return ANSWER_LEFT;
    }
    return answer;
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
    const char *name = receiver_source_name(receiver, message->entry.source, buffer);
    return name[0] != 0 || message->entry.kind == ENTRY_DIRECTORY ? name : NULL;
}

static bool kind_is_asked_for(const struct receiver *receiver, enum entry_kind kind)
{
    unsigned preserve = receiver->options.wishes->preserve;
    switch (kind) {
    case ENTRY_FILE:
        return true;
    case ENTRY_DIRECTORY:
    case ENTRY_SYMLINK:
        return receiver_wishes(receiver, WISH_RECURSIVE) || receiver_wishes(receiver, WISH_LISTED);
    case ENTRY_HARD_LINK:
        return (preserve & PRESERVE_HARD_LINKS) != 0;
    case ENTRY_FIFO:
    case ENTRY_SOCKET:
        return (preserve & PRESERVE_SPECIALS) != 0;
    case ENTRY_CHARACTER_DEVICE:
    case ENTRY_BLOCK_DEVICE:
        return (preserve & PRESERVE_DEVICES) != 0;
    }
    return false;
}

static bool entry_is_allowed(const struct receiver *receiver, const struct message *message,
                             const char **ret_reason)
{
    if (receiver->state != RECEIVER_ENTRIES) {
        *ret_reason = "an entry in the middle of a file";
    } else if (message->entry.id != receiver->last_id + 1) {
        *ret_reason = "an entry out of order";
    } else if (!kind_is_asked_for(receiver, message->entry.kind)) {
        *ret_reason = "a kind of file that was not asked for";
    } else if (message->entry.kind == ENTRY_FILE && message->entry.content != CONTENT_NOT_SENT &&
               (message->entry.content == CONTENT_DRY) != receiver_wishes(receiver, WISH_DRY_RUN)) {
        *ret_reason = "contents in a dry run, or none in another";
    } else {
        return true;
    }
    return false;
}

/* Its directory was reported; the rest says nothing new. */
static void pass_dead_entry(struct receiver *receiver, const struct message *message,
                            bool by_chunks)
{
    enum entry_kind kind = message->entry.kind;
    receiver->dead_depth += kind == ENTRY_DIRECTORY;
    if (kind == ENTRY_HARD_LINK) {
        hard_links_pass(&receiver->links, message->entry.first);
        kind = message->entry.of;
    }
    if (kind != ENTRY_DIRECTORY && !by_chunks && receiver->dead_left) {
        receiver_count_untouched(receiver, message->entry.id, kind, message->entry.size,
                                 &receiver->options.tally->left);
    }
    if (by_chunks) {
        receiver_begin_dead_file(receiver, message);
    }
}

static bool place_entry(struct receiver *receiver, const struct message *message,
                        const char **ret_reason)
{
    char buffer[NAME_LENGTH_MAX + 1];
    if (!entry_is_allowed(receiver, message, ret_reason)) {
        return false;
    }
    if (receiver->xattrs.open) {
        *ret_reason = "an attribute that is not whole";
        return false;
    }
    const char *name = entry_name(receiver, message, buffer);
    if (name == NULL) {
        *ret_reason = "an entry that belongs to no source, or has no name";
        return false;
    }
    receiver->last_id++;
    bool by_chunks = message->entry.kind == ENTRY_FILE && message->entry.content == CONTENT_CHUNKS;
    bool counts = message->entry.kind != ENTRY_DIRECTORY && !by_chunks;
    receiver->entries += counts;
    if (receiver->dead_depth > 0) {
        pass_dead_entry(receiver, message, by_chunks);
        return true;
    }
    receiver_make_room(receiver, message);
    tree_name(&receiver->tree, name);
    if (!receiver_is_asked_for(receiver, (unsigned)receiver->last_source,
                               tree_relative(&receiver->tree),
                               message->entry.kind == ENTRY_DIRECTORY)) {
        *ret_reason = "a name that was not asked for, or is left out";
        return false;
    }
    receiver_note_name(receiver);
    if (message->entry.kind == ENTRY_DIRECTORY) {
        receiver_begin_directory(receiver, message, name);
        return true;
    }
    if (message->entry.kind == ENTRY_FILE) {
        receiver_place_file(receiver, message, name);
    } else if (message->entry.kind == ENTRY_HARD_LINK) {
        receiver_place_link(receiver, message, name);
    } else {
        receiver_place_node(receiver, message, name);
    }
    if (receiver->state != RECEIVER_FILE) {
        tree_forget(&receiver->tree);
    }
    return true;
}

static bool receive_attribute(struct receiver *receiver, const struct message *message,
                              const char **ret_reason)
{
    if (receiver->state != RECEIVER_ENTRIES ||
        (receiver->options.wishes->preserve & (PRESERVE_XATTRS | PRESERVE_ACLS)) == 0) {
        *ret_reason = "an attribute that was not asked for";
        return false;
    }
    int error = xattrs_add(&receiver->xattrs, message->attribute.name, message->attribute.value,
                           message->attribute.more);
    if (error != 0) {
        *ret_reason = error == ENOMEM ? "no memory" : "attributes that no file can have";
        return false;
    }
    return true;
}

void receiver_discard_file(struct receiver *receiver, int error)
{
    receiver_speak_in_turn(receiver, receiver->file.place.name);
    receiver_drop_file(receiver);
    receiver->file.discarded = true;
    receiver_uncount_file(receiver);
    receiver_fail_errno(receiver, receiver->file.id, error);
}

static bool receive_hole(struct receiver *receiver, uint64_t length, const char **ret_reason)
{
    const struct current_file *file = &receiver->file;
    if (receiver->state != RECEIVER_FILE || length == 0 || length > file->size - file->position) {
        *ret_reason = "a hole outside a file";
        return false;
    }
    receiver_take_part(receiver,
                       &(struct writer_piece){.length = length, .position = file->position});
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
    receiver_settle_small(receiver);
    uint32_t id;
    int error = tree_leave(&receiver->tree, &id);
    if (error != 0) {
        receiver_fail_errno(receiver, id, error);
    }
    tree_forget(&receiver->tree);
    return true;
}

/* Where nothing failed, every source and every file has come. */
static bool is_complete(const struct receiver *receiver, const struct message *message)
{
    const struct tally *tally = receiver->options.tally;
    bool all_sources = message->finished.sources == receiver->options.source_count;
    return tally->failed > 0 || (message->finished.entries == receiver->entries &&
                                 message->finished.sources == receiver->sources_seen &&
                                 (all_sources || receiver->options.rules));
}

/* What could not be read is not taken for what is not there. */
static bool is_to_delete(struct receiver *receiver)
{
    if (!receiver_wishes(receiver, WISH_DELETE) || receiver->deleting.sources == NULL ||
        receiver->tree.top < 0) {
        return false;
    }
    bool sound = receiver->source_failures == 0 || receiver_wishes(receiver, WISH_IGNORE_ERRORS);
    receiver->options.tally->undeleted = !sound;
    return sound;
}

static bool receive_finished(struct receiver *receiver, const struct message *finished,
                             const char **ret_reason)
{
    if (receiver->state != RECEIVER_ENTRIES || receiver->tree.depth > 0 ||
        receiver->dead_depth > 0) {
        *ret_reason = "finished in the middle of a file or directory";
        return false;
    }
    receiver_settle_small(receiver);
    if (!is_complete(receiver, finished)) {
        *ret_reason = "finished before everything had come";
        return false;
    }
    int error = tree_finish(&receiver->tree);
    if (error != 0) {
        receiver_fail_errno(receiver, 0, error);
    }
    if (!is_to_delete(receiver)) {
        receiver_send_summary(receiver);
    } else if (receiver_begin_deleting(receiver)) {
        receiver->state = RECEIVER_DELETING;
    } else {
        *ret_reason = "no memory";
        return false;
    }
    return true;
}

bool receiver_pump(struct receiver *receiver)
{
    bool done;
    if (receiver->state != RECEIVER_DELETING) {
        receiver_urge_small(receiver);
        receiver_take_back(receiver);
        receiver_grant(receiver);
        bool verifies = receiver->state == RECEIVER_VERIFYING;
        bool more = verifies ? receiver_verify(receiver) : receiver_prove(receiver);
        return receiver_answer(receiver) || more;
    }
    bool more = receiver_delete(receiver, &done);
    if (done) {
        receiver_send_summary(receiver);
    }
    return more;
}

static bool receive_answers(struct receiver *receiver, const struct message *message,
                            const char **ret_reason)
{
    if (receiver->state != RECEIVER_DELETING ||
        !lookahead_answer(receiver->deleting.lookahead, message)) {
        *ret_reason = "answers to what was not asked";
        return false;
    }
    return true;
}

/* While what the source has not is deleted. */
static bool may_come_last(enum message_type type)
{
    return type == MESSAGE_ANSWERS || type == MESSAGE_SKIPPED;
}

bool receiver_receive(struct receiver *receiver, const struct message *message,
                      const char **ret_reason)
{
    struct tally *tally = receiver->options.tally;
    bool sound;
    if (receiver->state == RECEIVER_DONE) {
        *ret_reason = "something after the end";
        return false;
    }
    if (receiver->options.link->backlog_count > ANSWERS_MAX) {
        *ret_reason = "it does not take our answers";
        return false;
    }
    if (receiver->state == RECEIVER_DELETING && !may_come_last(message->type)) {
        *ret_reason = "something after the end";
        return false;
    }
    switch (message->type) {
    case MESSAGE_ANSWERS:
        return receive_answers(receiver, message, ret_reason);
    case MESSAGE_ENTRY:
        sound = place_entry(receiver, message, ret_reason);
        xattrs_clear(&receiver->xattrs);
        return sound;
    case MESSAGE_ASK:
        return receiver_ask(receiver, message, ret_reason);
    case MESSAGE_ALIVE:
        return true;
    case MESSAGE_ATTRIBUTE:
        return receive_attribute(receiver, message, ret_reason);
    case MESSAGE_RULE:
        return receiver_receive_rule(receiver, message, ret_reason);
    case MESSAGE_HOLE:
        return receive_hole(receiver, message->hole.length, ret_reason);
    case MESSAGE_KEEP:
        return receiver_receive_keep(receiver, message->keep.length, ret_reason);
    case MESSAGE_END:
        return receiver_receive_end(receiver, message, ret_reason);
    case MESSAGE_LEAVE:
        return receive_leave(receiver, ret_reason);
    case MESSAGE_SKIPPED:
        receiver_report_source(receiver, message->problem.code, message->problem.path,
                               message->problem.text);
        return true;
    case MESSAGE_TOTALS:
        tally->totals_known = true;
        tally->total_files = message->totals.files;
        tally->total_bytes = message->totals.bytes;
        return true;
    case MESSAGE_RETRANSMITTED:
        tally->retransmissions_known = true;
        tally->retransmissions = message->retransmitted.count;
        return true;
    case MESSAGE_FINISHED:
        return receive_finished(receiver, message, ret_reason);
    default:
        *ret_reason = "a message that a sender does not send";
        return false;
    }
}
