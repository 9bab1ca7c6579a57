/* weir cp: the client of a transfer. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cp_names.h"
#include "tools/cp_private.h"
#include "tools/items.h"
#include "tools/printable.h"
#include "tools/stop.h"
#include "tools/transfer/choice/walk.h"

static void on_problem(void *user, const struct problem *problem)
{
    struct cp *cp = user;
    if (cp_again_knows_problem(cp, problem)) {
        return;
    }
    cp_clear_line(cp);
    output_problem(&cp->output, problem);
}

static void item_as_json(const char *peer, const struct item *item, const char *letters)
{
    const char *reason = item_reason(item);
    bool deleted = (item->changes & CHANGE_DELETED) != 0;
    json_t *object = json_pack("{s:s, s:s}", "event",
                               reason != NULL ? "skipped"
                               : deleted      ? "deleted"
                                              : "entry",
                               "kind", item_kind_name(item));
    output_json_path(object, item->path);
    if (peer != NULL) {
        json_object_set_new(object, "peer", json_string(peer));
    }
    if (reason != NULL) {
        json_object_set_new(object, "reason", json_string(reason));
    } else if (!deleted) {
        json_object_set_new(object, "size", json_integer((json_int_t)item->size));
        json_object_set_new(object, "change", json_string(letters));
    }
    output_json(object);
}

/* What rsync's -v says, which leaves out what only got other attributes. */
static void print_name(const struct item *item, const char *path)
{
    const char *reason = item_reason(item);
    if (reason != NULL) {
        printf("%s: left as it is: %s\n", path, reason);
    } else if ((item->changes & CHANGE_DELETED) != 0) {
        printf("deleting %s\n", path);
    } else if ((item->changes & (CHANGE_SENT | CHANGE_MADE)) != 0 ||
               item->kind == ENTRY_DIRECTORY) {
        puts(path);
    }
}

void cp_say_item(const struct cp *cp, const char *peer, const struct item *item)
{
    char letters[ITEM_LETTERS], path[PATH_LENGTH_MAX * 4 + 4];
    item_letters(item, cp->is_push, letters);
    if (cp->options.json) {
        item_as_json(peer, item, letters);
        return;
    }
    printable(item->path.bytes, item->path.length, path, sizeof(path) - 2);
    if (item->path.length == 0) {
        strcpy(path, ".");
    }
    if (item->kind == ENTRY_DIRECTORY) {
        strcat(path, "/");
    }
    cp_clear_line(cp);
    if (peer != NULL) {
        printf("%s ", peer);
    }
    if (cp->options.itemize) {
        printf("%s %s\n", letters, path);
    } else {
        print_name(item, path);
    }
}

static void on_item(void *user, const struct item *item)
{
    if (!cp_again_knows_item(user, item)) {
        cp_say_item(user, NULL, item);
    }
}

static bool is_listed(const struct cp *cp)
{
    return (cp->options.wishes.bits & WISH_LISTED) != 0;
}

struct session_request cp_request(const struct cp *cp, enum direction direction)
{
    const struct cp_options *options = &cp->options;
    struct session_request request = {
        .direction = direction,
        .wishes = options->wishes,
        .filter = options->filter,
        .listing = is_listed(cp) ? &cp->listing : NULL,
        .owners = {options->owners[0], options->owners[1]},
        .modes = options->modes.count > 0 ? &options->modes : NULL,
    };
    bool tells = options->verbose > 0 || options->itemize;
    request.wishes.bits |= cp->tty || options->progress || options->json ? WISH_TOTALS : 0;
    if ((options->wishes.bits & WISH_DELETE) != 0) { /* and what is in the way */
        request.wishes.bits |= WISH_FORCE;
    }
    if (options->filter != NULL &&
        filter_protects_some(options->filter, (options->wishes.bits & WISH_DELETE_EXCLUDED) != 0)) {
        request.wishes.bits &= ~(uint32_t)WISH_FORCE; /* what is left out is not to go with it */
    }
    uint64_t gone = cp->total.deleted; /* by transfers before this one */
    request.wishes.deletions_max -=
        gone < request.wishes.deletions_max ? (uint32_t)gone : request.wishes.deletions_max;
    request.wishes.bits |= tells ? WISH_ITEMS : 0;
    request.wishes.bits |= options->verbose > 1 ? WISH_ALL_ITEMS : 0;
    return request;
}

static enum exit_code push(struct cp *cp, char **sources, unsigned count, const char *target)
{
    struct location where;
    struct session_request request = cp_request(cp, DIRECTION_PUSH);
    location_parse(target, &where);
    request.target_path = where.path;
    request.sources = (const char *const *)sources;
    request.source_count = count;
    return cp_transfer(cp, &where, &request);
}

/* The first that went wrong tells the exit status, except that anything is worse than single files.
 */
static enum exit_code worse(enum exit_code one, enum exit_code other)
{
    return one == EXIT_DONE || (one == EXIT_SOME_FAILED && other != EXIT_DONE) ? other : one;
}

/* The first of the sources, and those behind it that are of the same place, make one transfer: so
 * many. Of `paths` there are as many as sources. */
static unsigned pull_row(struct cp *cp, char **sources, unsigned count, struct target *target,
                         const char **paths, enum exit_code *ret_code)
{
    struct location where, other;
    unsigned number = 0;
    struct cp_patterns patterns;
    location_parse(sources[0], &where);
    paths[0] = where.path;
    bool by_pattern = target->into && !is_listed(cp) && cp_patterns_take(&where, &patterns);
    while (++number < count && !by_pattern) {
        location_parse(sources[number], &other);
        if (other.kind != where.kind || strcmp(where.address, other.address) != 0 ||
            cp_is_pattern(&other)) {
            break;
        }
        paths[number] = other.path;
    }
    struct session_request request = cp_request(cp, DIRECTION_PULL);
    request.sources = paths;
    request.source_count = number;
    request.target = target;
    if (by_pattern) {
        paths[0] = patterns.base;
        request.listing = &patterns.listing;
        request.wishes.bits |= WISH_LISTED | WISH_EXPAND | WISH_KEEP_TARGET;
    }
    *ret_code = cp_transfer(cp, &where, &request);
    if (by_pattern) {
        cp_patterns_free(&patterns);
    }
    return number;
}

static enum exit_code pull_from(struct cp *cp, char **sources, unsigned count,
                                const struct target *target)
{
    enum exit_code code = EXIT_DONE;
    const char **paths = calloc(count, sizeof(*paths));
    struct target mine = *target;
    if (paths == NULL) {
        command_error(cp->command, "not enough memory");
        return EXIT_SETUP;
    }
    for (unsigned first = 0; first < count && code != EXIT_INTERRUPTED;) {
        enum exit_code one;
        if (stop_asked()) { /* before it began, or between two transfers */
            code = cp_again_interrupted(cp);
            break;
        }
        first += pull_row(cp, sources + first, count - first, &mine, paths, &one);
        code = one == EXIT_INTERRUPTED ? one : worse(code, one);
    }
    free(paths);
    return code;
}

static enum exit_code pull(struct cp *cp, char **sources, unsigned count, const char *path)
{
    char named[256] = "";
    struct location where;
    if (count == 1) {
        location_parse(sources[0], &where);
        walk_base_name(where.path, named);
    }
    const struct target_request request = {
        .root = AT_FDCWD,
        .path = path,
        .named = named,
        .source_count = count,
        .wishes = cp->options.wishes.bits,
    };
    struct target target;
    char text[TEXT_LENGTH_MAX];
    if (target_open(&request, &target, text) != PROBLEM_NONE) {
        printable(text, strlen(text), cp->reason, sizeof(cp->reason));
        command_error(cp->command, "%s", cp->reason);
        return EXIT_SETUP;
    }
    enum exit_code code = pull_from(cp, sources, count, &target);
    target_close(&target);
    return code;
}

/* Elsewhere what moves the cursor would be shown as it is. */
static bool is_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && (kind == NULL || strcmp(kind, "dumb") != 0);
}

static void print_count(uint64_t count, const char *what)
{
    char text[PROGRESS_TEXT];
    progress_count(count, text);
    if (count > 0) {
        printf("; %s %s", text, what);
    }
}

static void summarize_as_json(const struct cp *cp, enum exit_code code, double rate)
{
    const struct tally *tally = &cp->total;
    bool dry = (cp->options.wishes.bits & WISH_DRY_RUN) != 0;
    json_t *object = json_pack("{s:s, s:i, s:f, s:f, s:s, s:s, s:s}", "event", "summary", "exit",
                               (int)code, "seconds", cp->seconds, "bytes_per_second", rate,
                               "device", weir_fabric_device(cp->fabric), "fabric",
                               weir_fabric_kind(cp->fabric) == WEIR_FABRIC_SOFT ? "soft" : "rdma",
                               "fabric_reason", fabric_reason(cp->fabric));
    output_json_tally(object, tally);
    json_object_set_new(object, "dry_run", json_boolean(dry));
    json_object_set_new(object, "read_back",
                        json_boolean(!dry && (cp->options.wishes.bits & WISH_VERIFY) != 0));
    output_json_peer_device(object, cp->peer_device);
    if (cp->options.targets.count > 0) {
        json_object_set_new(object, "targets", json_integer(cp->options.targets.count));
        json_object_set_new(object, "targets_whole", json_integer(cp->targets_whole));
        json_object_set_new(object, "bytes_put", json_integer((json_int_t)cp->bytes_put));
    }
    json_object_set_new(object, "reconnections", json_integer(cp->again.count));
    json_object_set_new(object, "seconds_disconnected", json_real(cp->again.seconds));
    if (cp->reason[0] != 0) {
        output_json_text(object, "error", cp->reason);
    }
    output_json(object);
}

static void summarize(const struct cp *cp, enum exit_code code)
{
    const struct tally *tally = &cp->total;
    bool dry = (cp->options.wishes.bits & WISH_DRY_RUN) != 0;
    double rate = cp->seconds > 0 && !dry ? (double)tally->bytes / cp->seconds : 0;
    if (cp->options.json) {
        summarize_as_json(cp, code, rate);
        return;
    }
    char files[PROGRESS_TEXT], bytes[PROGRESS_TEXT], speed[PROGRESS_TEXT];
    progress_count(tally->files, files);
    progress_size(tally->bytes, bytes);
    progress_rate(rate, speed);
    bool is_soft = weir_fabric_kind(cp->fabric) == WEIR_FABRIC_SOFT;
    printf("%s%s file%s, %s in %.2f s", dry ? "dry run, nothing done: " : "", files,
           tally->files == 1 ? "" : "s", bytes, cp->seconds);
    if (!dry) {
        printf(", %s/s", speed);
    }
    printf(", %s%s", weir_fabric_device(cp->fabric), is_soft ? " (software)" : "");
    if (cp->options.targets.count > 0) {
        printf(", to %u of %u targets", cp->targets_whole, cp->options.targets.count);
    }
    if (tally->kept > 0) {
        progress_size(tally->kept, bytes);
        printf("; %s of it had come before", bytes);
    }
    bool through = code == EXIT_DONE || code == EXIT_SOME_FAILED; /* else who sends cannot know */
    if (through && !dry && tally->files > 0) {
        bool back = (cp->options.wishes.bits & WISH_VERIFY) != 0;
        printf("; digest%s proven%s", tally->files == 1 ? "" : "s",
               back ? "; read back from storage" : "");
    }
    print_count(tally->symlinks, tally->symlinks == 1 ? "symbolic link" : "symbolic links");
    print_count(tally->same, "unchanged");
    print_count(tally->left, "left as they are");
    print_count(tally->deleted, "deleted");
    print_count(tally->failed, "not copied");
    print_count(tally->retransmissions,
                tally->retransmissions == 1 ? "retransmission" : "retransmissions");
    if (cp->again.count > 0) {
        printf("; connected again %u time%s, %.1f s without a connection", cp->again.count,
               cp->again.count == 1 ? "" : "s", cp->again.seconds);
    }
    putchar('\n');
}

static void say_number(const char *what, uint64_t count, const char *unit)
{
    char text[PROGRESS_TEXT];
    progress_count(count, text);
    printf("%s: %s%s\n", what, text, unit);
}

static uint64_t less(uint64_t one, uint64_t other)
{
    return one > other ? one - other : 0;
}

/* rsync's --stats, in its words where it has them. The other side may have said the numbers. */
static void say_numbers(const struct cp *cp)
{
    const struct tally *tally = &cp->total;
    uint64_t links = tally->symlinks + tally->untouched_symlinks;
    uint64_t specials = tally->specials + tally->untouched_specials;
    uint64_t files =
        less(tally->files + tally->same + tally->left, tally->untouched_symlinks + specials);
    char all[PROGRESS_TEXT], regular[PROGRESS_TEXT], folders[PROGRESS_TEXT], linked[PROGRESS_TEXT],
        special[PROGRESS_TEXT];
    progress_count(files + links + specials + tally->directories, all);
    progress_count(files, regular);
    progress_count(tally->directories, folders);
    progress_count(links, linked);
    progress_count(specials, special);
    printf("Number of files: %s (files: %s, dir: %s, link: %s%s%s)\n", all, regular, folders,
           linked, specials > 0 ? ", special: " : "", specials > 0 ? special : "");
    say_number("Number of deleted files", tally->deleted, "");
    say_number("Number of regular files transferred", less(tally->files, tally->specials), "");
    say_number("Number of files left as they are", tally->left, "");
    say_number("Number of files not copied", tally->failed, "");
    say_number("Total file size", tally->bytes + tally->spared, " bytes");
    say_number("Total transferred file size", tally->bytes, " bytes");
    say_number("Of it, what had come before", tally->kept, " bytes");
    if (tally->retransmissions_known) {
        say_number("Retransmissions", tally->retransmissions, "");
    }
    say_number("Connections made again", cp->again.count, "");
}

static enum exit_code copy(struct cp *cp, char **names, unsigned count, const char *target_name)
{
    struct weir_error error;
    struct location target, there;
    bool several = cp->options.targets.count > 0;
    location_parse(target_name, &target);
    cp->is_push = several || target.kind != LOCATION_LOCAL;
    cp->output =
        (struct output){.command = cp->command, .json = cp->options.json, .peer = cp->peer};
    cp->report = (struct report){.problem = on_problem, .item = on_item, .user = cp};
    bool draws = cp->options.progress || !cp->options.no_progress;
    cp->tty = !cp->options.json && !cp->options.quiet && draws && is_terminal();
    if (cp->options.note != NULL && !cp->options.quiet && !cp->options.json) {
        command_error(cp->command, "note: %s", cp->options.note);
    }
    location_parse(several       ? cp->options.targets.list[0]
                   : cp->is_push ? target_name
                                 : names[0],
                   &there); /* which of several devices is for the server's address to say */
    cp->options.fabric.toward = there.kind == LOCATION_SERVER ? there.address : NULL;
    if (!several && cp->options.fabric.kind != WEIR_FABRIC_RDMA) { /* which may not be there */
        cp_begin_far_side(cp, cp->is_push ? target_name : names[0]);
    }
    if (fabric_open(&cp->options.fabric, &cp->fabric, &error) != WEIR_OK ||
        weir_poller_create(cp->fabric, &cp->poller, &error) != WEIR_OK) {
        command_error(cp->command, "%s", error.message);
        cp_end_early_far_side(cp);
        if (cp->fabric != NULL) {
            weir_fabric_close(cp->fabric);
        }
        return EXIT_SETUP;
    }
    enum exit_code code = several       ? cp_fanout(cp, names, count)
                          : cp->is_push ? push(cp, names, count, target_name)
                                        : pull(cp, names, count, target_name);
    cp_end_early_far_side(cp);
    const struct tally *total = &cp->total;
    bool nothing_happened =
        total->files + total->directories + total->same + total->left + total->failed == 0;
    if (total->undeleted) {
        command_error(cp->command, "nothing was deleted, since a source could not be read in full");
    }
    if (total->held_back > 0 && !several) { /* else each has said it */
        command_error(cp->command, "not deleted because of --max-delete: %llu more",
                      (unsigned long long)total->held_back);
    }
    if (cp->options.stats && !cp->options.json) {
        say_numbers(cp);
    }
    if (cp->options.json || (!cp->options.quiet && (code == EXIT_DONE || !nothing_happened))) {
        summarize(cp, code);
    }
    if (cp->poller != NULL) {
        weir_poller_destroy(cp->poller);
    }
    weir_fabric_close(cp->fabric);
    return code;
}

/* Exactly one side is elsewhere. */
static int check_sides(const struct command *command, char **names, int count)
{
    int elsewhere = 0;
    struct location where = {.kind = LOCATION_LOCAL};
    for (int i = 0; i < count; i++) {
        location_parse(names[i], &where);
        if (where.kind == LOCATION_WRONG) {
            return command_usage_error(command, "%s: %s", names[i], where.why);
        }
        elsewhere += i < count - 1 && where.kind != LOCATION_LOCAL;
        if (i < count - 1 && names[i][0] == 0) {
            return command_usage_error(command, "a source is an empty name");
        }
    }
    bool to_elsewhere = where.kind != LOCATION_LOCAL;
    if (elsewhere == 0 && !to_elsewhere) {
        return command_usage_error(command,
                                   "one side must be [USER@]HOST:PATH or weir://HOST[:PORT]/PATH "
                                   "(both are local: use cp)");
    }
    if (elsewhere > 0 && to_elsewhere) {
        return command_usage_error(
            command, "one side must be local (copy to here first, or run weir cp at the source)");
    }
    if (elsewhere > 0 && elsewhere < count - 1) {
        return command_usage_error(command, "either all sources are at other hosts, or none");
    }
    if (count - 1 > TRANSFER_SOURCES_MAX) {
        return command_usage_error(command, "more than %d sources; copy their directory with -r",
                                   TRANSFER_SOURCES_MAX);
    }
    return EXIT_DONE;
}

/* What is deleted must be clear: what one source has not, another may have. */
static int check_deletion(const struct cp *cp, char **sources, unsigned count)
{
    if ((cp->options.wishes.bits & WISH_DELETE) == 0) {
        return EXIT_DONE;
    }
    if ((cp->options.wishes.bits & WISH_RECURSIVE) == 0) {
        return command_usage_error(cp->command,
                                   cp->options.files_from != NULL
                                       ? "--delete with --files-from wants -r, also besides -a"
                                       : "--delete wants -r or -a");
    }
    for (unsigned i = 0; i < count && count > 1; i++) {
        struct location where;
        char name[256];
        location_parse(sources[i], &where);
        if (walk_base_name(where.path, name) && name[0] == 0) {
            return command_usage_error(cp->command,
                                       "--delete with what is in a directory (%s) takes no other "
                                       "source beside it",
                                       sources[i]);
        }
        if (cp_is_pattern(&where)) { /* what it stands for may be called as another source is */
            return command_usage_error(
                cp->command, "--delete with a pattern (%s) takes no other source beside it",
                sources[i]);
        }
    }
    return EXIT_DONE;
}

int command_cp(const struct command *command, int argc, char **argv)
{
    static struct cp cp;
    cp.command = command;
    int code = cp_take_options(command, argc, argv, &cp.options);
    if (code >= 0) {
        return code;
    }
    int count = argc - optind;
    bool several = cp.options.targets.count > 0;
    unsigned sources = (unsigned)count - (several ? 0 : 1);
    if (count < (several ? 1 : 2)) {
        return command_usage_error(command, "a source and a target are needed");
    }
    code = several ? cp_check_targets(&cp, argv + optind, sources)
                   : check_sides(command, argv + optind, count);
    if (code == EXIT_DONE) {
        code = cp_list_take(command, &cp.options, argv + optind, &sources, &cp.listing);
    }
    if (code != EXIT_DONE) {
        return code;
    }
    code = cp_check_names(command, argv + optind, sources);
    if (code == EXIT_DONE) {
        code = check_deletion(&cp, argv + optind, sources);
    }
    if (code == EXIT_DONE) {
        code = cp_take_trust(&cp, argv + optind, count);
    }
    if (code != EXIT_DONE) {
        return code;
    }
    stop_prepare();
    code = copy(&cp, argv + optind, sources, argv[argc - 1]);
    filter_destroy(cp.options.filter);
    cp_targets_free(&cp.options.targets);
    cp_list_free(&cp.options, argv + optind, &cp.listing);
    cp_free_trust(&cp);
    return code;
}
