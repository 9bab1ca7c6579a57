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
#include "tools/serve_private.h"
#include "tools/stop.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/wire/channel_link.h"
#include "tools/trust/crypto.h"
#include "tools/trust/guard.h"
#include "tools/trust/keys.h"

#define HANDSHAKE_TIMEOUT_S 10
/* Clients beyond the limit that are being told so. More of them hear less: "refused". */
#define TURNED_AWAY_MAX 8
/* Connections that have proven nothing yet; beyond these one has to go. Those that are on their way
 * out take room, too, and so one host is not to have all of it. */
#define STRANGERS_MAX         64
#define STRANGERS_ROOM        (2 * STRANGERS_MAX)
#define STRANGERS_OF_HOST_MAX (STRANGERS_ROOM * 3 / 4)
/* A session whose client does not come is over. */
#define SESSION_PATIENCE_S 120
/* Between two looks at what nobody tells: limits of time, and a session's pipe while it copies. */
#define LOOK_INTERVAL_MS 250

/* What a new client is told instead of being served; NULL: there is room. */
static const char *refusal_of(const struct serve *serve, const char *peer, const char *key)
{
    unsigned same = 0;
    for (const struct served *served = serve->transfers; served != NULL; served = served->next) {
        same += served->standing == STANDING_SERVED && serve_is_same_client(served, peer, key);
    }
    if (serve->counts[STANDING_SERVED] >= serve->options.transfers_max) {
        return serve->crowded;
    }
    return same >= serve->options.per_client_max ? serve->greedy : NULL;
}

static void join(struct serve *serve, struct served *served)
{
    served->next = serve->transfers;
    serve->transfers = served;
    serve->counts[served->standing]++;
}

static void stand_as(struct serve *serve, struct served *served, enum standing standing)
{
    serve->counts[served->standing]--;
    serve->counts[standing]++;
    served->standing = standing;
}

/* The one that has proven nothing for the longest time, of the host that has most of them: so who
 * fills the place makes room himself, and nobody else has to go for him. */
static void end_a_stranger(struct serve *serve)
{
    struct served *chosen = NULL;
    unsigned most = 0;
    for (struct served *served = serve->transfers; served != NULL; served = served->next) {
        if (served->standing != STANDING_STRANGER || served->is_gone || served->is_sent_away) {
            continue;
        }
        bool is_older = chosen != NULL && serve_is_same_client(served, chosen->peer, "");
        unsigned count = is_older ? most : serve_count_strangers(serve, served->peer);
        chosen = count >= most ? served : chosen;
        most = count >= most ? count : most;
    }
    if (chosen != NULL) {
        chosen->is_sent_away = true;
        chosen->link->operations->abort(chosen->link, "too many come without a proof");
    }
}

static void destroy_served(struct served *served)
{
    session_destroy(served->session);
    channel_link_destroy(served->link);
    free(served);
}

/* Of the same client and copy: the earlier one is over, whatever it thinks of it. */
static bool is_same_copy(const struct served *one, const struct served *other)
{
    return one != other && one->standing == STANDING_SERVED && one->session != NULL &&
           memcmp(one->copy, other->copy, COPY_ID_LENGTH) == 0 && strcmp(one->key, other->key) == 0;
}

/* A session that a shell started is for one copy. */
static bool has_other_client(const struct serve *serve, const struct served *served, bool is_known)
{
    return serve->options.session && serve->had_session &&
           (!is_known || memcmp(serve->copy, served->copy, COPY_ID_LENGTH) != 0);
}

/* A client says which copy it is at. One that comes again takes the place of its earlier session,
 * which may not have noticed yet that its connection is gone. */
static const char *greeted(void *user, const uint8_t id[COPY_ID_LENGTH])
{
    static const uint8_t none[COPY_ID_LENGTH];
    struct served *served = user;
    struct serve *serve = served->serve;
    if (served->proof == PROOF_HOP) {
        return "its secret is for another purpose";
    }
    memcpy(served->copy, id, COPY_ID_LENGTH);
    bool is_known = memcmp(id, none, COPY_ID_LENGTH) != 0;
    if (has_other_client(serve, served, is_known)) {
        return "this session has its client";
    }
    for (struct served *one = serve->transfers; one != NULL && is_known; one = one->next) {
        if (is_same_copy(one, served)) {
            stand_as(serve, one, STANDING_TURNED_AWAY);
            session_yield(one->session, "its client has come again");
        }
    }
    if (served->standing != STANDING_SERVED) {
        const char *refusal = refusal_of(serve, served->peer, served->key);
        if (refusal != NULL) {
            return refusal;
        }
        stand_as(serve, served, STANDING_SERVED);
    }
    serve->had_session = true;
    memcpy(serve->copy, id, COPY_ID_LENGTH);
    return NULL;
}

static bool begin_session(struct served *served, const struct session_service *service)
{
    struct session_service own = *service;
    own.greeted = greeted;
    own.hold = served->serve->options.session ? NULL : serve_hold;
    own.user = served;
    served->session = session_create_server(served->link, &own, &served->report);
    return served->session != NULL;
}

/* As many as may be there only to hear why they are not served. */
static bool is_crowded(const struct serve *serve)
{
    return serve->counts[STANDING_TURNED_AWAY] >= TURNED_AWAY_MAX;
}

static const char *admit(void *user, const char *name)
{
    struct served *served = user;
    struct serve *serve = served->serve;
    struct session_service service;
    const char *refusal = serve_admit(served, name, &service);
    const char *unserved =
        served->proof == PROOF_HOP ? NULL : refusal_of(serve, served->peer, name);
    if (refusal == NULL && unserved != NULL && is_crowded(serve)) {
        refusal = unserved; /* too many are there already to be told so at their HELLO */
    }
    if (refusal != NULL) {
        return refusal;
    }
    if (!begin_session(served, &service)) {
        return "not enough memory";
    }
    if (served->proof == PROOF_HOP) {
        return NULL;
    }
    stand_as(serve, served, unserved == NULL ? STANDING_SERVED : STANDING_TURNED_AWAY);
    snprintf(served->key, sizeof(served->key), "%s", name);
    if (serve->options.json) {
        serve_say_connected(served, name);
    }
    return NULL;
}

static void left_outside(void *user, const char *why)
{
    struct served *served = user;
    served->is_gone = true;
    serve_say_stranger(served->serve, served->peer, why);
}

/* Whoever comes is served, and nothing is sealed. */
static bool is_open(const struct serve *serve)
{
    return serve->options.insecure && serve->options.certificates.certificate == NULL;
}

static struct guard *create_guard(struct served *served)
{
    struct serve *serve = served->serve;
    bool shows = serve->options.certificates.certificate != NULL;
    return guard_create_server(serve_find_secret, served, shows ? &serve->certificates : NULL,
                               serve->options.encrypt);
}

static struct served *served_create(struct serve *serve, struct weir_connection *connection,
                                    const struct session_service *service)
{
    struct served *served = calloc(1, sizeof(*served));
    if (served == NULL) {
        return NULL;
    }
    snprintf(served->peer, sizeof(served->peer), "%s", weir_peer_name(connection));
    served->serve = serve;
    served->standing = !is_open(serve)            ? STANDING_STRANGER
                       : service->refusal == NULL ? STANDING_SERVED
                                                  : STANDING_TURNED_AWAY;
    served->output = (struct output){.command = serve->command,
                                     .json = serve->options.json,
                                     .peer = served->peer,
                                     .name_peer = true};
    served->report = (struct report){.problem = serve_say_problem, .user = served};
    served->began_s = served->awaited_s = served->active_s = progress_now_s();
    const struct channel_link_door door = {
        .user = served, .admit = admit, .left_outside = left_outside};
    struct guard *guard = is_open(serve) ? NULL : create_guard(served);
    if (guard != NULL || is_open(serve)) {
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
    const char *peer = weir_peer_name(connection);
    if (is_open(serve)) {
        service.refusal = refusal_of(serve, peer, "");
    }
    bool crowd = service.refusal != NULL && is_crowded(serve);
    crowd |= serve->counts[STANDING_STRANGER] >= STRANGERS_ROOM ||
             serve_count_strangers(serve, peer) >= STRANGERS_OF_HOST_MAX;
    if (!crowd && serve->counts[STANDING_STRANGER] >= STRANGERS_MAX) {
        end_a_stranger(serve);
    }
    struct served *served = crowd ? NULL : served_create(serve, connection, &service);
    if (served == NULL) {
        weir_refuse(connection, crowd ? "too many at once" : "no memory");
        return false;
    }
    channel_link_attach(served->link, connection);
    join(serve, served);
    *ret_handler = channel_link_handler;
    *ret_user = served->link;
    if (served->session != NULL && serve->options.json) {
        serve_say_connected(served, NULL);
    }
    return true;
}

/* Ends what stays at the greeting, or does nothing for long. */
static void limit(struct served *served, double now_s)
{
    const struct serve *serve = served->serve;
    bool greets = served->session == NULL || !session_has_greeted(served->session);
    uint64_t activity = served->session != NULL ? session_activity(served->session) : 0;
    if (served->standing == STANDING_FEEDING) { /* it lasts as long as the one that is fed */
        return;
    }
    bool writes = served->session != NULL && session_is_writing(served->session);
    if (activity != served->activity || writes) {
        served->activity = activity;
        served->active_s = now_s;
    }
    if ((served->standing != STANDING_SERVED || greets) &&
        now_s - served->awaited_s > HANDSHAKE_TIMEOUT_S) {
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
    if (served->session != NULL && !session_is_feeding(served->session)) {
        serve->outcome = session_outcome(served->session);
        serve_say_end(served);
    }
    *at = served->next;
    serve->counts[served->standing]--;
    destroy_served(served);
}

/* While the server itself was held up, by a disk or a debugger, no client could be active. That is
 * seen when all are looked at next, so until then the time is that of the begin. */
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
    double now_s = progress_now_s(), held_s = held_up_s(serve, now_s);
    for (struct served **at = &serve->transfers; *at != NULL;) {
        struct served *served = *at;
        if (is_over(served)) {
            take_away(serve, at);
            continue;
        }
        served->awaited_s += held_s;
        served->active_s += held_s;
        if (served->session != NULL && session_pump(served->session)) {
            more = true;
            served->active_s = progress_now_s();
        }
        if (served->session != NULL && session_is_feeding(served->session)) {
            stand_as(served->serve, served, STANDING_FEEDING);
        }
        limit(served, now_s);
        at = &served->next;
    }
    hop_dial_sweep(&serve->dial);
    return more;
}

static bool is_wanted(const struct serve *serve, double began_s)
{
    if (stop_asked() || !serve->options.session) {
        return !stop_asked();
    }
    return !pipe_has_ended() &&
           (serve->had_session || progress_now_s() - began_s < SESSION_PATIENCE_S);
}

/* A session without a client ends with its pipe, at once: its client waits for that. */
static void wait_for_more(struct serve *serve, bool more)
{
    if (!serve->options.session || serve->transfers != NULL) {
        weir_poll(serve->poller, more ? 0 : LOOK_INTERVAL_MS);
    } else if (weir_poll(serve->poller, 0) == 0) {
        pipe_wait(weir_poller_fd(serve->poller), LOOK_INTERVAL_MS);
    }
}

static void run_loop(struct serve *serve)
{
    double began_s = progress_now_s();
    while (is_wanted(serve, began_s)) {
        wait_for_more(serve, pump_all(serve));
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

static bool listen_at(struct serve *serve, unsigned index, const char *address,
                      struct weir_error *ret_error)
{
    return weir_listen(serve->poller, address, &channel_link_options, on_accept, serve,
                       &serve->listeners[index], ret_error) == WEIR_OK;
}

static bool is_every_address(const char *address)
{
    return strncmp(address, "*:", 2) == 0 || address[0] == ':' || strncmp(address, "[::]:", 5) == 0;
}

/* Every address of both families is one listener: that of IPv6 takes IPv4's, too. */
static bool listen_everywhere(struct serve *serve, unsigned index, const char *port,
                              struct weir_error *ret_error)
{
    char address[LOCATION_ADDRESS_LENGTH];
    struct weir_error first;
    snprintf(address, sizeof(address), "[::]:%s", port);
    if (listen_at(serve, index, address, &first)) {
        return true;
    }
    snprintf(address, sizeof(address), "0.0.0.0:%s", port);
    if (!listen_at(serve, index, address, ret_error)) {
        *ret_error = first;
        return false;
    }
    command_error(serve->command, "warning: IPv4 only: %s", first.message);
    return true;
}

/* -1: go on. */
static int listen_as_asked(struct serve *serve)
{
    struct weir_error error;
    for (unsigned i = 0; i < serve->options.listen_count; i++) {
        char address[LOCATION_ADDRESS_LENGTH];
        location_parse_address(serve->options.listen[i], address);
        bool good = is_every_address(address)
                        ? listen_everywhere(serve, i, strrchr(address, ':') + 1, &error)
                        : listen_at(serve, i, address, &error);
        if (!good) {
            command_error(serve->command, "%s", error.message);
            return EXIT_SETUP;
        }
    }
    return -1;
}

static void prepare(struct serve *serve)
{
    fabric_describe(serve->fabric, serve->device, sizeof(serve->device));
    serve->service.device = serve->device;
    serve->service.relays = &serve->relays;
    serve->dial.poller = serve->poller;
    serve->relays = (struct relay_host){
        .dialer = hop_dialer_of(&serve->dial), .random = crypto_random, .guarded = !is_open(serve)};
    serve->service.read_only = serve->options.read_only;
    serve->service.super = serve->options.super;
    snprintf(serve->crowded, sizeof(serve->crowded),
             "busy: this server runs %u transfers at a time", serve->options.transfers_max);
    snprintf(serve->greedy, sizeof(serve->greedy),
             "busy: this server runs %u transfers at a time for one address%s",
             serve->options.per_client_max, serve->options.insecure ? "" : " or key");
    if (!serve->options.session) {
        serve->service.depth_max = serve_share_files(serve->options.transfers_max);
    }
    serve->pumped_s = progress_now_s();
}

static int serve_root(struct serve *serve)
{
    prepare(serve);
    int code = serve_open_roots(serve);
    if (code < 0 && !serve_load_trust(serve)) {
        code = EXIT_SETUP;
    }
    code = code < 0 ? listen_as_asked(serve) : code;
    if (code >= 0) {
        return code;
    }
    serve_say_listening(serve, serve->shown);
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
    if (!listen_at(serve, 0, "0.0.0.0:0", &error)) {
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
    for (unsigned i = 0; i < SERVE_LISTENERS_MAX; i++) {
        weir_listener_close(serve->listeners[i]);
    }
    for (struct served *served = serve->transfers; served != NULL; served = served->next) {
        session_destroy(served->session); /* which ends what it has begun with others */
        served->session = NULL;
    }
    weir_poller_destroy(serve->poller);
    hop_dial_end(&serve->dial);
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
    for (unsigned i = 0; i < serve->service.root_count; i++) {
        close(serve->roots[i].root);
    }
    certificates_free(&serve->certificates);
    if (serve->service.root >= 0) {
        close(serve->service.root);
    }
}

static int serve_on_fabric(struct serve *serve)
{
    struct weir_error error;
    char address[LOCATION_ADDRESS_LENGTH]; /* by what the device is chosen, of several */
    if (!serve->options.session && location_parse_address(serve->options.listen[0], address)) {
        serve->options.fabric.toward = address;
    }
    if (fabric_open(&serve->options.fabric, &serve->fabric, &error) != WEIR_OK) {
        command_error(serve->command, "%s", error.message);
        return EXIT_SETUP;
    }
    int code = EXIT_SETUP;
    if (weir_poller_create(serve->fabric, &serve->poller, &error) != WEIR_OK) {
        command_error(serve->command, "%s", error.message);
    } else {
        code = serve->options.session ? serve_session(serve) : serve_root(serve);
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
    if (serve.options.listen_count == 0) {
        serve.options.listen[serve.options.listen_count++] = "127.0.0.1";
    }
    for (unsigned i = 0; i < serve.options.listen_count; i++) {
        if (!location_parse_address(serve.options.listen[i], address)) {
            return command_usage_error(command, "--listen takes ADDRESS[:PORT], not '%s'",
                                       serve.options.listen[i]);
        }
    }
    stop_prepare();
    if (!is_open(&serve)) {
        secret_keep_from_cores();
    }
    return serve_on_fabric(&serve);
}
