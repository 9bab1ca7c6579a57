#include "tools/transfer/wire/memory_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum event_kind {
    EVENT_MESSAGE,
    EVENT_NOTICE,
    EVENT_CLOSED,
};

struct event {
    struct event *next;
    enum event_kind kind;
    bool injected; /* the side it seems to come from knows nothing of it */
    unsigned to;
    uint32_t notice;
    size_t length, offset;
    struct weir_error error;
    uint8_t bytes[];
};

struct side {
    struct link link; /* first: a link is its side */
    struct memory_pair *pair;
    unsigned number;
    bool closed;
    uint8_t *memory, *said;
    size_t memory_length, said_length;
};

struct memory_pair {
    struct side sides[2];
    struct event *first, **last;
    bool ending;
    bool counts; /* as a device does */
    uint64_t retransmissions;
    char abort_reason[256];
};

static struct side *side_of(struct link *link)
{
    return (struct side *)link;
}

static struct event *append(struct memory_pair *pair, enum event_kind kind, unsigned to,
                            size_t length)
{
    struct event *event = calloc(1, sizeof(*event) + length);
    if (event == NULL) {
        abort();
    }
    event->kind = kind;
    event->to = to;
    event->length = length;
    *pair->last = event;
    pair->last = &event->next;
    return event;
}

static bool memory_send(struct link *link, const struct weir_piece *pieces, unsigned count)
{
    struct side *side = side_of(link);
    size_t length = 0;
    if (side->pair->ending) {
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        length += pieces[i].length;
    }
    struct event *event = append(side->pair, EVENT_MESSAGE, 1 - side->number, length);
    for (unsigned i = 0, at = 0; i < count; i++) {
        memcpy(event->bytes + at, pieces[i].bytes, pieces[i].length);
        at += pieces[i].length;
    }
    free(side->said);
    side->said = malloc(length + 1);
    if (side->said == NULL) {
        abort();
    }
    memcpy(side->said, event->bytes, length);
    side->said_length = length;
    link->backlog_length += length;
    link->backlog_count++;
    return true;
}

static bool memory_flush(struct link *link)
{
    return !side_of(link)->pair->ending;
}

static bool memory_put(struct link *link, const struct link_put *put)
{
    struct side *side = side_of(link);
    struct side *peer = &side->pair->sides[1 - side->number];
    if (side->pair->ending) {
        return false;
    }
    uint64_t to = put->remote.address + put->remote_offset - (uintptr_t)peer->memory;
    if (put->offset + put->length > side->memory_length || to > peer->memory_length ||
        put->length > peer->memory_length - to) {
        memory_pair_cut(side->pair);
        return false;
    }
    memcpy(peer->memory + to, side->memory + put->offset, put->length);
    struct event *event = append(side->pair, EVENT_NOTICE, 1 - side->number, 0);
    event->notice = put->notice;
    event->length = put->length;
    event->offset = put->offset;
    return true;
}

static void *memory_allocate(struct link *link, size_t length, unsigned rights,
                             struct weir_remote *ret_remote, struct weir_error *ret_error)
{
    struct side *side = side_of(link);
    side->memory = malloc(length);
    if (side->memory == NULL) {
        *ret_error = (struct weir_error){WEIR_NO_MEMORY, "no memory"};
        return NULL;
    }
    side->memory_length = length;
    *ret_remote = (struct weir_remote){(uintptr_t)side->memory, length, 7};
    return side->memory;
}

static void end(struct memory_pair *pair, enum weir_status mine, enum weir_status theirs,
                unsigned by, const char *text)
{
    if (pair->ending) {
        return;
    }
    pair->ending = true;
    for (unsigned i = 0; i < 2; i++) {
        struct event *event = append(pair, EVENT_CLOSED, i, 0);
        event->error.status = i == by ? mine : theirs;
        snprintf(event->error.message, sizeof(event->error.message), "%s", text);
    }
}

static void memory_close(struct link *link)
{
    struct side *side = side_of(link);
    end(side->pair, WEIR_OK, WEIR_DISCONNECTED, side->number, "closed");
}

static void memory_abort(struct link *link, const char *reason)
{
    struct side *side = side_of(link);
    snprintf(side->pair->abort_reason, sizeof(side->pair->abort_reason), "%s", reason);
    end(side->pair, WEIR_OK, WEIR_PEER_LOST, side->number, reason);
}

static bool memory_retransmissions(struct link *link, uint64_t *ret_count)
{
    *ret_count = side_of(link)->pair->retransmissions;
    return side_of(link)->pair->counts;
}

static const struct link_operations operations = {
    .send = memory_send,
    .flush = memory_flush,
    .put = memory_put,
    .allocate = memory_allocate,
    .close = memory_close,
    .abort = memory_abort,
    .retransmissions = memory_retransmissions,
};

/* Who pumps all the time sleeps never. */
static void memory_wake(struct link *link)
{
}

static const struct link_operations operations_of_one_who_pumps = {
    .send = memory_send,
    .flush = memory_flush,
    .put = memory_put,
    .allocate = memory_allocate,
    .close = memory_close,
    .abort = memory_abort,
    .wake = memory_wake,
};

void memory_pair_retransmitted(struct memory_pair *pair, uint64_t count)
{
    pair->counts = true;
    pair->retransmissions = count;
}

void memory_pair_go_on_pumping(struct memory_pair *pair)
{
    pair->sides[0].link.operations = pair->sides[1].link.operations = &operations_of_one_who_pumps;
}

struct memory_pair *memory_pair_create(void)
{
    struct memory_pair *pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        abort();
    }
    pair->last = &pair->first;
    for (unsigned i = 0; i < 2; i++) {
        pair->sides[i] =
            (struct side){.link = {.operations = &operations}, .pair = pair, .number = i};
    }
    return pair;
}

static struct event *take(struct memory_pair *pair)
{
    struct event *event = pair->first;
    if (event != NULL) {
        pair->first = event->next;
        if (pair->first == NULL) {
            pair->last = &pair->first;
        }
    }
    return event;
}

void memory_pair_destroy(struct memory_pair *pair)
{
    for (struct event *event; (event = take(pair)) != NULL;) {
        free(event);
    }
    free(pair->sides[0].memory);
    free(pair->sides[0].said);
    free(pair->sides[1].memory);
    free(pair->sides[1].said);
    free(pair);
}

struct link *memory_pair_link(struct memory_pair *pair, unsigned side)
{
    return &pair->sides[side].link;
}

void memory_pair_open(struct memory_pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        pair->sides[i].link.events->opened(pair->sides[i].link.user);
    }
}

static void deliver(struct memory_pair *pair, const struct event *event)
{
    struct link *to = &pair->sides[event->to].link;
    struct link *from = &pair->sides[1 - event->to].link;
    switch (event->kind) {
    case EVENT_MESSAGE:
        from->backlog_length -= event->length < from->backlog_length ? event->length : 0;
        from->backlog_count -= from->backlog_count > 0 ? 1 : 0;
        to->events->received(to->user, event->bytes, event->length);
        return;
    case EVENT_NOTICE:
        to->events->noticed(to->user, event->notice, event->length);
        if (!event->injected) {
            from->events->put_done(from->user, event->offset);
        }
        return;
    case EVENT_CLOSED:
        pair->sides[event->to].closed = true;
        to->events->closed(to->user, &event->error);
        return;
    }
}

bool memory_pair_step(struct memory_pair *pair)
{
    struct event *event = take(pair);
    if (event == NULL) {
        return false;
    }
    if (!pair->sides[event->to].closed) {
        deliver(pair, event);
    }
    free(event);
    return true;
}

void memory_pair_cut(struct memory_pair *pair)
{
    for (struct event *event; (event = take(pair)) != NULL;) {
        free(event);
    }
    pair->ending = false; /* an end that was under way is lost too */
    end(pair, WEIR_PEER_LOST, WEIR_PEER_LOST, 0, "the line was cut");
}

void memory_pair_inject(struct memory_pair *pair, unsigned side, const void *bytes, size_t length)
{
    struct event *event = append(pair, EVENT_MESSAGE, 1 - side, length);
    memcpy(event->bytes, bytes, length);
}

void memory_pair_inject_notice(struct memory_pair *pair, unsigned side, uint32_t notice,
                               size_t length)
{
    struct event *event = append(pair, EVENT_NOTICE, 1 - side, 0);
    event->notice = notice;
    event->length = length;
    event->injected = true;
}

const void *memory_pair_last_message(const struct memory_pair *pair, unsigned side,
                                     size_t *ret_length)
{
    *ret_length = pair->sides[side].said_length;
    return pair->sides[side].said;
}

uint8_t *memory_pair_memory(const struct memory_pair *pair, unsigned side)
{
    return pair->sides[side].memory;
}

const char *memory_pair_last_abort(const struct memory_pair *pair)
{
    return pair->abort_reason;
}
