/* Small files, which come whole or by few chunks: several wait for their names at a time, while the
 * next ones come.
 *
 * Such files are of one directory, and of a kind: whatever else comes, what ends the directory, and
 * what is said of anything else waits for them, so hard links find them, directories get their
 * times after them, and all is said in order. Of two names that differ in case, where that makes
 * none, either may stay. */
#include <errno.h>
#include <string.h>

#include "tools/transfer/ends/receiver_private.h"

#define HELD_LENGTH_MAX 4096u /* of the extended attributes of one */

/* Not at the top, for the next source may have the same name in it, and the later one is to stay;
 * nor with --inplace, for two names may be of one file. Not where a name that is taken is to be
 * left, where to give it takes long, or another descriptor. */
bool receiver_may_wait(const struct receiver *receiver, const struct message *message)
{
    const struct xattrs *xattrs = &receiver->xattrs;
    bool is_small =
        message->entry.content == CONTENT_EAGER ||
        (message->entry.content == CONTENT_CHUNKS && message->entry.size < RESUMED_LENGTH_MIN &&
         !receiver_wishes(receiver, WISH_VERIFY));
    return message->entry.kind == ENTRY_FILE && is_small && receiver->tree.depth > 0 &&
           tree_tells_at_once(&receiver->tree) &&
           !receiver_wishes(receiver,
                            WISH_INPLACE | WISH_IGNORE_EXISTING | WISH_FSYNC | WISH_FORCE) &&
           xattrs->length + xattrs->count * sizeof(struct xattr) <= HELD_LENGTH_MAX;
}

/* The path of a file under way goes on being named. */
static void end_small(struct receiver *receiver, struct commit *commit)
{
    tree_name(&receiver->tree, commit->place.name);
    if (commit->error != 0) {
        receiver->options.tally->bytes -= commit->length;
        receiver_fail_errno(receiver, commit->id, commit->error);
    } else {
        receiver_remember_names(receiver, commit->id, commit->names);
        receiver->options.tally->files++;
        receiver_tell(receiver, ENTRY_FILE, commit->length, commit->changes);
    }
    tree_forget(&receiver->tree);
    if (receiver_has_file(receiver)) {
        tree_name(&receiver->tree, receiver->file.place.name);
    }
    xattrs_clear(&commit->xattrs);
}

static void take_small(struct receiver *receiver)
{
    struct commit commit;
    while (committer_take(receiver->committer, &commit)) {
        end_small(receiver, &commit);
    }
}

void receiver_settle_small(struct receiver *receiver)
{
    while (!committer_is_empty(receiver->committer)) {
        committer_help(receiver->committer);
        take_small(receiver);
    }
}

void receiver_speak_in_turn(struct receiver *receiver, const char *name)
{
    if (!committer_is_empty(receiver->committer)) {
        receiver_settle_small(receiver);
        tree_name(&receiver->tree, name);
    }
}

bool receiver_let_go(struct receiver *receiver, int error, const char *name)
{
    bool is_held = error == EMFILE || error == ENFILE || error == ENOSPC || error == EDQUOT;
    if (!is_held || committer_is_empty(receiver->committer)) {
        return false;
    }
    receiver_speak_in_turn(receiver, name);
    return true;
}

void receiver_make_room(struct receiver *receiver, const struct message *message)
{
    if (!receiver_may_wait(receiver, message)) {
        receiver_settle_small(receiver);
        return;
    }
    take_small(receiver);
    while (committer_is_full(receiver->committer)) {
        committer_help(receiver->committer);
        take_small(receiver);
    }
}

void receiver_urge_small(struct receiver *receiver)
{
    if (!committer_is_empty(receiver->committer)) {
        committer_urge(receiver->committer);
        take_small(receiver);
    }
}

static int write_small(struct receiver *receiver, struct commit *commit, const struct span *data)
{
    int error = place_write(&commit->place, data->bytes, data->length, 0);
    if (receiver_let_go(receiver, error, commit->place.name)) {
        error = place_write(&commit->place, data->bytes, data->length, 0);
    }
    if (error == 0 && receiver_wishes(receiver, WISH_VERIFY)) {
        error = receiver_read_back(receiver, &commit->place, data);
    }
    if (error != 0) {
        place_abandon(&commit->place);
    }
    return error;
}

void receiver_place_small(struct receiver *receiver, const struct message *message,
                          const char *name, const struct present *present,
                          const struct attributes *attributes, uint32_t changes)
{
    uint8_t digest[DIGEST_LENGTH];
    const struct span data = message->entry.data;
    digest_of(data.bytes, data.length, digest);
    if (memcmp(digest, message->entry.digest, DIGEST_LENGTH) != 0) {
        receiver_speak_in_turn(receiver, name);
        receiver_fail(receiver, message->entry.id, PROBLEM_DIGEST,
                      "the bytes that arrived are not those that were read (digest)");
        return;
    }
    struct commit commit = {.length = data.length,
                            .attributes = *attributes,
                            .id = message->entry.id,
                            .names = message->entry.names,
                            .changes = changes};
    int error = receiver_begin_place(receiver, &commit.place, name, present, &commit.attributes);
    if (error == 0) {
        error = write_small(receiver, &commit, &data);
    }
    if (error != 0) {
        receiver_speak_in_turn(receiver, name);
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    bool waits = receiver_may_wait(receiver, message); /* asked while we have the xattrs */
    receiver->options.tally->bytes += commit.length;
    commit.xattrs = receiver_take_xattrs(receiver);
    committer_give(receiver->committer, &commit);
    if (!waits) {
        receiver_settle_small(receiver);
    }
}

void receiver_give_file(struct receiver *receiver)
{
    struct current_file *file = &receiver->file;
    const struct commit commit = {.place = file->place,
                                  .length = file->size,
                                  .attributes = file->attributes,
                                  .xattrs = file->xattrs,
                                  .id = file->id,
                                  .names = file->names,
                                  .changes = file->changes};
    file->xattrs = (struct xattrs){0};
    file->place = (struct place){.fd = -1};
    committer_give(receiver->committer, &commit);
}
