/* weir cp: the client of a transfer. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/cp_names.h"
#include "tools/cp_options.h"
#include "tools/items.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/transfer/channel_link.h"
#include "tools/transfer/session.h"
#include "tools/transfer/walk.h"

/* One run of the command: every group of sources that share a server is one transfer of it. */
struct cp {
    const struct command *command;
    struct cp_options options;
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct output output;
    struct report report;
    char peer[LOCATION_ADDRESS_LENGTH + 16]; /* weir://HOST:PORT */
    bool tty, is_push;
    struct progress progress;
    double drawn_s;
    char device[512];
    struct tally total; /* of the groups that are over */
    double seconds;
    char peer_device[TEXT_LENGTH_MAX * 4];
    char reason[TEXT_LENGTH_MAX * 4]; /* why the last one that failed did */
};

static void clear_line(const struct cp *cp)
{
    if (cp->tty) {
        fputs("\r\033[K", stderr);
    }
}

static void on_problem(void *user, const struct problem *problem)
{
    struct cp *cp = user;
    clear_line(cp);
    output_problem(&cp->output, problem);
}

static void item_as_json(const struct cp *cp, const struct item *item, const char *letters)
{
    const char *reason = item_reason(item);
    bool deleted = (item->changes & CHANGE_DELETED) != 0;
    json_t *object = json_pack("{s:s, s:s}", "event",
                               reason != NULL ? "skipped"
                               : deleted      ? "deleted"
                                              : "entry",
                               "kind", item_kind_name(item->kind));
    output_json_path(object, item->path);
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

static void on_item(void *user, const struct item *item)
{
    struct cp *cp = user;
    char letters[ITEM_LETTERS], path[PATH_LENGTH_MAX * 4 + 4];
    item_letters(item, cp->is_push, letters);
    if (cp->options.json) {
        item_as_json(cp, item, letters);
        return;
    }
    printable(item->path.bytes, item->path.length, path, sizeof(path) - 2);
    if (item->path.length == 0) {
        strcpy(path, ".");
    }
    if (item->kind == ENTRY_DIRECTORY) {
        strcat(path, "/");
    }
    clear_line(cp);
    if (cp->options.itemize) {
        printf("%s %s\n", letters, path);
    } else {
        print_name(item, path);
    }
}

/* What fits on a line of the terminal: a longer one would scroll it with each update. */
static int line_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

static void draw(struct cp *cp, const struct session *session)
{
    double now = progress_now_s();
    if (now - cp->drawn_s < (cp->options.json ? 1.0 : 0.2)) {
        return;
    }
    cp->drawn_s = now;
    const struct tally *tally = session_tally(session);
    progress_update(&cp->progress, tally);
    if (cp->options.json) {
        json_t *object =
            json_pack("{s:s, s:f, s:f}", "event", "progress", "seconds",
                      now - cp->progress.started_s, "bytes_per_second", cp->progress.rate);
        output_json_tally(object, tally);
        output_json(object);
    } else if (cp->tty) {
        char line[256];
        progress_line(&cp->progress, tally, weir_fabric_device(cp->fabric), line, sizeof(line));
        fprintf(stderr, "\r%.*s\033[K", line_width(), line);
    }
}

static void add_tally(struct tally *sum, const struct tally *one)
{
    sum->files += one->files;
    sum->directories += one->directories;
    sum->symlinks += one->symlinks;
    sum->bytes += one->bytes;
    sum->kept += one->kept;
    sum->same += one->same;
    sum->left += one->left;
    sum->deleted += one->deleted;
    sum->undeleted |= one->undeleted;
    sum->failed += one->failed;
    sum->warnings += one->warnings;
}

/* Runs the session to its end. */
static void drive(struct cp *cp, struct session *session, struct link *link)
{
    bool stopping = false;
    double stopped_s = 0;
    progress_start(&cp->progress);
    cp->drawn_s = cp->progress.started_s;
    while (!session_is_closed(session)) {
        bool more = session_pump(session);
        if (stop_asked() && !stopping) {
            stopping = true;
            stopped_s = progress_now_s();
            link->operations->abort(link, "the other side was interrupted");
        }
        if (stopping && progress_now_s() - stopped_s > 2) {
            return; /* the peer does not answer; the poller will close what is left */
        }
        draw(cp, session);
        weir_poll(cp->poller, more ? 0 : 100);
    }
    cp->seconds += progress_now_s() - cp->progress.started_s;
}

static enum exit_code end_of(struct cp *cp, const struct session *session)
{
    enum session_outcome outcome = session_outcome(session);
    const char *device = session_peer_device(session);
    clear_line(cp);
    printable(device, strlen(device), cp->peer_device, sizeof(cp->peer_device));
    if (stop_asked()) {
        strcpy(cp->reason, "interrupted");
        command_error(cp->command, "interrupted; the same command with --resume goes on");
        return EXIT_INTERRUPTED;
    }
    if (outcome != SESSION_COMPLETE) {
        const char *text = session_reason(session);
        printable(text, strlen(text), cp->reason, sizeof(cp->reason));
        bool named = strstr(cp->reason, cp->peer + strlen("weir://")) != NULL;
        command_error(cp->command, "%s%s%s", named ? "" : cp->peer, named ? "" : ": ", cp->reason);
    }
    return output_exit_code(outcome, session_tally(session));
}

static enum exit_code transfer(struct cp *cp, const char *address,
                               const struct session_request *request)
{
    struct weir_error error;
    struct weir_connection *connection;
    snprintf(cp->peer, sizeof(cp->peer), "weir://%s", address);
    struct link *link = channel_link_create(cp->fabric);
    struct session *session =
        link != NULL ? session_create_client(link, request, &cp->report) : NULL;
    if (session == NULL) {
        channel_link_destroy(link);
        command_error(cp->command, "not enough memory");
        return EXIT_SETUP;
    }
    enum exit_code code = EXIT_UNREACHED;
    if (weir_connect(cp->poller, address, &channel_link_options, &channel_link_handler, link,
                     &connection, &error) != WEIR_OK) {
        command_error(cp->command, "%s", error.message);
    } else {
        channel_link_attach(link, connection);
        drive(cp, session, link);
        code = end_of(cp, session);
        add_tally(&cp->total, session_tally(session));
        if (!session_is_closed(session)) { /* interrupted, and nothing to wait for any more */
            _exit(code);
        }
    }
    session_destroy(session);
    channel_link_destroy(link);
    return code;
}

static struct session_request request_of(const struct cp *cp, enum direction direction)
{
    const struct cp_options *options = &cp->options;
    struct session_request request = {
        .direction = direction,
        .wishes = options->wishes,
        .filter = options->filter,
        .owners = {options->owners[0], options->owners[1]},
    };
    bool tells = options->verbose > 0 || options->itemize;
    request.wishes.bits |= cp->tty || options->json ? WISH_TOTALS : 0;
    if ((options->wishes.bits & WISH_DELETE) != 0) { /* and what is in the way */
        request.wishes.bits |= WISH_FORCE;
    }
    if (options->filter != NULL && (options->wishes.bits & WISH_DELETE_EXCLUDED) == 0) {
        request.wishes.bits &= ~(uint32_t)WISH_FORCE; /* what is left out is not to go with it */
    }
    request.wishes.bits |= tells ? WISH_ITEMS : 0;
    request.wishes.bits |= options->verbose > 1 ? WISH_ALL_ITEMS : 0;
    return request;
}

static enum exit_code push(struct cp *cp, char **sources, unsigned count, const char *url)
{
    char address[LOCATION_ADDRESS_LENGTH];
    struct session_request request = request_of(cp, DIRECTION_PUSH);
    if (!location_parse_url(url, address, &request.target_path)) {
        return command_usage_error(cp->command, "%s: not of the form weir://HOST[:PORT]/PATH", url);
    }
    request.sources = (const char *const *)sources;
    request.source_count = count;
    return transfer(cp, address, &request);
}

/* The first that went wrong tells the exit status, except that anything is worse than single files.
 */
static enum exit_code worse(enum exit_code one, enum exit_code other)
{
    return one == EXIT_DONE || (one == EXIT_SOME_FAILED && other != EXIT_DONE) ? other : one;
}

/* Sources of one server in a row make one transfer. */
static enum exit_code pull_from(struct cp *cp, char **sources, unsigned count,
                                const struct target *target)
{
    enum exit_code code = EXIT_DONE;
    const char **paths = calloc(count, sizeof(*paths));
    struct target mine = *target;
    for (unsigned first = 0; first < count && paths != NULL && !stop_asked();) {
        char address[LOCATION_ADDRESS_LENGTH], other[LOCATION_ADDRESS_LENGTH];
        unsigned number = 0;
        location_parse_url(sources[first], address, &paths[0]);
        do {
            number++;
        } while (first + number < count &&
                 location_parse_url(sources[first + number], other, &paths[number]) &&
                 strcmp(address, other) == 0);
        struct session_request request = request_of(cp, DIRECTION_PULL);
        request.sources = paths;
        request.source_count = number;
        request.target = &mine;
        code = worse(code, transfer(cp, address, &request));
        first += number;
    }
    free(paths);
    return code;
}

static enum exit_code pull(struct cp *cp, char **sources, unsigned count, const char *path)
{
    const struct target_request request = {
        .root = AT_FDCWD,
        .path = path,
        .source_count = count,
        .recursive = (cp->options.wishes.bits & WISH_RECURSIVE) != 0,
        .dry = (cp->options.wishes.bits & WISH_DRY_RUN) != 0,
    };
    struct target target;
    char text[TEXT_LENGTH_MAX];
    for (unsigned i = 0; i < count; i++) {
        char address[LOCATION_ADDRESS_LENGTH];
        const char *unused;
        if (!location_parse_url(sources[i], address, &unused)) {
            return command_usage_error(cp->command, "%s: not of the form weir://HOST[:PORT]/PATH",
                                       sources[i]);
        }
    }
    if (target_open(&request, &target, text) != PROBLEM_NONE) {
        command_error(cp->command, "%s", text);
        return EXIT_SETUP;
    }
    enum exit_code code = pull_from(cp, sources, count, &target);
    target_close(&target);
    return code;
}

static void print_count(uint64_t count, const char *what)
{
    char text[PROGRESS_TEXT];
    progress_count(count, text);
    if (count > 0) {
        printf("; %s %s", text, what);
    }
}

static void summarize(const struct cp *cp, enum exit_code code)
{
    const struct tally *tally = &cp->total;
    double rate = cp->seconds > 0 ? (double)tally->bytes / cp->seconds : 0;
    if (cp->options.json) {
        json_t *object = json_pack(
            "{s:s, s:i, s:f, s:f, s:s, s:s, s:s}", "event", "summary", "exit", (int)code, "seconds",
            cp->seconds, "bytes_per_second", rate, "device", weir_fabric_device(cp->fabric),
            "fabric", weir_fabric_kind(cp->fabric) == WEIR_FABRIC_SOFT ? "soft" : "rdma",
            "fabric_reason", weir_fabric_reason(cp->fabric));
        output_json_tally(object, tally);
        json_object_set_new(object, "peer_device", json_string(cp->peer_device));
        if (cp->reason[0] != 0) {
            json_object_set_new(object, "error", json_string(cp->reason));
        }
        output_json(object);
        return;
    }
    char files[PROGRESS_TEXT], bytes[PROGRESS_TEXT], speed[PROGRESS_TEXT];
    progress_count(tally->files, files);
    progress_size(tally->bytes, bytes);
    progress_size((uint64_t)rate, speed);
    bool dry = (cp->options.wishes.bits & WISH_DRY_RUN) != 0;
    printf("%s%s file%s, %s in %.2f s, %s/s, %s", dry ? "dry run, nothing done: " : "", files,
           tally->files == 1 ? "" : "s", bytes, cp->seconds, speed, cp->device);
    if (tally->kept > 0) {
        progress_size(tally->kept, bytes);
        printf("; %s of it had come before", bytes);
    }
    print_count(tally->same, "unchanged");
    print_count(tally->left, "left as they are");
    print_count(tally->deleted, "deleted");
    print_count(tally->failed, "not copied");
    putchar('\n');
}

static enum exit_code copy(struct cp *cp, char **names, unsigned count)
{
    struct weir_error error;
    cp->is_push = location_is_url(names[count - 1]);
    cp->output =
        (struct output){.command = cp->command, .json = cp->options.json, .peer = cp->peer};
    cp->report = (struct report){.problem = on_problem, .item = on_item, .user = cp};
    cp->tty = !cp->options.json && !cp->options.quiet && isatty(STDERR_FILENO);
    if (fabric_open(&cp->options.fabric, &cp->fabric, &error) != WEIR_OK ||
        weir_poller_create(cp->fabric, &cp->poller, &error) != WEIR_OK) {
        command_error(cp->command, "%s", error.message);
        if (cp->fabric != NULL) {
            weir_fabric_close(cp->fabric);
        }
        return EXIT_SETUP;
    }
    fabric_describe(cp->fabric, cp->device, sizeof(cp->device));
    enum exit_code code = cp->is_push ? push(cp, names, count - 1, names[count - 1])
                                      : pull(cp, names, count - 1, names[count - 1]);
    const struct tally *total = &cp->total;
    bool nothing_happened =
        total->files + total->directories + total->same + total->left + total->failed == 0;
    if (total->undeleted) {
        command_error(cp->command, "nothing was deleted, since a source could not be read in full");
    }
    if (cp->options.json || (!cp->options.quiet && (code == EXIT_DONE || !nothing_happened))) {
        summarize(cp, code);
    }
    weir_poller_destroy(cp->poller);
    weir_fabric_close(cp->fabric);
    return code;
}

/* Exactly one side is at a server. */
static int check_sides(const struct command *command, char **names, int count)
{
    int urls = 0;
    for (int i = 0; i < count - 1; i++) {
        urls += location_is_url(names[i]);
        if (names[i][0] == 0) {
            return command_usage_error(command, "a source is an empty name");
        }
    }
    bool to_url = location_is_url(names[count - 1]);
    if (urls == 0 && !to_url) {
        return command_usage_error(
            command, "one side must be weir://HOST[:PORT]/PATH (both are local: use cp)");
    }
    if (urls > 0 && to_url) {
        return command_usage_error(
            command, "one side must be local (copy to here first, or run weir cp at the source)");
    }
    if (urls > 0 && urls < count - 1) {
        return command_usage_error(command,
                                   "either all sources are weir://HOST[:PORT]/PATH, or none");
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
        return command_usage_error(cp->command, "--delete wants -r or -a");
    }
    for (unsigned i = 0; i < count && count > 1; i++) {
        char name[256];
        if (walk_base_name(sources[i], name) && name[0] == 0) {
            return command_usage_error(cp->command,
                                       "--delete with what is in a directory (%s) takes no other "
                                       "source beside it",
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
    if (count < 2) {
        return command_usage_error(command, "a source and a target are needed");
    }
    code = check_sides(command, argv + optind, count);
    if (code == EXIT_DONE) {
        code = cp_check_names(command, argv + optind, (unsigned)count - 1);
    }
    if (code != EXIT_DONE) {
        return code;
    }
    code = check_deletion(&cp, argv + optind, (unsigned)count - 1);
    if (code != EXIT_DONE) {
        return code;
    }
    stop_prepare();
    code = copy(&cp, argv + optind, (unsigned)count);
    filter_destroy(cp.options.filter);
    return code;
}
