#include "tools/transfer/session_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/filter.h"
#include "tools/transfer/receiver.h"
#include "tools/transfer/relay.h"
#include "tools/transfer/sender.h"
#include "tools/transfer/walk.h"

static const struct link_events events;

static struct session *create(struct link *link, const struct report *report)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session != NULL) {
        session->link = link;
        session->report = report;
        session->target.directory = -1;
        link->events = &events;
        link->user = session;
    }
    return session;
}

static void set_outcome(struct session *session, enum session_outcome outcome, const char *reason)
{
    if (session->outcome == SESSION_RUNNING) {
        session->outcome = outcome;
        snprintf(session->reason, sizeof(session->reason), "%s", reason);
    }
}

static void send_message(struct session *session, const struct message *message)
{
    const struct weir_piece piece = {session->head, protocol_pack(message, session->head)};
    session->link->operations->send(session->link, &piece, 1);
}

/* Ends in order; what was sent is delivered. */
static void finish(struct session *session)
{
    session->state = SESSION_ENDING;
    session->link->operations->close(session->link);
}

/* Ends at once, and tells the peer why. */
static void give_up(struct session *session, const char *reason)
{
    set_outcome(session, SESSION_BROKEN, reason);
    session->state = SESSION_ENDING;
    session->link->operations->abort(session->link, session->reason);
}

static void peer_broke(struct session *session, const char *how)
{
    char reason[TEXT_LENGTH_MAX];
    snprintf(reason, sizeof(reason), "the peer broke the protocol: %s", how);
    give_up(session, reason);
}

static bool add_name(struct session *session, const char *name, size_t length)
{
    char *copy = strndup(name, length);
    if (copy == NULL) {
        return false;
    }
    session->names[session->name_count++] = copy;
    return true;
}

struct session *session_create_client(struct link *link, const struct session_request *request,
                                      const struct report *report)
{
    struct session *session = create(link, report);
    if (session == NULL) {
        return NULL;
    }
    session->request = *request;
    if (request->direction == DIRECTION_PULL) {
        session->names = calloc(request->source_count, sizeof(*session->names));
        bool named = session->names != NULL;
        for (unsigned i = 0; i < request->source_count && named; i++) {
            char name[256] = "";
            walk_base_name(request->sources[i], name); /* too long: the server will say so */
            named = add_name(session, name, strlen(name));
        }
        if (!named) {
            session_destroy(session);
            return NULL;
        }
    }
    return session;
}

struct session *session_create_server(struct link *link, const struct session_service *service,
                                      const struct report *report)
{
    struct session *session = create(link, report);
    if (session != NULL) {
        session->is_server = true;
        session->service = *service;
    }
    return session;
}

static void end_roles(struct session *session)
{
    if (session->receiver != NULL && receiver_is_in_file(session->receiver)) {
        session->rest = receiver_keeps_file(session->receiver) ? REST_KEPT : REST_LOST;
    }
    sender_destroy(session->sender);
    receiver_destroy(session->receiver);
    session->sender = NULL;
    session->receiver = NULL;
}

void session_destroy(struct session *session)
{
    if (session == NULL) {
        return;
    }
    end_roles(session);
    relay_destroy(session->relay);
    if (session->fed != NULL) {
        relay_closed(session->fed, "the server was stopped");
    }
    target_close(&session->target);
    for (unsigned i = 0; i < session->name_count; i++) {
        free(session->names[i]);
    }
    free(session->names);
    if (session->is_server) {
        free((char *)session->request.target_path);
    }
    filter_destroy(session->filter);
    free(session);
}

static void on_opened(void *user)
{
    struct session *session = user;
    session->opened = true;
    if (session->is_server) {
        return;
    }
    const struct session_request *request = &session->request;
    struct message message = {.type = MESSAGE_HELLO};
    message.hello.version = PROTOCOL_VERSION;
    message.hello.direction = request->direction;
    message.hello.wishes = request->wishes;
    message.hello.sources = (uint16_t)request->source_count;
    if (request->direction == DIRECTION_PUSH) {
        message.hello.path = (struct span){request->target_path, strlen(request->target_path)};
    }
    bool pull = request->direction == DIRECTION_PULL;
    unsigned rules = pull && request->filter != NULL ? filter_count(request->filter) : 0;
    message.hello.rules = (uint16_t)rules;
    send_message(session, &message);
    for (unsigned i = 0; i < rules; i++) {
        struct message rule = {.type = MESSAGE_RULE};
        rule.rule.pattern = filter_rule(request->filter, i, &rule.rule.bits);
        send_message(session, &rule);
    }
    for (unsigned i = 0; i < request->source_count && pull; i++) {
        struct message source = {.type = MESSAGE_SOURCE};
        source.source.path = (struct span){request->sources[i], strlen(request->sources[i])};
        send_message(session, &source);
    }
}

static bool start_sender(struct session *session, const struct walk_options *walk,
                         const char *const *sources)
{
    const struct sender_options options = {
        .link = session->link,
        .walk = *walk,
        .sources = sources,
        .source_count = session->request.source_count,
        .wishes = &session->request.wishes,
        .super = geteuid() == 0,
        .owners = session->request.owners,
        .report = session->report,
        .tally = &session->tally,
    };
    session->sender = sender_create(&options);
    return session->sender != NULL;
}

/* What a walk hands out besides files, directories and symbolic links. */
static struct walk_options walk_of(const struct session *session)
{
    const struct session_request *request = &session->request;
    return (struct walk_options){
        .root = session->is_server ? session->service.root : AT_FDCWD,
        .confined = session->is_server && !session->service.free_paths,
        .recursive = (request->wishes.bits & WISH_RECURSIVE) != 0,
        .devices = (request->wishes.preserve & PRESERVE_DEVICES) != 0,
        .specials = (request->wishes.preserve & PRESERVE_SPECIALS) != 0,
        .filter = request->filter,
    };
}

static bool start_receiver(struct session *session, struct target *target, const char *const *names,
                           struct weir_error *ret_error)
{
    const struct receiver_options options = {
        .link = session->link,
        .target = target,
        .source_count = session->request.source_count,
        .names = names,
        .wishes = &session->request.wishes,
        .rules = session->request.filter != NULL || session->is_server,
        .super = geteuid() == 0 && (!session->is_server || session->service.super),
        .owners = session->request.owners,
        .report = session->report,
        .tally = &session->tally,
    };
    snprintf(ret_error->message, sizeof(ret_error->message), "not enough memory");
    session->receiver = receiver_create(&options);
    return session->receiver != NULL && receiver_start(session->receiver, ret_error);
}

static void refuse(struct session *session, enum problem_code code, const char *text)
{
    const struct message message = {.type = MESSAGE_REFUSED,
                                    .refused = {code, {text, strlen(text)}}};
    send_message(session, &message);
    set_outcome(session, SESSION_REFUSED, text);
    finish(session);
}

static void welcome(struct session *session)
{
    struct message message = {.type = MESSAGE_WELCOME};
    message.welcome.version = PROTOCOL_VERSION;
    message.welcome.device =
        (struct span){session->service.device, strlen(session->service.device)};
    send_message(session, &message);
    session->state = SESSION_TRANSFER;
}

static void serve_push(struct session *session)
{
    struct wishes *wishes = &session->request.wishes;
    const struct target_request request = {
        .root = session->service.root,
        .confined = !session->service.free_paths,
        .path = session->request.target_path,
        .source_count = session->request.source_count,
        .recursive = (wishes->bits & WISH_RECURSIVE) != 0,
        .dry = (wishes->bits & WISH_DRY_RUN) != 0,
    };
    char text[TEXT_LENGTH_MAX];
    if (session->service.read_only) {
        refuse(session, PROBLEM_READ_ONLY, "this server is read-only");
        return;
    }
    enum problem_code code = target_open(&request, &session->target, text);
    if (code != PROBLEM_NONE) {
        refuse(session, code, text);
        return;
    }
    if (!session->service.super) { /* a stranger's set-ID bits would lend out our rights */
        wishes->preserve &= ~(unsigned)PRESERVE_SET_IDS;
    }
    struct weir_error error;
    welcome(session);
    if (!start_receiver(session, &session->target, NULL, &error)) {
        give_up(session, error.message);
    }
}

static void serve_pull(struct session *session)
{
    const struct walk_options walk = walk_of(session);
    welcome(session);
    if (!start_sender(session, &walk, (const char *const *)session->names)) {
        give_up(session, "not enough memory");
    }
}

/* What a fan-out's members say before anything else. */
static void receive_hop(struct session *session, const void *bytes, size_t length)
{
    const struct session_service *service = &session->service;
    struct hop_message message;
    bool sound = service->relays != NULL && hop_parse(bytes, length, &message);
    if (sound && message.type == HOP_JOIN && message.version == HOP_VERSION &&
        service->hop_name[0] == 0 && session->relay == NULL) {
        session->relay = relay_create(service->relays, session->link);
        if (session->relay == NULL) {
            give_up(session, "no memory, or no random bytes");
            return;
        }
        session->link = relay_link(session->relay);
        session->link->events = &events;
        session->link->user = session;
    } else if (sound && message.type == HOP_ATTACH && session->relay == NULL &&
               relay_attach(service->relays, service->hop_name, bytes, length, session->link,
                            &session->fed)) {
        session->state = SESSION_FEEDING;
        session->feeds = true;
    } else {
        peer_broke(session, "it is not awaited here to take part in a fan-out");
    }
}

static void receive_hello(struct session *session, const struct message *message)
{
    if (session->service.hop_name[0] != 0) {
        peer_broke(session, "its secret is for another purpose");
        return;
    }
    if (message->type != MESSAGE_HELLO) {
        peer_broke(session, "no greeting");
        return;
    }
    if (message->hello.version != PROTOCOL_VERSION) {
        char text[TEXT_LENGTH_MAX];
        snprintf(text, sizeof(text), "this server speaks version %u of the protocol, not %u",
                 PROTOCOL_VERSION, message->hello.version);
        refuse(session, PROBLEM_PROTOCOL, text);
        return;
    }
    if (session->service.refusal != NULL) {
        refuse(session, PROBLEM_BUSY, session->service.refusal);
        return;
    }
    struct session_request *request = &session->request;
    request->direction = message->hello.direction;
    request->wishes = message->hello.wishes;
    session->rules = message->hello.rules;
    request->source_count = message->hello.sources;
    request->target_path = strndup(message->hello.path.bytes, message->hello.path.length);
    session->names = calloc(request->source_count, sizeof(*session->names));
    if (request->target_path == NULL || session->names == NULL) {
        give_up(session, "not enough memory");
    } else if (request->direction == DIRECTION_PUSH) {
        serve_push(session);
    } else {
        session->state = SESSION_SOURCES;
    }
}

static void receive_rule(struct session *session, const struct message *message)
{
    if (message->type != MESSAGE_RULE) {
        peer_broke(session, "not the rules it announced");
        return;
    }
    session->filter = session->filter != NULL ? session->filter : filter_create();
    session->request.filter = session->filter;
    session->rules--;
    if (session->filter == NULL ||
        !filter_add(session->filter, message->rule.bits, message->rule.pattern)) {
        give_up(session, "no memory for the rules, or no rule");
    }
}

static void receive_source(struct session *session, const struct message *message)
{
    if (session->rules > 0) {
        receive_rule(session, message);
        return;
    }
    if (message->type != MESSAGE_SOURCE) {
        peer_broke(session, "not the list of sources it announced");
        return;
    }
    if (!add_name(session, message->source.path.bytes, message->source.path.length)) {
        give_up(session, "not enough memory");
        return;
    }
    if (session->name_count == session->request.source_count) {
        serve_pull(session);
    }
}

static void begin_as_client(struct session *session)
{
    struct weir_error error = {.message = "not enough memory"};
    bool started;
    if (session->request.direction == DIRECTION_PUSH) {
        const struct walk_options walk = walk_of(session);
        started = start_sender(session, &walk, session->request.sources);
    } else {
        started = start_receiver(session, session->request.target,
                                 (const char *const *)session->names, &error);
    }
    if (!started) {
        give_up(session, error.message);
    }
}

static void receive_answer(struct session *session, const struct message *message)
{
    if (message->type == MESSAGE_REFUSED) {
        char text[TEXT_LENGTH_MAX + 1];
        memcpy(text, message->refused.text.bytes, message->refused.text.length);
        text[message->refused.text.length] = 0;
        set_outcome(session, SESSION_REFUSED, text);
        finish(session);
        return;
    }
    if (message->type != MESSAGE_WELCOME || message->welcome.version != PROTOCOL_VERSION) {
        peer_broke(session, "no welcome");
        return;
    }
    memcpy(session->device, message->welcome.device.bytes, message->welcome.device.length);
    session->state = SESSION_TRANSFER;
    begin_as_client(session);
}

static void end_if_done(struct session *session)
{
    if (session->sender != NULL ? !sender_is_done(session->sender)
                                : !receiver_is_done(session->receiver)) {
        return;
    }
    set_outcome(session, SESSION_COMPLETE, "");
    if (session->is_server) {
        session->state = SESSION_ENDING; /* the client closes */
    } else {
        finish(session);
    }
}

static void transfer_message(struct session *session, const struct message *message)
{
    const char *reason = "";
    bool sound = session->sender != NULL ? sender_receive(session->sender, message, &reason)
                                         : receiver_receive(session->receiver, message, &reason);
    if (!sound) {
        peer_broke(session, reason);
        return;
    }
    end_if_done(session);
}

static void on_received(void *user, const void *bytes, size_t length)
{
    struct session *session = user;
    struct message message;
    session->heard++;
    if (session->state == SESSION_ENDING || session->state == SESSION_CLOSED) {
        return;
    }
    if (session->state == SESSION_FEEDING) {
        if (session->fed != NULL) {
            relay_received(session->fed, bytes, length);
        }
        return;
    }
    if (session->is_server && session->state == SESSION_GREETING && hop_is_one(bytes, length)) {
        receive_hop(session, bytes, length);
        return;
    }
    if (!protocol_parse(bytes, length, &message)) {
        peer_broke(session, "a malformed message");
        return;
    }
    switch (session->state) {
    case SESSION_GREETING:
        if (session->is_server) {
            receive_hello(session, &message);
        } else {
            receive_answer(session, &message);
        }
        return;
    case SESSION_SOURCES:
        receive_source(session, &message);
        return;
    case SESSION_TRANSFER:
        transfer_message(session, &message);
        return;
    case SESSION_FEEDING:
    case SESSION_ENDING:
    case SESSION_CLOSED:
        return;
    }
}

static void on_noticed(void *user, uint32_t notice, size_t length)
{
    struct session *session = user;
    const char *reason = "data without being asked";
    session->heard++;
    if (session->state == SESSION_FEEDING && session->fed != NULL) {
        relay_noticed(session->fed, notice, length);
    }
    if (session->state != SESSION_TRANSFER) {
        return;
    }
    if (session->receiver == NULL || !receiver_notice(session->receiver, notice, length, &reason)) {
        peer_broke(session, reason);
    }
}

static void on_data(void *user, const void *bytes, size_t length)
{
    struct session *session = user;
    const char *reason = "data without being asked";
    session->heard++;
    if (session->state != SESSION_TRANSFER) {
        return;
    }
    if (session->receiver == NULL || !receiver_data(session->receiver, bytes, length, &reason)) {
        peer_broke(session, reason);
    }
}

static void on_put_done(void *user, size_t offset)
{
    struct session *session = user;
    session->heard++;
    if (session->sender != NULL) {
        sender_put_done(session->sender, offset);
    }
}

static void on_closed(void *user, const struct weir_error *reason)
{
    struct session *session = user;
    if (session->state == SESSION_FEEDING) {
        if (session->fed != NULL) {
            relay_closed(session->fed, reason->message);
            session->fed = NULL;
        }
        set_outcome(session, SESSION_COMPLETE, "");
    } else if (!session->opened) {
        set_outcome(session, SESSION_UNREACHED, reason->message);
    } else if (reason->status == WEIR_DISCONNECTED) {
        char text[TEXT_LENGTH_MAX];
        snprintf(text, sizeof(text), "before the transfer was over, %s", reason->message);
        set_outcome(session, SESSION_LOST, text);
    } else {
        set_outcome(session, SESSION_LOST, reason->message);
    }
    session->state = SESSION_CLOSED;
    end_roles(session);
}

static const struct link_events events = {
    .opened = on_opened,
    .received = on_received,
    .noticed = on_noticed,
    .data = on_data,
    .put_done = on_put_done,
    .closed = on_closed,
};

void session_abort(struct session *session, const char *reason)
{
    if (session->state != SESSION_ENDING && session->state != SESSION_CLOSED) {
        set_outcome(session, SESSION_LOST, reason);
    }
    session->state = session->state == SESSION_CLOSED ? SESSION_CLOSED : SESSION_ENDING;
    session->link->operations->abort(session->link, reason);
}

static bool pump(struct session *session)
{
    if (session->state != SESSION_TRANSFER) {
        return false;
    }
    bool more =
        session->receiver != NULL ? receiver_pump(session->receiver) : sender_pump(session->sender);
    end_if_done(session);
    return more;
}

bool session_pump(struct session *session)
{
    bool more = pump(session);
    if (session->state != SESSION_CLOSED) {
        session->link->operations->flush(session->link);
    }
    return more;
}
