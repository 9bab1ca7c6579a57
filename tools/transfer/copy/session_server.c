#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/chain/relay.h"
#include "tools/transfer/choice/expand.h"
#include "tools/transfer/choice/filter.h"
#include "tools/transfer/copy/session_private.h"

/* Memory for names is asked for in pieces of this. */
#define HOLD_LENGTH (64u << 10)

static void refuse(struct session *session, enum problem_code code, const char *text)
{
    const struct message message = {.type = MESSAGE_REFUSED,
                                    .refused = {code, {text, strlen(text)}}};
    session_send(session, &message);
    session_set_outcome(session, SESSION_REFUSED, text);
    session_finish(session);
}

static void welcome(struct session *session)
{
    struct message message = {.type = MESSAGE_WELCOME};
    message.welcome.version = PROTOCOL_VERSION;
    if (session->request.direction == DIRECTION_PUSH) {
        message.welcome.target = target_is(&session->target);
    }
    message.welcome.device =
        (struct span){session->service.device, strlen(session->service.device)};
    session_send(session, &message);
    session->state = SESSION_TRANSFER;
}

/* Of several folders others may be there to be written. */
static void refuse_to_write(struct session *session)
{
    char text[TEXT_LENGTH_MAX] = "this server is read-only";
    if (session->root_name != 0) {
        snprintf(text, sizeof(text), "%.*s is read-only at this server", (int)session->root_name,
                 session->request.target_path);
    }
    refuse(session, PROBLEM_READ_ONLY, text);
}

static void refuse_root(struct session *session, const char *name, size_t length)
{
    const struct session_service *service = &session->service;
    char text[TEXT_LENGTH_MAX];
    size_t used =
        (size_t)snprintf(text, sizeof(text), "there is no folder '%.*s' at this server; it has:",
                         (int)(length < 64 ? length : 64), name);
    for (unsigned i = 0; i < service->root_count && used < sizeof(text); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %s", service->roots[i].name);
    }
    refuse(session, PROBLEM_NOT_FOUND, text);
}

/* The first word of a path says which of the roots it is in; all of a session's are in one. False:
 * refused. */
static bool choose_root(struct session *session, const char *path)
{
    struct session_service *service = &session->service;
    const char *name = path + strspn(path, "/");
    size_t length = strcspn(name, "/"), whole = (size_t)(name - path) + length;
    const struct session_root *found = NULL;
    for (unsigned i = 0; i < service->root_count; i++) {
        const struct session_root *root = &service->roots[i];
        if (strlen(root->name) == length && memcmp(root->name, name, length) == 0) {
            found = root;
        }
    }
    if (service->root_count > 0 && found == NULL) {
        refuse_root(session, name, length);
        return false;
    }
    if (found != NULL && session->root_name != 0 &&
        (found->root != service->root || whole != session->root_name)) {
        refuse(session, PROBLEM_CONFINED, "one copy takes from one of this server's folders");
        return false;
    }
    if (found != NULL) {
        service->root = found->root;
        service->read_only |= found->read_only;
        session->root_name = whole;
    }
    return true;
}

static void serve_push(struct session *session)
{
    if (!choose_root(session, session->request.target_path)) {
        return;
    }
    struct wishes *wishes = &session->request.wishes;
    const struct target_request request = {
        .root = session->service.root,
        .confined = !session->service.free_paths,
        .path = session->request.target_path,
        .root_name = session->root_name,
        .source_count = session->request.source_count,
        .wishes = wishes->bits,
        .named = session->named,
        .known = session->request.copy.target,
    };
    char text[TEXT_LENGTH_MAX];
    if (session->service.read_only) {
        refuse_to_write(session);
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
    if (!session_start_receiver(session, &session->target, NULL, &error)) {
        session_give_up(session, error.message);
    }
}

static bool expand_list(struct session *session)
{
    uint32_t wishes = session->request.wishes.bits;
    bool asked = (wishes & WISH_EXPAND) != 0 && session->service.free_paths;
    return !asked || session->request.listing == NULL ||
           expand(&session->listing, session->names[0], (wishes & WISH_RECURSIVE) != 0);
}

static void serve_pull(struct session *session)
{
    if (!expand_list(session)) {
        session_give_up(session, "no memory for what the patterns match, or too much of it");
        return;
    }
    for (unsigned i = 0; i < session->name_count; i++) {
        if (!choose_root(session, session->names[i])) {
            return;
        }
    }
    const struct walk_options walk = session_walk(session);
    welcome(session);
    if (!session_start_sender(session, &walk, (const char *const *)session->names)) {
        session_give_up(session, "not enough memory");
    }
}

/* What a fan-out's members say before anything else. */
void session_receive_hop(struct session *session, const void *bytes, size_t length)
{
    const struct session_service *service = &session->service;
    struct hop_message message;
    bool sound = service->relays != NULL && hop_parse(bytes, length, &message);
    if (sound && message.type == HOP_JOIN && message.version == HOP_VERSION &&
        service->hop_name[0] == 0 && session->relay == NULL) {
        session->relay = relay_create(service->relays, session->link);
        if (session->relay == NULL) {
            session_give_up(session, "no memory, or no random bytes");
            return;
        }
        session_take_link(session, relay_link(session->relay));
    } else if (sound && message.type == HOP_ATTACH && session->relay == NULL &&
               relay_attach(service->relays, service->hop_name, bytes, length, session->link,
                            &session->fed)) {
        session->state = SESSION_FEEDING;
        session->feeds = true;
    } else {
        session_peer_broke(session, "it is not awaited here to take part in a fan-out");
    }
}

void session_receive_hello(struct session *session, const struct message *message)
{
    if (session->service.hop_name[0] != 0) {
        session_peer_broke(session, "its secret is for another purpose");
        return;
    }
    if (message->type != MESSAGE_HELLO) {
        session_peer_broke(session, "no greeting");
        return;
    }
    if (message->hello.version != PROTOCOL_VERSION) {
        char text[TEXT_LENGTH_MAX];
        snprintf(text, sizeof(text), "this server speaks version %u of the protocol, not %u",
                 PROTOCOL_VERSION, message->hello.version);
        refuse(session, PROBLEM_PROTOCOL, text);
        return;
    }
    if (session->relay != NULL && message->hello.direction != DIRECTION_PUSH) {
        session_peer_broke(session, "only a push goes to several");
        return;
    }
    const struct session_service *service = &session->service;
    const char *refusal = service->greeted != NULL
                              ? service->greeted(service->user, message->hello.copy)
                              : service->refusal;
    if (refusal != NULL) {
        refuse(session, PROBLEM_BUSY, refusal);
        return;
    }
    if (message->hello.rules > FILTER_RULES_MAX) {
        refuse(session, PROBLEM_PROTOCOL, "too many rules: " FILTER_BOUNDS);
        return;
    }
    struct session_request *request = &session->request;
    memcpy(request->copy.id, message->hello.copy, COPY_ID_LENGTH);
    request->copy.target = message->hello.target;
    request->copy.before = message->hello.before;
    request->direction = message->hello.direction;
    request->wishes = message->hello.wishes;
    session->rules = message->hello.rules;
    session->listed = message->hello.listed;
    if ((request->wishes.bits & WISH_LISTED) != 0) {
        request->listing = &session->listing;
    }
    request->source_count = message->hello.sources;
    memcpy(session->named, message->hello.named.bytes, message->hello.named.length);
    request->target_path = strndup(message->hello.path.bytes, message->hello.path.length);
    session->names = calloc(request->source_count, sizeof(*session->names));
    if (request->target_path == NULL || session->names == NULL) {
        session_give_up(session, "not enough memory");
    } else if (request->direction == DIRECTION_PUSH) {
        serve_push(session);
    } else {
        session->state = SESSION_SOURCES;
    }
}

bool session_hold(struct session *session, size_t length)
{
    const struct session_service *service = &session->service;
    session->held += length;
    while (service->hold != NULL && session->held > session->granted) {
        if (!service->hold(service->user, HOLD_LENGTH)) {
            return false;
        }
        session->granted += HOLD_LENGTH;
    }
    return true;
}

/* Before a name of the client's is kept. */
static bool hold(struct session *session, size_t length)
{
    bool held = session_hold(session, length);
    if (!held) {
        refuse(session, PROBLEM_BUSY,
               "busy: no more room for what clients list; list fewer "
               "at a time");
    }
    return held;
}

static void receive_rule(struct session *session, const struct message *message)
{
    if (message->type != MESSAGE_RULE) {
        session_peer_broke(session, "not the rules it announced");
        return;
    }
    session->filter = session->filter != NULL ? session->filter : filter_create();
    session->request.filter = session->filter;
    session->rules--;
    if (session->filter != NULL && !filter_has_room(session->filter, message->rule.pattern)) {
        refuse(session, PROBLEM_PROTOCOL, "too many rules: " FILTER_BOUNDS);
    } else if (hold(session, filter_cost(message->rule.pattern)) &&
               (session->filter == NULL ||
                !filter_add(session->filter, message->rule.bits, message->rule.pattern))) {
        session_give_up(session, "no memory for the rules, or no rule");
    }
}

static void receive_listed(struct session *session, const struct message *message)
{
    if (message->type != MESSAGE_LISTED) {
        session_peer_broke(session, "not the list it announced");
        return;
    }
    session->listed--;
    if (hold(session, listing_cost(message->listed.path.length)) &&
        !listing_add_next(&session->listing, message->listed.path)) {
        session_give_up(session,
                        "no memory for the list, or what is no path or out of order in it");
    }
}

void session_receive_source(struct session *session, const struct message *message)
{
    if (session->rules > 0) {
        receive_rule(session, message);
        return;
    }
    if (session->listed > 0) {
        receive_listed(session, message);
        return;
    }
    if (message->type != MESSAGE_SOURCE) {
        session_peer_broke(session, "not the list of sources it announced");
        return;
    }
    if (!hold(session, listing_cost(message->source.path.length))) {
        return;
    }
    if (!session_add_name(session, message->source.path.bytes, message->source.path.length)) {
        session_give_up(session, "not enough memory");
        return;
    }
    if (session->name_count == session->request.source_count) {
        serve_pull(session);
    }
}
