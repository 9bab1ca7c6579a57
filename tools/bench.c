/* weir bench: what the RDMA device does, between two ends. Options, the two processes, and where
 * results go; how is measured stands in bench/. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/ends.h"
#include "tools/bench/page.h"
#include "tools/bench/stopwatch.h"
#include "tools/bench/table.h"
#include "tools/command.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/printable.h"
#include "tools/stop.h"

#define PORT_DEFAULT "7472"
#define SECONDS_MAX  60

const char bench_usage[] =
    "usage: weir bench [OPTION...]                      both ends on this machine\n"
    "       weir bench --serve [ADDRESS] [OPTION...]    one end, until interrupted\n"
    "       weir bench HOST[:PORT] [OPTION...]          the other, which measures and\n"
    "                                                   reports\n"
    "\n"
    "Measures latency, bandwidth and rate of RDMA operations and of libweir's channel\n"
    "by size.\n"
    "\n"
    "  --op LIST         send, write, write-imm, read, fetch-add, compare-swap;\n"
    "                    message and put of libweir's channel; all (default)\n"
    "  --size LIST       of 1 to 64m bytes (default: 8,64,512,4k,32k,256k,1m)\n"
    "  --measure LIST    latency, bandwidth (which is the rate, too), all (default)\n"
    "  --direction LIST  one-way (default), both-ways, all: who sends, of bandwidth\n"
    "  --mode LIST       poll (default): who waits spins; event: sleeps; all\n"
    "  --depth N         operations under way, of bandwidth (default: 64)\n"
    "  --runs N          of each case; figures are medians over them (default: 5)\n"
    "  --seconds S       length of a run (default: 0.1)\n"
    "  --huge            use huge pages\n"
    "  --json            print one JSON object instead of a table\n"
    "  --html FILE       also write a page with plots, which needs no network\n"
    "  --serve [ADDRESS] be the end that is led; 127.0.0.1:7472 unless given, \"*\" is\n"
    "                    every address; only --fabric and --device go with it\n"
    "  --fabric KIND     auto: the machine's RDMA device, else the software RNIC\n"
    "                    (default); rdma: a device or nothing; soft: the software\n"
    "                    RNIC\n"
    "  --device NAME     NAME, NAME:PORT or NAME:PORT:GID_INDEX; message and put take\n"
    "                    port and GID from the addresses, as rdma_cm does\n"
    "  -h, --help        print this text\n"
    "\n"
    "  weir bench --op send,write --size 8,1m --html report.html\n"
    "  weir bench --serve '*'           on one machine, and on another\n"
    "  weir bench server.example --json\n"
    "\n"
    "Exit status: 0, 2 usage, 3 no connection, 4 it was lost, 5 the other end failed\n"
    "or bytes arrived wrong, 6 cannot begin here, 130 interrupted.\n";

struct bench {
    const struct command *command;
    struct weir_fabric_options fabric_options;
    struct weir_fabric *fabric;
    struct plan plan;
    const char *html;
    bool page_is_new; /* it was not there before */
    bool is_json, is_server;
    int of_leader; /* an option that means nothing to the end that is led; 0: none */
    struct control control;
    struct table table;
    struct result result;
    json_t *results;
    struct weir_error error;
};

static int exit_code_of(enum weir_status status)
{
    switch (status) {
    case WEIR_OK:
        return EXIT_DONE;
    case WEIR_ADDRESS:
    case WEIR_REFUSED:
    case WEIR_UNREACHABLE:
        return EXIT_UNREACHED;
    case WEIR_DISCONNECTED:
    case WEIR_PEER_LOST:
    case WEIR_TIMED_OUT:
        return EXIT_LOST;
    case WEIR_PROTOCOL:
    case WEIR_ACCESS:
        return EXIT_REFUSED;
    case WEIR_CANCELED:
        return EXIT_INTERRUPTED;
    case WEIR_INVALID: /* --device */
        return EXIT_USAGE;
    default:
        return EXIT_SETUP;
    }
}

/* The other end's words may be in it. */
static int fail(const struct bench *bench, enum weir_status status)
{
    char text[4 * sizeof(bench->error.message)];
    printable(bench->error.message, strlen(bench->error.message), text, sizeof(text));
    command_error(bench->command, "%s", text);
    return exit_code_of(status);
}

/* --- the end that is led --- */

/* Waits for a client, and looks at times whether it is to end. -1 with EINTR: it is. */
static int accept_client(int listener)
{
    struct pollfd look = {.fd = listener, .events = POLLIN};
    while (!stop_asked()) {
        int fd =
            poll(&look, 1, STOP_LOOK_MS) > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0 || (look.revents != 0 && errno != EINTR && errno != ECONNABORTED)) {
            return fd;
        }
    }
    errno = EINTR;
    return -1;
}

/* `announce_fd` >= 0: the address goes there, and one client is served. */
static int serve(struct bench *bench, const char *address, int announce_fd)
{
    char bound[CONTROL_ADDRESS_MAX], device[512];
    if (fabric_open(&bench->fabric_options, &bench->fabric, &bench->error) != WEIR_OK) {
        return fail(bench, bench->error.status);
    }
    int listener = control_listen(address, bound, &bench->error);
    if (listener < 0) {
        return fail(bench, WEIR_SYSTEM);
    }
    if (announce_fd >= 0) {
        dprintf(announce_fd, "%s\n", bound);
        close(announce_fd);
    } else {
        fabric_describe(bench->fabric, device, sizeof(device));
        printf("weir bench: at %s (%s)\n", bound, device);
        fflush(stdout);
    }
    bool is_good;
    int code = EXIT_DONE;
    do {
        int client = accept_client(listener);
        if (client < 0 && errno == EINTR) {
            break;
        }
        if (client < 0) {
            control_error(&bench->error, WEIR_SYSTEM, "%s: cannot accept: %s", bound,
                          strerror(errno));
            code = fail(bench, WEIR_SYSTEM);
            break;
        }
        control_begin(&bench->control, client);
        is_good = ends_serve(&bench->control, bench->fabric, &bench->error);
        if (!is_good && announce_fd < 0 && !stop_asked()) {
            fail(bench, bench->error.status);
        }
        control_close(&bench->control);
    } while (announce_fd < 0 && !stop_asked());
    close(listener);
    weir_fabric_close(bench->fabric);
    return code;
}

/* The other end as a process of our own, before any verbs library is loaded here. */
static pid_t start_server(struct bench *bench, char ret_address[CONTROL_ADDRESS_MAX])
{
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() != parent ? EXIT_LOST : serve(bench, "127.0.0.1:0", ends[1]));
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t count = 1;
    while (child > 0 && count > 0 && length < CONTROL_ADDRESS_MAX - 1) {
        count = read(ends[0], ret_address + length, CONTROL_ADDRESS_MAX - 1 - length);
        length += count > 0 ? (size_t)count : 0;
    }
    close(ends[0]);
    ret_address[length] = '\0';
    ret_address[strcspn(ret_address, "\n")] = '\0';
    return child;
}

/* --- the end that leads --- */

static bool measure(void *user, const struct plan_case *item)
{
    struct bench *bench = user;
    if (stop_asked()) {
        return control_error(&bench->error, WEIR_CANCELED, "interrupted");
    }
    if (!ends_measure(&bench->control, bench->fabric, item, &bench->plan, &bench->result,
                      &bench->error)) {
        return false;
    }
    /* The other end's words may be in it, here too. */
    char *why = bench->result.unsupported, text[sizeof(bench->result.unsupported)];
    printable(why, strlen(why), text, sizeof(text));
    strcpy(why, text);
    if (!bench->is_json) {
        table_add(&bench->table, &bench->result);
    }
    json_array_append_new(bench->results, result_to_json(&bench->result));
    if (!bench->is_json && bench->html == NULL && ferror(stdout)) { /* nobody hears of the rest */
        return control_error(&bench->error, WEIR_SYSTEM, "standard output takes nothing more");
    }
    return true;
}

static json_t *describe_link(const struct bench *bench, const json_t *client, const json_t *server)
{
    struct sockaddr_storage local;
    char host[CONTROL_ADDRESS_MAX] = "";
    const char *here = NULL, *there = NULL;
    control_local(&bench->control, &local, host);
    json_unpack((json_t *)client, "{s:{s:s}}", "machine", "boot", &here);
    json_unpack((json_t *)server, "{s:{s:s}}", "machine", "boot", &there);
    bool same = here != NULL && there != NULL && here[0] != '\0' && strcmp(here, there) == 0;
    return json_pack("{s:s, s:b}", "client_address", host, "same_machine", same);
}

static json_t *describe_all(struct bench *bench, json_t *server, const char *address)
{
    char now[32] = "";
    time_t seconds = time(NULL);
    strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    json_t *client = ends_describe(bench->fabric);
    json_t *link = describe_link(bench, client, server);
    json_object_set_new(link, "server_address", json_string(address));
    return json_pack("{s:s, s:s, s:s, s:o, s:O, s:o, s:{s:f, s:i, s:i, s:b, s:s}, s:O}", "format",
                     "weir-bench-1", "version", WEIR_VERSION, "time", now, "client", client,
                     "server", server, "link", link, "parameters", "seconds", bench->plan.seconds,
                     "runs", (int)bench->plan.runs, "depth", (int)bench->plan.depth, "huge_pages",
                     bench->plan.is_huge, "clock", stopwatch_name(), "results", bench->results);
}

static void print_intro(struct bench *bench, const json_t *server)
{
    char device[512], theirs[256];
    const char *name = json_string_value(json_object_get(server, "device"));
    fabric_describe(bench->fabric, device, sizeof(device));
    printable(name != NULL ? name : "?", name != NULL ? strlen(name) : 1, theirs, sizeof(theirs));
    printf("device    %s\nother end %s\n"
           "each case %u run%s of %g s after a warm-up whose bytes were compared; one clock\n\n",
           device, theirs, bench->plan.runs, bench->plan.runs == 1 ? "" : "s", bench->plan.seconds);
    fflush(stdout); /* the first figures may take long */
}

/* What there is no whole page for. */
static void drop_page(const struct bench *bench)
{
    if (bench->page_is_new) {
        unlink(bench->html);
    }
}

static bool report(struct bench *bench, json_t *server, const char *address)
{
    json_t *document = describe_all(bench, server, address);
    bool is_good = bench->html == NULL || page_write(bench->html, document);
    if (!is_good) {
        control_error(&bench->error, WEIR_SYSTEM, "%s: %s", bench->html, strerror(errno));
        drop_page(bench);
    }
    if (bench->is_json) {
        output_json(json_incref(document));
    }
    json_decref(document);
    return is_good;
}

/* The page is written at the end; that it cannot be is better known before all is measured. */
static bool make_page(struct bench *bench)
{
    if (bench->html == NULL) {
        return true;
    }
    int fd = open(bench->html, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bench->page_is_new = fd >= 0;
    if (fd < 0 && errno == EEXIST) {
        fd = open(bench->html, O_WRONLY | O_CLOEXEC);
    }
    if (fd < 0) {
        return control_error(&bench->error, WEIR_SYSTEM, "%s: %s", bench->html, strerror(errno));
    }
    close(fd);
    return true;
}

/* What was measured before a failure is worth having; an empty page is not. */
static bool give_results(struct bench *bench, json_t *server, const char *address)
{
    if (json_array_size(bench->results) > 0) {
        return report(bench, server, address);
    }
    drop_page(bench);
    return true;
}

static int lead(struct bench *bench, const char *address)
{
    if (fabric_open(&bench->fabric_options, &bench->fabric, &bench->error) != WEIR_OK) {
        return fail(bench, bench->error.status);
    }
    stopwatch_init();
    json_t *server = NULL;
    bench->table.stream = stdout;
    bench->results = json_array();
    bool is_good = control_connect(&bench->control, address, &bench->error) &&
                   (server = ends_greet(&bench->control, bench->fabric, &bench->error)) != NULL &&
                   make_page(bench);
    if (is_good && !bench->is_json) {
        print_intro(bench, server);
    }
    is_good = is_good && plan_walk(&bench->plan, measure, bench);
    is_good = give_results(bench, server, address) && is_good;
    control_close(&bench->control);
    json_decref(server);
    json_decref(bench->results);
    weir_fabric_close(bench->fabric);
    if (!is_good && stop_asked()) {
        return EXIT_INTERRUPTED;
    }
    return is_good ? EXIT_DONE : fail(bench, bench->error.status);
}

static int lead_own_server(struct bench *bench)
{
    char address[CONTROL_ADDRESS_MAX];
    pid_t child = start_server(bench, address);
    int status = 0;
    int code = child > 0 && address[0] != '\0' ? lead(bench, address) : EXIT_SETUP;
    if (child < 0) {
        command_error(bench->command, "the other end does not start: %s", strerror(errno));
    } else {
        if (code != EXIT_DONE) { /* it may still wait for us */
            kill(child, SIGTERM);
        }
        waitpid(child, &status, 0);
        if (address[0] == '\0' && stop_asked()) {
            code = EXIT_INTERRUPTED;
        } else if (address[0] == '\0' && WIFEXITED(status)) { /* it has said why */
            code = WEXITSTATUS(status);
        }
    }
    return code;
}

/* --- options --- */

/* First those of who leads. */
enum {
    OPTION_OP = 256,
    OPTION_SIZE,
    OPTION_MEASURE,
    OPTION_DIRECTION,
    OPTION_MODE,
    OPTION_DEPTH,
    OPTION_RUNS,
    OPTION_SECONDS,
    OPTION_HUGE,
    OPTION_JSON,
    OPTION_HTML,
    OPTION_SERVE,
    OPTION_FABRIC,
    OPTION_DEVICE,
};

static const struct option long_options[] = {
    {"op", required_argument, NULL, OPTION_OP},
    {"size", required_argument, NULL, OPTION_SIZE},
    {"measure", required_argument, NULL, OPTION_MEASURE},
    {"direction", required_argument, NULL, OPTION_DIRECTION},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"depth", required_argument, NULL, OPTION_DEPTH},
    {"runs", required_argument, NULL, OPTION_RUNS},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"huge", no_argument, NULL, OPTION_HUGE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"html", required_argument, NULL, OPTION_HTML},
    {"serve", no_argument, NULL, OPTION_SERVE},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool parse_count(const char *text, unsigned most, unsigned *ret_count)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *ret_count = (unsigned)value;
    return *text >= '0' && *text <= '9' && *end == '\0' && value >= 1 && value <= most;
}

static int bad_word(const struct bench *bench, const char *name, enum plan_set kind,
                    const char *word)
{
    char text[128], words[PLAN_WORDS];
    printable(word, strlen(word), text, sizeof(text));
    plan_words(kind, words);
    return command_usage_error(bench->command, "%s takes a list of %s, not '%s'", name, words,
                               text);
}

static int bad_size(const struct bench *bench, const char *word)
{
    char text[128];
    printable(word, strlen(word), text, sizeof(text));
    return command_usage_error(bench->command, "--size takes 1 to 64m, up to %d of them, not '%s'",
                               PLAN_SIZES_MAX, text);
}

static int take_set(struct bench *bench, const char *name, enum plan_set kind, unsigned *ret_set)
{
    char bad[32];
    return plan_parse_set(kind, optarg, ret_set, bad) ? EXIT_DONE
                                                      : bad_word(bench, name, kind, bad);
}

static int take_number(struct bench *bench, int option)
{
    struct plan *plan = &bench->plan;
    char *end;
    switch (option) {
    case OPTION_DEPTH:
        return parse_count(optarg, PLAN_DEPTH_MAX, &plan->depth)
                   ? EXIT_DONE
                   : command_usage_error(bench->command, "--depth takes 1 to %d", PLAN_DEPTH_MAX);
    case OPTION_RUNS:
        return parse_count(optarg, RESULT_RUNS_MAX, &plan->runs)
                   ? EXIT_DONE
                   : command_usage_error(bench->command, "--runs takes 1 to %d", RESULT_RUNS_MAX);
    default:
        plan->seconds = strtod(optarg, &end);
        return end != optarg && *end == '\0' && plan->seconds >= 0.001 &&
                       plan->seconds <= SECONDS_MAX
                   ? EXIT_DONE
                   : command_usage_error(bench->command, "--seconds takes 0.001 to %d",
                                         SECONDS_MAX);
    }
}

static int take_option(struct bench *bench, int option)
{
    char bad[32];
    bench->of_leader = option >= OPTION_OP && option < OPTION_SERVE ? option : bench->of_leader;
    switch (option) {
    case OPTION_OP:
        return take_set(bench, "--op", PLAN_OPERATIONS, &bench->plan.operations);
    case OPTION_MEASURE:
        return take_set(bench, "--measure", PLAN_MEASURES, &bench->plan.measures);
    case OPTION_DIRECTION:
        return take_set(bench, "--direction", PLAN_DIRECTIONS, &bench->plan.directions);
    case OPTION_MODE:
        return take_set(bench, "--mode", PLAN_MODES, &bench->plan.modes);
    case OPTION_SIZE:
        return plan_parse_sizes(&bench->plan, optarg, bad) ? EXIT_DONE : bad_size(bench, bad);
    case OPTION_DEPTH:
    case OPTION_RUNS:
    case OPTION_SECONDS:
        return take_number(bench, option);
    case OPTION_HUGE:
        bench->plan.is_huge = true;
        return EXIT_DONE;
    case OPTION_JSON:
        bench->is_json = true;
        return EXIT_DONE;
    case OPTION_HTML:
        bench->html = optarg;
        return EXIT_DONE;
    case OPTION_SERVE:
        bench->is_server = true;
        return EXIT_DONE;
    case OPTION_DEVICE:
        bench->fabric_options.device = optarg;
        return EXIT_DONE;
    case OPTION_FABRIC:
        return fabric_kind_take(bench->command, optarg, &bench->fabric_options.kind) ? EXIT_DONE
                                                                                     : EXIT_USAGE;
    default:
        return command_usage_hint(bench->command);
    }
}

static int refuse_with_serve(const struct bench *bench)
{
    const struct option *one = long_options;
    while (one->val != bench->of_leader) {
        one++;
    }
    return command_usage_error(bench->command, "--%s is for the end that leads, not for --serve",
                               one->name);
}

/* HOST and the rest as location.h has it, with this command's port. */
static bool find_address(const char *text, char ret_address[LOCATION_ADDRESS_LENGTH])
{
    if (!location_parse_address(text, ret_address)) {
        return false;
    }
    if (strcmp(text, ret_address) != 0) { /* it had no port */
        memcpy(strrchr(ret_address, ':') + 1, PORT_DEFAULT, strlen(PORT_DEFAULT));
    }
    return true;
}

static int run(struct bench *bench, const char *place)
{
    char address[LOCATION_ADDRESS_LENGTH];
    if (place == NULL && !bench->is_server) {
        return lead_own_server(bench);
    }
    if (bench->is_server && bench->of_leader != 0) {
        return refuse_with_serve(bench);
    }
    if (!find_address(place != NULL ? place : "127.0.0.1", address)) {
        return command_usage_error(bench->command, "'%s' is not an address", place);
    }
    bench->fabric_options.toward = address;
    return bench->is_server ? serve(bench, address, -1) : lead(bench, address);
}

int command_bench(const struct command *command, int argc, char **argv)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    char bad[32];
    int code = EXIT_DONE;
    if (bench == NULL) {
        return EXIT_SETUP;
    }
    bench->command = command;
    bench->control.fd = -1;
    bench->plan = (struct plan){.operations = ~0u,
                                .measures = ~0u,
                                .directions = 1,
                                .modes = 1,
                                .depth = 64,
                                .runs = 5,
                                .seconds = 0.1};
    plan_parse_sizes(&bench->plan, "8,64,512,4k,32k,256k,1m", bad);
    for (int option; code == EXIT_DONE &&
                     (option = command_option(command, argc, argv, "h", long_options)) != -1;) {
        if (option == 'h') {
            fputs(bench_usage, stdout);
            free(bench);
            return EXIT_DONE;
        }
        code = take_option(bench, option);
    }
    if (code == EXIT_DONE && optind + 1 < argc) {
        code = command_usage_error(command, "'%s' is one argument too many", argv[optind + 1]);
    }
    if (code == EXIT_DONE) {
        stop_prepare();
        code = run(bench, argv[optind]);
    }
    free(bench);
    return code;
}
