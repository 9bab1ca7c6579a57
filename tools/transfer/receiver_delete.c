#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/receiver_private.h"

/* Steps between two looks at the link. */
#define STEPS_AT_ONCE 64

bool receiver_remember_source(struct receiver *receiver, unsigned source, const char *name)
{
    struct deleting *deleting = &receiver->deleting;
    if (deleting->sources == NULL) {
        deleting->sources = calloc(receiver->options.source_count, sizeof(*deleting->sources));
    }
    if (deleting->sources == NULL) {
        return false;
    }
    free(deleting->sources[source]);
    deleting->sources[source] = strdup(name[0] != 0 ? name : ".");
    return deleting->sources[source] != NULL;
}

bool receiver_begin_deleting(struct receiver *receiver)
{
    struct deleting *deleting = &receiver->deleting;
    const struct walk_options options = {.root = receiver->tree.top,
                                         .confined = true,
                                         .recursive = true,
                                         .devices = true,
                                         .specials = true,
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

void receiver_end_deleting(struct receiver *receiver)
{
    struct deleting *deleting = &receiver->deleting;
    lookahead_destroy(deleting->lookahead);
    deleting->lookahead = NULL;
    for (unsigned i = 0; i < receiver->options.source_count && deleting->sources != NULL; i++) {
        free(deleting->sources[i]);
    }
    free(deleting->sources);
    deleting->sources = NULL;
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

static void delete (struct receiver *receiver, const struct walk_step *step, enum entry_kind kind,
                    const char *name)
{
    int flags = kind == ENTRY_DIRECTORY ? AT_REMOVEDIR : 0;
    bool dry = receiver_wishes(receiver, WISH_DRY_RUN);
    struct tally *tally = receiver->options.tally;
    if (receiver_wishes(receiver, WISH_MAX_DELETE) &&
        tally->deleted >= receiver->options.wishes->deletions_max) {
        tally->held_back++;
        keep(step->folder);
        return;
    }
    if (!dry) {
        touch(step->folder);
    }
    if (!dry && unlinkat(walk_folder_fd(step->folder), name, flags) != 0) {
        /* what is left out stays, and so does the directory that it is in */
        if (errno != ENOENT && !(kind == ENTRY_DIRECTORY && errno == ENOTEMPTY)) {
            receiver_fail_path(receiver, 0, problem_code_of_errno(errno), step->relative,
                               strerror(errno));
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
    } else if (mark->gone && geteuid() != 0 && (step->status.st_mode & 0700) != 0700) {
        fchmod(walk_folder_fd(step->inside), 0700); /* else others than root cannot empty it */
    }
}

static void leave(struct receiver *receiver, const struct walk_step *step)
{
    const struct walk_mark *mark = walk_folder_mark(step->inside);
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

static void take_step(struct receiver *receiver, const struct look *look)
{
    const struct walk_step *step = &look->step;
    switch (step->kind) {
    case WALK_FILE:
    case WALK_SYMLINK:
    case WALK_SPECIAL:
        if (look->answer == ANSWER_GONE) {
            delete (receiver, step, entry_kind_of(step->status.st_mode), step->name);
        } else {
            keep(step->folder);
        }
        return;
    case WALK_DIRECTORY:
        enter(step, look->answer);
        return;
    case WALK_LEAVE:
        leave(receiver, step);
        return;
    case WALK_FAILED:
        if (step->error != WALK_ERROR_TEMPORARY && step->error != ENOENT) {
            receiver_fail_path(receiver, 0, problem_code_of_errno(step->error), step->relative,
                               walk_error_text(step->error));
        }
        return;
    case WALK_EXCLUDED:
    case WALK_END:
        return;
    }
}

bool receiver_delete(struct receiver *receiver, bool *ret_done)
{
    struct lookahead *lookahead = receiver->deleting.lookahead;
    bool more = lookahead_pump(lookahead);
    *ret_done = false;
    for (unsigned i = 0; i < STEPS_AT_ONCE; i++) {
        const struct look *look = lookahead_head(lookahead);
        if (look == NULL) {
            return more;
        }
        if (look->step.kind == WALK_END) {
            *ret_done = true;
            return false;
        }
        take_step(receiver, look);
        lookahead_pop(lookahead);
    }
    return true;
}
