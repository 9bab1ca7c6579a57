/* weir cp: the client of a transfer. */
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/cp_names.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/transfer/channel_link.h"
#include "tools/transfer/session.h"

const char cp_usage[] =
    "usage: weir cp [OPTION...] SOURCE... TARGET\n"
    "\n"
    "Copies files over RDMA. One side is local, the other is weir://HOST[:PORT]/PATH at a machine\n"
    "where 'weir serve' runs; the port is 7471 unless given. PATH is relative to the served "
    "folder\n"
    "and taken as it stands, without percent-encoding.\n"
    "\n"
    "  -r, --recursive    copy directories and what is below them\n"
    "  -a, --archive      -rlptgoD: everything but -H, -A, -X\n"
    "  -p, --perms        the whole mode, set-user-ID and set-group-ID bits too\n"
    "  -g, --group        groups; as rsync, without root those one belongs to\n"
    "  -o, --owner        owners (root only)\n"
    "  -D                 devices (root only), FIFOs and sockets: --devices --specials\n"
    "  -H, --hard-links   names of one file stay names of one file\n"
    "  -A, --acls         ACLs\n"
    "  -X, --xattrs       extended attributes; without root those of the user's\n"
    "  -S, --sparse       blocks of zeros become holes, too\n"
    "      --numeric-ids  owners and groups by number, not by name\n"
    "      --chown USER:GROUP  whose the copies are, by names of the receiving side or numbers\n"
    "  -l, -t  links and times: kept in any case\n"
    "  -f, --force        replace files that exist already (else they are kept, and reported)\n"
    "      --fsync        have each file on stable storage before it gets its name\n"
    "  -q, --quiet        print errors only\n"
    "  -v, --verbose      print each name\n"
    "      --json         print events to standard output, one JSON object a line\n"
    "      --fabric KIND  auto: the machine's RDMA device, else the software RNIC (default);\n"
    "                     rdma: a device or nothing; soft: the software RNIC\n"
    "  -h, --help         print this text\n"
    "\n"
    "If TARGET is a directory, sources go into it under their own names; else a single source "
    "gets\n"
    "TARGET's name. Permissions and modification times are kept, symbolic links are copied as\n"
    "links, holes as holes; what else a file has is kept if asked for. A file appears under its "
    "name only when it is whole and its digest is\n"
    "proven at the receiving side.\n"
    "\n"
    "  weir cp -r results weir://server/            the tree 'results' into the served folder\n"
    "  weir cp weir://server/results/run7.h5 .      one file back\n"
    "\n"
    "Exit status: 0 all copied, 1 some files were not, 2 usage, 3 no connection, 4 connection "
    "lost,\n"
    "5 refused by the other side, 6 cannot begin here, 130 interrupted.\n";

struct cp_options {
    bool recursive, force, fsync, quiet, verbose, json;
    unsigned preserve; /* bits of enum preserve */
    struct owner_choice owners[2];
    struct weir_fabric_options fabric;
};

/* One run of the command: every group of sources that share a server is one transfer of it. */
struct cp {
    const struct command *command;
    struct cp_options options;
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct output output;
    struct report report;
    char peer[LOCATION_ADDRESS_LENGTH + 16]; /* weir://HOST:PORT */
    bool tty;
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

static void on_entry(void *user, enum entry_kind kind, const char *path, uint64_t size)
{
    struct cp *cp = user;
    if (!cp->options.verbose) {
        return;
    }
    if (cp->options.json) {
        static const char *const kinds[] = {[ENTRY_FILE] = "file",
                                            [ENTRY_DIRECTORY] = "directory",
                                            [ENTRY_SYMLINK] = "symlink",
                                            [ENTRY_HARD_LINK] = "hard-link",
                                            [ENTRY_FIFO] = "fifo",
                                            [ENTRY_SOCKET] = "socket",
                                            [ENTRY_CHARACTER_DEVICE] = "character-device",
                                            [ENTRY_BLOCK_DEVICE] = "block-device"};
        json_t *object = json_pack("{s:s, s:s}", "event", "entry", "kind", kinds[kind]);
        output_json_path(object, (struct span){path, strlen(path)});
        json_object_set_new(object, "size", json_integer((json_int_t)size));
        output_json(object);
        return;
    }
    char text[PATH_LENGTH_MAX * 4 + 1];
    printable(path, strlen(path), text, sizeof(text));
    clear_line(cp);
    puts(text);
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
        command_error(cp->command, "interrupted");
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
    return (struct session_request){
        .direction = direction,
        .recursive = cp->options.recursive,
        .force = cp->options.force,
        .fsync = cp->options.fsync,
        .preserve = cp->options.preserve,
        .owners = {cp->options.owners[0], cp->options.owners[1]},
        .totals = cp->tty || cp->options.json,
    };
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
    const struct target_request request = {.root = AT_FDCWD, .path = path, .source_count = count};
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
    printf("%s file%s, %s in %.2f s, %s/s, %s", files, tally->files == 1 ? "" : "s", bytes,
           cp->seconds, speed, cp->device);
    if (tally->failed > 0) {
        progress_count(tally->failed, files);
        printf("; %s not copied", files);
    }
    putchar('\n');
}

static enum exit_code copy(struct cp *cp, char **names, unsigned count)
{
    struct weir_error error;
    bool is_push = location_is_url(names[count - 1]);
    cp->output =
        (struct output){.command = cp->command, .json = cp->options.json, .peer = cp->peer};
    cp->report = (struct report){.problem = on_problem, .entry = on_entry, .user = cp};
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
    enum exit_code code = is_push ? push(cp, names, count - 1, names[count - 1])
                                  : pull(cp, names, count - 1, names[count - 1]);
    bool nothing_happened = cp->total.files + cp->total.directories + cp->total.failed == 0;
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

enum {
    OPTION_FSYNC = 256,
    OPTION_JSON,
    OPTION_FABRIC,
    OPTION_DEVICES,
    OPTION_SPECIALS,
    OPTION_NUMERIC_IDS,
    OPTION_CHOWN,
};

static const struct option long_options[] = {
    {"archive", no_argument, NULL, 'a'},
    {"links", no_argument, NULL, 'l'},
    {"perms", no_argument, NULL, 'p'},
    {"times", no_argument, NULL, 't'},
    {"group", no_argument, NULL, 'g'},
    {"owner", no_argument, NULL, 'o'},
    {"devices", no_argument, NULL, OPTION_DEVICES},
    {"specials", no_argument, NULL, OPTION_SPECIALS},
    {"hard-links", no_argument, NULL, 'H'},
    {"acls", no_argument, NULL, 'A'},
    {"xattrs", no_argument, NULL, 'X'},
    {"sparse", no_argument, NULL, 'S'},
    {"chown", required_argument, NULL, OPTION_CHOWN},
    {"numeric-ids", no_argument, NULL, OPTION_NUMERIC_IDS},
    {"recursive", no_argument, NULL, 'r'},
    {"force", no_argument, NULL, 'f'},
    {"fsync", no_argument, NULL, OPTION_FSYNC},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"json", no_argument, NULL, OPTION_JSON},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

#define PRESERVE_D (PRESERVE_DEVICES | PRESERVE_SPECIALS)

/* What an option says is to be kept; as in rsync, -A takes the whole mode with it. */
static const struct {
    int option;
    unsigned preserve;
} preserve_of[] = {
    {'a', PRESERVE_SET_IDS | PRESERVE_GROUP | PRESERVE_OWNER | PRESERVE_D},
    {'l', 0},
    {'p', PRESERVE_SET_IDS},
    {'t', 0},
    {'g', PRESERVE_GROUP},
    {'o', PRESERVE_OWNER},
    {'D', PRESERVE_D},
    {OPTION_DEVICES, PRESERVE_DEVICES},
    {OPTION_SPECIALS, PRESERVE_SPECIALS},
    {'H', PRESERVE_HARD_LINKS},
    {'A', PRESERVE_ACLS | PRESERVE_SET_IDS},
    {'X', PRESERVE_XATTRS},
    {'S', PRESERVE_SPARSE},
    {OPTION_NUMERIC_IDS, PRESERVE_NUMBERS},
};

static bool take_preserve(struct cp *cp, int option)
{
    for (size_t i = 0; i < sizeof(preserve_of) / sizeof(preserve_of[0]); i++) {
        if (preserve_of[i].option == option) {
            cp->options.preserve |= preserve_of[i].preserve;
            cp->options.recursive |= option == 'a';
            return true;
        }
    }
    return false;
}

/* Implies -o and -g, each where it is given. */
static int take_chown(struct cp *cp)
{
    if (!owners_parse(optarg, cp->options.owners)) {
        return command_usage_error(cp->command,
                                   "--chown takes USER, USER:GROUP or :GROUP, not '%s'", optarg);
    }
    cp->options.preserve |= cp->options.owners[OWNER_USER].set ? PRESERVE_OWNER : 0;
    cp->options.preserve |= cp->options.owners[OWNER_GROUP].set ? PRESERVE_GROUP : 0;
    return -1;
}

/* -1: go on. */
static int take_option(struct cp *cp, int option)
{
    if (take_preserve(cp, option)) {
        return -1;
    }
    switch (option) {
    case 'r':
        cp->options.recursive = true;
        return -1;
    case 'f':
        cp->options.force = true;
        return -1;
    case 'q':
        cp->options.quiet = true;
        return -1;
    case 'v':
        cp->options.verbose = true;
        return -1;
    case OPTION_CHOWN:
        return take_chown(cp);
    case OPTION_FSYNC:
        cp->options.fsync = true;
        return -1;
    case OPTION_JSON:
        cp->options.json = true;
        return -1;
    case OPTION_FABRIC:
        if (!fabric_kind_parse(optarg, &cp->options.fabric.kind)) {
            return command_usage_error(cp->command, "--fabric takes auto, rdma or soft, not '%s'",
                                       optarg);
        }
        return -1;
    case 'h':
        fputs(cp_usage, stdout);
        return EXIT_DONE;
    default:
        return command_usage_hint(cp->command);
    }
}

int command_cp(const struct command *command, int argc, char **argv)
{
    static struct cp cp;
    cp.command = command;
    for (int option;
         (option = getopt_long(argc, argv, "arlptgoDHAXSfqvh", long_options, NULL)) != -1;) {
        int code = take_option(&cp, option);
        if (code >= 0) {
            return code;
        }
    }
    int count = argc - optind;
    if (count < 2) {
        return command_usage_error(command, "a source and a target are needed");
    }
    int code = check_sides(command, argv + optind, count);
    if (code == EXIT_DONE) {
        code = cp_check_names(command, argv + optind, (unsigned)count - 1);
    }
    if (code != EXIT_DONE) {
        return code;
    }
    stop_prepare();
    return copy(&cp, argv + optind, (unsigned)count);
}
