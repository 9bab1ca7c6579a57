/* One transfer of weir cp: finding a way to the other side, and driving the session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/cp_private.h"
#include "tools/printable.h"
#include "tools/stop.h"
#include "tools/transfer/wire/channel_link.h"
#include "tools/trust/guard.h"

/* Of several addresses, and of several tries, each gets so long. */
#define TRY_TIMEOUT_S 3
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

const char *cp_whose(const struct cp *cp)
{
    static char text[sizeof(cp->peer) + 2];
    size_t length = strlen(cp->peer);
    bool of_shell = length > 0 && cp->peer[length - 1] == ':';
    if (!of_shell && cp->address[0] != 0 && strstr(cp->reason, cp->address) != NULL) {
        return "";
    }
    snprintf(text, sizeof(text), of_shell ? "%s " : "%s: ", cp->peer);
    return text;
}

void cp_draw(struct cp *cp, const struct session *session)
{
    double now = progress_now_s();
    if (now - cp->drawn_s < (cp->tty ? 0.2 : 1.0)) {
        return;
    }
    cp->drawn_s = now;
    const struct tally *tally = cp_again_progress(cp, session_tally(session));
    progress_update(&cp->progress, tally);
    if (cp->options.json) {
        json_t *object =
            json_pack("{s:s, s:f, s:f}", "event", "progress", "seconds",
                      now - cp->progress.started_s, "bytes_per_second", cp->progress.rate);
        output_json_tally(object, tally);
        output_json(object);
    } else if (cp->tty || (cp->options.progress && !cp->options.quiet)) {
        char line[LOCATION_ADDRESS_LENGTH + 64];
        size_t width = cp->tty ? (size_t)line_width() : sizeof(line);
        if (!session_is_running(session) && cp->address[0] != 0) {
            snprintf(line, sizeof(line), "connecting to %s", cp->address);
        } else {
            progress_line(&cp->progress, tally, weir_fabric_device(cp->fabric), width, line,
                          sizeof(line));
        }
        fprintf(stderr, cp->tty ? "\r%.*s\033[K" : "%.*s\n", (int)width, line);
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
    sum->untouched_symlinks += one->untouched_symlinks;
    sum->specials += one->specials;
    sum->untouched_specials += one->untouched_specials;
    sum->spared += one->spared;
    sum->deleted += one->deleted;
    sum->held_back += one->held_back;
    sum->undeleted |= one->undeleted;
    sum->failed += one->failed;
    sum->warnings += one->warnings;
    sum->retransmissions += one->retransmissions;
    sum->retransmissions_known |= one->retransmissions_known;
}

/* The choice that was made, for whoever looks on. */
static void say_connected(const struct cp *cp, const struct session *session)
{
    const struct greeting *there = cp->far != NULL ? &cp->far->greeting : NULL;
    bool is_soft = weir_fabric_kind(cp->fabric) == WEIR_FABRIC_SOFT;
    struct weir_fabric_carried carried;
    weir_fabric_carried(cp->fabric, &carried);
    bool in_memory = carried.memory > cp->carried.memory; /* the greeting */
    const char *carrier = !is_soft ? "RDMA" : in_memory ? "this host's memory" : "UDP";
    char device[256] = "";
    if (there != NULL) {
        printable(there->device, strlen(there->device), device, sizeof(device));
    }
    if (cp->options.json) {
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s}", "event", "connected", "peer",
                                   cp->peer, "address", cp->address, "device",
                                   weir_fabric_device(cp->fabric), "carrier", carrier);
        output_json_peer_device(object, session_peer_device(session));
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
        if (is_soft && cp->options.verbose > 0) {
            fprintf(stderr, "weir cp: %s is in software: %s\n", weir_fabric_device(cp->fabric),
                    fabric_reason(cp->fabric));
        }
    }
}

void cp_say_unproven(const struct cp *cp, const char *peer, const char *address)
{
    static const char text[] = "nobody has proven who answers there, and nothing on the way is "
                               "sealed; with --key (see weir key) or --ca both are";
    if (cp->far != NULL || cp_has_trust(cp) || location_is_loopback(address)) {
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
    double began_s, looked_s, opened_s, stopped_s, ended_s; /* the latter: 0, or since when */
    double handshake_s;                                     /* it may take so long, */
    double welcome_s; /* and so long what comes then, once it has all that it is told */
    uint64_t activity;
    bool is_said; /* that it is connected */
};

/* A server whose disk does not answer, say, is there, and says nothing. */
static void watch_answer(struct watch *watch, const struct session *session, struct link *link,
                         double now_s)
{
    char reason[64];
    if (channel_link_is_outside(link) && now_s - watch->began_s > watch->handshake_s) {
        link->operations->abort(link, "no answer to the handshake");
    }
    if (session_is_running(session) || !channel_link_is_open(link)) {
        return;
    }
    bool takes_on = session_activity(session) != watch->activity;
    watch->activity = session_activity(session);
    watch->opened_s = watch->opened_s > 0 && !takes_on ? watch->opened_s : now_s;
    if (now_s - watch->opened_s > watch->welcome_s) {
        snprintf(reason, sizeof(reason), "it is there, but has not begun within %.0f s",
                 watch->welcome_s);
        link->operations->abort(link, reason);
    }
}

static void watch(struct cp *cp, struct watch *watch, struct session *session, struct link *link)
{
    double now_s = progress_now_s();
    if (stop_asked() && watch->stopped_s == 0) {
        watch->stopped_s = now_s;
        if (session_outcome(session) == SESSION_RUNNING) { /* else it ends in order */
            link->operations->abort(link, "the other side was interrupted");
        }
    }
    if (!watch->is_said && session_is_running(session)) {
        watch->is_said = true;
        if (session_outcome(session) == SESSION_RUNNING && !cp_again_is_back(cp)) {
            say_connected(cp, session);
            cp_say_unproven(cp, cp->peer, cp->address);
        }
    }
    if (now_s - watch->looked_s < 0.1) {
        return;
    }
    watch->looked_s = now_s;
    watch_answer(watch, session, link, now_s);
    if (cp->far != NULL && shell_has_ended(&cp->far->shell)) {
        watch->ended_s = watch->ended_s > 0 ? watch->ended_s : now_s;
        if (now_s - watch->ended_s > FAR_END_PATIENCE_S) {
            session_abort(session, "the far side has ended");
        }
    }
}

/* For so long a server may take to begin: its disks may have to wake up. */
static double welcome_patience_s(const struct cp *cp)
{
    unsigned timeout_s = cp->options.timeout_s;
    return cp_again_left_s(cp, timeout_s > 0 ? timeout_s : HANDSHAKE_TIMEOUT_S);
}

/* Runs the session to its end. */
static void drive(struct cp *cp, struct session *session, struct link *link)
{
    if (cp->again.lost_s == 0) {
        progress_start(&cp->progress);
        cp->drawn_s = cp->again.counted_s = cp->progress.started_s;
    }
    struct watch state = {.began_s = progress_now_s(),
                          .handshake_s = 1 + cp_again_left_s(cp, HANDSHAKE_TIMEOUT_S - 1),
                          .welcome_s = welcome_patience_s(cp)};
    while (!session_is_closed(session)) {
        bool more = session_pump(session);
        watch(cp, &state, session, link);
        if (state.stopped_s > 0 && progress_now_s() - state.stopped_s > 2) {
            return; /* the peer does not answer; the poller will close what is left */
        }
        cp_draw(cp, session);
        weir_poll(cp->poller, more ? 0 : 100);
    }
    double now_s = progress_now_s();
    cp->seconds += now_s - cp->again.counted_s;
    cp->again.counted_s = now_s;
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
    cp_clear_line(cp);
    snprintf(cp->peer_device, sizeof(cp->peer_device), "%s", session_peer_device(session));
    if (stop_asked() && outcome != SESSION_COMPLETE) {
        cp->again.is_wanted = false;
        return cp_again_interrupted(cp);
    }
    if (outcome != SESSION_COMPLETE) {
        const char *text = session_reason(session);
        printable(text, strlen(text), cp->reason, sizeof(cp->reason));
    }
    if (cp_again_take(cp, session, link)) {
        return EXIT_LOST;
    }
    if (outcome == SESSION_UNREACHED && cp->far != NULL) {
        note_try(cp, cp->reason);
    } else if (outcome != SESSION_COMPLETE) {
        command_error(cp->command, "%s%s", cp_whose(cp), cp->reason);
    }
    bool refused = outcome == SESSION_UNREACHED && channel_link_was_refused(link);
    return refused ? EXIT_REFUSED : output_exit_code(outcome, session_tally(session));
}

/* There is not even a connection that could fail. */
static enum exit_code no_connection(struct cp *cp, const char *why)
{
    printable(why, strlen(why), cp->reason, sizeof(cp->reason));
    if (cp_again_take(cp, NULL, NULL)) {
        return EXIT_UNREACHED;
    }
    if (cp->far != NULL) {
        note_try(cp, cp->reason);
    } else {
        command_error(cp->command, "%s", cp->reason);
    }
    return EXIT_UNREACHED;
}

/* One transfer over one address. `guard` is taken over. */
static enum exit_code transfer_at(struct cp *cp, const char *address, struct guard *guard,
                                  const struct session_request *request)
{
    struct weir_error error;
    struct weir_connection *connection;
    struct weir_channel_options channel = channel_link_options;
    double patience_s = 1 + cp_again_left_s(cp, TRY_TIMEOUT_S - 1);
    bool in_turn = cp->far != NULL || cp->again.lost_s > 0;
    channel.connect_timeout_ms = in_turn ? (unsigned)(patience_s * 1000) : 0;
    snprintf(cp->address, sizeof(cp->address), "%s", address);
    weir_fabric_carried(cp->fabric, &cp->carried);
    struct link *link = channel_link_create(guard, NULL);
    struct session *session =
        link != NULL ? session_create_client(link, request, &cp->report) : NULL;
    if (session == NULL) {
        channel_link_destroy(link);
        command_error(cp->command, "not enough memory");
        return EXIT_SETUP;
    }
    enum exit_code code;
    if (weir_connect(cp->poller, address, &channel, &channel_link_handler, link, &connection,
                     &error) != WEIR_OK) {
        code = no_connection(cp, error.message);
    } else {
        channel_link_attach(link, connection);
        drive(cp, session, link);
        code = end_of(cp, session, link);
        cp->last = *session_tally(session);
        if (!session_is_closed(session)) { /* interrupted, and nothing to wait for any more */
            session_yield(session, "the other side was interrupted");
            fflush(stdout);
            _exit(code);
        }
    }
    bool elsewhere = cp->far != NULL && session_outcome(session) == SESSION_UNREACHED;
    session_destroy(session);
    channel_link_destroy(link);
    return elsewhere && !stop_asked() ? EXIT_UNREACHED : code;
}

/* The one that works is the first to be tried when it has to be found again. */
static void prefer(struct greeting *greeting, unsigned index)
{
    const struct greeting_address address = greeting->addresses[index];
    memmove(greeting->addresses + 1, greeting->addresses, index * sizeof(address));
    greeting->addresses[0] = address;
}

/* The far side's addresses in turn, until one works. */
static enum exit_code transfer_to_far(struct cp *cp, const struct session_request *request)
{
    struct greeting *greeting = &cp->far->greeting;
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
        if (code != EXIT_UNREACHED) {
            prefer(greeting, i);
        }
    }
    if (code == EXIT_UNREACHED && !cp->again.is_wanted) {
        snprintf(cp->reason, sizeof(cp->reason), "none of its addresses can be reached");
        command_error(cp->command,
                      "%s weir runs there, but none of its addresses can be reached:%s\n"
                      "RDMA goes over UDP port 4791, which must be open between the two hosts in "
                      "both directions.",
                      cp->peer, cp->tried[0] != 0 ? cp->tried : " it has none");
    }
    return code;
}

static struct far_options far_options_of(const struct cp *cp)
{
    return (struct far_options){.rsh = cp->options.rsh,
                                .weir_path = cp->options.weir_path,
                                .fabric = cp->options.fabric.kind};
}

void cp_begin_far_side(struct cp *cp, const char *name)
{
    struct early_far_side *early = &cp->early;
    const struct far_options options = far_options_of(cp);
    location_parse(name, &early->where);
    if (early->where.kind == LOCATION_SHELL) {
        early->is_begun = true;
        early->code = far_side_begin(cp->command, &options, early->where.address, &early->far);
    }
}

/* It may still ask for a password, for which there is no use any more. */
void cp_end_early_far_side(struct cp *cp)
{
    if (cp->early.is_begun && cp->early.code == EXIT_DONE) {
        shell_end(&cp->early.far.shell, 0);
    }
    cp->early.is_begun = false;
}

/* The one that was begun early, or another. */
static enum exit_code start_far_side(struct cp *cp, const struct far_options *options,
                                     const char *host, struct far_side *ret_far)
{
    struct early_far_side *early = &cp->early;
    if (!early->is_begun || strcmp(early->where.address, host) != 0) {
        return far_side_start(cp->command, options, host, ret_far);
    }
    early->is_begun = false;
    *ret_far = early->far;
    return early->code == EXIT_DONE ? far_side_hear(cp->command, options, ret_far) : early->code;
}

/* Starts the far side, anew where it or its shell has ended. */
static enum exit_code transfer_by_shell(struct cp *cp, const char *host, struct far_side *far,
                                        const struct session_request *request)
{
    const double forever = 1e9;
    double patience_s = cp_again_left_s(cp, forever);
    struct far_options options = far_options_of(cp);
    options.again = patience_s < forever;
    options.patience_s = options.again ? patience_s : 0;
    if (cp->far != NULL && (shell_has_ended(&far->shell) || cp_again_despairs(cp))) {
        far_side_end(cp->command, far, true);
        cp->far = NULL;
    }
    if (cp->far == NULL) {
        enum exit_code code = start_far_side(cp, &options, host, far);
        if (code != EXIT_DONE) {
            bool is_first = !options.again || code == EXIT_INTERRUPTED;
            snprintf(cp->reason, sizeof(cp->reason), "%s%s",
                     is_first ? "" : "the far side could not be started again: ", far->why);
            cp->again.is_wanted = code == EXIT_UNREACHED && options.again;
            return code;
        }
        cp->far = far;
        cp->again.is_anew = true;
    }
    return transfer_to_far(cp, request);
}

static enum exit_code transfer_to_server(struct cp *cp, const char *address,
                                         const struct session_request *request)
{
    struct guard *guard = NULL;
    if (cp_has_trust(cp)) {
        guard = cp_create_guard(cp, address);
        if (guard == NULL) {
            command_error(cp->command, "not enough memory");
            return EXIT_SETUP;
        }
    }
    return transfer_at(cp, address, guard, request);
}

void cp_name_peer(const char *address, bool by_shell, char ret_name[PEER_LENGTH])
{
    char shown[LOCATION_ADDRESS_LENGTH];
    printable(address, strlen(address), shown, sizeof(shown));
    snprintf(ret_name, PEER_LENGTH, by_shell ? "%s:" : "weir://%s", shown);
}

enum exit_code cp_transfer(struct cp *cp, const struct location *where,
                           const struct session_request *request)
{
    struct far_side far;
    enum exit_code code;
    bool by_shell = where->kind == LOCATION_SHELL;
    cp_name_peer(where->address, by_shell, cp->peer);
    if (by_shell || cp_has_trust(cp)) {
        secret_keep_from_cores();
    }
    if (!cp_again_begin(cp, request)) {
        return EXIT_SETUP;
    }
    do {
        const struct session_request next = cp_again_request(cp, request);
        cp->last = (struct tally){0};
        code = by_shell ? transfer_by_shell(cp, where->address, &far, &next)
                        : transfer_to_server(cp, where->address, &next);
    } while (cp_again_wait(cp, &code));
    cp_again_end(cp);
    bool through = code == EXIT_DONE || code == EXIT_SOME_FAILED;
    const struct tally total = cp_again_total(cp, &cp->last);
    add_tally(&cp->total, through ? &total : cp_again_progress(cp, &cp->last));
    if (cp->far != NULL) {
        cp->far = NULL;
        far_side_end(cp->command, &far, !through);
    }
    return code;
}
