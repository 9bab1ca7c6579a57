#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/filter_scope.h"
#include "tools/transfer/choice/turn.h"
#include "tools/transfer/disk/confine.h"
#include "tools/transfer/ends/sender_private.h"
#include "tools/transfer/wire/listing.h"

#define WORK_OF_RULES (64u << 10) /* a directory's files of rules are read, as filter_work */

/* The directory that questions are about. */
struct place_asked {
    int fd;        /* -1: there is none */
    bool unknown;  /* or it cannot be looked at, and nothing is said to be gone */
    bool cut_off;  /* it is below something that is left out, */
    bool in_part;  /* of which the list has something all the same: what is not known */
    bool is_whole; /* all that is in it was to come */
    unsigned source;
    size_t below;               /* where the path below the source begins */
    struct filter_scope *scope; /* with those above it; NULL: the filter names no files of rules */
    size_t length;              /* of its path, with the slash behind it */
    char path[NAME_LENGTH_MAX + PATH_LENGTH_MAX + NAME_LENGTH_MAX + 4]; /* as the filter knows it */
};

/* The peer's questions, answered in order. */
struct inquiry {
    struct {
        uint8_t *bytes;
        size_t length;
        uint16_t names;
    } asks[ASKS_MAX]; /* the oldest first */
    unsigned count;
    size_t position; /* in the oldest */
    struct place_asked place;
    char *told; /* the path of the last directory from which something has gone meanwhile */
    uint8_t answers[ASK_NAMES_MAX * ANSWER_LENGTH_MAX];
    size_t length;
    struct turn turn;
};

static bool is_root(const struct sender *sender, const struct walk_step *step)
{
    return (sender->options.wishes->bits & WISH_DELETE) != 0 && step->folder == NULL;
}

uint64_t sender_identity(const struct sender *sender, const struct walk_step *step)
{
    uint64_t numbers[4] = {step->status.st_dev, step->status.st_ino};
    uint8_t digest[DIGEST_LENGTH];
    uint64_t identity = 0;
    if (is_root(sender, step)) {
        const struct birth birth = birth_of(walk_folder_fd(step->inside));
        numbers[2] = (uint64_t)birth.s;
        numbers[3] = birth.ns;
        digest_of(numbers, sizeof(numbers), digest);
        memcpy(&identity, digest, sizeof(identity));
        identity += identity == 0;
    }
    return identity;
}

bool sender_remember_root(struct sender *sender, const struct walk_step *step)
{
    if (!is_root(sender, step)) {
        return true;
    }
    if (!protocol_is_identity(sender->options.identities, step->source,
                              sender_identity(sender, step))) {
        sender_skip(sender, PROBLEM_CHANGED, step->path, PROTOCOL_OTHER_DIRECTORY);
        return false;
    }
    if (sender->roots == NULL) {
        sender->roots = calloc(sender->options.source_count, sizeof(*sender->roots));
    }
    if (sender->roots == NULL) {
        sender_skip_step(sender, step, ENOMEM);
        return false;
    }
    sender->roots[step->source] = (struct source_root){
        .sent = true, .device = step->status.st_dev, .inode = step->status.st_ino};
    return true;
}

void sender_remember_name(struct sender *sender, const struct walk_step *step)
{
    bool is_said = step->kind == WALK_FILE || step->kind == WALK_DIRECTORY ||
                   step->kind == WALK_SYMLINK || step->kind == WALK_SPECIAL;
    if (is_said && step->folder != NULL && (sender->options.wishes->bits & WISH_DELETE) != 0) {
        sent_names_add(&sender->names, step->source, step->below);
    }
}

/* The very directory that was sent: one that was unmounted meanwhile is empty, and not to be asked.
 */
static int open_root(const struct sender *sender, unsigned source)
{
    const struct source_root *root = &sender->roots[source];
    struct stat status;
    int fd = walk_open_source(lookahead_walk(sender->lookahead), source);
    if (fd >= 0 && (fstat(fd, &status) != 0 || status.st_dev != root->device ||
                    status.st_ino != root->inode)) {
        close(fd);
        return -ESTALE;
    }
    return fd;
}

static void tell_path(struct place_asked *asked, const char *source, struct span path)
{
    char base[256] = "";
    walk_base_name(source, base);
    asked->below = base[0] != 0 ? strlen(base) + 1 : 0;
    asked->length = (size_t)snprintf(asked->path, sizeof(asked->path), "%s%s%.*s%s", base,
                                     base[0] != 0 ? "/" : "", (int)path.length,
                                     (const char *)path.bytes, path.length > 0 ? "/" : "");
}

static void leave(struct place_asked *asked)
{
    if (asked->fd >= 0) {
        close(asked->fd);
    }
    filter_scope_free_up(asked->scope, NULL);
    *asked = (struct place_asked){.fd = -1};
}

/* Into the next directory on the way, `name`, or into that itself where it is NULL. */
static int step_down(const struct sender *sender, struct place_asked *asked, const char *name,
                     unsigned depth)
{
    const struct filter *filter = sender->options.walk.filter;
    struct filter_scope *scope = NULL;
    char why[SCOPE_WHY_LENGTH]; /* it is said where the directory is walked */
    if (name != NULL) {
        int fd = confine_open(asked->fd, name, O_PATH | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS);
        close(asked->fd);
        asked->fd = fd >= 0 ? fd : -1;
        if (fd < 0) {
            return fd;
        }
    }
    int error = filter_scope_read(filter, asked->scope, asked->fd, depth, &scope, why);
    if (error != 0) {
        return -EIO; /* not that it is absent */
    }
    asked->scope = scope;
    return 0;
}

/* The path, below the source, is not in the list itself: no rule is for what only leads there. */
static bool is_on_the_way(const struct sender *sender, const char *path)
{
    const struct walk_options *walk = &sender->options.walk;
    return walk->listing != NULL && !listing_holds(walk->listing, path, walk->recursive);
}

/* The same, or a rule may leave it out, and not what the list names below it. */
static bool leads_on(const struct sender *sender, const char *path)
{
    const struct walk_options *walk = &sender->options.walk;
    return walk->listing != NULL &&
           (is_on_the_way(sender, path) || listing_leads(walk->listing, path));
}

static struct listing_trace trace(const struct sender *sender, const char *path)
{
    const struct walk_options *walk = &sender->options.walk;
    return walk->listing != NULL ? listing_trace(walk->listing, path, walk->recursive)
                                 : (struct listing_trace){.is_held = true};
}

/* The same with the rules of each directory on the way. `path` begins in the source. */
static int descend(const struct sender *sender, struct place_asked *asked, const char *base,
                   char *path, unsigned on_the_way)
{
    const struct walk_options *walk = &sender->options.walk;
    char why[SCOPE_WHY_LENGTH];
    unsigned depth = base[0] != 0, components = 0;
    size_t at = depth > 0 ? strlen(base) + 1 : 0; /* in asked->path */
    int error = filter_scope_read_outside(walk->filter, walk->rules_root, asked->fd, base[0] != 0,
                                          &asked->scope, why);
    asked->cut_off =
        base[0] != 0 &&
        filter_excludes(walk->filter, filter_scope_outermost(asked->scope), base, true);
    if (error != 0) {
        return -EIO;
    }
    error = *path == '/' ? -EXDEV : step_down(sender, asked, NULL, depth);
    while (error == 0 && *path != 0 && !asked->cut_off) {
        size_t length = strcspn(path, "/");
        bool last = path[length] == 0;
        path[length] = 0;
        asked->path[at + length] = 0;
        asked->cut_off = components++ >= on_the_way &&
                         filter_excludes(walk->filter, asked->scope, asked->path, true);
        asked->path[at + length] = '/';
        error = asked->cut_off ? 0 : step_down(sender, asked, path, ++depth);
        at += length + 1;
        path += length + !last;
    }
    return error;
}

/* It is of another file system, of which nothing was sent. */
static bool is_elsewhere(const struct sender *sender, const struct question *question,
                         const struct place_asked *asked)
{
    struct stat status;
    return sender->options.walk.one_file_system && asked->fd >= 0 &&
           (fstat(asked->fd, &status) != 0 ||
            status.st_dev != sender->roots[question->source].device);
}

static void enter(const struct sender *sender, const struct question *question,
                  struct place_asked *asked)
{
    const struct filter *filter = sender->options.walk.filter;
    const char *source = sender->options.sources[question->source];
    bool of_place = filter != NULL && filter_is_of_place(filter);
    char path[PATH_LENGTH_MAX + 1], base[256] = "";
    memcpy(path, question->path.bytes, question->path.length);
    path[question->path.length] = 0;
    leave(asked);
    const struct listing_trace way = trace(sender, path);
    asked->is_whole = way.is_held;
    asked->source = question->source;
    tell_path(asked, source, question->path);
    if (filter != NULL && !of_place && asked->length > 1) {
        asked->path[asked->length - 1] = 0;
        asked->cut_off = filter_cuts_off(filter, asked->path, true, way.on_the_way);
        asked->path[asked->length - 1] = '/';
    }
    int fd = open_root(sender, question->source), error = fd < 0 ? fd : 0;
    bool no_root = fd < 0;
    asked->fd = fd;
    if (error == 0 && of_place) {
        walk_base_name(source, base);
        error = descend(sender, asked, base, path, way.on_the_way);
    } else if (error == 0) {
        asked->fd = confine_open(fd, path[0] != 0 ? path : ".", O_PATH | O_DIRECTORY, 0,
                                 CONFINE_NO_SYMLINKS);
        error = asked->fd < 0 ? asked->fd : 0;
        close(fd);
    }
    asked->in_part = asked->cut_off && (way.listed > 1 || way.leads);
    bool absent = error == -ENOENT || error == -ENOTDIR || error == -ELOOP;
    asked->unknown = no_root || (error != 0 && !absent) || is_elsewhere(sender, question, asked) ||
                     !listing_leads_down(question->path); /* the rules would not know it again */
    asked->fd = asked->fd >= 0 ? asked->fd : -1;
}

/* Nothing was said of what is not in the list. */
static bool is_meant(const struct sender *sender, const char *path)
{
    const struct walk_options *walk = &sender->options.walk;
    return walk->listing == NULL || listing_meets(walk->listing, path, walk->recursive);
}

/* The name has gone since it was sent: it may just be elsewhere now, in a place that had been
 * passed, and then what the peer has is the only copy of it. Said once for its directory, and not
 * where that has gone itself. */
static void tell_moved(struct sender *sender, const struct place_asked *asked)
{
    struct inquiry *inquiry = sender->inquiry;
    char path[2 * PATH_MAX];
    const char *source = sender->options.sources[asked->source];
    size_t length = strlen(source);
    while (length > 0 && source[length - 1] == '/') {
        length--;
    }
    int directory = snprintf(path, sizeof(path), "%.*s/%.*s", (int)length, source,
                             (int)(asked->length - asked->below), asked->path + asked->below);
    bool told = inquiry->told != NULL && strcmp(inquiry->told, path) == 0;
    if (told || asked->fd < 0) {
        return;
    }
    free(inquiry->told);
    inquiry->told = strdup(path);
    snprintf(path + directory, sizeof(path) - (size_t)directory, "%s", asked->path + asked->length);
    sender_skip(sender, PROBLEM_WARNING, path,
                "gone since it was copied: nothing that has gone from its directory meanwhile is "
                "deleted at the target");
}

static enum answer answer_one(struct sender *sender, const struct question *question,
                              struct place_asked *asked)
{
    const struct filter *filter = sender->options.walk.filter;
    const struct filter_loss loss = {.delete_excluded =
                                         (sender->options.wishes->bits & WISH_DELETE_EXCLUDED) != 0,
                                     .inside = asked->cut_off || asked->fd < 0};
    struct stat status;
    char *name = asked->path + asked->length;
    memcpy(name, question->name.bytes, question->name.length);
    name[question->name.length] = 0;
    bool is_directory = question->names_directory;
    bool spared = is_directory && leads_on(sender, asked->path + asked->below);
    bool excluded = filter != NULL &&
                    (asked->cut_off ||
                     (!spared && filter_excludes(filter, asked->scope, asked->path, is_directory)));
    if (asked->unknown || asked->in_part || !is_meant(sender, asked->path) ||
        (excluded && !asked->is_whole)) { /* as if it had not been listed */
        return ANSWER_LEFT;
    }
    if (!excluded && asked->fd >= 0) {
        bool there = fstatat(asked->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
        if (!there && errno != ENOENT) {
            return ANSWER_LEFT;
        }
        bool other = there && S_ISDIR(status.st_mode) != is_directory;
        bool hidden = other && filter != NULL && /* for a rule may be for directories only */
                      filter_excludes(filter, asked->scope, asked->path, !is_directory);
        if (there && !hidden) {
            /* a directory that was not to be replaced by something else keeps what is in it */
            return other && is_directory ? ANSWER_LEFT : ANSWER_SAME;
        }
    }
    /* else the receiver protects by its own */
    bool stays = filter != NULL && !filter_is_of_place(filter) &&
                 filter_protects(filter, NULL, asked->path, is_directory, loss);
    if (!stays && sent_names_has(&sender->names, asked->source, asked->path + asked->below)) {
        tell_moved(sender, asked);
        return ANSWER_LEFT;
    }
    return stays ? ANSWER_LEFT : ANSWER_GONE;
}

static bool is_allowed(const struct sender *sender, const struct question *question)
{
    return !question->is_directory ||
           (question->source < sender->options.source_count && !question->top &&
            sender->roots != NULL && sender->roots[question->source].sent);
}

/* Of a path in the place at hand, of so many bytes. */
static uint64_t work_of(const struct sender *sender, const struct place_asked *asked, size_t length)
{
    const struct walk_options *walk = &sender->options.walk;
    size_t patterns = walk->filter != NULL ? filter_weight(walk->filter) : 0;
    patterns += asked->scope != NULL ? asked->scope->weight : 0;
    if (walk->listing != NULL) { /* it is looked up, and so is each directory above it */
        patterns += 64 * (64 + (walk->recursive ? 16 * length : 0));
    }
    return filter_work(patterns, length);
}

/* What one question costs. */
static uint64_t answer_next(struct sender *sender, struct inquiry *inquiry)
{
    struct span rest = {inquiry->asks[0].bytes + inquiry->position,
                        inquiry->asks[0].length - inquiry->position};
    size_t length = rest.length;
    struct place_asked *asked = &inquiry->place;
    struct question question;
    protocol_next_question(&rest, &question);
    inquiry->position += length - rest.length;
    if (question.is_directory) {
        const struct filter *filter = sender->options.walk.filter;
        unsigned merges = filter != NULL ? filter_merges(filter) : 0;
        enter(sender, &question, asked);
        return work_of(sender, asked, asked->length) +
               (uint64_t)WORK_OF_RULES * merges * (1 + asked->length / 2);
    }
    inquiry->length += protocol_pack_answer(answer_one(sender, &question, asked), NULL,
                                            inquiry->answers + inquiry->length);
    return work_of(sender, asked, asked->length + question.name.length);
}

static void end_ask(struct sender *sender, struct inquiry *inquiry)
{
    struct message reply = {.type = MESSAGE_ANSWERS};
    reply.answers.count = inquiry->asks[0].names;
    reply.answers.answers = (struct span){inquiry->answers, inquiry->length};
    sender_send(sender, &reply, reply.answers.answers);
    leave(&inquiry->place);
    free(inquiry->asks[0].bytes);
    inquiry->count--;
    memmove(inquiry->asks, inquiry->asks + 1, inquiry->count * sizeof(inquiry->asks[0]));
    inquiry->position = inquiry->length = 0;
}

bool sender_answer(struct sender *sender)
{
    struct inquiry *inquiry = sender->inquiry;
    if (inquiry == NULL || inquiry->count == 0) {
        return false;
    }
    if (!turn_begin(&inquiry->turn)) {
        return true;
    }
    while (inquiry->count > 0 && turn_goes_on(&inquiry->turn)) {
        inquiry->turn.work += answer_next(sender, inquiry);
        if (inquiry->position == inquiry->asks[0].length) {
            end_ask(sender, inquiry);
        }
    }
    turn_end(&inquiry->turn);
    return inquiry->count > 0;
}

static bool keep_ask(struct sender *sender, const struct message *message)
{
    struct inquiry *inquiry = sender->inquiry;
    const struct span *questions = &message->ask.questions;
    if (inquiry == NULL) {
        inquiry = sender->inquiry = calloc(1, sizeof(*inquiry));
        if (inquiry == NULL) {
            return false;
        }
        inquiry->place.fd = -1;
    }
    uint8_t *bytes = malloc(questions->length);
    if (bytes == NULL) {
        return false;
    }
    memcpy(bytes, questions->bytes, questions->length);
    inquiry->asks[inquiry->count].bytes = bytes;
    inquiry->asks[inquiry->count].length = questions->length;
    inquiry->asks[inquiry->count++].names = message->ask.names;
    return true;
}

bool sender_ask(struct sender *sender, const struct message *message, const char **ret_reason)
{
    struct span rest = message->ask.questions;
    bool sound = sender->state == SENDER_FINISHED &&
                 sender->link->backlog_count < ANSWERS_BACKLOG_MAX &&
                 (sender->inquiry == NULL || sender->inquiry->count < ASKS_MAX);
    while (rest.length > 0 && sound) {
        struct question question;
        protocol_next_question(&rest, &question);
        sound = is_allowed(sender, &question);
    }
    if (!sound) {
        *ret_reason = "a question that it may not ask";
        return false;
    }
    if (!keep_ask(sender, message)) {
        sender->lacks_memory = true;
        *ret_reason = "no memory";
        return false;
    }
    while (sender->options.answers_at_once && sender->inquiry->count > 0) {
        sender->inquiry->turn.rests_until_ns = 0;
        sender_answer(sender);
    }
    return true;
}

void sender_end_answers(struct sender *sender)
{
    struct inquiry *inquiry = sender->inquiry;
    if (inquiry != NULL) {
        leave(&inquiry->place);
        while (inquiry->count > 0) {
            free(inquiry->asks[--inquiry->count].bytes);
        }
        free(inquiry->told);
        free(inquiry);
        sender->inquiry = NULL;
    }
}
