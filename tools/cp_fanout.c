#include "tools/cp_fanout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cp_private.h"
#include "tools/hop_dial.h"
#include "tools/input_file.h"
#include "tools/printable.h"
#include "tools/stop.h"
#include "tools/transfer/copy/fanout.h"
#include "tools/transfer/wire/channel_link.h"
#include "tools/trust/guard.h"

/* A peer that does not answer the handshake is given up. */
#define HANDSHAKE_TIMEOUT_S 10
/* After the far side's end its connection's own end, which says why, is waited for so long. */
#define FAR_END_PATIENCE_S 2
/* Far sides that are not there by then hold up all others, which do not wait for us longer than
 * SESSION_PATIENCE_S of serve.c, all from the same begin on. */
#define FAR_BEGIN_PATIENCE_S 100
/* What a target is called, beside another at the same host. */
#define TITLE_LENGTH 512

/* One target. */
struct destination {
    struct cp *cp;
    struct location where;
    char name[PEER_LENGTH];
    char title[TITLE_LENGTH]; /* the same, or all of it as it was given */
    struct far_side far;      /* of a shell's */
    bool far_started;
    bool refused; /* it does not let us in */
    bool out;     /* its far side could not be started, which has been said */
    enum exit_code far_code;
    unsigned tried;    /* of its addresses */
    struct link *link; /* NULL: there is none, or it was dropped */
    double began_s, ended_s;
    struct output output;
    struct report report;
};

struct copy {
    struct hop_dial dial; /* first: a dialer's user is the copy */
    struct cp *cp;
    struct destination *list;
    unsigned count;
    struct fanout *fanout;
    double looked_s, stopped_s;
    bool is_interrupted; /* before all was over */
};

int cp_targets_add(const struct command *command, struct cp_targets *targets, const char *text)
{
    struct location where;
    location_parse(text, &where);
    if (where.kind == LOCATION_LOCAL || where.kind == LOCATION_WRONG) {
        return command_usage_error(command, "--to '%s': %s", text,
                                   where.kind == LOCATION_WRONG
                                       ? where.why
                                       : "not [USER@]HOST:PATH or weir://HOST[:PORT]/PATH");
    }
    for (unsigned i = 0; i < targets->count; i++) {
        if (strcmp(targets->list[i], text) == 0) {
            return command_usage_error(command, "--to '%s' is given twice", text);
        }
    }
    if (targets->count == FANOUT_MEMBERS_MAX) {
        return command_usage_error(command, "more than %u targets", FANOUT_MEMBERS_MAX);
    }
    char **list = realloc(targets->list, (targets->count + 1) * sizeof(*list));
    if (list != NULL) {
        targets->list = list;
        list[targets->count] = strdup(text);
    }
    if (list == NULL || list[targets->count] == NULL) {
        command_error(command, "not enough memory");
        return EXIT_SETUP;
    }
    targets->count++;
    return -1;
}

int cp_targets_read(const struct command *command, struct cp_targets *targets, const char *path)
{
    char *line = NULL;
    size_t capacity = 0;
    unsigned before = targets->count;
    int code = -1;
    FILE *file = input_file_open(command, path, &code);
    if (file == NULL) {
        return code;
    }
    for (ssize_t length; code < 0 && (length = getline(&line, &capacity, file)) >= 0;) {
        while (length > 0 && strchr("\n\r\t ", line[length - 1]) != NULL) {
            line[--length] = 0;
        }
        const char *target = line + strspn(line, "\t ");
        if (strlen(line) < (size_t)length) { /* what is behind it would be lost without a word */
            code = command_usage_error(command, "--hosts %s: a line has a byte 0 in it", path);
        } else if (target[0] != 0 && target[0] != '#') {
            code = cp_targets_add(command, targets, target);
        }
    }
    if (code < 0 && ferror(file)) {
        command_error(command, "%s: %s", path, strerror(errno));
        code = EXIT_SETUP;
    } else if (code < 0 && targets->count == before) { /* else the last source would be one */
        code = command_usage_error(command, "--hosts %s: there is no target in it", path);
    }
    free(line);
    input_file_close(file);
    return code;
}

void cp_targets_free(struct cp_targets *targets)
{
    for (unsigned i = 0; i < targets->count; i++) {
        free(targets->list[i]);
    }
    free(targets->list);
    *targets = (struct cp_targets){0};
}

int cp_check_targets(const struct cp *cp, char **sources, unsigned count)
{
    const struct wishes *wishes = &cp->options.wishes;
    struct location where;
    for (unsigned i = 0; i < count; i++) {
        location_parse(sources[i], &where);
        if (where.kind != LOCATION_LOCAL || sources[i][0] == 0) {
            return command_usage_error(cp->command,
                                       "%s: with --to all else are sources, and these are local",
                                       sources[i][0] != 0 ? sources[i] : "''");
        }
    }
    if (count > TRANSFER_SOURCES_MAX) {
        return command_usage_error(cp->command,
                                   "more than %d sources; copy their directory with -r",
                                   TRANSFER_SOURCES_MAX);
    }
    if ((wishes->bits & (WISH_EXISTING | WISH_IGNORE_EXISTING | WISH_UPDATE)) != 0 &&
        (wishes->preserve & PRESERVE_HARD_LINKS) != 0) {
        return command_usage_error(cp->command,
                                   "-H with -u, --existing or --ignore-existing takes one target: "
                                   "which names are left would differ");
    }
    return EXIT_DONE;
}

static void on_problem(void *user, const struct problem *problem)
{
    const struct destination *destination = user;
    cp_clear_line(destination->cp);
    output_problem(&destination->output, problem);
}

static void on_item(void *user, const struct item *item)
{
    const struct destination *destination = user;
    cp_say_item(destination->cp, destination->name, item);
}

static void begin(struct copy *copy, unsigned number)
{
    struct cp *cp = copy->cp;
    struct destination *destination = &copy->list[number];
    location_parse(cp->options.targets.list[number], &destination->where);
    bool by_shell = destination->where.kind == LOCATION_SHELL;
    const char *address = destination->where.address;
    cp_name_peer(address, by_shell, destination->name);
    destination->cp = cp;
    destination->output = (struct output){
        .command = cp->command, .json = cp->options.json, .peer = destination->name};
    destination->report =
        (struct report){.problem = on_problem, .item = on_item, .user = destination};
    if (!by_shell) {
        cp_say_unproven(cp, destination->name, address);
    }
}

/* Two targets at one host are told apart. */
static void entitle(struct copy *copy, unsigned number)
{
    struct destination *destination = &copy->list[number];
    const char *given = copy->cp->options.targets.list[number];
    snprintf(destination->title, TITLE_LENGTH, "%s", destination->name);
    for (unsigned i = 0; i < copy->count; i++) {
        if (i != number && strcmp(copy->list[i].name, destination->name) == 0) {
            printable(given, strlen(given), destination->title, TITLE_LENGTH);
        }
    }
}

/* All that are behind a remote shell, at the same time; what goes wrong is said, and the others go
 * on. */
static void start_far_sides(struct copy *copy)
{
    const struct cp_options *given = &copy->cp->options;
    struct far_options options = {
        .rsh = given->rsh, .weir_path = given->weir_path, .fabric = given->fabric.kind};
    double end_s = progress_now_s() + FAR_BEGIN_PATIENCE_S;
    for (unsigned i = 0; i < copy->count && !stop_asked(); i++) {
        struct destination *destination = &copy->list[i];
        if (destination->where.kind == LOCATION_SHELL) {
            destination->far_code = far_side_begin(copy->cp->command, &options,
                                                   destination->where.address, &destination->far);
            destination->far_started = destination->far_code == EXIT_DONE;
            destination->out = !destination->far_started;
        }
    }
    for (unsigned i = 0; i < copy->count; i++) {
        struct destination *destination = &copy->list[i];
        if (destination->far_started && !stop_asked()) {
            double left_s = end_s - progress_now_s();
            options.patience_s = left_s > 0.001 ? left_s : 0.001; /* what has come is heard */
            destination->far_code = far_side_hear(copy->cp->command, &options, &destination->far);
            destination->far_started = destination->far_code == EXIT_DONE;
            destination->out = !destination->far_started;
        }
    }
}

/* Who proves what to it: a session's secret, or ours. */
static bool make_guard(const struct copy *copy, const struct destination *destination,
                       struct guard **ret_guard)
{
    const struct cp *cp = copy->cp;
    bool by_shell = destination->where.kind == LOCATION_SHELL;
    *ret_guard = NULL;
    if (by_shell) {
        *ret_guard = guard_create_client(GREETING_KEY_NAME, &destination->far.greeting.secret,
                                         cp->options.encrypt);
    } else if (cp_has_trust(cp)) {
        *ret_guard = cp_create_guard(cp, destination->where.address);
    }
    return *ret_guard != NULL || (!by_shell && !cp_has_trust(cp));
}

/* It is freed once it has closed. */
static void drop(void *user, struct link *link)
{
    struct copy *copy = user;
    const struct hop_dialer dialer = hop_dialer_of(&copy->dial);
    for (unsigned i = 0; i < copy->count; i++) {
        if (copy->list[i].link == link) {
            copy->list[i].link = NULL;
            copy->list[i].refused = channel_link_was_refused(link);
        }
    }
    dialer.drop(dialer.user, link);
}

/* By its next address. */
static struct link *connect_to(void *user, unsigned member, char ret_why[HOP_WHY_LENGTH])
{
    struct copy *copy = user;
    struct destination *destination = &copy->list[member];
    const struct greeting *greeting = &destination->far.greeting;
    bool by_shell = destination->where.kind == LOCATION_SHELL;
    unsigned count = destination->out ? 0 : by_shell ? greeting->address_count : 1;
    destination->link = NULL;
    if (destination->out) {
        snprintf(ret_why, HOP_WHY_LENGTH, "%.500s", destination->far.why);
    }
    while (destination->tried < count && destination->link == NULL) {
        const char *address =
            by_shell ? greeting->addresses[destination->tried].text : destination->where.address;
        struct guard *guard;
        destination->tried++;
        destination->began_s = progress_now_s();
        if (!make_guard(copy, destination, &guard)) {
            snprintf(ret_why, HOP_WHY_LENGTH, "not enough memory");
            return NULL;
        }
        destination->link = hop_dial_to(&copy->dial, address, guard, ret_why);
    }
    return destination->link;
}

static void add_address(struct hop_target *target, const char *address)
{
    for (unsigned i = 0; i < target->address_count; i++) {
        if (strcmp(target->addresses[i], address) == 0) {
            return;
        }
    }
    if (target->address_count < HOP_ADDRESSES_MAX && address[0] != 0 &&
        strlen(address) < HOP_ADDRESS_LENGTH) {
        strcpy(target->addresses[target->address_count++], address);
    }
}

/* First as this host came by it, for that is known to work from somewhere, and names are resolved
 * by it. */
static void add_addresses(struct destination *destination, struct hop_target *target, bool loopback)
{
    const struct greeting *greeting = &destination->far.greeting;
    struct weir_connection *connection =
        destination->link != NULL ? channel_link_connection(destination->link) : NULL;
    const char *peer = connection != NULL ? weir_peer_name(connection) : "";
    if (location_is_loopback(peer) == loopback) {
        add_address(target, peer);
    }
    if (destination->where.kind == LOCATION_SERVER &&
        location_is_numeric(destination->where.address) &&
        location_is_loopback(destination->where.address) == loopback) {
        add_address(target, destination->where.address);
    }
    for (unsigned i = 0; i < greeting->address_count && destination->far_started; i++) {
        if (location_is_loopback(greeting->addresses[i].text) == loopback) {
            add_address(target, greeting->addresses[i].text);
        }
    }
}

/* Loopback leads from another host to that host itself: it comes last. */
static void locate(void *user, unsigned member, struct hop_target *target)
{
    struct copy *copy = user;
    add_addresses(&copy->list[member], target, false);
    add_addresses(&copy->list[member], target, true);
    target->encrypt = copy->cp->options.encrypt;
}

static time_t clock_s(void *user)
{
    return (time_t)progress_now_s();
}

/* What ends a receiver besides itself: silence, and a far side that is gone. */
static void watch_one(struct destination *destination, double now_s)
{
    struct link *link = destination->link;
    if (link == NULL || channel_link_connection(link) == NULL) {
        return;
    }
    if (channel_link_is_outside(link) && now_s - destination->began_s > HANDSHAKE_TIMEOUT_S) {
        link->operations->abort(link, "no answer to the handshake for 10 s");
    }
    if (destination->far_started && shell_has_ended(&destination->far.shell)) {
        destination->ended_s = destination->ended_s > 0 ? destination->ended_s : now_s;
        if (now_s - destination->ended_s > FAR_END_PATIENCE_S) {
            link->operations->abort(link, "the far side has ended");
        }
    }
}

static void watch(struct copy *copy, const struct session *session)
{
    double now_s = progress_now_s();
    struct link *link = fanout_link(copy->fanout);
    if (stop_asked() && copy->stopped_s == 0 && !session_is_closed(session)) {
        copy->stopped_s = now_s;
        if (session_outcome(session) == SESSION_RUNNING) { /* else it ends in order */
            link->operations->abort(link, "the other side was interrupted");
        }
    }
    if (now_s - copy->looked_s < 0.1) {
        return;
    }
    copy->looked_s = now_s;
    for (unsigned i = 0; i < copy->count; i++) {
        watch_one(&copy->list[i], now_s);
    }
}

/* Runs the session to its end. */
static void drive(struct copy *copy, struct session *session)
{
    struct cp *cp = copy->cp;
    progress_start(&cp->progress);
    cp->drawn_s = cp->progress.started_s;
    while (!session_is_closed(session)) {
        fanout_pump(copy->fanout);
        bool more = session_pump(session);
        watch(copy, session);
        hop_dial_sweep(&copy->dial);
        if (copy->stopped_s > 0 && progress_now_s() - copy->stopped_s > 2) {
            break; /* a peer does not answer; the poller will close what is left */
        }
        cp_draw(cp, session);
        weir_poll(cp->poller, more || session_is_closed(session) ? 0 : 100);
    }
    cp->seconds += progress_now_s() - cp->progress.started_s;
}

static enum session_outcome outcome_of(const struct copy *copy, unsigned number)
{
    enum session_outcome outcome = fanout_outcome(copy->fanout, number);
    bool refused = outcome == SESSION_UNREACHED && copy->list[number].refused;
    return refused ? SESSION_REFUSED : outcome;
}

static void say_json(const struct copy *copy, unsigned number, const char *reason)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "event", "target", "peer", copy->list[number].name, "outcome",
                  output_outcome_name(outcome_of(copy, number)));
    if (reason[0] != 0) {
        json_object_set_new(object, "reason", json_string(reason));
    }
    output_json_text(object, "target", copy->cp->options.targets.list[number]);
    output_json_peer_device(object, fanout_device(copy->fanout, number));
    output_json_tally(object, fanout_tally(copy->fanout, number));
    output_json(object);
}

/* Those that failed in any case, and with -v what each has. */
static void say_one(const struct copy *copy, unsigned number)
{
    const struct cp *cp = copy->cp;
    const struct destination *destination = &copy->list[number];
    const struct tally *tally = fanout_tally(copy->fanout, number);
    bool complete = fanout_outcome(copy->fanout, number) == SESSION_COMPLETE;
    char reason[4 * HOP_WHY_LENGTH] = "";
    if (!complete) {
        const char *why = fanout_why(copy->fanout, number);
        printable(why, strlen(why), reason, sizeof(reason));
    }
    if (cp->options.json) {
        say_json(copy, number, reason);
    } else if (!complete && !destination->out && !copy->is_interrupted) {
        command_error(cp->command, "%s failed: %s: %s", destination->title,
                      output_outcome_name(outcome_of(copy, number)), reason);
    } else if (complete && (cp->options.verbose > 0 || tally->failed > 0) && !cp->options.quiet) {
        printf("%s %llu files copied, %llu unchanged, %llu deleted, %llu not copied\n",
               destination->title, (unsigned long long)tally->files,
               (unsigned long long)tally->same, (unsigned long long)tally->deleted,
               (unsigned long long)tally->failed);
    }
    if (complete && tally->held_back > 0) {
        command_error(cp->command, "%s not deleted because of --max-delete: %llu more",
                      destination->title, (unsigned long long)tally->held_back);
    }
}

/* As of one target, where all ended alike; 1 where some have all, and others have not. */
static enum exit_code sum_up(struct copy *copy, const struct session *session)
{
    struct cp *cp = copy->cp;
    enum exit_code code = EXIT_DONE;
    cp_clear_line(cp);
    copy->is_interrupted = stop_asked() && session_outcome(session) != SESSION_COMPLETE;
    for (unsigned i = 0; i < copy->count; i++) {
        enum session_outcome outcome = outcome_of(copy, i);
        enum exit_code one = copy->list[i].out
                                 ? copy->list[i].far_code
                                 : output_exit_code(outcome, fanout_tally(copy->fanout, i));
        say_one(copy, i);
        cp->targets_whole += outcome == SESSION_COMPLETE;
        code = code == EXIT_DONE ? one : code;
    }
    if (cp->targets_whole > 0 && code != EXIT_DONE) {
        code = EXIT_SOME_FAILED;
    }
    if (copy->is_interrupted) {
        strcpy(cp->reason, "interrupted");
        command_error(cp->command, "interrupted; the same command goes on with the files that were "
                                   "not whole");
        return EXIT_INTERRUPTED;
    }
    if (session_outcome(session) != SESSION_COMPLETE) {
        const char *text = session_reason(session);
        printable(text, strlen(text), cp->reason, sizeof(cp->reason));
    }
    return code;
}

static enum exit_code run(struct copy *copy, const struct session_request *request)
{
    struct cp *cp = copy->cp;
    struct fanout_member *members = calloc(copy->count, sizeof(*members));
    for (unsigned i = 0; i < copy->count && members != NULL; i++) {
        members[i] = (struct fanout_member){.name = copy->list[i].title,
                                            .path = copy->list[i].where.path,
                                            .report = &copy->list[i].report};
    }
    struct hop_dialer dialer = hop_dialer_of(&copy->dial);
    dialer.drop = drop;
    const struct fanout_options options = {.members = members,
                                           .count = copy->count,
                                           .connect = connect_to,
                                           .locate = locate,
                                           .clock_s = clock_s,
                                           .dialer = dialer};
    copy->fanout = members != NULL ? fanout_create(&options) : NULL;
    struct session *session =
        copy->fanout != NULL
            ? session_create_client(fanout_link(copy->fanout), request, &cp->report)
            : NULL;
    enum exit_code code = EXIT_SETUP;
    if (session == NULL) {
        command_error(cp->command, "not enough memory");
    } else {
        drive(copy, session);
        code = sum_up(copy, session);
        cp->total = *session_tally(session);
        cp->bytes_put = fanout_bytes_put(copy->fanout);
    }
    session_destroy(session);
    fanout_destroy(copy->fanout);
    free(members);
    return code;
}

enum exit_code cp_fanout(struct cp *cp, char **sources, unsigned count)
{
    struct session_request request = cp_request(cp, DIRECTION_PUSH);
    struct copy copy = {
        .dial = {.poller = cp->poller}, .cp = cp, .count = cp->options.targets.count};
    copy.list = calloc(copy.count, sizeof(*copy.list));
    if (copy.list == NULL) {
        command_error(cp->command, "not enough memory");
        return EXIT_SETUP;
    }
    request.target_path = "/";
    request.sources = (const char *const *)sources;
    request.source_count = count;
    secret_keep_from_cores();
    for (unsigned i = 0; i < copy.count; i++) {
        begin(&copy, i);
    }
    for (unsigned i = 0; i < copy.count; i++) {
        entitle(&copy, i);
    }
    start_far_sides(&copy);
    enum exit_code code = run(&copy, &request);
    for (unsigned i = 0; i < copy.count; i++) {
        if (copy.list[i].far_started) {
            far_side_end(cp->command, &copy.list[i].far, code != EXIT_DONE);
        }
    }
    weir_poller_destroy(cp->poller); /* and with it what has not closed yet */
    cp->poller = NULL;
    hop_dial_end(&copy.dial);
    free(copy.list);
    return code;
}
