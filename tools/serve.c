/* weir serve: the server of transfers, all in one thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/remote/greeting.h"
#include "tools/remote/pipe.h"
#include "tools/serve_options.h"
#include "tools/stop.h"
#include "tools/transfer/channel_link.h"
#include "tools/transfer/session.h"
#include "tools/trust/guard.h"
#include "tools/trust/keys.h"

#define HANDSHAKE_TIMEOUT_S 10
/* Clients beyond the limit that are being told so. More of them hear less: "refused". */
#define TURNED_AWAY_MAX 8
/* Files that fail are named up to so many of one transfer: no client fills a log. */
#define COMPLAINTS_MAX 10
/* Strangers are named up to so many a minute, and counted in any case. */
#define STRANGERS_PER_MINUTE 20
/* A session whose client does not come is over. */
#define SESSION_PATIENCE_S 120

struct serve;

/* One client. */
struct served {
    struct served *next;
    struct serve *serve;
    struct link *link;
    struct session *session; /* NULL: its peer has proven nothing yet */
    struct output output;
    struct report report;
    bool turned_away; /* it only hears that there is no room */
    bool is_gone;     /* before it proved anything */
    double began_s;
    uint64_t activity;
    double active_s; /* when the activity last changed, or there was something to do for us */
    uint64_t complaints;
    char peer[LOCATION_ADDRESS_LENGTH];
    char key[SECRET_NAME_MAX + 1]; /* by which it came; "" */
};

struct serve {
    const struct command *command;
    struct serve_options options;
    struct session_service service;
    struct keys keys;
    struct secret secret; /* of a session */
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct weir_listener *listeners[2]; /* a session's second one is for IPv6; may be NULL */
    struct served *transfers;
    unsigned count, turned_away; /* transfers of either kind */
    unsigned strangers, strangers_of_minute;
    double minute_s;
    double pumped_s;
    bool had_session;
    enum session_outcome outcome; /* of the last transfer */
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
    if (problem->remote || served->serve->options.session) { /* the client tells its user */
        return;
    }
    if (served->complaints++ < COMPLAINTS_MAX) {
        output_problem(&served->output, problem);
    } else if (served->complaints == COMPLAINTS_MAX + 1) {
        command_error(served->serve->command, "%s: more files fail; the client is told of each",
                      served->peer);
    }
}

static void say_connected(const struct served *served, const char *name)
{
    json_t *object = json_pack("{s:s, s:s}", "event", "connected", "peer", served->peer);
    if (name != NULL) {
        json_object_set_new(object, "key", json_string(name));
    }
    output_json(object);
}

/* One who came and was not let in. */
static void say_stranger(struct serve *serve, const char *peer, const char *why)
{
    double now_s = progress_now_s();
    char text[512];
    printable(why, strlen(why), text, sizeof(text));
    serve->strangers++;
    if (now_s - serve->minute_s > 60) {
        serve->minute_s = now_s;
        serve->strangers_of_minute = 0;
    }
    if (++serve->strangers_of_minute > STRANGERS_PER_MINUTE) {
        return;
    }
    if (serve->options.json) {
        output_json(json_pack("{s:s, s:s, s:s, s:i}", "event", "stranger", "peer", peer, "reason",
                              text, "count", (int)serve->strangers));
    } else {
        command_error(serve->command, "stranger %u: %s: %s", serve->strangers, peer, text);
    }
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
    if (serve->count >= serve->options.transfers_max) {
        return serve->crowded;
    }
    return same >= (serve->options.transfers_max + 1) / 2 ? serve->greedy : NULL;
}

static void join(struct serve *serve, struct served *served)
{
    served->next = serve->transfers;
    serve->transfers = served;
    serve->count += !served->turned_away;
    serve->turned_away += served->turned_away;
}

static void destroy_served(struct served *served)
{
    session_destroy(served->session);
    channel_link_destroy(served->link);
    free(served);
}

static const struct secret *find_secret(void *user, const char *name)
{
    const struct serve *serve = user;
    if (serve->options.session) {
        return strcmp(name, GREETING_KEY_NAME) == 0 ? &serve->secret : NULL;
    }
    const struct key *key = keys_find(&serve->keys, name);
    return key != NULL ? &key->secret : NULL;
}

static bool begin_session(struct served *served, const struct session_service *service)
{
    served->session = session_create_server(served->link, service, &served->report);
    return served->session != NULL;
}

/* A peer that knows a secret: what it may is the key's. */
static const char *admit(void *user, const char *name)
{
    struct served *served = user;
    struct serve *serve = served->serve;
    struct session_service service = serve->service;
    const struct key *key = keys_find(&serve->keys, name);
    service.read_only |= key != NULL && key->read_only;
    service.root = key != NULL && key->user >= 0 ? key->user : service.root;
    service.refusal = served->turned_away ? refusal_of(serve, served->peer) : NULL;
    if (serve->options.session && serve->had_session) {
        service.refusal = "this session has its client";
    }
    if (!begin_session(served, &service)) {
        return "not enough memory";
    }
    if (service.refusal == NULL) {
        serve->had_session = true;
        serve->turned_away -= served->turned_away; /* there is room again */
        serve->count += served->turned_away;
        served->turned_away = false;
    }
    snprintf(served->key, sizeof(served->key), "%s", name);
    if (serve->options.json) {
        say_connected(served, name);
    }
    return NULL;
}

static void left_outside(void *user, const char *why)
{
    struct served *served = user;
    served->is_gone = true;
    say_stranger(served->serve, served->peer, why);
}

static struct served *served_create(struct serve *serve, struct weir_connection *connection,
                                    const struct session_service *service)
{
    struct served *served = calloc(1, sizeof(*served));
    if (served == NULL) {
        return NULL;
    }
    snprintf(served->peer, sizeof(served->peer), "%s", weir_peer_name(connection));
    served->turned_away = service->refusal != NULL;
    served->serve = serve;
    served->output = (struct output){.command = serve->command,
                                     .json = serve->options.json,
                                     .peer = served->peer,
                                     .name_peer = true};
    served->report = (struct report){.problem = on_problem, .user = served};
    served->began_s = served->active_s = progress_now_s();
    const struct channel_link_door door = {
        .user = served, .admit = admit, .left_outside = left_outside};
    struct guard *guard = serve->options.insecure
                              ? NULL
                              : guard_create_server(find_secret, serve, serve->options.encrypt);
    if (guard != NULL || serve->options.insecure) {
        served->link = channel_link_create(guard, guard != NULL ? &door : NULL);
    }
    if (served->link == NULL || (guard == NULL && !begin_session(served, service))) {
        destroy_served(served);
        return NULL;
    }
    return served;
}

static bool on_accept(struct weir_connection *connection, void *user,
                      struct weir_handler *ret_handler, void **ret_user)
{
    struct serve *serve = user;
    struct session_service service = serve->service;
    service.refusal = refusal_of(serve, weir_peer_name(connection));
    struct served *served = service.refusal == NULL || serve->turned_away < TURNED_AWAY_MAX
                                ? served_create(serve, connection, &service)
                                : NULL;
    if (served == NULL) {
        weir_refuse(connection, service.refusal != NULL ? "too many at once" : "no memory");
        return false;
    }
    channel_link_attach(served->link, connection);
    join(serve, served);
    *ret_handler = channel_link_handler;
    *ret_user = served->link;
    if (served->session != NULL && serve->options.json) {
        say_connected(served, NULL);
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
    if (served->key[0] != 0) {
        json_object_set_new(object, "key", json_string(served->key));
    }
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
    if (served->serve->options.json) {
        report_as_json(served, seconds);
    }
    if (served->serve->options.json || served->serve->options.session) {
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
    } else if (!served->serve->options.quiet) {
        printf("%s%s%s: %s %s: %s file%s, %s in %.2f s, %s not copied\n", served->key,
               served->key[0] != 0 ? " from " : "", served->peer,
               session_direction(session) == DIRECTION_PULL ? "pulled" : "pushed", path, files,
               tally->files == 1 ? "" : "s", bytes, seconds, failed);
        fflush(stdout);
    }
}

/* Ends what stays at the greeting, or does nothing for long. */
static void limit(struct served *served, double now_s)
{
    const struct serve *serve = served->serve;
    bool greets = served->session == NULL || !session_is_running(served->session);
    uint64_t activity = served->session != NULL ? session_activity(served->session) : 0;
    if (activity != served->activity) {
        served->activity = activity;
        served->active_s = now_s;
    }
    if ((served->turned_away || greets) && now_s - served->began_s > HANDSHAKE_TIMEOUT_S) {
        served->link->operations->abort(served->link, "no greeting within 10 s");
    } else if (served->session != NULL && serve->options.idle_timeout_s > 0 &&
               now_s - served->active_s > serve->options.idle_timeout_s) {
        char reason[64];
        snprintf(reason, sizeof(reason), "idle: the client did nothing for %u s",
                 serve->options.idle_timeout_s);
        session_abort(served->session, reason);
    }
}

static bool is_over(const struct served *served)
{
    return served->session != NULL ? session_is_closed(served->session) : served->is_gone;
}

static void take_away(struct serve *serve, struct served **at)
{
    struct served *served = *at;
    if (served->session != NULL) {
        serve->outcome = session_outcome(served->session);
        report_end(served);
    }
    *at = served->next;
    serve->count -= !served->turned_away;
    serve->turned_away -= served->turned_away;
    destroy_served(served);
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
        if (is_over(served)) {
            take_away(serve, at);
            continue;
        }
        served->active_s += held_s;
        if (served->session != NULL && session_pump(served->session)) {
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
    const char *address = weir_listener_address(serve->listeners[0]);
    char text[4 * PATH_MAX];
    printable(root, strlen(root), text, sizeof(text));
    if (serve->options.json) {
        json_t *object =
            json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "event", "listening", "address",
                      address, "root", text, "read_only", serve->service.read_only, "device",
                      weir_fabric_device(serve->fabric), "fabric",
                      weir_fabric_kind(serve->fabric) == WEIR_FABRIC_SOFT ? "soft" : "rdma",
                      "fabric_reason", weir_fabric_reason(serve->fabric));
        output_json_path(object, (struct span){root, strlen(root)});
        output_json(object);
    } else if (!serve->options.quiet) {
        printf("weir serve: %s%s at weir://%s/ (%s)\n", text,
               serve->service.read_only ? ", read-only," : "", address, serve->device);
        fflush(stdout);
    }
}

static bool is_wanted(const struct serve *serve, double began_s)
{
    if (stop_asked() || !serve->options.session) {
        return !stop_asked();
    }
    return !pipe_has_ended() &&
           (serve->had_session || progress_now_s() - began_s < SESSION_PATIENCE_S);
}

static void run_loop(struct serve *serve)
{
    double began_s = progress_now_s();
    while (is_wanted(serve, began_s)) {
        bool more = pump_all(serve);
        weir_poll(serve->poller, more ? 0 : 250);
    }
    for (struct served *served = serve->transfers; served != NULL; served = served->next) {
        if (!is_over(served)) {
            served->link->operations->abort(served->link, serve->options.session
                                                              ? "the remote shell has ended"
                                                              : "the server was stopped");
        }
    }
    double stopped_s = progress_now_s();
    while (serve->transfers != NULL && progress_now_s() - stopped_s < 2) {
        pump_all(serve);
        weir_poll(serve->poller, 50);
    }
}

static int open_folder(const struct serve *serve, const char *option, const char *folder,
                       char ret_path[PATH_MAX])
{
    int fd = -1;
    if (realpath(folder, ret_path) != NULL) {
        fd = open(ret_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0) {
        command_error(serve->command, "%s%s: %s", option, folder, strerror(errno));
    }
    return fd;
}

/* Whom to serve what. */
static bool load_keys(struct serve *serve)
{
    char why[KEYS_WHY_LENGTH], path[PATH_MAX];
    if (serve->options.keys == NULL) {
        return true;
    }
    if (!keys_load(serve->options.keys, &serve->keys, why)) {
        command_error(serve->command, "--keys %s", why);
        return false;
    }
    for (unsigned i = 0; i < serve->keys.count; i++) {
        struct key *key = &serve->keys.list[i];
        if (key->root != NULL && (key->user = open_folder(serve, "root=", key->root, path)) < 0) {
            return false;
        }
    }
    return true;
}

static bool listen_at(struct serve *serve, unsigned index, const char *address,
                      struct weir_error *ret_error)
{
    return weir_listen(serve->poller, address, &channel_link_options, on_accept, serve,
                       &serve->listeners[index], ret_error) == WEIR_OK;
}

static void prepare(struct serve *serve)
{
    fabric_describe(serve->fabric, serve->device, sizeof(serve->device));
    serve->service.device = serve->device;
    serve->service.read_only = serve->options.read_only;
    serve->service.super = serve->options.super;
    snprintf(serve->crowded, sizeof(serve->crowded),
             "busy: this server runs %u transfers at a time", serve->options.transfers_max);
    snprintf(serve->greedy, sizeof(serve->greedy),
             "busy: this server runs %u transfers at a time for one address",
             (serve->options.transfers_max + 1) / 2);
    serve->pumped_s = progress_now_s();
}

static int serve_root(struct serve *serve, const char *address)
{
    struct weir_error error;
    char path[PATH_MAX];
    prepare(serve);
    serve->service.root = open_folder(serve, "--root ", serve->options.root, path);
    if (serve->service.root < 0 || !load_keys(serve)) {
        return EXIT_SETUP;
    }
    if (!listen_at(serve, 0, address, &error)) {
        command_error(serve->command, "%s", error.message);
        return EXIT_SETUP;
    }
    announce(serve, path);
    run_loop(serve);
    if (serve->strangers > 0 && !serve->options.json) {
        command_error(serve->command, "strangers that were not let in: %u", serve->strangers);
    }
    return EXIT_DONE;
}

/* For one client, which a remote shell has started this for: it may what the shell's user may. */
static int serve_session(struct serve *serve)
{
    struct weir_error error;
    prepare(serve);
    serve->service.root = AT_FDCWD;
    serve->service.free_paths = true;
    serve->service.super = geteuid() == 0;
    serve->options.idle_timeout_s = 0; /* the pipe tells */
    if (!secret_make(&serve->secret)) {
        command_error(serve->command, "the system has no random bytes");
        return EXIT_SETUP;
    }
    if (!listen_at(serve, 0, "*:0", &error)) {
        command_error(serve->command, "%s", error.message);
        return EXIT_SETUP;
    }
    listen_at(serve, 1, "[::]:0", &error); /* where there is IPv6 */
    if (!pipe_greet(serve->fabric, serve->listeners, &serve->secret)) {
        command_error(serve->command, "the greeting cannot be said: %s", strerror(errno));
        return EXIT_SETUP;
    }
    run_loop(serve);
    return EXIT_DONE;
}

static void close_all(struct serve *serve)
{
    for (unsigned i = 0; i < 2; i++) {
        weir_listener_close(serve->listeners[i]);
    }
    weir_poller_destroy(serve->poller);
    while (serve->transfers != NULL) {
        struct served *served = serve->transfers;
        serve->transfers = served->next;
        destroy_served(served);
    }
    weir_fabric_close(serve->fabric);
    for (unsigned i = 0; i < serve->keys.count; i++) {
        close(serve->keys.list[i].user);
    }
    keys_free(&serve->keys);
    if (serve->service.root >= 0) {
        close(serve->service.root);
    }
}

static int serve_on_fabric(struct serve *serve, const char *address)
{
    struct weir_error error;
    if (fabric_open(&serve->options.fabric, &serve->fabric, &error) != WEIR_OK) {
        command_error(serve->command, "%s", error.message);
        return EXIT_SETUP;
    }
    int code = EXIT_SETUP;
    if (weir_poller_create(serve->fabric, &serve->poller, &error) != WEIR_OK) {
        command_error(serve->command, "%s", error.message);
    } else {
        code = serve->options.session ? serve_session(serve) : serve_root(serve, address);
    }
    close_all(serve);
    return code;
}

int command_serve(const struct command *command, int argc, char **argv)
{
    static struct serve serve;
    char address[LOCATION_ADDRESS_LENGTH];
    serve.command = command;
    serve.service.root = -1;
    int code = serve_take_options(command, argc, argv, &serve.options);
    if (code >= 0) {
        return code;
    }
    if (!location_parse_address(serve.options.listen, address)) {
        return command_usage_error(command, "--listen takes ADDRESS[:PORT], not '%s'",
                                   serve.options.listen);
    }
    stop_prepare();
    return serve_on_fabric(&serve, address);
}
