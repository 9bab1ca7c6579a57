#include <string.h>

#include "tools/transfer/copy/fanout_private.h"

/* What each receiver has proven of the file under way becomes what one has proven: a piece that all
 * have said alike is said to the session as it is. Any other is said with a digest that is
 * nobody's, and the session sends what stands there; so whatever the receivers differ in, they are
 * answered in order, and the session never waits for more. */

void fanout_look_at_file(struct fanout *fanout, const struct message *message)
{
    struct proving *proving = &fanout->proving;
    switch (message->type) {
    case MESSAGE_ENTRY:
        fanout->last_id = message->entry.id;
        *proving = (struct proving){.id = message->entry.id,
                                    .size = message->entry.size,
                                    .open = message->entry.kind == ENTRY_FILE &&
                                            message->entry.content == CONTENT_CHUNKS};
        for (unsigned i = 0; i < fanout->options.count; i++) {
            fanout->members[i].proven = (struct proven){.count = 0};
        }
        return;
    case MESSAGE_KEEP:
        proving->position += message->keep.length;
        return;
    case MESSAGE_HOLE:
        proving->position += message->hole.length;
        return;
    case MESSAGE_END:
        proving->open = false;
        return;
    default:
        return;
    }
}

void fanout_hear_proven(struct member *member, const struct message *message)
{
    const struct proving *proving = &member->fanout->proving;
    struct proven *proven = &member->proven;
    struct piece piece = {.offset = message->proven.offset, .length = message->proven.length};
    if (!member->fanout->resumes || message->proven.id > member->fanout->last_id) {
        fanout_fail(member, SESSION_BROKEN,
                    "it broke the protocol: pieces of what nobody asked about");
        return;
    }
    if (!proving->open || message->proven.id != proving->id) { /* it was given up meanwhile */
        return;
    }
    bool all = message->type == MESSAGE_PROVEN_ALL;
    if (proven->all ||
        (!all && (proven->count == CLAIMS_MAX || piece.offset < proven->end ||
                  piece.length > pieces_length(proving->size) || piece.length > proving->size ||
                  piece.offset > proving->size - piece.length))) {
        fanout_fail(member, SESSION_BROKEN,
                    "it broke the protocol: more pieces than there can be, or not in order");
        return;
    }
    if (all) {
        proven->all = true;
        return;
    }
    memcpy(piece.digest, message->proven.digest, DIGEST_LENGTH);
    proven->list[(proven->first + proven->count++) % CLAIMS_MAX] = piece;
    proven->end = piece.offset + piece.length;
}

/* The next piece that it says; NULL: none now. What data have gone over meanwhile is passed over.
 */
static const struct piece *head_of(struct proven *proven, uint64_t position)
{
    for (; proven->count > 0; proven->count--) {
        const struct piece *piece = &proven->list[proven->first];
        if (piece->offset >= position) {
            return piece;
        }
        proven->first = (proven->first + 1) % CLAIMS_MAX;
    }
    return NULL;
}

static bool takes_part(const struct member *member)
{
    return member->alive && !member->summed;
}

/* The first piece that anybody says; NULL: none. False: somebody is to say more before. */
static bool find_first(struct fanout *fanout, const struct piece **ret_first)
{
    const struct piece *first = NULL;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct member *member = &fanout->members[i];
        const struct piece *head = head_of(&member->proven, fanout->proving.position);
        if (!takes_part(member)) {
            continue;
        }
        if (head == NULL && !member->proven.all) {
            return false;
        }
        if (head != NULL && (first == NULL || head->offset < first->offset)) {
            first = head;
        }
    }
    *ret_first = first;
    return true;
}

/* Takes what begins there from all. True: it is the same piece. */
static bool take_first(struct fanout *fanout, const struct piece *first)
{
    bool same = true;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct proven *proven = &fanout->members[i].proven;
        const struct piece *head = head_of(proven, fanout->proving.position);
        if (head != NULL && head->offset == first->offset) {
            same &= !takes_part(&fanout->members[i]) ||
                    (head->length == first->length &&
                     memcmp(head->digest, first->digest, DIGEST_LENGTH) == 0);
            proven->first = (proven->first + 1) % CLAIMS_MAX;
            proven->count--;
        } else {
            same &= !takes_part(&fanout->members[i]);
        }
    }
    return same;
}

/* The session holds no more of them than of one receiver. */
static bool has_room(struct proving *proving)
{
    while (proving->told > 0 && proving->offsets[proving->first] < proving->position) {
        proving->first = (proving->first + 1) % CLAIMS_MAX;
        proving->told--;
    }
    return proving->told < CLAIMS_MAX;
}

void fanout_merge_proven(struct fanout *fanout)
{
    struct proving *proving = &fanout->proving;
    const struct piece *first = NULL;
    while (fanout->resumes && proving->open && !proving->told_all && has_room(proving) &&
           find_first(fanout, &first)) {
        struct message message = {.type = MESSAGE_PROVEN_ALL};
        message.proven.id = proving->id;
        proving->told_all = first == NULL;
        if (first != NULL) {
            const struct piece piece = *first;
            bool same = take_first(fanout, &piece);
            message.type = MESSAGE_PROVEN;
            message.proven.offset = piece.offset;
            message.proven.length = same ? piece.length : 1; /* the next one may begin there */
            memcpy(message.proven.digest, piece.digest, DIGEST_LENGTH);
            message.proven.digest[0] ^= same ? 0 : 1;
            proving->offsets[(proving->first + proving->told++) % CLAIMS_MAX] = piece.offset;
        }
        fanout_tell(fanout, &message, (struct span){NULL, 0});
    }
}
