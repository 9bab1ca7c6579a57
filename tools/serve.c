/* weir serve: the server of transfers, all in one thread. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/transfer/channel_link.h"
#include "tools/transfer/session.h"

#define TRANSFERS           64
#define TRANSFERS_MAX       4096
#define IDLE_TIMEOUT_S      60
#define IDLE_TIMEOUT_MAX_S  86400
#define HANDSHAKE_TIMEOUT_S 10
/* Clients beyond the limit that are being told so. More of them hear less: "refused". */
#define TURNED_AWAY_MAX 8
/* Files that fail are named up to so many of one transfer: no client fills a log. */
#define COMPLAINTS_MAX 10

const char serve_usage[] =
    "usage: weir serve [OPTION...]\n"
    "\n"
    "Serves a folder to 'weir cp', until it is interrupted.\n"
    "\n"
    "  --listen ADDRESS[:PORT]  where to listen; 127.0.0.1:7471 unless given. \":PORT\" or \"*\" "
    "is\n"
    "                           every address, port 0 any free one\n"
    "  --root DIR               the folder; nothing outside it is read or written (default: .)\n"
    "  --read-only              files can be copied from here, not to here\n"
    "  --super                  let clients set owners, set-ID bits and any extended attribute, "
    "and\n"
    "                           make devices, as far as this process may\n"
    "  --insecure               allow other addresses than loopback: whoever reaches the port can\n"
    "                           read the folder, and write to it unless --read-only is given\n"
    "  --max-transfers N        how many run at a time, one address having half of them at most;\n"
    "                           more are refused (default: 64)\n"
    "  --idle-timeout SECONDS   end the transfer of a client that does nothing for so long;\n"
    "                           0: never (default: 60)\n"
    "  --json                   print events to standard output, one JSON object a line\n"
    "  -q, --quiet              print errors only\n"
    "  --fabric KIND            auto: the machine's RDMA device, else the software RNIC "
    "(default);\n"
    "                           rdma: a device or nothing; soft: the software RNIC\n"
    "  -h, --help               print this text\n"
    "\n"
    "  weir serve --root /data                                  for this machine only\n"
    "  weir serve --root /data --listen 192.0.2.7 --insecure    for a network one trusts\n"
    "\n"
    "Exit status: 0 after SIGINT or SIGTERM, 2 usage, 6 cannot begin here.\n";

struct serve;

/* One client. */
struct served {
    struct served *next;
    struct serve *serve;
    struct link *link;
    struct session *session;
    struct output output;
    struct report report;
    bool turned_away; /* it only hears that there is no room */
    double began_s;
    uint64_t activity;
    double active_s; /* when the activity last changed, or there was something to do for us */
    uint64_t complaints;
    char peer[LOCATION_ADDRESS_LENGTH];
};

struct serve {
    const struct command *command;
    bool json, quiet, insecure;
    struct session_service service;
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct weir_listener *listener;
    struct served *transfers;
    unsigned transfers_max, idle_timeout_s;
    unsigned count, turned_away; /* transfers of either kind */
    double pumped_s;
    char device[512];
    char crowded[128], greedy[128]; /* why a client is turned away */
};

static void on_problem(void *user, const struct problem *problem)
{
    struct served *served = user;
    if (served->output.json) {
        output_problem(&served->output, problem);
        return;
    }
    if (problem->remote) { /* the client tells its user of its own */
        return;
    }
    if (served->complaints++ < COMPLAINTS_MAX) {
        output_problem(&served->output, problem);
    } else if (served->complaints == COMPLAINTS_MAX + 1) {
        command_error(served->serve->command, "%s: more files fail; the client is told of each",
                      served->peer);
    }
}

static void event(const struct served *served, const char *name)
{
    output_json(json_pack("{s:s, s:s}", "event", name, "peer", served->peer));
}

/* Without the port. */
static bool is_same_host(const char *one, const char *other)
{
    const char *colon = strrchr(one, ':');
    size_t length = colon != NULL ? (size_t)(colon - one) + 1 : strlen(one);
    return strncmp(one, other, length) == 0 && strchr(other + length, ':') == NULL;
}

/* What a new client is told instead of being served; NULL: there is room. */
static const char *refusal_of(const struct serve *serve, const char *peer)
{
    unsigned same = 0;
    for (const struct served *served = serve->transfers; served != NULL; served = served->next) {
        same += !served->turned_away && is_same_host(peer, served->peer);
    }
    if (serve->count >= serve->transfers_max) {
        return serve->crowded;
    }
    return same >= (serve->transfers_max + 1) / 2 ? serve->greedy : NULL;
}

static void join(struct serve *serve, struct served *served)
{
    served->next = serve->transfers;
    serve->transfers = served;
    serve->count += !served->turned_away;
    serve->turned_away += served->turned_away;
}

static bool on_accept(struct weir_connection *connection, void *user,
                      struct weir_handler *ret_handler, void **ret_user)
{
    struct serve *serve = user;
    struct session_service service = serve->service;
    service.refusal = refusal_of(serve, weir_peer_name(connection));
    struct served *served = service.refusal == NULL || serve->turned_away < TURNED_AWAY_MAX
                                ? calloc(1, sizeof(*served))
                                : NULL;
    if (served == NULL) {
        weir_refuse(connection, service.refusal != NULL ? "too many at once" : "no memory");
        return false;
    }
    snprintf(served->peer, sizeof(served->peer), "%s", weir_peer_name(connection));
    served->turned_away = service.refusal != NULL;
    served->serve = serve;
    served->output = (struct output){
        .command = serve->command, .json = serve->json, .peer = served->peer, .name_peer = true};
    served->report = (struct report){.problem = on_problem, .user = served};
    served->began_s = served->active_s = progress_now_s();
    served->link = channel_link_create(serve->fabric);
    served->session = served->link != NULL
                          ? session_create_server(served->link, &service, &served->report)
                          : NULL;
    if (served->session == NULL) {
        channel_link_destroy(served->link);
        free(served);
        return false;
    }
    channel_link_attach(served->link, connection);
    join(serve, served);
    *ret_handler = channel_link_handler;
    *ret_user = served->link;
    if (serve->json) {
        event(served, "connected");
    }
    return true;
}

static void report_as_json(const struct served *served, double seconds)
{
    const struct session *session = served->session;
    const char *path = session_path(session);
    const char *reason = session_reason(session);
    char text[4 * TEXT_LENGTH_MAX];
    printable(reason, strlen(reason), text, sizeof(text));
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:f}", "event", "transfer", "peer", served->peer, "direction",
        session_direction(session) == DIRECTION_PULL ? "pull" : "push", "outcome",
        output_outcome_name(session_outcome(session)), "reason", text, "seconds", seconds);
    output_json_path(object, (struct span){path, strlen(path)});
    output_json_tally(object, session_tally(session));
    output_json(object);
}

static void report_end(const struct served *served)
{
    static const char *const rests[] = {
        [REST_NONE] = "",
        [REST_LOST] = "; the file under way was thrown away",
        [REST_KEPT] = "; what came of the file under way is kept",
    };
    const struct session *session = served->session;
    const struct tally *tally = session_tally(session);
    double seconds = progress_now_s() - served->began_s;
    if (served->serve->json) {
        report_as_json(served, seconds);
        return;
    }
    char path[1024], text[1024], files[PROGRESS_TEXT], bytes[PROGRESS_TEXT], failed[PROGRESS_TEXT];
    printable(session_path(session), strlen(session_path(session)), path, sizeof(path));
    printable(session_reason(session), strlen(session_reason(session)), text, sizeof(text));
    progress_count(tally->files, files);
    progress_size(tally->bytes, bytes);
    progress_count(tally->failed, failed);
    if (session_outcome(session) != SESSION_COMPLETE) {
        command_error(served->serve->command, "%s: %s: %s%s", served->peer,
                      output_outcome_name(session_outcome(session)), text,
                      rests[session_rest(session)]);
    } else if (!served->serve->quiet) {
        printf("%s: %s %s: %s file%s, %s in %.2f s, %s not copied\n", served->peer,
               session_direction(session) == DIRECTION_PULL ? "pulled" : "pushed", path, files,
               tally->files == 1 ? "" : "s", bytes, seconds, failed);
        fflush(stdout);
    }
}

static void destroy_served(struct served *served)
{
    session_destroy(served->session);
    channel_link_destroy(served->link);
    free(served);
}

/* Ends what stays at the greeting, or does nothing for long. */
static void limit(struct served *served, double now_s)
{
    const struct serve *serve = served->serve;
    uint64_t activity = session_activity(served->session);
    if (activity != served->activity) {
        served->activity = activity;
        served->active_s = now_s;
    }
    if ((served->turned_away || !session_is_running(served->session)) &&
        now_s - served->began_s > HANDSHAKE_TIMEOUT_S) {
        served->link->operations->abort(served->link, "no greeting within 10 s");
    } else if (serve->idle_timeout_s > 0 && now_s - served->active_s > serve->idle_timeout_s) {
        char reason[64];
        snprintf(reason, sizeof(reason), "idle: the client did nothing for %u s",
                 serve->idle_timeout_s);
        session_abort(served->session, reason);
    }
}

/* While the server itself was held up, by a disk or a debugger, no client could be active. */
static double held_up_s(struct serve *serve, double now_s)
{
    double passed_s = now_s - serve->pumped_s;
    serve->pumped_s = now_s;
    return passed_s > 1 ? passed_s : 0;
}

/* Lets every transfer do a slice; takes away those that are over. True: there is more to do. */
static bool pump_all(struct serve *serve)
{
    bool more = false;
    double held_s = held_up_s(serve, progress_now_s());
    for (struct served **at = &serve->transfers; *at != NULL;) {
        struct served *served = *at;
        if (session_is_closed(served->session)) {
            report_end(served);
            *at = served->next;
            serve->count -= !served->turned_away;
            serve->turned_away -= served->turned_away;
            destroy_served(served);
            continue;
        }
        served->active_s += held_s;
        if (session_pump(served->session)) {
            more = true;
            served->active_s = progress_now_s();
        }
        limit(served, progress_now_s());
        at = &served->next;
    }
    return more;
}

static void announce(const struct serve *serve, const char *root)
{
    const char *address = weir_listener_address(serve->listener);
    char text[4 * PATH_MAX];
    printable(root, strlen(root), text, sizeof(text));
    if (serve->json) {
        json_t *object =
            json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "event", "listening", "address",
                      address, "root", text, "read_only", serve->service.read_only, "device",
                      weir_fabric_device(serve->fabric), "fabric",
                      weir_fabric_kind(serve->fabric) == WEIR_FABRIC_SOFT ? "soft" : "rdma",
                      "fabric_reason", weir_fabric_reason(serve->fabric));
        output_json_path(object, (struct span){root, strlen(root)});
        output_json(object);
    } else if (!serve->quiet) {
        printf("weir serve: %s%s at weir://%s/ (%s)\n", text,
               serve->service.read_only ? ", read-only," : "", address, serve->device);
        fflush(stdout);
    }
}

static void run_loop(struct serve *serve)
{
    while (!stop_asked()) {
        bool more = pump_all(serve);
        weir_poll(serve->poller, more ? 0 : 250);
    }
    for (struct served *served = serve->transfers; served != NULL; served = served->next) {
        if (!session_is_closed(served->session)) {
            served->link->operations->abort(served->link, "the server was stopped");
        }
    }
    double stopped_s = progress_now_s();
    while (serve->transfers != NULL && progress_now_s() - stopped_s < 2) {
        pump_all(serve);
        weir_poll(serve->poller, 50);
    }
}

static int serve_root(struct serve *serve, const char *root, const char *address)
{
    struct weir_error error;
    char path[PATH_MAX];
    if (realpath(root, path) == NULL) {
        command_error(serve->command, "--root %s: %s", root, strerror(errno));
        return EXIT_SETUP;
    }
    serve->service.root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (serve->service.root < 0) {
        command_error(serve->command, "--root %s: %s", root, strerror(errno));
        return EXIT_SETUP;
    }
    fabric_describe(serve->fabric, serve->device, sizeof(serve->device));
    serve->service.device = serve->device;
    if (weir_poller_create(serve->fabric, &serve->poller, &error) != WEIR_OK ||
        weir_listen(serve->poller, address, &channel_link_options, on_accept, serve,
                    &serve->listener, &error) != WEIR_OK) {
        command_error(serve->command, "%s", error.message);
        return EXIT_SETUP;
    }
    snprintf(serve->crowded, sizeof(serve->crowded),
             "busy: this server runs %u transfers at a time", serve->transfers_max);
    snprintf(serve->greedy, sizeof(serve->greedy),
             "busy: this server runs %u transfers at a time for one address",
             (serve->transfers_max + 1) / 2);
    serve->pumped_s = progress_now_s();
    announce(serve, path);
    run_loop(serve);
    return EXIT_DONE;
}

static int serve_address(struct serve *serve, const struct weir_fabric_options *options,
                         const char *root, const char *address)
{
    struct weir_error error;
    if (!serve->insecure && !location_is_loopback(address)) {
        command_error(serve->command,
                      "%s is not a loopback address. Peers are not authenticated yet and bytes are "
                      "not encrypted: whoever reaches the port can read%s the folder. Give "
                      "--insecure where everybody on the network may",
                      address, serve->service.read_only ? "" : " and write");
        return EXIT_USAGE;
    }
    if (fabric_open(options, &serve->fabric, &error) != WEIR_OK) {
        command_error(serve->command, "%s", error.message);
        return EXIT_SETUP;
    }
    int code = serve_root(serve, root, address);
    if (serve->listener != NULL) {
        weir_listener_close(serve->listener);
    }
    weir_poller_destroy(serve->poller);
    while (serve->transfers != NULL) {
        struct served *served = serve->transfers;
        serve->transfers = served->next;
        destroy_served(served);
    }
    weir_fabric_close(serve->fabric);
    if (serve->service.root >= 0) {
        close(serve->service.root);
    }
    return code;
}

enum {
    OPTION_LISTEN = 256,
    OPTION_ROOT,
    OPTION_READ_ONLY,
    OPTION_SUPER,
    OPTION_INSECURE,
    OPTION_MAX_TRANSFERS,
    OPTION_IDLE_TIMEOUT,
    OPTION_JSON,
    OPTION_FABRIC
};

static const struct option long_options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"root", required_argument, NULL, OPTION_ROOT},
    {"read-only", no_argument, NULL, OPTION_READ_ONLY},
    {"super", no_argument, NULL, OPTION_SUPER},
    {"insecure", no_argument, NULL, OPTION_INSECURE},
    {"max-transfers", required_argument, NULL, OPTION_MAX_TRANSFERS},
    {"idle-timeout", required_argument, NULL, OPTION_IDLE_TIMEOUT},
    {"json", no_argument, NULL, OPTION_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* A number in digits, from `least` to `most`. */
static bool parse_number(const char *text, unsigned least, unsigned most, unsigned *ret_number)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long number = strtoul(text, NULL, 10);
    if (digits == 0 || digits > 9 || text[digits] != 0 || number < least || number > most) {
        return false;
    }
    *ret_number = (unsigned)number;
    return true;
}

struct serve_options {
    struct weir_fabric_options fabric;
    const char *listen, *root;
};

static int take_number(struct serve *serve, int option)
{
    if (option == OPTION_MAX_TRANSFERS) {
        return parse_number(optarg, 1, TRANSFERS_MAX, &serve->transfers_max)
                   ? -1
                   : command_usage_error(serve->command,
                                         "--max-transfers takes a number from 1 to %u, not '%s'",
                                         TRANSFERS_MAX, optarg);
    }
    return parse_number(optarg, 0, IDLE_TIMEOUT_MAX_S, &serve->idle_timeout_s)
               ? -1
               : command_usage_error(serve->command,
                                     "--idle-timeout takes seconds from 0 to %u, not '%s'",
                                     IDLE_TIMEOUT_MAX_S, optarg);
}

/* -1: go on. */
static int take_option(struct serve *serve, struct serve_options *options, int option)
{
    switch (option) {
    case OPTION_LISTEN:
        options->listen = optarg;
        return -1;
    case OPTION_ROOT:
        options->root = optarg;
        return -1;
    case OPTION_READ_ONLY:
        serve->service.read_only = true;
        return -1;
    case OPTION_SUPER:
        serve->service.super = true;
        return -1;
    case OPTION_INSECURE:
        serve->insecure = true;
        return -1;
    case OPTION_MAX_TRANSFERS:
    case OPTION_IDLE_TIMEOUT:
        return take_number(serve, option);
    case OPTION_JSON:
        serve->json = true;
        return -1;
    case 'q':
        serve->quiet = true;
        return -1;
    case OPTION_FABRIC:
        if (!fabric_kind_parse(optarg, &options->fabric.kind)) {
            return command_usage_error(serve->command,
                                       "--fabric takes auto, rdma or soft, not '%s'", optarg);
        }
        return -1;
    case 'h':
        fputs(serve_usage, stdout);
        return EXIT_DONE;
    default:
        return command_usage_hint(serve->command);
    }
}

/* Each transfer holds directories open, a walk's depth and LOOKAHEAD_FOLDERS of them. */
static void raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE,
                  &limit); /* where it is refused, large trees may fail, and say so */
    }
}

int command_serve(const struct command *command, int argc, char **argv)
{
    static struct serve serve;
    struct serve_options options = {
        .fabric = {.kind = WEIR_FABRIC_AUTO}, .listen = "127.0.0.1", .root = "."};
    char address[LOCATION_ADDRESS_LENGTH];
    serve.command = command;
    serve.service.root = -1;
    serve.transfers_max = TRANSFERS;
    serve.idle_timeout_s = IDLE_TIMEOUT_S;
    for (int option; (option = getopt_long(argc, argv, "qh", long_options, NULL)) != -1;) {
        int code = take_option(&serve, &options, option);
        if (code >= 0) {
            return code;
        }
    }
    if (optind < argc) {
        return command_usage_error(command, "'%s' is not an option; a folder is given with --root",
                                   argv[optind]);
    }
    if (!location_parse_address(options.listen, address)) {
        return command_usage_error(command, "--listen takes ADDRESS[:PORT], not '%s'",
                                   options.listen);
    }
    stop_prepare();
    raise_open_files();
    return serve_address(&serve, &options.fabric, options.root, address);
}
