#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"
#include "tools/transfer/ends/receiver_private.h"

/* What is read of a file at a time. */
#define SLICE_LENGTH (1u << 20)

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
}

/* The directory of the questions that follow. */
static void enter(struct receiver *receiver, const struct question *question)
{
    struct answering *answering = &receiver->answering;
    char said[NAME_LENGTH_MAX + 1], path[NAME_LENGTH_MAX + PATH_LENGTH_MAX + 4] = ".";
    memcpy(said, question->name.bytes, question->name.length);
    said[question->name.length] = 0;
    close_one(&answering->directory);
    answering->is_left = answering->is_unknown = false;
    if (question->source >= receiver->options.source_count) {
        return;
    }
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

/* For the digest of what is there: true if it is to be taken, slice by slice. */
static bool begin_digest(struct answering *answering, const char *name, uint64_t size)
{
    answering->fd = confine_open(answering->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0,
                                 CONFINE_NO_SYMLINKS);
    struct stat status;
    if (answering->digest == NULL) {
        answering->digest = digest_create();
    }
    if (answering->fd < 0 || answering->digest == NULL || fstat(answering->fd, &status) != 0 ||
        !S_ISREG(status.st_mode)) {
        close_one(&answering->fd);
        answering->fd = -1;
        return false;
    }
    digest_start(answering->digest);
    answering->digested = 0;
    answering->size = size;
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
    answer = answering->is_unknown ? ANSWER_WANTED : answer; /* what comes will say what is wrong */
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
    uint8_t digest[DIGEST_LENGTH];
    size_t done = 0;
    ssize_t count = 1;
    while (done < SLICE_LENGTH && count > 0) {
        count = read(answering->fd, receiver->stored, sizeof(receiver->stored));
        if (count > 0) {
            digest_data(answering->digest, receiver->stored, (size_t)count);
            done += (size_t)count;
        }
    }
    answering->digested += done;
    receiver_say_alive(receiver);
    if (count > 0 && answering->digested <= answering->size) {
        return done;
    }
    close_one(&answering->fd);
    digest_result(answering->digest, digest);
    bool whole = count == 0 && answering->digested == answering->size;
    add_answer(answering, whole ? ANSWER_DIGEST : ANSWER_WANTED, digest);
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
