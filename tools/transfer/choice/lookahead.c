#include "tools/transfer/choice/lookahead.h"

#include <stdlib.h>
#include <string.h>

#include "tools/transfer/choice/turn.h"

#define STEPS_AT_ONCE 64

struct lookahead {
    struct link *link;
    struct walk *walk;
    enum asking asking;
    bool ended;
    bool stuck; /* the walk's last step could not be kept, for want of memory */
    bool parts; /* see lookahead_part_sources: */
    bool waits; /* the walk's last step begins a source, and is not kept yet */
    struct walk_step step;
    struct look looks[LOOKAHEAD_STEPS]; /* a ring: those before `begin` are done with */
    uint64_t begin, end;
    uint64_t unanswered; /* where to look for the next that waits for its answer */
    size_t length;       /* of the paths */

    struct turn turn;

    uint8_t questions[ASK_LENGTH_MAX]; /* not sent yet */
    size_t questions_length;
    uint16_t names;
    const struct walk_folder *folder; /* that the last of them is in */
    unsigned source;
    uint16_t asked[ASKS_MAX]; /* names in each that is not answered whole; the oldest first */
    unsigned asks_open;
    uint8_t head[MESSAGE_HEAD_MAX];
};

struct lookahead *lookahead_create(struct link *link, struct walk *walk, enum asking asking)
{
    struct lookahead *lookahead = calloc(1, sizeof(*lookahead));
    if (lookahead != NULL) {
        lookahead->link = link;
        lookahead->walk = walk;
        lookahead->asking = asking;
    }
    return lookahead;
}

static struct look *look_at(struct lookahead *lookahead, uint64_t number)
{
    return &lookahead->looks[number % LOOKAHEAD_STEPS];
}

void lookahead_destroy(struct lookahead *lookahead)
{
    if (lookahead == NULL) {
        return;
    }
    while (lookahead->begin < lookahead->end) {
        lookahead_pop(lookahead);
    }
    walk_destroy(lookahead->walk);
    free(lookahead);
}

struct walk *lookahead_walk(const struct lookahead *lookahead)
{
    return lookahead->walk;
}

void lookahead_part_sources(struct lookahead *lookahead)
{
    lookahead->parts = true;
}

static void send_questions(struct lookahead *lookahead)
{
    struct message message = {.type = MESSAGE_ASK};
    message.ask.names = lookahead->names;
    const struct weir_piece pieces[2] = {
        {lookahead->head, protocol_pack(&message, lookahead->head)},
        {lookahead->questions, lookahead->questions_length},
    };
    lookahead->link->operations->send(lookahead->link, pieces, 2);
    lookahead->asked[lookahead->asks_open++] = lookahead->names;
    lookahead->names = 0;
    lookahead->questions_length = 0;
}

/* The directory of the questions that follow: its path below the source, without the entry's name.
 */
static size_t pack_directory(const struct walk_step *step, uint8_t *ret_bytes)
{
    struct question question = {
        .is_directory = true,
        .source = (uint16_t)step->source,
        .top = step->folder == NULL,
    };
    size_t below = strlen(step->below);
    size_t name = strlen(step->name);
    size_t base = (size_t)(step->below - step->relative); /* with its slash */
    if (!question.top) {
        question.path = (struct span){step->below, below > name ? below - name - 1 : 0};
        question.name = (struct span){step->relative, base > 0 ? base - 1 : 0};
    } else {
        question.name = (struct span){step->name, name};
    }
    return protocol_pack_question(&question, ret_bytes);
}

static void ask(struct lookahead *lookahead, struct look *look)
{
    const struct walk_step *step = &look->step;
    uint8_t directory[QUESTION_LENGTH_MAX], name[QUESTION_LENGTH_MAX];
    const struct question question = {
        .name = {step->name, strlen(step->name)},
        .names_directory = step->kind == WALK_DIRECTORY || step->kind == WALK_FAILED,
        .size = step->kind == WALK_FILE ? (uint64_t)step->status.st_size : 0,
        .mtime_s = step->status.st_mtim.tv_sec,
        .mtime_ns = (uint32_t)step->status.st_mtim.tv_nsec,
    };
    size_t name_length = protocol_pack_question(&question, name);
    bool same_place = lookahead->names > 0 && lookahead->folder == step->folder &&
                      lookahead->source == step->source && step->folder != NULL;
    size_t directory_length = same_place ? 0 : pack_directory(step, directory);
    uint8_t *at = lookahead->questions + lookahead->questions_length;
    memcpy(at, directory, directory_length);
    memcpy(at + directory_length, name, name_length);
    lookahead->questions_length += directory_length + name_length;
    lookahead->names++;
    lookahead->folder = step->folder;
    lookahead->source = step->source;
    look->asked = true;
}

/* Those that wait have room for one more. */
static bool may_ask(const struct lookahead *lookahead)
{
    return lookahead->names < ASK_NAMES_MAX &&
           lookahead->questions_length + 2 * QUESTION_LENGTH_MAX <= ASK_LENGTH_MAX;
}

static bool is_full(const struct lookahead *lookahead)
{
    return lookahead->ended || lookahead->end - lookahead->begin == LOOKAHEAD_STEPS ||
           (lookahead->begin < lookahead->end &&
            (lookahead->waits || lookahead->length >= LOOKAHEAD_LENGTH ||
             walk_folders(lookahead->walk) >= LOOKAHEAD_FOLDERS));
}

/* "" is what a directory's contents are called, and no name. */
static bool is_asked(const struct lookahead *lookahead, const struct walk_step *step)
{
    switch (step->kind) {
    case WALK_FILE:
        return lookahead->asking != ASK_NOTHING && step->name[0] != 0;
    case WALK_SYMLINK:
    case WALK_SPECIAL:
        return lookahead->asking >= ASK_NODES && step->name[0] != 0;
    case WALK_DIRECTORY:
        return lookahead->asking == ASK_ALL && step->folder != NULL;
    case WALK_FAILED: /* without its rules; it may be that it stays in any case */
        return lookahead->asking == ASK_ALL && step->folder != NULL &&
               step->error == WALK_ERROR_RULES;
    default:
        return false;
    }
}

static bool keep(struct lookahead *lookahead, const struct walk_step *step)
{
    struct look *look = look_at(lookahead, lookahead->end);
    *look = (struct look){0};
    if (!walk_keep(step, &look->step)) {
        return false;
    }
    lookahead->length += step->path != NULL ? strlen(step->path) : 0;
    lookahead->ended = step->kind == WALK_END;
    lookahead->end++;
    if (is_asked(lookahead, step)) {
        ask(lookahead, look);
    }
    return true;
}

static bool begins_source(const struct walk_step *step)
{
    return step->folder == NULL && step->kind != WALK_LEAVE && step->kind != WALK_END;
}

static void go_ahead(struct lookahead *lookahead)
{
    struct turn *turn = &lookahead->turn;
    uint64_t work = walk_work(lookahead->walk);
    if (!turn_begin(turn)) {
        return;
    }
    for (unsigned i = 0;
         i < STEPS_AT_ONCE && turn_goes_on(turn) && !is_full(lookahead) && may_ask(lookahead);
         i++) {
        if (!lookahead->stuck && !lookahead->waits) {
            walk_next(lookahead->walk, &lookahead->step);
            turn->work = walk_work(lookahead->walk) - work;
            lookahead->waits = lookahead->parts && begins_source(&lookahead->step);
        }
        if (lookahead->waits && lookahead->begin < lookahead->end) {
            break;
        }
        lookahead->waits = false;
        lookahead->stuck =
            lookahead->step.kind != WALK_EXCLUDED && !keep(lookahead, &lookahead->step);
    }
    turn_end(turn);
}

bool lookahead_has_room(const struct lookahead *lookahead)
{
    return !is_full(lookahead) && may_ask(lookahead);
}

bool lookahead_pump(struct lookahead *lookahead)
{
    bool asking = lookahead->asks_open < ASKS_MAX;
    go_ahead(lookahead);
    bool full = is_full(lookahead);
    if (lookahead->names > 0 && asking &&
        (full || !may_ask(lookahead) || lookahead->asks_open == 0)) {
        send_questions(lookahead);
    }
    return lookahead_has_room(lookahead);
}

bool lookahead_may_go_on(const struct lookahead *lookahead)
{
    return lookahead->waits && lookahead->begin == lookahead->end;
}

struct look *lookahead_head(struct lookahead *lookahead)
{
    while (lookahead->begin < lookahead->end) {
        struct look *look = look_at(lookahead, lookahead->begin);
        if (look->asked && !look->answered) {
            return NULL;
        }
        if (!walk_is_unwanted(&look->step)) {
            return look;
        }
        lookahead_pop(lookahead);
    }
    return NULL;
}

void lookahead_pop(struct lookahead *lookahead)
{
    struct look *look = look_at(lookahead, lookahead->begin++);
    lookahead->length -= look->step.path != NULL ? strlen(look->step.path) : 0;
    walk_drop(&look->step);
    if (lookahead->unanswered < lookahead->begin) {
        lookahead->unanswered = lookahead->begin;
    }
}

static struct look *next_unanswered(struct lookahead *lookahead)
{
    while (lookahead->unanswered < lookahead->end) {
        struct look *look = look_at(lookahead, lookahead->unanswered);
        if (look->asked && !look->answered) {
            return look;
        }
        lookahead->unanswered++;
    }
    return NULL;
}

bool lookahead_answer(struct lookahead *lookahead, const struct message *answers)
{
    struct span rest = answers->answers.answers;
    for (unsigned i = 0; i < answers->answers.count; i++) {
        struct look *look = lookahead->asks_open > 0 ? next_unanswered(lookahead) : NULL;
        if (look == NULL) {
            return false;
        }
        look->answer = protocol_next_answer(&rest, look->digest);
        look->answered = true;
        if (--lookahead->asked[0] == 0) {
            lookahead->asks_open--;
            memmove(lookahead->asked, lookahead->asked + 1,
                    lookahead->asks_open * sizeof(lookahead->asked[0]));
        }
    }
    return true;
}
