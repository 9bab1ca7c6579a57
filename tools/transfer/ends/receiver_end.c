#include <errno.h>

#include "tools/transfer/ends/receiver_private.h"

/* It comes again, also if it is a source itself. */
static void forget_entry(struct receiver *receiver)
{
    if (receiver->tree.depth == 0 && receiver->dead_depth == 0) {
        receiver->last_source = receiver->file.source - 1;
        receiver->sources_seen--;
    }
}

static void throw_away(struct receiver *receiver)
{
    receiver_uncount_file(receiver);
    place_abandon(&receiver->file.place);
}

/* Of a file with a wrong digest what is wrong alone has to come again, where what came is kept. */
static void give_up(struct receiver *receiver, int error)
{
    if (error == EPROTO || error == EBADMSG) {
        receiver_uncount_file(receiver);
        receiver_drop_file(receiver);
    } else {
        throw_away(receiver);
    }
}

/* What has come is of a source that is no more. */
static bool is_out_of_date(enum problem_code code)
{
    return code == PROBLEM_CHANGED || code == PROBLEM_VANISHED;
}

/* It is over, one way or the other; a peer that waits for that is told. */
static void forget_file(struct receiver *receiver, bool whole)
{
    struct message message = {.type = MESSAGE_READ_BACK};
    message.read_back.id = receiver->file.id;
    if (whole && receiver_wishes(receiver, WISH_VERIFY)) {
        receiver_send(receiver, &message);
    }
    receiver->resuming.awaited = false;
    receiver_end_resuming(receiver);
    receiver_forget_pieces(receiver);
    receiver->state = RECEIVER_ENTRIES;
    xattrs_clear(&receiver->file.xattrs);
    tree_forget(&receiver->tree);
}

void receiver_end_file(struct receiver *receiver, int error)
{
    error = error != 0 ? error : receiver->resuming.journal.lost;
    if (error == 0) {
        receiver_commit_file(receiver);
    } else {
        receiver_speak_in_turn(receiver, receiver->file.place.name);
        give_up(receiver, error);
        receiver_fail_errno(receiver, receiver->file.id, error);
    }
    forget_file(receiver, true);
}

bool receiver_receive_end(struct receiver *receiver, const struct message *message,
                          const char **ret_reason)
{
    struct current_file *file = &receiver->file;
    if (receiver->state != RECEIVER_FILE) {
        *ret_reason = "the end of a file that was not begun";
        return false;
    }
    receiver_settle(receiver);
    if (message->end.code == PROBLEM_NONE && file->position != file->size) {
        *ret_reason = "the end of a file before its last byte";
        return false;
    }
    bool whole = message->end.code == PROBLEM_NONE;
    receiver->entries += whole;
    if (file->left && whole) {
        receiver_count_untouched(receiver, file->id, ENTRY_FILE, 0, &receiver->options.tally->left);
    }
    if (message->end.again) {
        forget_entry(receiver);
    }
    if (!file->discarded && !whole) {
        receiver_report_source(receiver, message->end.again ? PROBLEM_WARNING : message->end.code,
                               message->end.path, message->end.text);
    }
    if (file->discarded && !whole && !message->end.again && message->end.code != PROBLEM_WARNING) {
        receiver->source_failures++; /* nothing of it is wanted here, and still it is not known */
    }
    if (file->discarded) {
        forget_file(receiver, whole);
    } else if (!whole && is_out_of_date(message->end.code)) {
        throw_away(receiver);
        forget_file(receiver, whole);
    } else if (!whole) {
        receiver_uncount_file(receiver);
        receiver_drop_file(receiver);
        forget_file(receiver, whole);
    } else if (!receiver_check_file(receiver, message)) {
        receiver_end_file(receiver, EPROTO);
    } else if (!receiver_wishes(receiver, WISH_VERIFY)) {
        receiver_end_file(receiver, 0);
    } else {
        int error = receiver_begin_verifying(receiver);
        if (error != 0) {
            receiver_end_file(receiver, error);
        }
    }
    return true;
}
