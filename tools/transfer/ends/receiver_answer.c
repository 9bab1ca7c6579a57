#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/source.h"
#include "tools/transfer/ends/receiver_private.h"
#include "tools/transfer/wire/listing.h"

/* What is read of a file at a time. */
#define SLICE_LENGTH (1u << 20)
/* A peer asks no further ahead, or its oldest answers count for nothing. */
#define DIGESTED_MAX LOOKAHEAD_STEPS
/* What is read again in a turn, of one file or of many; of more it is not found out. */
#define AGAIN_LENGTH_MAX (256u << 20)

const char *receiver_source_name(const struct receiver *receiver, unsigned source, const char *name)
{
    if (!receiver->options.target->into) {
        return receiver->options.target->name;
    }
    return receiver->options.names != NULL ? receiver->options.names[source] : name;
}

bool receiver_ask(struct receiver *receiver, const struct message *message, const char **ret_reason)
{
    struct answering *answering = &receiver->answering;
    if (answering->count == ASKS_MAX) {
        *ret_reason = "more questions than it may ask";
        return false;
    }
    uint8_t *bytes = malloc(message->ask.questions.length);
    if (bytes == NULL) {
        *ret_reason = "no memory";
        return false;
    }
    memcpy(bytes, message->ask.questions.bytes, message->ask.questions.length);
    answering->asks[answering->count].bytes = bytes;
    answering->asks[answering->count++].length = message->ask.questions.length;
    return true;
}

static void close_one(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void receiver_end_answers(struct receiver *receiver)
{
    struct answering *answering = &receiver->answering;
    close_one(&answering->directory);
    close_one(&answering->fd);
    while (answering->count > 0) {
        free(answering->asks[--answering->count].bytes);
    }
    digest_destroy(answering->digest);
    answering->digest = NULL;
    free(answering->notes);
    answering->notes = NULL;
    answering->notes_begin = answering->notes_end = 0;
}

static uint64_t key_of(unsigned source, const char *path)
{
    struct {
        uint64_t source;
        char path[PATH_LENGTH_MAX + 2 * NAME_LENGTH_MAX + 8];
    } text;
    uint8_t digest[DIGEST_LENGTH];
    uint64_t key;
    text.source = source;
    size_t length = (size_t)snprintf(text.path, sizeof(text.path), "%s", path);
    length = length < sizeof(text.path) ? length : sizeof(text.path) - 1;
    digest_of(&text, sizeof(text.source) + length, digest);
    memcpy(&key, digest, sizeof(key));
    return key;
}

static void note(struct answering *answering)
{
    answering->notes[answering->notes_end++ % DIGESTED_MAX] = answering->of;
    if (answering->notes_end - answering->notes_begin > DIGESTED_MAX) {
        answering->notes_begin = answering->notes_end - DIGESTED_MAX;
    }
}

/* They are used in the order in which they were made, but for some. NULL: there is none. */
static const struct digested *take_note(struct answering *answering, uint64_t key)
{
    for (uint64_t i = answering->notes_begin; i < answering->notes_end; i++) {
        const struct digested *noted = &answering->notes[i % DIGESTED_MAX];
        if (noted->key == key) {
            answering->notes_begin = i + 1;
            return noted;
        }
    }
    return NULL;
}

/* The file has the digest still, or again. */
static bool reads_so(struct receiver *receiver, const char *name, const struct stat *there,
                     const struct digested *noted)
{
    uint8_t digest[DIGEST_LENGTH];
    struct digest *taken = digest_create();
    struct stat status;
    uint64_t length = 0;
    ssize_t count = -1;
    int fd = confine_open(tree_directory(&receiver->tree), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK,
                          0, CONFINE_NO_SYMLINKS);
    if (fd >= 0 && taken != NULL && fstat(fd, &status) == 0 && status.st_dev == there->st_dev &&
        status.st_ino == there->st_ino) {
        digest_start(taken);
        while (length <= (uint64_t)noted->status.st_size &&
               (count = read(fd, receiver->stored, sizeof(receiver->stored))) > 0) {
            digest_data(taken, receiver->stored, (size_t)count);
            length += (size_t)count;
        }
        digest_result(taken, digest);
    }
    close_one(&fd);
    digest_destroy(taken);
    return count == 0 && length == (uint64_t)noted->status.st_size &&
           memcmp(digest, noted->digest, DIGEST_LENGTH) == 0;
}

/* What we have placed since may be another name of the same file, which changes its times: then it
 * is read again. */
bool receiver_still_has(struct receiver *receiver, const struct message *message, const char *name,
                        const struct stat *there)
{
    uint64_t key = key_of(message->entry.source, tree_relative(&receiver->tree));
    const struct digested *noted = take_note(&receiver->answering, key);
    uint64_t size = (uint64_t)there->st_size;
    if (noted == NULL || there->st_size != noted->status.st_size) {
        return false;
    }
    bool untouched = source_is_unchanged(&noted->status, there);
    if (untouched || size > receiver->answering.again) {
        return untouched;
    }
    receiver->answering.again -= size;
    return reads_so(receiver, name, there, noted);
}

/* The directory of the questions that follow. */
static void enter(struct receiver *receiver, const struct question *question)
{
    struct answering *answering = &receiver->answering;
    char said[NAME_LENGTH_MAX + 1];
    char *path = answering->path;
    memcpy(said, question->name.bytes, question->name.length);
    said[question->name.length] = 0;
    close_one(&answering->directory);
    answering->is_left = answering->is_unknown = false;
    if (question->source >= receiver->options.source_count || !listing_leads_down(question->path)) {
        return;
    }
    answering->source = question->source;
    strcpy(path, ".");
    const char *base = receiver_source_name(receiver, question->source, said);
    strcpy(answering->base, question->top ? base : "");
    size_t length = 1;
    if (!question->top && base[0] != 0) {
        length = strlen(base);
        memcpy(path, base, length + 1);
    }
    if (!question->top && question->path.length > 0) {
        path[length++] = '/';
        memcpy(path + length, question->path.bytes, question->path.length);
        path[length + question->path.length] = 0;
    }
    int top = receiver->tree.top;
    int fd = top >= 0 ? confine_open(top, path, O_RDONLY | O_DIRECTORY, 0, CONFINE_NO_SYMLINKS)
                      : -ENOENT;
    answering->directory = fd < 0 ? -1 : fd;
    /* what stands there stays, so nothing below it is made */
    answering->is_left =
        receiver_wishes(receiver, WISH_IGNORE_EXISTING) && (fd == -ENOTDIR || fd == -ELOOP);
    answering->is_unknown = fd < 0 && fd != -ENOENT && fd != -ENOTDIR && fd != -ELOOP;
}

/* Of the name in the directory at hand, below the target. */
struct asked_path {
    char text[sizeof(((struct answering *)NULL)->path) + NAME_LENGTH_MAX + 2];
};

static void tell_path(const struct answering *answering, const char *name,
                      struct asked_path *ret_path)
{
    const char *below = strcmp(answering->path, ".") == 0        ? ""
                        : strncmp(answering->path, "./", 2) == 0 ? answering->path + 2
                                                                 : answering->path;
    snprintf(ret_path->text, sizeof(ret_path->text), "%s%s%s", below, below[0] != 0 ? "/" : "",
             name);
}

/* Else it is nothing that the peer is to know. */
static bool may_be_asked(const struct receiver *receiver, const char *name)
{
    const struct answering *answering = &receiver->answering;
    struct asked_path path;
    if (answering->directory < 0 || receiver->options.names == NULL) {
        return true;
    }
    tell_path(answering, name, &path);
    return receiver_is_asked_for(receiver, answering->source, path.text, false);
}

/* For the digest of what is there: true if it is to be taken, slice by slice. */
static bool begin_digest(struct answering *answering, const char *name, uint64_t size)
{
    struct asked_path path;
    tell_path(answering, name, &path);
    answering->fd = confine_open(answering->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0,
                                 CONFINE_NO_SYMLINKS);
    struct stat status;
    if (answering->digest == NULL) {
        answering->digest = digest_create();
    }
    if (answering->notes == NULL) {
        answering->notes = calloc(DIGESTED_MAX, sizeof(*answering->notes));
    }
    if (answering->fd < 0 || answering->digest == NULL || answering->notes == NULL ||
        fstat(answering->fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        (uint64_t)status.st_size != size) {
        close_one(&answering->fd);
        answering->fd = -1;
        return false;
    }
    digest_start(answering->digest);
    answering->of =
        (struct digested){.key = key_of(answering->source, path.text), .status = status};
    answering->read = 0;
    return true;
}

static void add_answer(struct answering *answering, enum answer answer, const uint8_t *digest)
{
    answering->length +=
        protocol_pack_answer(answer, digest, answering->answers + answering->length);
    answering->answered++;
}

static void answer_one(struct receiver *receiver, const struct question *question)
{
    struct answering *answering = &receiver->answering;
    char said[NAME_LENGTH_MAX + 1];
    memcpy(said, question->name.bytes, question->name.length);
    said[question->name.length] = 0;
    const char *name = answering->base[0] != 0 ? answering->base : said;
    const struct timespec mtime = {.tv_sec = question->mtime_s, .tv_nsec = question->mtime_ns};
    struct stat status;
    uint32_t unused;
    bool exists = receiver_find(answering->directory, name, &status);
    enum answer answer = receiver_compare(receiver, answering->directory, name,
                                          exists ? &status : NULL, question->size, &mtime, &unused);
    answer = answering->is_left ? ANSWER_LEFT : answer;
    bool unknown = answering->is_unknown || !may_be_asked(receiver, name);
    answer = unknown ? ANSWER_WANTED : answer; /* what comes will say what is wrong */
    if (answer != ANSWER_DIGEST) {
        add_answer(answering, answer, NULL);
    } else if (!begin_digest(answering, name, question->size)) {
        add_answer(answering, ANSWER_WANTED, NULL);
    }
}

/* How many bytes it read. */
static size_t continue_digest(struct receiver *receiver)
{
    struct answering *answering = &receiver->answering;
    struct digested *of = &answering->of;
    size_t done = 0;
    ssize_t count = 1;
    while (done < SLICE_LENGTH && count > 0) {
        count = read(answering->fd, receiver->stored, sizeof(receiver->stored));
        if (count > 0) {
            digest_data(answering->digest, receiver->stored, (size_t)count);
            done += (size_t)count;
        }
    }
    answering->read += done;
    receiver_say_alive(receiver);
    if (count > 0 && answering->read <= (uint64_t)of->status.st_size) {
        return done;
    }
    close_one(&answering->fd);
    digest_result(answering->digest, of->digest);
    bool whole = count == 0 && answering->read == (uint64_t)of->status.st_size;
    if (whole) {
        note(answering);
    }
    add_answer(answering, whole ? ANSWER_DIGEST : ANSWER_WANTED, of->digest);
    return done;
}

static void send_answers(struct receiver *receiver)
{
    struct answering *answering = &receiver->answering;
    struct message message = {.type = MESSAGE_ANSWERS};
    message.answers.count = (uint16_t)answering->answered;
    const struct weir_piece pieces[2] = {
        {receiver->head, protocol_pack(&message, receiver->head)},
        {answering->answers, answering->length},
    };
    if (answering->answered > 0) {
        receiver->options.link->operations->send(receiver->options.link, pieces, 2);
    }
    answering->length = 0;
    answering->answered = 0;
}

static void end_ask(struct answering *answering)
{
    free(answering->asks[0].bytes);
    answering->count--;
    memmove(answering->asks, answering->asks + 1, answering->count * sizeof(answering->asks[0]));
    answering->position = 0;
}

static void next_question(struct receiver *receiver)
{
    struct answering *answering = &receiver->answering;
    struct span rest = {answering->asks[0].bytes + answering->position,
                        answering->asks[0].length - answering->position};
    size_t length = rest.length;
    struct question question;
    protocol_next_question(&rest, &question);
    answering->position += length - rest.length;
    if (question.is_directory) {
        enter(receiver, &question);
    } else {
        answer_one(receiver, &question);
    }
}

bool receiver_answer(struct receiver *receiver)
{
    struct answering *answering = &receiver->answering;
    size_t read = 0;
    answering->again = AGAIN_LENGTH_MAX;
    for (unsigned i = 0; i < ASK_NAMES_MAX && answering->count > 0 && read < SLICE_LENGTH; i++) {
        if (answering->fd >= 0) {
            read += continue_digest(receiver);
        } else {
            next_question(receiver);
        }
        if (answering->fd < 0 && answering->position == answering->asks[0].length) {
            end_ask(answering);
            send_answers(receiver); /* there is room for those of one ASK */
        }
    }
    send_answers(receiver);
    return answering->count > 0;
}
