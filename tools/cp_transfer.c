/* One transfer of weir cp: finding a way to the other side, and driving the session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/cp_private.h"
#include "tools/printable.h"
#include "tools/stop.h"
#include "tools/transfer/channel_link.h"
#include "tools/trust/guard.h"

/* Of several addresses each gets so long. */
#define TRY_TIMEOUT_MS 3000
/* A peer that does not answer the handshake is given up. */
#define HANDSHAKE_TIMEOUT_S 10
/* After the far side's end its connection's own end, which says why, is waited for so long. */
#define FAR_END_PATIENCE_S 2

void cp_clear_line(const struct cp *cp)
{
    if (cp->tty) {
        fputs("\r\033[K", stderr);
    }
}

/* What fits on a line of the terminal: a longer one would scroll it with each update. */
static int line_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

void cp_draw(struct cp *cp, const struct session *session)
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
    sum->held_back += one->held_back;
    sum->undeleted |= one->undeleted;
    sum->failed += one->failed;
    sum->warnings += one->warnings;
}

/* The choice that was made, for whoever looks on. */
static void say_connected(const struct cp *cp)
{
    const struct greeting *there = cp->far != NULL ? &cp->far->greeting : NULL;
    bool is_soft = weir_fabric_kind(cp->fabric) == WEIR_FABRIC_SOFT;
    const char *same_host = weir_fabric_same_host(cp->fabric);
    bool in_memory = there != NULL && cp->far->is_here && same_host != NULL &&
                     strncmp(same_host, "memory", strlen("memory")) == 0;
    const char *carrier = !is_soft ? "RDMA" : in_memory ? "this host's memory" : "UDP";
    char device[256] = "";
    if (there != NULL) {
        printable(there->device, strlen(there->device), device, sizeof(device));
    }
    if (cp->options.json) {
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s}", "event", "connected", "peer",
                                   cp->peer, "address", cp->address, "device",
                                   weir_fabric_device(cp->fabric), "carrier", carrier);
        if (there != NULL) {
            json_object_set_new(object, "peer_device", json_string(device));
        }
        output_json(object);
    } else if (!cp->options.quiet && (there != NULL || cp->options.verbose > 0)) {
        cp_clear_line(cp);
        fprintf(stderr, "weir cp: %s over %s%s, %s, at %s", cp->peer,
                weir_fabric_device(cp->fabric), is_soft ? " (software)" : "", carrier, cp->address);
        fprintf(stderr,
                there != NULL && strcmp(device, weir_fabric_device(cp->fabric)) != 0
                    ? ", where it is %s\n"
                    : "\n",
                device);
    }
}

void cp_say_unproven(const struct cp *cp, const char *peer, const char *address)
{
    static const char text[] = "nobody has proven who answers there, and nothing on the way is "
                               "sealed; with --key both are (see weir key)";
    if (cp->far != NULL || cp->keys.count > 0 || location_is_loopback(address)) {
        return;
    }
    if (cp->options.json) {
        output_json(json_pack("{s:s, s:s, s:s, s:s}", "event", "warning", "peer", peer, "code",
                              "unproven", "message", text));
    } else if (!cp->options.quiet) {
        cp_clear_line(cp);
        command_error(cp->command, "warning: %s: %s", peer, text);
    }
}

/* What ends a session besides its peer: the user, and a far side that is gone or silent. */
struct watch {
    double began_s, looked_s, stopped_s, ended_s; /* the latter: 0, or since when */
    bool is_said;                                 /* that it is connected */
};

static void watch(struct cp *cp, struct watch *watch, struct session *session, struct link *link)
{
    double now_s = progress_now_s();
    if (stop_asked() && watch->stopped_s == 0) {
        watch->stopped_s = now_s;
        link->operations->abort(link, "the other side was interrupted");
    }
    if (!watch->is_said && session_is_running(session)) {
        watch->is_said = true;
        if (session_outcome(session) == SESSION_RUNNING) {
            say_connected(cp);
            cp_say_unproven(cp, cp->peer, cp->address);
        }
    }
    if (now_s - watch->looked_s < 0.1) {
        return;
    }
    watch->looked_s = now_s;
    if (channel_link_is_outside(link) && now_s - watch->began_s > HANDSHAKE_TIMEOUT_S) {
        link->operations->abort(link, "no answer to the handshake for 10 s");
    }
    if (cp->far != NULL && shell_has_ended(&cp->far->shell)) {
        watch->ended_s = watch->ended_s > 0 ? watch->ended_s : now_s;
        if (now_s - watch->ended_s > FAR_END_PATIENCE_S) {
            session_abort(session, "the far side has ended");
        }
    }
}

/* Runs the session to its end. */
static void drive(struct cp *cp, struct session *session, struct link *link)
{
    progress_start(&cp->progress);
    cp->drawn_s = cp->progress.started_s;
    struct watch state = {.began_s = cp->drawn_s};
    while (!session_is_closed(session)) {
        bool more = session_pump(session);
        watch(cp, &state, session, link);
        if (state.stopped_s > 0 && progress_now_s() - state.stopped_s > 2) {
            return; /* the peer does not answer; the poller will close what is left */
        }
        cp_draw(cp, session);
        weir_poll(cp->poller, more ? 0 : 100);
    }
    cp->seconds += progress_now_s() - cp->progress.started_s;
}

/* An address that leads nowhere, of those that a far side has named: another may do. */
static void note_try(struct cp *cp, const char *reason)
{
    size_t used = strlen(cp->tried);
    bool named = strncmp(reason, cp->address, strlen(cp->address)) == 0;
    snprintf(cp->tried + used, sizeof(cp->tried) - used, "\n  %s%s%s", named ? "" : cp->address,
             named ? "" : ": ", reason);
}

static enum exit_code end_of(struct cp *cp, const struct session *session, const struct link *link)
{
    enum session_outcome outcome = session_outcome(session);
    const char *device = session_peer_device(session);
    cp_clear_line(cp);
    printable(device, strlen(device), cp->peer_device, sizeof(cp->peer_device));
    if (stop_asked()) {
        strcpy(cp->reason, "interrupted");
        command_error(cp->command, "interrupted; the same command with --resume goes on");
        return EXIT_INTERRUPTED;
    }
    if (outcome != SESSION_COMPLETE) {
        const char *text = session_reason(session);
        printable(text, strlen(text), cp->reason, sizeof(cp->reason));
    }
    if (outcome == SESSION_UNREACHED && cp->far != NULL) {
        note_try(cp, cp->reason);
    } else if (outcome != SESSION_COMPLETE) {
        bool named = strstr(cp->reason, cp->address) != NULL;
        const char *colon = cp->far != NULL ? " " : ": "; /* its name ends with one */
        command_error(cp->command, "%s%s%s", named ? "" : cp->peer, named ? "" : colon, cp->reason);
    }
    bool refused = outcome == SESSION_UNREACHED && channel_link_was_refused(link);
    return refused ? EXIT_REFUSED : output_exit_code(outcome, session_tally(session));
}

/* One transfer over one address. `guard` is taken over. */
static enum exit_code transfer_at(struct cp *cp, const char *address, struct guard *guard,
                                  const struct session_request *request)
{
    struct weir_error error;
    struct weir_connection *connection;
    struct weir_channel_options channel = channel_link_options;
    channel.connect_timeout_ms = cp->far != NULL ? TRY_TIMEOUT_MS : 0;
    snprintf(cp->address, sizeof(cp->address), "%s", address);
    struct link *link = channel_link_create(guard, NULL);
    struct session *session =
        link != NULL ? session_create_client(link, request, &cp->report) : NULL;
    if (session == NULL) {
        channel_link_destroy(link);
        command_error(cp->command, "not enough memory");
        return EXIT_SETUP;
    }
    enum exit_code code = EXIT_UNREACHED;
    if (weir_connect(cp->poller, address, &channel, &channel_link_handler, link, &connection,
                     &error) != WEIR_OK) {
        if (cp->far != NULL) {
            note_try(cp, error.message);
        } else {
            command_error(cp->command, "%s", error.message);
        }
    } else {
        channel_link_attach(link, connection);
        drive(cp, session, link);
        code = end_of(cp, session, link);
        add_tally(&cp->total, session_tally(session));
        if (!session_is_closed(session)) { /* interrupted, and nothing to wait for any more */
            _exit(code);
        }
    }
    bool elsewhere = cp->far != NULL && session_outcome(session) == SESSION_UNREACHED;
    session_destroy(session);
    channel_link_destroy(link);
    return elsewhere && !stop_asked() ? EXIT_UNREACHED : code;
}

/* The far side's addresses in turn, until one works. */
static enum exit_code transfer_to_far(struct cp *cp, const struct session_request *request)
{
    const struct greeting *greeting = &cp->far->greeting;
    enum exit_code code = EXIT_UNREACHED;
    cp->tried[0] = 0;
    for (unsigned i = 0; i < greeting->address_count && code == EXIT_UNREACHED; i++) {
        struct guard *guard =
            guard_create_client(GREETING_KEY_NAME, &greeting->secret, cp->options.encrypt);
        if (guard == NULL) {
            command_error(cp->command, "not enough memory");
            return EXIT_SETUP;
        }
        code = transfer_at(cp, greeting->addresses[i].text, guard, request);
    }
    if (code == EXIT_UNREACHED) {
        snprintf(cp->reason, sizeof(cp->reason), "none of its addresses can be reached");
        command_error(cp->command,
                      "%s weir runs there, but none of its addresses can be reached:%s\n"
                      "RDMA goes over UDP port 4791, which must be open between the two hosts in "
                      "both directions.",
                      cp->peer, cp->tried[0] != 0 ? cp->tried : " it has none");
    }
    return code;
}

static enum exit_code transfer_by_shell(struct cp *cp, const char *host,
                                        const struct session_request *request)
{
    const struct far_options options = {.rsh = cp->options.rsh,
                                        .weir_path = cp->options.weir_path,
                                        .fabric = cp->options.fabric.kind};
    struct far_side far;
    snprintf(cp->peer, sizeof(cp->peer), "%s:", host);
    enum exit_code code = far_side_start(cp->command, &options, host, &far);
    if (code != EXIT_DONE) {
        return code;
    }
    cp->far = &far;
    code = transfer_to_far(cp, request);
    cp->far = NULL;
    far_side_end(cp->command, &far, code != EXIT_DONE && code != EXIT_SOME_FAILED);
    return code;
}

enum exit_code cp_transfer(struct cp *cp, const struct location *where,
                           const struct session_request *request)
{
    struct guard *guard = NULL;
    if (where->kind == LOCATION_SHELL || cp->keys.count > 0) {
        secret_keep_from_cores();
    }
    if (where->kind == LOCATION_SHELL) {
        return transfer_by_shell(cp, where->address, request);
    }
    snprintf(cp->peer, sizeof(cp->peer), "weir://%s", where->address);
    if (cp->keys.count > 0) {
        const struct key *key = &cp->keys.list[0];
        guard = guard_create_client(key->name, &key->secret, cp->options.encrypt);
        if (guard == NULL) {
            command_error(cp->command, "not enough memory");
            return EXIT_SETUP;
        }
    }
    return transfer_at(cp, where->address, guard, request);
}
