#include "tools/transfer/copy/session_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/chain/relay.h"
#include "tools/transfer/choice/filter.h"
#include "tools/transfer/choice/walk.h"
#include "tools/transfer/ends/receiver.h"
#include "tools/transfer/ends/sender.h"

static const struct link_events events;

void session_take_link(struct session *session, struct link *link)
{
    session->link = link;
    link->events = &events;
    link->user = session;
}

static struct session *create(struct link *link, const struct report *report)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session != NULL) {
        session->report = report;
        session->target.directory = -1;
        session_take_link(session, link);
    }
    return session;
}

void session_set_outcome(struct session *session, enum session_outcome outcome, const char *reason)
{
    if (session->outcome == SESSION_RUNNING) {
        session->outcome = outcome;
        snprintf(session->reason, sizeof(session->reason), "%s", reason);
    }
}

void session_send(struct session *session, const struct message *message)
{
    const struct weir_piece piece = {session->head, protocol_pack(message, session->head)};
    session->link->operations->send(session->link, &piece, 1);
}

/* Ends in order; what was sent is delivered. */
void session_finish(struct session *session)
{
    session->state = SESSION_ENDING;
    session->link->operations->close(session->link);
}

/* Ends at once, and tells the peer why. */
void session_give_up(struct session *session, const char *reason)
{
    session_set_outcome(session, SESSION_BROKEN, reason);
    session->state = SESSION_ENDING;
    session->link->operations->abort(session->link, session->reason);
}

void session_peer_broke(struct session *session, const char *how)
{
    char reason[TEXT_LENGTH_MAX];
    snprintf(reason, sizeof(reason), "the peer broke the protocol: %s", how);
    session_give_up(session, reason);
}

bool session_add_name(struct session *session, const char *name, size_t length)
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
            named = session_add_name(session, name, strlen(name));
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
    struct session_copy *copy = &session->request.copy;
    uint32_t last_id = copy->before;
    if (session->receiver != NULL) {
        last_id = receiver_last_id(session->receiver);
        session->tally.kept_in_part = receiver_kept_in_part(session->receiver);
    } else if (session->sender != NULL) {
        last_id = sender_last_id(session->sender);
        copy->deleted |= sender_is_over(session->sender);
        session->tally.kept_in_part = sender_kept_in_part(session->sender);
    }
    copy->before = last_id > copy->before ? last_id : copy->before;
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
    listing_clear(&session->listing);
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
    memcpy(message.hello.copy, request->copy.id, COPY_ID_LENGTH);
    message.hello.target = request->copy.target;
    message.hello.before = request->copy.before;
    char named[NAME_LENGTH_MAX + 1] = "";
    if (request->direction == DIRECTION_PUSH) {
        message.hello.path = (struct span){request->target_path, strlen(request->target_path)};
        if (request->source_count == 1) {
            walk_base_name(request->sources[0], named);
        }
        message.hello.named = (struct span){named, strlen(named)};
    }
    bool pull = request->direction == DIRECTION_PULL;
    unsigned rules = pull && request->filter != NULL ? filter_count(request->filter) : 0;
    unsigned listed = pull && request->listing != NULL ? request->listing->count : 0;
    message.hello.rules = (uint16_t)rules;
    message.hello.listed = listed;
    session_send(session, &message);
    for (unsigned i = 0; i < rules; i++) {
        struct message rule = {.type = MESSAGE_RULE};
        rule.rule.pattern = filter_rule(request->filter, i, &rule.rule.bits);
        session_send(session, &rule);
    }
    for (unsigned i = 0; i < listed; i++) {
        struct message path = {.type = MESSAGE_LISTED};
        path.listed.path =
            (struct span){request->listing->paths[i], strlen(request->listing->paths[i])};
        session_send(session, &path);
    }
    for (unsigned i = 0; i < request->source_count && pull; i++) {
        struct message source = {.type = MESSAGE_SOURCE};
        source.source.path = (struct span){request->sources[i], strlen(request->sources[i])};
        session_send(session, &source);
    }
}

bool session_start_sender(struct session *session, const struct walk_options *walk,
                          const char *const *sources)
{
    const struct sender_options options = {
        .link = session->link,
        .walk = *walk,
        .sources = sources,
        .source_count = session->request.source_count,
        .tells_rules = !session->is_server && walk->filter != NULL &&
                       filter_is_of_place(walk->filter) &&
                       (session->request.wishes.bits & WISH_DELETE) != 0,
        .answers_at_once = !session->is_server,
        .before = session->request.copy.before,
        .identities = session->request.copy.identities,
        .wishes = &session->request.wishes,
        .super = geteuid() == 0,
        .owners = session->request.owners,
        .modes = session->request.modes,
        .report = session->report,
        .tally = &session->tally,
    };
    session->sender = sender_create(&options);
    return session->sender != NULL;
}

static int rules_root(const struct session *session)
{
    return session->is_server && !session->service.free_paths ? session->service.root : AT_FDCWD;
}

/* What a walk hands out besides files, directories and symbolic links. */
struct walk_options session_walk(const struct session *session)
{
    const struct session_request *request = &session->request;
    bool matched = (request->wishes.bits & WISH_EXPAND) != 0 && session->service.free_paths;
    return (struct walk_options){
        .root = session->is_server ? session->service.root : AT_FDCWD,
        .confined = session->is_server && !session->service.free_paths,
        .root_name = session->root_name,
        .recursive = (request->wishes.bits & WISH_RECURSIVE) != 0,
        .one_file_system = (request->wishes.bits & WISH_ONE_FILE_SYSTEM) != 0,
        .devices = (request->wishes.preserve & PRESERVE_DEVICES) != 0,
        .specials = (request->wishes.preserve & PRESERVE_SPECIALS) != 0,
        .filter = request->filter,
        .rules_root = rules_root(session),
        .listing = request->listing,
        .no_folders = matched || (request->wishes.bits & WISH_NO_FOLDERS) != 0,
        .matched = matched,
        .depth_max = session->service.depth_max,
    };
}

bool session_start_receiver(struct session *session, struct target *target,
                            const char *const *names, struct weir_error *ret_error)
{
    const struct receiver_options options = {
        .link = session->link,
        .target = target,
        .source_count = session->request.source_count,
        .before = session->request.copy.before,
        .identities = session->request.copy.identities,
        .depth_max = session->service.depth_max,
        .names = names,
        .wishes = &session->request.wishes,
        .rules = session->request.filter != NULL || session->is_server,
        .filter = session->request.filter,
        .rules_root = rules_root(session),
        .listing = session->is_server ? NULL : session->request.listing,
        .super = geteuid() == 0 && (!session->is_server || session->service.super),
        .owners = session->request.owners,
        .modes = session->request.modes,
        .report = session->report,
        .tally = &session->tally,
    };
    snprintf(ret_error->message, sizeof(ret_error->message), "not enough memory");
    session->receiver = receiver_create(&options);
    return session->receiver != NULL && receiver_start(session->receiver, ret_error);
}

static void begin_as_client(struct session *session)
{
    struct weir_error error = {.message = "not enough memory"};
    bool started;
    if (session->request.direction == DIRECTION_PUSH) {
        const struct walk_options walk = session_walk(session);
        started = session_start_sender(session, &walk, session->request.sources);
    } else {
        started = session_start_receiver(session, session->request.target,
                                         (const char *const *)session->names, &error);
    }
    if (!started) {
        session_give_up(session, error.message);
    }
}

static void receive_answer(struct session *session, const struct message *message)
{
    if (message->type == MESSAGE_REFUSED) {
        char text[TEXT_LENGTH_MAX + 1];
        memcpy(text, message->refused.text.bytes, message->refused.text.length);
        text[message->refused.text.length] = 0;
        session->refusal = message->refused.code;
        session_set_outcome(session, SESSION_REFUSED, text);
        session_finish(session);
        return;
    }
    if (message->type != MESSAGE_WELCOME || message->welcome.version != PROTOCOL_VERSION) {
        session_peer_broke(session, "no welcome");
        return;
    }
    memcpy(session->device, message->welcome.device.bytes, message->welcome.device.length);
    session->request.copy.target = message->welcome.target;
    session->state = SESSION_TRANSFER;
    begin_as_client(session);
}

static void end_if_done(struct session *session)
{
    if (session->sender != NULL ? !sender_is_done(session->sender)
                                : !receiver_is_done(session->receiver)) {
        return;
    }
    session_set_outcome(session, SESSION_COMPLETE, "");
    if (session->is_server) {
        session->state = SESSION_ENDING; /* the client closes */
    } else {
        session_finish(session);
    }
}

static void transfer_message(struct session *session, const struct message *message)
{
    const char *reason = "";
    if (message->type == MESSAGE_RULE && session->is_server &&
        !session_hold(session, filter_cost(message->rule.pattern))) {
        session_give_up(session, "busy: no more room for clients' rules");
        return;
    }
    bool sound = session->sender != NULL ? sender_receive(session->sender, message, &reason)
                                         : receiver_receive(session->receiver, message, &reason);
    if (!sound && session->sender != NULL && sender_lacks_memory(session->sender)) {
        session_give_up(session, reason);
        return;
    }
    if (!sound) {
        session_peer_broke(session, reason);
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
        session_receive_hop(session, bytes, length);
        return;
    }
    if (!protocol_parse(bytes, length, &message)) {
        session_peer_broke(session, "a malformed message");
        return;
    }
    switch (session->state) {
    case SESSION_GREETING:
        if (session->is_server) {
            session_receive_hello(session, &message);
        } else {
            receive_answer(session, &message);
        }
        return;
    case SESSION_SOURCES:
        session_receive_source(session, &message);
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
        session_peer_broke(session, reason);
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
        session_peer_broke(session, reason);
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
        session_set_outcome(session, SESSION_COMPLETE, "");
    } else if (!session->opened) {
        session_set_outcome(session, SESSION_UNREACHED, reason->message);
    } else if (reason->status == WEIR_DISCONNECTED) {
        char text[TEXT_LENGTH_MAX];
        snprintf(text, sizeof(text), "before the transfer was over, %s", reason->message);
        session_set_outcome(session, SESSION_LOST, text);
    } else {
        session_set_outcome(session, SESSION_LOST, reason->message);
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
        session_set_outcome(session, SESSION_LOST, reason);
    }
    session->state = session->state == SESSION_CLOSED ? SESSION_CLOSED : SESSION_ENDING;
    session->link->operations->abort(session->link, reason);
}

void session_yield(struct session *session, const char *reason)
{
    session_abort(session, reason);
    end_roles(session);
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
