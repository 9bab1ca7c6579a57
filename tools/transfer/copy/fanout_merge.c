#include <stdlib.h>
#include <string.h>

#include "tools/transfer/copy/fanout_private.h"
#include "tools/transfer/ends/sender.h"
#include "tools/transfer/ends/summary.h"

static bool add(struct givens *givens, const struct given *given)
{
    if (givens->count == givens->capacity) {
        size_t capacity = 2 * givens->capacity + ASK_NAMES_MAX;
        struct given *list = calloc(capacity, sizeof(*list));
        if (list == NULL) {
            return false;
        }
        for (size_t i = 0; i < givens->count; i++) {
            list[i] = givens->list[(givens->begin + i) % givens->capacity];
        }
        free(givens->list);
        *givens = (struct givens){.list = list, .capacity = capacity, .count = givens->count};
    }
    givens->list[(givens->begin + givens->count++) % givens->capacity] = *given;
    return true;
}

void fanout_forget(struct member *member)
{
    free(member->givens.list);
    member->givens = (struct givens){0};
}

static void hear_answers(struct member *member, const struct message *message)
{
    struct span rest = message->answers.answers;
    member->answered += message->answers.count;
    if (member->answered > member->fanout->asked) {
        fanout_fail(member, SESSION_BROKEN,
                    "it broke the protocol: answers to what it was not asked");
        return;
    }
    for (unsigned i = 0; i < message->answers.count; i++) {
        struct given given = {0};
        given.answer = protocol_next_answer(&rest, given.digest);
        if (!add(&member->givens, &given)) {
            fanout_fail(member, SESSION_BROKEN, "no memory here for its answers");
            return;
        }
    }
}

static void hear_problem(struct member *member, const struct message *message)
{
    const struct report *report = member->fanout->options.members[member->number].report;
    bool warned = message->type == MESSAGE_WARNED;
    const struct problem problem = {
        .code = warned                                     ? PROBLEM_WARNING
                : message->problem.code == PROBLEM_WARNING ? PROBLEM_INPUT_OUTPUT
                                                           : message->problem.code,
        .remote = true,
        .path = message->problem.path,
        .text = message->problem.text,
    };
    member->tally.warnings += warned;
    member->tally.failed += !warned;
    report->problem(report->user, &problem);
}

static void hear_item(struct member *member, const struct message *message)
{
    const struct report *report = member->fanout->options.members[member->number].report;
    const struct item item = {.kind = message->item.kind,
                              .changes = message->item.changes,
                              .size = message->item.size,
                              .path = message->item.path};
    if (report->item != NULL) {
        report->item(report->user, &item);
    }
}

static void hear_summary(struct member *member, const struct message *message)
{
    const struct fanout *fanout = member->fanout;
    if (!fanout->finished || member->summed) {
        fanout_fail(member, SESSION_BROKEN, "it broke the protocol: a summary before the end");
        return;
    }
    if (message->summary.failed == 0 && summary_entries(message) < fanout->entries) {
        fanout_fail(member, SESSION_BROKEN,
                    "it broke the protocol: a summary that leaves out files");
        return;
    }
    summary_take(message, &member->tally);
    member->summary = *message;
    member->summed = true;
    member->outcome = SESSION_COMPLETE;
}

/* Else the session would take it for the end of all. */
static bool may_ask(const struct fanout *fanout, const struct message *message)
{
    struct span rest = message->ask.questions;
    bool may = true;
    while (rest.length > 0 && may) {
        struct question question;
        protocol_next_question(&rest, &question);
        may = !question.is_directory || (question.source < TRANSFER_SOURCES_MAX && !question.top &&
                                         fanout->is_sent[question.source]);
    }
    return may;
}

/* A question of one that deletes is answered to it alone, from within the session. */
static void hear_question(struct member *member, const struct message *message)
{
    if (member->link == NULL || member->link->backlog_count >= ANSWERS_BACKLOG_MAX) {
        fanout_fail(member, SESSION_BROKEN, "it asks, and does not take the answers");
        return;
    }
    if (!may_ask(member->fanout, message)) {
        fanout_fail(member, SESSION_BROKEN,
                    "it broke the protocol: a question that it may not ask");
        return;
    }
    member->fanout->asker = member;
    fanout_tell(member->fanout, message, message->ask.questions);
    member->fanout->asker = NULL;
}

void fanout_hear(struct member *member, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_ANSWERS:
        hear_answers(member, message);
        return;
    case MESSAGE_FAILED:
    case MESSAGE_WARNED:
        hear_problem(member, message);
        return;
    case MESSAGE_ITEM:
        hear_item(member, message);
        return;
    case MESSAGE_READ_BACK:
        member->read_back = message->read_back.id;
        return;
    case MESSAGE_SUMMARY:
        hear_summary(member, message);
        return;
    case MESSAGE_ASK:
        if (member->fanout->finished && !member->summed) {
            hear_question(member, message);
        } else {
            fanout_fail(member, SESSION_BROKEN, "it broke the protocol: a question too early");
        }
        return;
    case MESSAGE_PROVEN:
    case MESSAGE_PROVEN_ALL:
        fanout_hear_proven(member, message);
        return;
    case MESSAGE_ALIVE:
        return;
    default:
        fanout_fail(member, SESSION_BROKEN,
                    "it broke the protocol: a message that a receiver does not send");
    }
}

/* A file is sent where one wants it, or where they are not of one mind what they have. */
static void join(struct given *all, const struct given *one, bool first)
{
    bool digests = all->answer == ANSWER_DIGEST && one->answer == ANSWER_DIGEST;
    if (first) {
        *all = *one;
    } else if (all->answer == ANSWER_WANTED || one->answer == ANSWER_WANTED ||
               (digests && memcmp(all->digest, one->digest, DIGEST_LENGTH) != 0)) {
        all->answer = ANSWER_WANTED;
    } else if (one->answer == ANSWER_DIGEST ||
               (all->answer == ANSWER_LEFT && one->answer == ANSWER_SAME)) {
        *all = *one;
    }
}

/* How many questions all that live have answered. */
static size_t common_answers(const struct fanout *fanout)
{
    size_t count = SIZE_MAX;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        const struct member *member = &fanout->members[i];
        if (member->alive && !member->summed && member->givens.count < count) {
            count = member->givens.count;
        }
    }
    return count == SIZE_MAX ? 0 : count;
}

static struct given take_answer(struct fanout *fanout)
{
    struct given all = {.answer = ANSWER_WANTED};
    bool first = true;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct givens *givens = &fanout->members[i].givens;
        if (!fanout->members[i].alive || givens->count == 0) {
            continue;
        }
        join(&all, &givens->list[givens->begin], first);
        first = false;
        givens->begin = (givens->begin + 1) % givens->capacity;
        givens->count--;
    }
    return all;
}

static void merge_answers(struct fanout *fanout)
{
    for (size_t count; (count = common_answers(fanout)) > 0;) {
        uint8_t bytes[ASK_NAMES_MAX * ANSWER_LENGTH_MAX];
        size_t length = 0;
        count = count < ASK_NAMES_MAX ? count : ASK_NAMES_MAX;
        for (size_t i = 0; i < count; i++) {
            const struct given given = take_answer(fanout);
            length += protocol_pack_answer(given.answer, given.digest, bytes + length);
        }
        struct message message = {.type = MESSAGE_ANSWERS};
        message.answers.count = (uint16_t)count;
        message.answers.answers = (struct span){bytes, length};
        fanout_tell(fanout, &message, message.answers.answers);
    }
}

static void merge_read_back(struct fanout *fanout)
{
    uint32_t least = UINT32_MAX;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        const struct member *member = &fanout->members[i];
        if (member->alive && !member->summed && member->read_back < least) {
            least = member->read_back;
        }
    }
    if (least != UINT32_MAX && least > fanout->read_back) {
        struct message message = {.type = MESSAGE_READ_BACK};
        message.read_back.id = fanout->read_back = least;
        fanout_tell(fanout, &message, (struct span){NULL, 0});
    }
}

/* Of those with the fewest failures it is the one to which most came that stands for all. */
static bool stands_before(const struct member *one, const struct member *other)
{
    const struct tally *these = &one->tally, *those = &other->tally;
    return these->failed != those->failed ? these->failed < those->failed
                                          : these->same + these->left < those->same + those->left;
}

static uint64_t greater(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* How many failed, went, or were to go, is said of where it was most. */
static void merge_summaries(struct fanout *fanout)
{
    const struct member *best = NULL;
    uint64_t worst = 0, deleted = 0, held_back = 0;
    bool undeleted = false;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        const struct member *member = &fanout->members[i];
        if (!member->summed) {
            if (member->alive) {
                return;
            }
            continue;
        }
        worst = greater(worst, member->tally.failed);
        deleted = greater(deleted, member->tally.deleted);
        held_back = greater(held_back, member->tally.held_back);
        undeleted |= member->summary.summary.undeleted;
        if (best == NULL || stands_before(member, best)) {
            best = member;
        }
    }
    if (best == NULL || fanout->summed) {
        return;
    }
    struct message message = best->summary;
    message.summary.failed = worst;
    message.summary.deleted = deleted;
    message.summary.held_back = held_back;
    message.summary.undeleted = undeleted;
    /* each member's own, and bounded by nothing that is known here */
    message.summary.again_files = message.summary.again_symlinks = 0;
    message.summary.again_bytes = 0;
    if (worst == 0) { /* what changed at the source and came again can be counted twice */
        message.summary.files = fanout->entries - message.summary.symlinks - message.summary.same -
                                message.summary.left;
    }
    fanout->summed = true;
    fanout_tell(fanout, &message, (struct span){NULL, 0});
}

void fanout_merge(struct fanout *fanout)
{
    merge_answers(fanout);
    fanout_merge_proven(fanout);
    merge_read_back(fanout);
    merge_summaries(fanout);
}
