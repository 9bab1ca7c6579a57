#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/ends/receiver_private.h"

/* Steps between two looks at the link. */
#define STEPS_AT_ONCE 64
/* Of names that have come, 8 bytes each. */
#define CAME_MAX ((size_t)1 << 20)

static bool remember(char ***list, unsigned count, unsigned source, struct span text)
{
    if (*list == NULL) {
        *list = calloc(count, sizeof(**list));
    }
    if (*list == NULL) {
        return false;
    }
    free((*list)[source]);
    (*list)[source] = strndup(text.bytes, text.length);
    return (*list)[source] != NULL;
}

bool receiver_remember_source(struct receiver *receiver, unsigned source, const char *name,
                              struct span said)
{
    struct deleting *deleting = &receiver->deleting;
    const char *const *names = receiver->options.names; /* the same, unless the peer lies */
    const char *here = name[0] != 0 ? name : ".";
    said = names != NULL ? (struct span){names[source], strlen(names[source])} : said;
    unsigned count = receiver->options.source_count;
    return remember(&deleting->names, count, source, said) &&
           remember(&deleting->sources, count, source, (struct span){here, strlen(here)});
}

/* Letters count in either case, and what is not ASCII for nothing. */
static void fold(const char *path, char ret_folded[2 * PATH_MAX])
{
    size_t length = 0;
    for (; *path != 0 && length < 2 * PATH_MAX - 1; path++) {
        if (isascii((unsigned char)*path)) {
            ret_folded[length++] = (char)tolower((unsigned char)*path);
        }
    }
    ret_folded[length] = 0;
}

void receiver_note_name(struct receiver *receiver)
{
    struct sent_names *came = &receiver->deleting.came;
    char folded[2 * PATH_MAX];
    if (receiver_wishes(receiver, WISH_DELETE)) {
        came->capacity_max = CAME_MAX;
        fold(tree_relative(&receiver->tree), folded);
        sent_names_add(came, 0, folded);
    }
}

bool receiver_receive_rule(struct receiver *receiver, const struct message *message,
                           const char **ret_reason)
{
    struct deleting *deleting = &receiver->deleting;
    bool may = receiver->options.filter == NULL && receiver->options.names == NULL &&
               receiver->last_source < 0 && receiver_wishes(receiver, WISH_DELETE);
    if (may && deleting->said == NULL) {
        deleting->said = filter_create();
    }
    bool room = deleting->said == NULL || filter_has_room(deleting->said, message->rule.pattern);
    *ret_reason =
        room ? "a rule that is none, or when none may come" : "too many rules: " FILTER_BOUNDS;
    return may && deleting->said != NULL &&
           filter_add(deleting->said, message->rule.bits, message->rule.pattern);
}

bool receiver_begin_deleting(struct receiver *receiver)
{
    struct deleting *deleting = &receiver->deleting;
    const struct filter *filter =
        receiver->options.filter != NULL ? receiver->options.filter : deleting->said;
    bool holds =
        filter != NULL && (filter == receiver->options.filter || filter_is_of_place(filter));
    deleting->filter = holds ? filter : NULL;
    const struct walk_options options = {.root = receiver->tree.top,
                                         .confined = true,
                                         .recursive = true,
                                         .one_file_system =
                                             receiver_wishes(receiver, WISH_ONE_FILE_SYSTEM),
                                         .devices = true,
                                         .specials = true,
                                         .filter = deleting->filter,
                                         .rules_root = receiver->options.rules_root,
                                         .sees_all = true,
                                         .filter_names = (const char *const *)deleting->names,
                                         .depth_max = receiver->options.depth_max};
    struct walk *walk = walk_create(&options, (const char *const *)deleting->sources,
                                    receiver->options.source_count);
    if (walk != NULL) {
        deleting->lookahead = lookahead_create(receiver->options.link, walk, ASK_ALL);
    }
    if (deleting->lookahead == NULL) {
        walk_destroy(walk);
    }
    return deleting->lookahead != NULL;
}

static void forget(char **list, unsigned count)
{
    for (unsigned i = 0; i < count && list != NULL; i++) {
        free(list[i]);
    }
    free(list);
}

void receiver_end_deleting(struct receiver *receiver)
{
    struct deleting *deleting = &receiver->deleting;
    lookahead_destroy(deleting->lookahead);
    forget(deleting->sources, receiver->options.source_count);
    forget(deleting->names, receiver->options.source_count);
    filter_destroy(deleting->said);
    sent_names_clear(&deleting->came);
    *deleting = (struct deleting){.lookahead = NULL};
}

/* The directory keeps the time that it was given. */
static void touch(struct walk_folder *folder)
{
    struct walk_mark *mark = walk_folder_mark(folder);
    struct stat status;
    if (!mark->touched && fstat(walk_folder_fd(folder), &status) == 0) {
        mark->mtime = status.st_mtim;
        mark->touched = true;
    }
}

/* Something in it stays. A dry run says of it what unlinkat would. */
static void keep(struct walk_folder *folder)
{
    if (folder != NULL) {
        walk_folder_mark(folder)->keeps = true;
    }
}

static bool may_delete(const struct receiver *receiver)
{
    struct tally *tally = receiver->options.tally;
    bool may = !receiver_wishes(receiver, WISH_MAX_DELETE) ||
               tally->deleted < receiver->options.wishes->deletions_max;
    tally->held_back += !may;
    return may;
}

static bool may_go(void *user)
{
    return may_delete(user);
}

/* It was below what is under way. */
static void is_gone(void *user, const char *path, mode_t mode)
{
    struct receiver *receiver = user;
    char whole[2 * PATH_MAX];
    int length = snprintf(whole, sizeof(whole), "%s/%s", tree_relative(&receiver->tree), path);
    receiver->options.tally->deleted++;
    if (length <= PATH_LENGTH_MAX) {
        receiver_tell_path(receiver, entry_kind_of(mode), whole, 0, CHANGE_DELETED);
    }
}

struct clearing receiver_clearing(struct receiver *receiver)
{
    return (struct clearing){.dry = receiver_wishes(receiver, WISH_DRY_RUN),
                             .one_file_system = receiver_wishes(receiver, WISH_ONE_FILE_SYSTEM),
                             .user = receiver,
                             .may_go = may_go,
                             .is_gone = is_gone};
}

static void fail(struct receiver *receiver, const struct walk_step *step, int error,
                 const char *text)
{
    const struct tree *tree = &receiver->tree;
    size_t length = tree->display_length;
    bool slash = length > 0 && tree->path[length - 1] != '/';
    char path[2 * PATH_MAX + 2];
    snprintf(path, sizeof(path), "%.*s%s%s", (int)length, tree->path, slash ? "/" : "",
             step->relative);
    receiver_fail_path(receiver, 0, problem_code_of_errno(error), path, text);
}

static void delete (struct receiver *receiver, const struct walk_step *step, enum entry_kind kind,
                    const char *name)
{
    int flags = kind == ENTRY_DIRECTORY ? AT_REMOVEDIR : 0;
    bool dry = receiver_wishes(receiver, WISH_DRY_RUN);
    struct tally *tally = receiver->options.tally;
    if (!may_delete(receiver)) {
        keep(step->folder);
        return;
    }
    int error = 0;
    if (!dry) {
        touch(step->folder);
        error = clear_unlink(walk_folder_fd(step->folder), name, flags,
                             &walk_folder_mark(step->folder)->lent);
    }
    if (error != 0) {
        /* what is left out stays, and so does the directory that it is in */
        if (error != ENOENT && !(kind == ENTRY_DIRECTORY && error == ENOTEMPTY)) {
            fail(receiver, step, error, strerror(error));
        }
        return;
    }
    tally->deleted++;
    receiver_tell_path(receiver, kind, step->relative, 0, CHANGE_DELETED);
}

static void enter(const struct walk_step *step, enum answer answer)
{
    struct walk_mark *mark = walk_folder_mark(step->inside);
    mark->gone = answer == ANSWER_GONE;
    if (!mark->gone) {
        keep(step->folder);
    }
    if (answer == ANSWER_LEFT) {
        walk_leave_out(step->inside);
    }
}

static void leave(struct receiver *receiver, const struct walk_step *step)
{
    struct walk_mark *mark = walk_folder_mark(step->inside);
    clear_give_back(walk_folder_fd(step->inside), &mark->lent);
    if (mark->gone && mark->keeps && receiver_wishes(receiver, WISH_DRY_RUN)) {
        keep(step->folder);
    } else if (mark->gone) {
        const char *slash = strrchr(step->relative, '/');
        delete (receiver, step, ENTRY_DIRECTORY, slash != NULL ? slash + 1 : step->relative);
    } else if (mark->touched) {
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mark->mtime};
        futimens(walk_folder_fd(step->inside), times);
    }
}

/* It is the same by its letters in the other case. */
static bool is_caseless(int directory, const char *name)
{
    char other[NAME_LENGTH_MAX + 1];
    struct stat here, there;
    size_t length = strlen(name);
    if (length > NAME_LENGTH_MAX) {
        return false;
    }
    for (size_t i = 0; i <= length; i++) {
        int letter = isascii((unsigned char)name[i]) ? (unsigned char)name[i] : 0;
        other[i] = (char)(islower(letter)   ? toupper(letter)
                          : isupper(letter) ? tolower(letter)
                                            : name[i]);
    }
    return strcmp(other, name) != 0 && receiver_find(directory, name, &here) &&
           receiver_find(directory, other, &there) && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* Where names that differ by case are one, what has come may be found under the name that it had
 * here before, which no source has. */
static bool is_what_came(const struct receiver *receiver, const struct walk_step *step)
{
    char folded[2 * PATH_MAX];
    if (step->kind == WALK_FAILED || step->kind == WALK_LEAVE) {
        return false;
    }
    fold(step->relative, folded);
    return sent_names_has(&receiver->deleting.came, 0, folded) &&
           is_caseless(walk_folder_fd(step->folder), step->name);
}

/* What the sources have not and the rules of this side keep stays. Who pulls has them protect by
 * its own word, not by the server's. */
static enum answer with_rules(const struct receiver *receiver, const struct look *look)
{
    const struct walk_step *step = &look->step;
    if (look->answer != ANSWER_GONE || step->folder == NULL) {
        return look->answer;
    }
    if (is_what_came(receiver, step)) { /* of what could not be placed the rest is not known */
        return receiver->options.tally->failed > 0 ? ANSWER_LEFT : ANSWER_SAME;
    }
    if ((step->kind == WALK_DIRECTORY && walk_folder_is_elsewhere(step->inside)) ||
        !receiver_may_lose(receiver, step->source, step->relative)) {
        return ANSWER_LEFT;
    }
    if (receiver->deleting.filter == NULL) {
        return ANSWER_GONE;
    }
    const struct filter_loss loss = {.delete_excluded =
                                         receiver_wishes(receiver, WISH_DELETE_EXCLUDED),
                                     .inside = walk_folder_mark(step->folder)->gone};
    return walk_protects(lookahead_walk(receiver->deleting.lookahead), step, &loss) ? ANSWER_LEFT
                                                                                    : ANSWER_GONE;
}

/* What a killed copy left in a directory that is to go does not hold it. */
static bool sweep(const struct receiver *receiver, const struct walk_step *step)
{
    bool dry = receiver_wishes(receiver, WISH_DRY_RUN);
    if (step->error != WALK_ERROR_TEMPORARY || !walk_folder_mark(step->folder)->gone) {
        return false;
    }
    if (!dry) {
        touch(step->folder);
    }
    return place_sweep_gone(walk_folder_fd(step->folder), step->name, dry,
                            &walk_folder_mark(step->folder)->lent);
}

/* Of a directory that stays whatever its files of rules say it does not matter that they are not
 * to be had. */
static void take_failure(struct receiver *receiver, const struct walk_step *step,
                         enum answer answer)
{
    if (sweep(receiver, step)) {
        return;
    }
    bool stays = step->error == WALK_ERROR_RULES && answer == ANSWER_LEFT;
    if (step->error != ENOENT) {
        keep(step->folder);
    }
    if (step->error != WALK_ERROR_TEMPORARY && step->error != ENOENT && !stays) {
        fail(receiver, step, step->error, walk_failure_text(step));
    }
}

static void take_step(struct receiver *receiver, const struct look *look)
{
    const struct walk_step *step = &look->step;
    enum answer answer = with_rules(receiver, look);
    switch (step->kind) {
    case WALK_FILE:
    case WALK_SYMLINK:
    case WALK_SPECIAL:
        if (answer == ANSWER_GONE) {
            delete (receiver, step, entry_kind_of(step->status.st_mode), step->name);
        } else {
            keep(step->folder);
        }
        return;
    case WALK_DIRECTORY:
        enter(step, answer);
        return;
    case WALK_LEAVE:
        leave(receiver, step);
        return;
    case WALK_FAILED:
        take_failure(receiver, step, answer);
        return;
    case WALK_EXCLUDED:
    case WALK_END:
        return;
    }
}

static const struct look *next_to_take(struct lookahead *lookahead)
{
    const struct look *look = lookahead_head(lookahead);
    return look != NULL && look->step.kind != WALK_END ? look : NULL;
}

bool receiver_delete(struct receiver *receiver, bool *ret_done)
{
    struct lookahead *lookahead = receiver->deleting.lookahead;
    const struct walk *walk = lookahead_walk(lookahead);
    struct turn *turn = &receiver->deleting.turn;
    lookahead_pump(lookahead);
    uint64_t work = walk_work(walk);
    unsigned steps = 0;
    const struct look *look;
    *ret_done = false;
    if (!turn_begin(turn)) {
        return true;
    }
    while (steps < STEPS_AT_ONCE && turn_goes_on(turn) &&
           (look = next_to_take(lookahead)) != NULL) {
        take_step(receiver, look);
        lookahead_pop(lookahead);
        turn->work = walk_work(walk) - work;
        steps++;
    }
    turn_end(turn);
    look = lookahead_head(lookahead);
    *ret_done = look != NULL && look->step.kind == WALK_END;
    /* what is dealt with has made room, of which no event tells */
    return look != NULL ? !*ret_done : lookahead_has_room(lookahead);
}
