#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/transfer/disk/half_mark.h"
#include "tools/transfer/ends/receiver_private.h"

void receiver_send(struct receiver *receiver, const struct message *message)
{
    const struct weir_piece piece = {receiver->head, protocol_pack(message, receiver->head)};
    struct link *link = receiver->options.link;
    link->operations->send(link, &piece, 1);
}

void receiver_say_alive(struct receiver *receiver)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - receiver->alive_s >= ALIVE_INTERVAL_S) {
        receiver->alive_s = now.tv_sec;
        receiver_send(receiver, &(struct message){.type = MESSAGE_ALIVE});
    }
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static const char *place_error_text(int error)
{
    switch (error) {
    case EEXIST:
        return "exists already";
    case EISDIR:
        return "is a directory already, and not empty (--force replaces it)";
    case ENOTDIR:
        return "exists already and is not a directory";
    case EMEDIUMTYPE:
        return "is a device, a socket or a FIFO, and is not replaced";
    case ESTALE:
        return "was changed by somebody meanwhile";
    case ELOOP:
        return "is a symbolic link already, and is not followed";
    case EXDEV:
        return "leads out of the target";
    case EPROTO:
        return "the bytes that arrived are not those that were read (digest)";
    case EBADMSG:
        return "what was read back from storage is not what was written (digest)";
    case E2BIG:
        return "is in too many pieces to be read back";
    case ENOBUFS:
        return "has, with the directories that it is in, more than 4 MiB of extended attributes";
    case EILSEQ:
        return "is a name that stands for a file under way";
    default:
        return strerror(error);
    }
}

/* receiver->tree.path names what failed. */
void receiver_fail(struct receiver *receiver, uint32_t id, enum problem_code code, const char *text)
{
    receiver_fail_path(receiver, id, code, receiver->tree.path, text);
}

void receiver_fail_path(struct receiver *receiver, uint32_t id, enum problem_code code,
                        const char *path, const char *text)
{
    const struct problem problem = {.code = code, .path = span_of(path), .text = span_of(text)};
    receiver->options.tally->failed++;
    receiver->options.report->problem(receiver->options.report->user, &problem);
    struct message message = {.type = MESSAGE_FAILED};
    message.problem.id = id;
    message.problem.code = code;
    message.problem.path = problem.path;
    message.problem.text = problem.text;
    receiver_send(receiver, &message);
}

void receiver_fail_errno(struct receiver *receiver, uint32_t id, int error)
{
    static const char *const what[] = {[FAILURE_OWNER >> 16] = "its owner",
                                       [FAILURE_XATTR >> 16] = "its extended attributes",
                                       [FAILURE_ACL >> 16] = "its ACL"};
    int number = error & FAILURE_ERRNO;
    if (number == error) {
        receiver_fail(receiver, id, problem_code_of_errno(error), place_error_text(error));
        return;
    }
    if (error - number == FAILURE_UNKNOWN) {
        receiver_fail(receiver, id, PROBLEM_NAME, "nobody here has the name its owner is to have");
        return;
    }
    char text[TEXT_LENGTH_MAX];
    snprintf(text, sizeof(text), "%s cannot be kept here: %s", what[error >> 16], strerror(number));
    receiver_fail(receiver, id, problem_code_of_errno(number), text);
}

void receiver_tell(struct receiver *receiver, enum entry_kind kind, uint64_t size, uint32_t changes)
{
    receiver_tell_path(receiver, kind, tree_relative(&receiver->tree), size, changes);
}

void receiver_tell_path(struct receiver *receiver, enum entry_kind kind, const char *path,
                        uint64_t size, uint32_t changes)
{
    const struct report *report = receiver->options.report;
    bool changed = (changes & ~(uint32_t)CHANGE_NOTHING) != 0;
    if (!receiver_wishes(receiver, WISH_ITEMS) ||
        (!changed && !receiver_wishes(receiver, WISH_ALL_ITEMS))) {
        return;
    }
    const struct item item = {
        .kind = kind, .changes = changes, .size = size, .path = span_of(path)};
    if (report->item != NULL) {
        report->item(report->user, &item);
        return;
    }
    struct message message = {.type = MESSAGE_ITEM};
    message.item.kind = kind;
    message.item.changes = changes;
    message.item.size = size;
    message.item.path = item.path;
    receiver_send(receiver, &message);
}

void receiver_count_untouched(struct receiver *receiver, uint32_t id, enum entry_kind kind,
                              uint64_t size, uint64_t *counter)
{
    struct tally *tally = receiver->options.tally;
    uint64_t bytes = kind == ENTRY_FILE ? size : 0;
    bool again = id <= receiver->options.before;
    tally->spared += bytes;
    if (!again) {
        ++*counter;
        tally->untouched_symlinks += kind == ENTRY_SYMLINK;
        tally->untouched_specials += kind > ENTRY_HARD_LINK;
        return;
    }
    tally->again_bytes += bytes;
    tally->again_symlinks += kind == ENTRY_SYMLINK;
    tally->again_files += kind != ENTRY_SYMLINK;
}

void receiver_report_source(struct receiver *receiver, enum problem_code code, struct span path,
                            struct span text)
{
    const struct problem problem = {
        .code = code, .remote = true, .at_source = true, .path = path, .text = text};
    receiver_settle_small(receiver); /* what came before is said first */
    if (code == PROBLEM_WARNING) {
        receiver->options.tally->warnings++;
    } else {
        receiver->options.tally->failed++;
        receiver->source_failures++;
    }
    receiver->options.report->problem(receiver->options.report->user, &problem);
}

/* What was made under a name of its own is whole, and not to be gone on with. */
static void complete(const struct receiver *receiver)
{
    const struct target *target = receiver->options.target;
    const struct tally *tally = receiver->options.tally;
    if (!target->into && target->named[0] != 0 && tally->failed == 0 && !tally->undeleted &&
        !receiver_wishes(receiver, WISH_DRY_RUN)) {
        half_mark_unname(target->directory, target->name);
    }
}

void receiver_send_summary(struct receiver *receiver)
{
    const struct tally *tally = receiver->options.tally;
    complete(receiver);
    struct message message = {.type = MESSAGE_SUMMARY};
    message.summary.files = tally->files;
    message.summary.directories = tally->directories;
    message.summary.symlinks = tally->symlinks;
    message.summary.bytes = tally->bytes;
    message.summary.failed = tally->failed;
    message.summary.same = tally->same;
    message.summary.left = tally->left;
    message.summary.deleted = tally->deleted;
    message.summary.kept = tally->kept;
    message.summary.held_back = tally->held_back;
    message.summary.again_files = tally->again_files;
    message.summary.again_symlinks = tally->again_symlinks;
    message.summary.again_bytes = tally->again_bytes;
    message.summary.untouched_symlinks = tally->untouched_symlinks;
    message.summary.specials = tally->specials;
    message.summary.untouched_specials = tally->untouched_specials;
    message.summary.undeleted = tally->undeleted;
    receiver_send(receiver, &message);
    receiver->state = RECEIVER_DONE;
}
