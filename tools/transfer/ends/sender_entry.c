#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tools/transfer/disk/attributes.h"
#include "tools/transfer/ends/sender_private.h"

void sender_send(struct sender *sender, const struct message *message, struct span data)
{
    struct weir_piece pieces[2] = {
        {sender->head, protocol_pack(message, sender->head)},
        {data.bytes, data.length},
    };
    sender->link->operations->send(sender->link, pieces, data.length > 0 ? 2 : 1);
}

void sender_send_plain(struct sender *sender, const struct message *message)
{
    sender_send(sender, message, (struct span){NULL, 0});
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static void count_problem(struct sender *sender, enum problem_code code)
{
    if (code == PROBLEM_WARNING) {
        sender->options.tally->warnings++;
    } else {
        sender->options.tally->failed++;
    }
}

void sender_report(struct sender *sender, enum problem_code code, const char *path,
                   const char *text)
{
    const struct problem problem = {
        .code = code, .at_source = true, .path = span_of(path), .text = span_of(text)};
    count_problem(sender, code);
    sender->options.report->problem(sender->options.report->user, &problem);
}

static enum problem_code code_of_walk_error(int error)
{
    switch (error) {
    case WALK_ERROR_SPECIAL:
    case WALK_ERROR_TEMPORARY:
        return PROBLEM_WARNING;
    case WALK_ERROR_SPECIAL_SOURCE:
    case WALK_ERROR_NOT_RECURSIVE:
        return PROBLEM_WRONG_KIND;
    case WALK_ERROR_DEEP:
    case WALK_ERROR_PARENT:
        return PROBLEM_CONFINED;
    default:
        return problem_code_of_errno(error);
    }
}

void sender_skip(struct sender *sender, enum problem_code code, const char *path, const char *text)
{
    struct message message = {.type = MESSAGE_SKIPPED};
    message.problem.code = code;
    message.problem.path = span_of(path);
    message.problem.text = span_of(text);
    sender_report(sender, code, path, text);
    sender_send_plain(sender, &message);
}

void sender_skip_step(struct sender *sender, const struct walk_step *step, int error)
{
    const char *text = error == WALK_ERROR_RULES ? walk_failure_text(step) : walk_error_text(error);
    sender_skip(sender, code_of_walk_error(error), step->path, text);
}

static bool may_have_names(const struct sender *sender, const struct stat *status)
{
    return (sender->options.wishes->preserve & PRESERVE_HARD_LINKS) != 0 && status->st_nlink > 1 &&
           !S_ISDIR(status->st_mode);
}

/* Of the file of that status, unless the name has become another's since. */
static struct birth birth_of_step(const struct sender *sender, const struct walk_step *step,
                                  const struct stat *status)
{
    struct birth birth = {0};
    struct stat held;
    int fd = walk_hold(lookahead_walk(sender->lookahead), step);
    if (fd >= 0 && fstat(fd, &held) == 0 && held.st_ino == status->st_ino) {
        birth = birth_of(fd);
    }
    if (fd >= 0) {
        close(fd);
    }
    return birth;
}

/* The one who was chosen, or the file's own with its name. */
static void name_owner(struct sender *sender, enum owner_kind kind, bool by_name, uint32_t *id,
                       struct span *name)
{
    const struct owner_choice *choice = &sender->options.owners[kind];
    if (choice->set) {
        *id = choice->owner.id;
        *name = span_of(choice->owner.name);
    } else if (by_name) {
        *name = span_of(owners_name(&sender->owners, kind, *id));
    }
}

/* With the names of its owners where the peer wants them. */
static struct message entry_of(struct sender *sender, const struct walk_step *step,
                               const struct stat *status, enum entry_kind kind)
{
    unsigned preserve = sender->options.wishes->preserve;
    bool by_name = (preserve & PRESERVE_NUMBERS) == 0;
    struct message message = {.type = MESSAGE_ENTRY};
    message.entry.id = ++sender->last_id;
    message.entry.kind = kind;
    message.entry.source = (uint16_t)step->source;
    message.entry.mode = status->st_mode & 07777;
    if (kind != ENTRY_SYMLINK) {
        message.entry.mode = (uint16_t)modes_apply(sender->options.modes, message.entry.mode,
                                                   kind == ENTRY_DIRECTORY);
    }
    message.entry.mtime_s = status->st_mtim.tv_sec;
    message.entry.mtime_ns = (uint32_t)status->st_mtim.tv_nsec;
    message.entry.uid = status->st_uid;
    message.entry.gid = status->st_gid;
    message.entry.name = span_of(step->name);
    if ((preserve & PRESERVE_OWNER) != 0) {
        name_owner(sender, OWNER_USER, by_name, &message.entry.uid, &message.entry.user);
    }
    if ((preserve & PRESERVE_GROUP) != 0) {
        name_owner(sender, OWNER_GROUP, by_name, &message.entry.gid, &message.entry.group);
    }
    if (may_have_names(sender, status) && kind != ENTRY_HARD_LINK) {
        message.entry.names =
            status->st_nlink < UINT32_MAX ? (uint32_t)status->st_nlink : UINT32_MAX;
        sender->birth = birth_of_step(sender, step, status);
        hard_links_sent(&sender->links, status, &sender->birth, message.entry.id, step->relative);
    }
    return message;
}

static void send_xattr(struct sender *sender, const struct xattr *xattr)
{
    struct message message = {.type = MESSAGE_ATTRIBUTE};
    message.attribute.name = span_of(xattr->name);
    size_t done = 0;
    do {
        size_t left = xattr->length - done;
        message.attribute.more = left > EAGER_LENGTH_MAX;
        message.attribute.value =
            (struct span){xattr->value + done, message.attribute.more ? EAGER_LENGTH_MAX : left};
        sender_send(sender, &message, message.attribute.value);
        done += message.attribute.value.length;
    } while (message.attribute.more);
}

/* What the descriptor's file has besides its contents goes before its entry. False: it cannot be
 * read, which is told. */
static bool send_attributes(struct sender *sender, const struct walk_step *step, int fd)
{
    struct xattrs xattrs;
    int error = xattrs_read(fd, sender->options.wishes->preserve, sender->options.super, &xattrs);
    if (error != 0) {
        sender_skip(sender, problem_code_of_errno(error), step->path,
                    error == E2BIG ? "has more than 1 MiB of extended attributes"
                                   : strerror(error));
        return false;
    }
    for (unsigned i = 0; i < xattrs.count; i++) {
        if (!attributes_are_rsyncs(xattrs.list[i].name)) {
            send_xattr(sender, &xattrs.list[i]);
        }
    }
    xattrs_clear(&xattrs);
    return true;
}

/* The same for what is not open. */
static bool send_attributes_of_step(struct sender *sender, const struct walk_step *step)
{
    if ((sender->options.wishes->preserve & (PRESERVE_XATTRS | PRESERVE_ACLS)) == 0) {
        return true;
    }
    int fd = walk_hold(lookahead_walk(sender->lookahead), step);
    if (fd < 0) {
        sender_skip_step(sender, step, -fd);
        return false;
    }
    bool sent = send_attributes(sender, step, fd);
    close(fd);
    return sent;
}

/* An entry that is no directory is on its way. */
static void count_entry(struct sender *sender, const struct walk_step *step)
{
    sender->entries++;
    sender->sources += step->folder == NULL;
}

/* True: the file has been sent under another name, and this one is said. */
static bool send_hard_link(struct sender *sender, const struct walk_step *step,
                           const struct stat *status)
{
    if (!may_have_names(sender, status)) {
        return false;
    }
    const struct birth birth = birth_of_step(sender, step, status);
    uint32_t first = hard_links_first(&sender->links, status, &birth);
    if (first == 0) {
        return false;
    }
    struct message message = entry_of(sender, step, status, ENTRY_HARD_LINK);
    message.entry.first = first;
    message.entry.of = entry_kind_of(status->st_mode);
    sender_send_plain(sender, &message);
    sender->options.tally->files++;
    count_entry(sender, step);
    return true;
}

/* A file of which nothing but its attributes goes. */
static void send_without_contents(struct sender *sender, const struct look *look,
                                  const struct stat *status)
{
    struct tally *tally = sender->options.tally;
    bool wanted = look->answer == ANSWER_WANTED;
    if (!send_attributes_of_step(sender, &look->step)) {
        return;
    }
    struct message message = entry_of(sender, &look->step, status, ENTRY_FILE);
    message.entry.size = (uint64_t)status->st_size;
    message.entry.content = wanted ? CONTENT_DRY : CONTENT_NOT_SENT;
    if (look->answer == ANSWER_LEFT) { /* the next of its names comes as a file of its own */
        hard_links_withdraw(&sender->links, status, &sender->birth);
    }
    sender_send_plain(sender, &message);
    count_entry(sender, &look->step);
    tally->files += wanted;
    tally->bytes += wanted ? message.entry.size : 0;
    tally->spared += wanted ? 0 : message.entry.size;
    if (!wanted && message.entry.id <= sender->options.before) {
        tally->again_files++;
        tally->again_bytes += message.entry.size;
        return;
    }
    tally->same += look->answer == ANSWER_SAME;
    tally->left += look->answer == ANSWER_LEFT;
}

static bool reopen(struct sender *sender, const struct walk_step *step)
{
    struct stat status;
    int fd = walk_open_file(lookahead_walk(sender->lookahead), step, &status);
    if (fd == -ENOENT) {
        sender_skip(sender, PROBLEM_VANISHED, step->path, "removed while it was read");
    } else if (fd < 0) {
        sender_skip_step(sender, step, -fd);
    } else {
        source_open(&sender->file.source, fd, &status);
    }
    return fd >= 0;
}

/* Into sender->eager, as it was at one time. */
static enum problem_code read_small(struct sender *sender, const char **ret_text)
{
    struct source *source = &sender->file.source;
    enum problem_code code =
        source_read(source, sender->eager, source->size, sizeof(sender->eager), ret_text);
    return code == PROBLEM_NONE ? source_check(source, ret_text) : code;
}

/* It has changed while it was read. */
static void skip_for_now(struct sender *sender, const struct walk_step *step, const char *text)
{
    char told[TEXT_LENGTH_MAX];
    snprintf(told, sizeof(told), "%s" TEXT_AGAIN, text);
    sender_skip(sender, PROBLEM_WARNING, step->path, told);
}

/* A small file: read whole, checked, and sent with its entry. True: it has grown, and goes by
 * chunks. It may be anything when it fails to be what the walk saw: then it is opened with care. */
static bool send_eager(struct sender *sender, const struct walk_step *step)
{
    const struct source *source = &sender->file.source;
    const char *text = NULL;
    enum problem_code code = read_small(sender, &text);
    unsigned tries = sender->file.tries + 1;
    bool changed = code == PROBLEM_CHANGED || code == PROBLEM_VANISHED;
    if (code != PROBLEM_NONE && (changed || tries == 1) && tries < SENDER_TRIES) {
        if (changed) {
            skip_for_now(sender, step, text);
        }
        sender_close_file(sender);
        return sender_send_again(sender, step, tries);
    }
    if (code != PROBLEM_NONE) {
        sender_skip(sender, code, step->path, text);
        return false;
    }
    if (!send_attributes(sender, step, source->fd)) {
        return false;
    }
    size_t length = (size_t)source->size;
    struct message message = entry_of(sender, step, &source->status, ENTRY_FILE);
    message.entry.content = CONTENT_EAGER;
    message.entry.size = length;
    digest_of(sender->eager, length, message.entry.digest);
    sender_send(sender, &message, (struct span){sender->eager, length});
    sender->options.tally->files++;
    sender->options.tally->bytes += length;
    pace_spend(&sender->pace, length);
    count_entry(sender, step);
    return false;
}

static void begin_chunks(struct sender *sender, const struct walk_step *step)
{
    const struct source *source = &sender->file.source;
    struct message message = entry_of(sender, step, &source->status, ENTRY_FILE);
    message.entry.size = source->size;
    if (source->size > SENDER_CHUNK_LENGTH) {
        posix_fadvise(source->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    pieces_start(&sender->pieces, source->size);
    sender->file.sent_bytes = sender->options.tally->bytes;
    sender->file.kept = sender->options.tally->kept;
    sender->file.claims.awaited = protocol_is_resumed(sender->options.wishes, source->size);
    sender_send_plain(sender, &message);
    sender->sources += step->folder == NULL;
    sender->state = SENDER_FILE;
}

/* sender->file is open and at its begin. True: it goes by chunks, else it is done with. */
static bool send_file(struct sender *sender, const struct walk_step *step)
{
    const struct source *source = &sender->file.source;
    if (source->size <= EAGER_LENGTH_MAX) {
        if (send_eager(sender, step)) {
            return true;
        }
    } else if (send_attributes(sender, step, source->fd)) {
        begin_chunks(sender, step);
        return true;
    }
    sender_close_file(sender);
    return false;
}

bool sender_send_again(struct sender *sender, const struct walk_step *step, unsigned tries)
{
    if (!reopen(sender, step)) {
        return false;
    }
    sender->file.tries = tries;
    return send_file(sender, step);
}

static bool is_dry(const struct sender *sender)
{
    return (sender->options.wishes->bits & WISH_DRY_RUN) != 0;
}

/* A small file costs little more than the calls of the system: it is read first, and looked at
 * once, after that. */
static bool open_at_once(struct sender *sender, const struct look *look)
{
    const struct walk_step *step = &look->step;
    bool small = look->answer == ANSWER_WANTED && step->status.st_size <= EAGER_LENGTH_MAX;
    int fd = small ? walk_open_at_once(lookahead_walk(sender->lookahead), step) : -ESTALE;
    if (fd >= 0) {
        source_open(&sender->file.source, fd, &step->status);
    }
    return fd >= 0;
}

bool sender_begin_file(struct sender *sender, const struct look *look)
{
    const struct walk_step *step = &look->step;
    struct stat status;
    if (send_hard_link(sender, step, &step->status)) {
        return false;
    }
    if (look->answer != ANSWER_DIGEST && (look->answer != ANSWER_WANTED || is_dry(sender))) {
        send_without_contents(sender, look, &step->status);
        return false;
    }
    if (open_at_once(sender, look)) {
        return send_file(sender, step);
    }
    int fd = walk_open_file(lookahead_walk(sender->lookahead), step, &status);
    if (fd < 0) {
        sender_skip_step(sender, step, -fd);
        return false;
    }
    source_open(&sender->file.source, fd, &status);
    if (look->answer == ANSWER_DIGEST) {
        digest_start(sender->digest);
        sender->state = SENDER_DIGEST;
        return true;
    }
    return send_file(sender, step);
}

bool sender_miss_digest(struct sender *sender, const struct look *look, enum problem_code code,
                        const char *text)
{
    bool changed = code == PROBLEM_CHANGED || code == PROBLEM_VANISHED;
    sender_close_file(sender);
    if (!changed || is_dry(sender)) {
        sender_skip(sender, code, look->step.path, text);
        return false;
    }
    skip_for_now(sender, &look->step, text);
    return sender_send_again(sender, &look->step, 1);
}

bool sender_end_digest(struct sender *sender, const struct look *look)
{
    struct source *source = &sender->file.source;
    struct look known = *look;
    uint8_t digest[DIGEST_LENGTH];
    const char *text = "";
    enum problem_code code = source_check(source, &text);
    digest_result(sender->digest, digest);
    known.answer = memcmp(digest, look->digest, DIGEST_LENGTH) == 0 ? ANSWER_SAME : ANSWER_WANTED;
    if (code == PROBLEM_NONE && known.answer == ANSWER_WANTED && !is_dry(sender)) {
        source->position = source->data_end = 0;
        return send_file(sender, &look->step);
    }
    if (code != PROBLEM_NONE) {
        return sender_miss_digest(sender, look, code, text);
    }
    send_without_contents(sender, &known, &source->status);
    sender_close_file(sender);
    return false;
}

static bool remember_directory(struct sender *sender, uint32_t id, struct walk_folder *folder)
{
    if (sender->depth == sender->directory_capacity) {
        unsigned capacity = 2 * sender->depth + 16;
        struct open_directory *directories =
            realloc(sender->directories, capacity * sizeof(*directories));
        if (directories == NULL) {
            return false;
        }
        sender->directories = directories;
        sender->directory_capacity = capacity;
    }
    sender->directories[sender->depth++] = (struct open_directory){id, folder};
    return true;
}

void sender_send_directory(struct sender *sender, const struct walk_step *step)
{
    if (!sender_remember_root(sender, step)) {
        walk_leave_out(step->inside);
        return;
    }
    if (!remember_directory(sender, sender->last_id + 1, step->inside)) {
        sender_skip_step(sender, step, ENOMEM);
        walk_leave_out(step->inside);
        return;
    }
    if (!send_attributes_of_step(sender, step)) {
        sender->depth--;
        walk_leave_out(step->inside);
        return;
    }
    struct message message = entry_of(sender, step, &step->status, ENTRY_DIRECTORY);
    message.entry.identity = sender_identity(sender, step);
    sender_send_plain(sender, &message);
    sender->options.tally->directories++;
    sender->sources += step->folder == NULL;
}

void sender_leave_directory(struct sender *sender)
{
    sender->depth--;
    sender_send_plain(sender, &(struct message){.type = MESSAGE_LEAVE});
}

/* A symbolic link, device, FIFO or socket. */
void sender_send_node(struct sender *sender, const struct look *look)
{
    const struct walk_step *step = &look->step;
    enum entry_kind kind = entry_kind_of(step->status.st_mode);
    if (send_hard_link(sender, step, &step->status) || !send_attributes_of_step(sender, step)) {
        return;
    }
    struct message message = entry_of(sender, step, &step->status, kind);
    struct span target = span_of(step->target != NULL ? step->target : "");
    message.entry.size = target.length;
    if (kind == ENTRY_CHARACTER_DEVICE || kind == ENTRY_BLOCK_DEVICE) {
        message.entry.major = major(step->status.st_rdev);
        message.entry.minor = minor(step->status.st_rdev);
    }
    if (look->answer == ANSWER_LEFT) { /* the next of its names comes as a node of its own */
        hard_links_withdraw(&sender->links, &step->status, &sender->birth);
    }
    sender_send(sender, &message, target);
    count_entry(sender, step);
    if (kind == ENTRY_SYMLINK) {
        sender->options.tally->symlinks++;
    } else {
        sender->options.tally->files++;
    }
}
