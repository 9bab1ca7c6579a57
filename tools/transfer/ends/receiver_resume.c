#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/ends/receiver_private.h"

static void warn(struct receiver *receiver, const char *text)
{
    const struct report *report = receiver->options.report;
    const char *path = receiver->tree.path;
    const struct problem problem = {
        .code = PROBLEM_WARNING, .path = {path, strlen(path)}, .text = {text, strlen(text)}};
    struct message message = {.type = MESSAGE_WARNED};
    message.problem.id = receiver->last_id;
    message.problem.code = PROBLEM_WARNING;
    message.problem.path = problem.path;
    message.problem.text = problem.text;
    receiver->options.tally->warnings++;
    report->problem(report->user, &problem);
    receiver_send(receiver, &message);
}

static void tell_all(struct receiver *receiver)
{
    struct message message = {.type = MESSAGE_PROVEN_ALL};
    message.proven.id = receiver->file.id;
    receiver->resuming.awaited = false;
    receiver_send(receiver, &message);
}

/* Nothing is in the file but what is claimed, so what is not written to it reads as zeros. */
static int clear_the_rest(struct place *place, const struct journal_claims *claims)
{
    uint64_t at = 0;
    int error = 0;
    for (unsigned i = 0; i < claims->count && error == 0; i++) {
        const struct piece *piece = &claims->list[i].piece;
        error = piece->offset > at ? place_clear(place, at, piece->offset - at) : 0;
        at = piece->offset + piece->length;
    }
    return error != 0 ? error : place_cut(place, at);
}

static void warn_of_flaws(struct receiver *receiver, const struct journal_claims *claims)
{
    char text[TEXT_LENGTH_MAX];
    if (claims->damaged > 0) {
        snprintf(text, sizeof(text),
                 "%u of %u records of its journal are damaged; what they were about is sent again",
                 claims->damaged, claims->records);
        warn(receiver, text);
    }
    if (claims->torn) {
        warn(receiver, "its journal ends in a torn record, which is not believed");
    }
}

/* What an interrupted copy left. True: it is gone on with. */
static bool take_over(struct receiver *receiver, struct place *place,
                      const struct journal_head *head)
{
    struct resuming *resuming = &receiver->resuming;
    char text[TEXT_LENGTH_MAX], name[PLACE_JOURNAL_LENGTH + 1];
    place_journal_name(place, name);
    if (!receiver_wishes(receiver, WISH_RESUME)) {
        warn(receiver, "what an interrupted copy had left of it is replaced; --resume goes on with "
                       "it");
        return false;
    }
    enum journal_state state =
        journal_open(&resuming->journal, place->directory, name, head,
                     receiver_wishes(receiver, WISH_FSYNC), &resuming->claims);
    if (state != JOURNAL_SOUND) {
        snprintf(text, sizeof(text),
                 "its journal %s; what an interrupted copy had left of it is not used",
                 journal_state_text(state));
        warn(receiver, text);
        return false;
    }
    warn_of_flaws(receiver, &resuming->claims);
    if (clear_the_rest(place, &resuming->claims) != 0) {
        receiver_end_resuming(receiver);
        return false;
    }
    return true;
}

int receiver_begin_kept(struct receiver *receiver, struct place *place, const char *name,
                        enum replacing replacing)
{
    const struct current_file *file = &receiver->file;
    struct resuming *resuming = &receiver->resuming;
    struct stat status;
    const char *flaw = NULL;
    bool existed = false;
    int error =
        place_begin_kept(place, tree_directory(&receiver->tree), name, replacing, &existed, &flaw);
    if (flaw != NULL) {
        char text[TEXT_LENGTH_MAX];
        snprintf(text, sizeof(text), "what seemed left of it by an interrupted copy %s%s", flaw,
                 error == 0 ? ", and is replaced" : "");
        warn(receiver, text);
    }
    if (error == EBUSY && receiver_wishes(receiver, WISH_RESUME)) {
        warn(receiver, "another copy is writing it: nothing is resumed");
    }
    if (error != 0) {
        return error;
    }
    struct journal_head head = {.size = file->size,
                                .mtime_s = file->attributes.mtime.tv_sec,
                                .mtime_ns = (uint32_t)file->attributes.mtime.tv_nsec};
    digest_of(name, strlen(name), head.name);
    error = fstat(place->fd, &status) != 0 ? errno : 0;
    head.inode = status.st_ino;
    if (error == 0 && (!existed || !take_over(receiver, place, &head))) {
        char journal[PLACE_JOURNAL_LENGTH + 1];
        place_journal_name(place, journal);
        /* one that is new is not cut: some file systems write out at once what is then put into it
         */
        error = existed ? place_cut(place, 0) : 0;
        /* without one, the file is an ordinary one under way */
        journal_create(&resuming->journal, place->directory, journal, &head,
                       receiver_wishes(receiver, WISH_FSYNC));
    }
    if (error != 0) {
        receiver_end_resuming(receiver);
        place_abandon(place);
    }
    return error;
}

void receiver_end_resuming(struct receiver *receiver)
{
    struct resuming *resuming = &receiver->resuming;
    journal_close(&resuming->journal, receiver->file.place.fd);
    journal_claims_clear(&resuming->claims);
    *resuming = (struct resuming){.journal = {.fd = -1}, .awaited = resuming->awaited};
}

static void let_go(struct receiver *receiver, bool keep)
{
    struct place *place = &receiver->file.place;
    receiver_end_resuming(receiver);
    if (keep) {
        place_leave(place);
    } else {
        place_abandon(place);
    }
}

void receiver_leave_file(struct receiver *receiver)
{
    let_go(receiver, receiver_keeps_file(receiver)); /* and the writer has done what it was given */
}

void receiver_drop_file(struct receiver *receiver)
{
    let_go(receiver, receiver_wishes(receiver, WISH_RESUME) && receiver_keeps_file(receiver));
}

bool receiver_keeps_file(const struct receiver *receiver)
{
    writer_wait(receiver->writer);
    return receiver_has_file(receiver) && receiver->file.place.kept &&
           journal_is_of_use(&receiver->resuming.journal);
}

void receiver_piece_ended(void *user, const struct piece *piece)
{
    struct receiver *receiver = user;
    if (!receiver->file.discarded) {
        journal_add(&receiver->resuming.journal, receiver->file.place.fd, piece);
        receiver_note_piece(receiver, piece);
    }
}

enum reading receiver_read_piece(struct receiver *receiver, const struct piece *piece,
                                 uint64_t *done)
{
    uint8_t digest[DIGEST_LENGTH];
    uint64_t left = piece->length - *done;
    uint64_t stop = left < READ_BACK_AT_ONCE ? piece->length : *done + READ_BACK_AT_ONCE;
    if (*done == 0) {
        digest_start(receiver->proof);
    }
    while (*done < stop) {
        left = stop - *done;
        size_t length = left < CACHED_LENGTH ? (size_t)left : CACHED_LENGTH;
        ssize_t count = pread(receiver->file.place.fd, receiver->stored, length,
                              (off_t)(piece->offset + *done));
        if (count <= 0) {
            return count < 0 ? READS_NOT : READS_WRONG;
        }
        digest_data(receiver->proof, receiver->stored, (size_t)count);
        *done += (size_t)count;
    }
    if (*done < piece->length) {
        return READS_ON;
    }
    digest_result(receiver->proof, digest);
    return memcmp(digest, piece->digest, DIGEST_LENGTH) == 0 ? READS_RIGHT : READS_WRONG;
}

/* They will be written anew, and between them is nothing yet. The journal unlearns them first. */
static int strike(struct receiver *receiver, struct journal_claim *claims, unsigned count)
{
    const struct piece *first = &claims[0].piece, *last = &claims[count - 1].piece;
    journal_strike(&receiver->resuming.journal, claims, count);
    return place_clear(&receiver->file.place, first->offset,
                       last->offset + last->length - first->offset);
}

static void end_proof(struct receiver *receiver)
{
    const struct resuming *resuming = &receiver->resuming;
    if (resuming->wrong > 0) {
        char text[TEXT_LENGTH_MAX];
        snprintf(text, sizeof(text),
                 "%u of %u pieces that an interrupted copy had left are not what its journal says "
                 "(the first at byte %llu); they are sent again",
                 resuming->wrong, resuming->claims.count, (unsigned long long)resuming->wrong_at);
        warn(receiver, text);
    }
    tell_all(receiver);
}

bool receiver_prove(struct receiver *receiver)
{
    struct resuming *resuming = &receiver->resuming;
    if (receiver->state != RECEIVER_FILE || !resuming->awaited) {
        return false;
    }
    if (receiver->file.discarded || resuming->proven == resuming->claims.count) {
        end_proof(receiver);
        return false;
    }
    if (resuming->offered >= CLAIMS_MAX) {
        return false;
    }
    struct journal_claim *claim = &resuming->claims.list[resuming->proven];
    enum reading reading =
        claim->gone ? READS_RIGHT : receiver_read_piece(receiver, &claim->piece, &resuming->read);
    if (reading == READS_ON) {
        receiver_say_alive(receiver);
        return true;
    }
    resuming->proven++;
    resuming->read = 0;
    if (claim->gone) {
        return true;
    }
    if (reading != READS_RIGHT) {
        resuming->wrong_at = resuming->wrong++ == 0 ? claim->piece.offset : resuming->wrong_at;
        int error = strike(receiver, claim, 1);
        if (error != 0) {
            receiver_discard_file(receiver, error);
        }
        return true;
    }
    struct message message = {.type = MESSAGE_PROVEN};
    message.proven.id = receiver->file.id;
    message.proven.offset = claim->piece.offset;
    message.proven.length = claim->piece.length;
    memcpy(message.proven.digest, claim->piece.digest, DIGEST_LENGTH);
    receiver_send(receiver, &message);
    resuming->offered++;
    return true;
}

int receiver_overwrite(struct receiver *receiver, uint64_t length)
{
    struct resuming *resuming = &receiver->resuming;
    uint64_t end = receiver->file.position + length;
    unsigned first = resuming->answered;
    while (resuming->answered < resuming->claims.count &&
           resuming->claims.list[resuming->answered].piece.offset < end) {
        bool gone = resuming->claims.list[resuming->answered].gone;
        resuming->offered -= !gone && resuming->answered < resuming->proven;
        resuming->answered++;
    }
    if (resuming->proven < resuming->answered) {
        resuming->proven = resuming->answered;
        resuming->read = 0;
    }
    unsigned count = resuming->answered - first;
    return count > 0 ? strike(receiver, &resuming->claims.list[first], count) : 0;
}

/* The piece the peer may mean now; NULL: none was offered to it. */
static struct journal_claim *claim_here(struct resuming *resuming)
{
    while (resuming->answered < resuming->proven &&
           resuming->claims.list[resuming->answered].gone) {
        resuming->answered++;
    }
    return resuming->answered < resuming->proven ? &resuming->claims.list[resuming->answered]
                                                 : NULL;
}

bool receiver_receive_keep(struct receiver *receiver, uint64_t length, const char **ret_reason)
{
    struct current_file *file = &receiver->file;
    struct resuming *resuming = &receiver->resuming;
    if (receiver->state != RECEIVER_FILE || length == 0 || length > file->size - file->position) {
        *ret_reason = "a piece outside a file";
        return false;
    }
    if (file->discarded) {
        file->position += length;
        return true;
    }
    const struct journal_claim *claim = claim_here(resuming);
    if (claim == NULL || claim->piece.offset != file->position || claim->piece.length != length) {
        *ret_reason = "a piece that it was not offered";
        return false;
    }
    pieces_keep(&receiver->pieces, &claim->piece);
    receiver_note_piece(receiver, &claim->piece);
    resuming->answered++;
    resuming->offered--;
    file->position += length;
    receiver->options.tally->bytes += length;
    file->kept += length;
    receiver->options.tally->kept += length;
    return true;
}
