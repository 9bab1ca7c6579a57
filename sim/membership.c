/* Nodes, messages, time. */
#include "sim/membership.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "weir/bytes.h"

#define READING_NS UINT64_C(100000)

enum event_kind {
    EVENT_DUE,
    EVENT_REQUEST,
    EVENT_ANSWER,
    EVENT_UNANSWERED,
};

/* Who asked, and until when. */
struct asked {
    uint32_t from, generation;
    uint64_t token, until_ns;
};

struct event {
    uint64_t at_ns;
    enum event_kind kind;
    uint32_t to, generation;
    struct asked asked;
    uint8_t *bytes;
    size_t length;
};

static void push(struct membership *group, struct event event)
{
    struct event *put = malloc(sizeof(*put));
    CHECK(put != NULL);
    *put = event;
    agenda_put(&group->agenda, event.at_ns, put);
}

static void release(void *what)
{
    struct event *event = what;
    free(event->bytes);
    free(event);
}

/* --- the network --- */

static uint64_t delay(struct membership *group)
{
    return 50000 + dice_next(&group->network) % group->delay_ns;
}

static bool is_lost(struct membership *group, const struct node *from, const struct node *to)
{
    bool lost = dice_chance(&group->network, group->loss) ||
                (group->is_partitioned && from->side != to->side);
    group->counts.lost += lost;
    return lost;
}

static uint8_t *copy(const uint8_t *bytes, size_t length)
{
    uint8_t *copied = malloc(length > 0 ? length : 1);
    CHECK(copied != NULL);
    memcpy(copied, bytes, length);
    return copied;
}

static void arm(struct membership *group, struct node *node)
{
    uint64_t due_ns = swim_next_ns(&node->swim);
    due_ns = due_ns > group->now_ns ? due_ns : group->now_ns;
    if (due_ns != node->due_ns) {
        node->due_ns = due_ns;
        push(group, (struct event){.at_ns = due_ns,
                                   .kind = EVENT_DUE,
                                   .to = node->rank,
                                   .generation = node->generation});
    }
}

static void tell_unanswered(struct membership *group, struct asked asked)
{
    push(group,
         (struct event){.at_ns = asked.until_ns > group->now_ns ? asked.until_ns : group->now_ns,
                        .kind = EVENT_UNANSWERED,
                        .to = asked.from,
                        .generation = asked.generation,
                        .asked = asked});
}

static void count_sent(struct membership *group, struct node *node, size_t length)
{
    uint64_t window = group->now_ns / MEMBERSHIP_PERIOD_NS;
    if (window != node->window) {
        node->window = window;
        node->window_sent = 0;
    }
    node->window_sent++;
    if (node->window_sent > group->counts.most_sent) {
        group->counts.most_sent = node->window_sent;
    }
    group->counts.requests++;
    group->counts.bytes += length;
}

static void send(void *user, uint32_t rank, uint64_t token, const uint8_t *bytes, size_t length,
                 uint64_t timeout_ns)
{
    struct node *node = user;
    struct membership *group = node->group;
    struct asked asked = {node->rank, node->generation, token, group->now_ns + timeout_ns};
    CHECK(length <= SWIM_MESSAGE_MAX && rank != node->rank);
    count_sent(group, node, length);
    if (is_lost(group, node, &group->nodes[rank])) {
        tell_unanswered(group, asked);
        return;
    }
    unsigned copies = 1 + dice_chance(&group->network, group->duplicate);
    group->counts.duplicated += copies - 1;
    for (unsigned i = 0; i < copies; i++) {
        push(group, (struct event){.at_ns = group->now_ns + delay(group),
                                   .kind = EVENT_REQUEST,
                                   .to = rank,
                                   .asked = asked,
                                   .bytes = copy(bytes, length),
                                   .length = length});
    }
}

static void reply(void *user, void *request, const uint8_t *bytes, size_t length)
{
    struct node *node = user;
    struct membership *group = node->group;
    struct asked *asked = request;
    group->counts.bytes += length;
    if (is_lost(group, node, &group->nodes[asked->from])) {
        tell_unanswered(group, *asked);
    } else {
        push(group, (struct event){.at_ns = group->now_ns + delay(group),
                                   .kind = EVENT_ANSWER,
                                   .to = asked->from,
                                   .generation = asked->generation,
                                   .asked = *asked,
                                   .bytes = copy(bytes, length),
                                   .length = length});
    }
    free(asked);
}

static void changed(void *user, uint32_t rank, enum swim_state state)
{
    struct node *node = user;
    struct membership *group = node->group;
    struct node *other = &group->nodes[rank];
    group->counts.suspected += state == SWIM_SUSPECT;
    group->counts.held_dead += state == SWIM_DEAD;
    group->counts.falsely_dead += state == SWIM_DEAD && other->is_up;
    other->known_dead += state == SWIM_DEAD && !other->is_up;
    if (group->trace != NULL) {
        static const char *const names[] = {"alive", "suspect", "dead", "left"};
        fprintf(group->trace, "%.3fs %u holds %u %s\n", (double)group->now_ns / 1e9, node->rank,
                rank, names[state]);
    }
    if (group->changed != NULL) {
        group->changed(group, node, rank, state);
    }
}

static const struct swim_port port = {send, reply, changed};

/* --- events --- */

static void take_request(struct membership *group, struct node *node, const struct event *event)
{
    struct asked *asked = malloc(sizeof(*asked));
    CHECK(asked != NULL);
    *asked = event->asked;
    if (!node->is_up ||
        !swim_take(&node->swim, group->now_ns, asked, event->bytes, event->length)) {
        tell_unanswered(group, *asked);
        free(asked);
    }
}

static void happen(struct membership *group, struct node *node, const struct event *event)
{
    bool is_current = node->is_up && event->generation == node->generation;
    switch (event->kind) {
    case EVENT_DUE:
        if (is_current && node->due_ns == event->at_ns) {
            node->due_ns = 0;
            swim_advance(&node->swim, group->now_ns);
        }
        break;
    case EVENT_REQUEST:
        take_request(group, node, event);
        break;
    case EVENT_ANSWER:
        if (is_current && group->now_ns <= event->asked.until_ns) {
            swim_answered(&node->swim, group->now_ns, event->asked.token, event->bytes,
                          event->length);
        } else if (is_current) {
            swim_unanswered(&node->swim, group->now_ns, event->asked.token);
        }
        break;
    case EVENT_UNANSWERED:
        if (is_current) {
            swim_unanswered(&node->swim, group->now_ns, event->asked.token);
        }
        break;
    }
    if (node->is_up) {
        arm(group, node);
    }
}

static void take_event(struct membership *group, struct event *event)
{
    struct node *node = &group->nodes[event->to];
    group->now_ns = event->at_ns;
    group->hash = (group->hash ^ event->at_ns ^ (uint64_t)event->to << 32 ^ event->length) *
                  UINT64_C(0x100000001b3);
    if (node->is_stopped && event->at_ns < node->goes_on_ns) {
        /* When it goes on it meets its deadline first, and then reads what has come. */
        if (event->kind == EVENT_DUE && node->due_ns == event->at_ns) {
            node->due_ns = node->goes_on_ns;
        }
        event->at_ns = node->goes_on_ns + (event->kind == EVENT_DUE ? 0 : READING_NS);
        agenda_put(&group->agenda, event->at_ns, event);
        return;
    }
    node->is_stopped = false;
    happen(group, node, event);
    release(event);
}

void membership_run(struct membership *group, uint64_t until_ns)
{
    while (agenda_next_ns(&group->agenda) <= until_ns) {
        take_event(group, agenda_take(&group->agenda));
    }
    group->now_ns = until_ns;
}

/* --- life --- */

static void start(struct membership *group, struct node *node)
{
    struct swim_options options = {
        .size = group->size,
        .rank = node->rank,
        .seed = dice_next(&group->network),
        .period_ns = MEMBERSHIP_PERIOD_NS,
        .probe_ns = MEMBERSHIP_PROBE_NS,
        .suspicion_ns = MEMBERSHIP_SUSPICION_NS,
        .indirect = 3,
    };
    node->generation++;
    node->is_up = true;
    node->is_stopped = node->has_left = node->lies = false;
    node->due_ns = 0;
    CHECK(swim_init(&node->swim, &port, node, &options, group->now_ns));
    arm(group, node);
}

void membership_open(struct membership *group, uint32_t size, uint64_t seed, FILE *trace)
{
    *group = (struct membership){
        .size = size,
        .network = dice_split(seed, 1),
        .faults = dice_split(seed, 2),
        .delay_ns = 2000000,
        .trace = trace,
    };
    group->nodes = calloc(size, sizeof(*group->nodes));
    CHECK(group->nodes != NULL);
    for (uint32_t rank = 0; rank < size; rank++) {
        group->nodes[rank].group = group;
        group->nodes[rank].rank = rank;
        start(group, &group->nodes[rank]);
    }
}

static void end(struct node *node)
{
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        struct asked *asked = node->swim.relays[i].request;
        if (asked != NULL) {
            tell_unanswered(node->group, *asked);
            free(asked);
        }
    }
    swim_fini(&node->swim);
    node->is_up = false;
}

void membership_close(struct membership *group)
{
    for (uint32_t rank = 0; rank < group->size; rank++) {
        if (group->nodes[rank].is_up) {
            end(&group->nodes[rank]);
        }
    }
    agenda_fini(&group->agenda, release);
    free(group->nodes);
}

void membership_kill(struct membership *group, uint32_t rank)
{
    struct node *node = &group->nodes[rank];
    if (node->is_up) {
        node->died_ns = group->now_ns;
        node->known_dead = 0;
        group->counts.deaths++;
        end(node);
    }
}

void membership_restart(struct membership *group, uint32_t rank)
{
    if (!group->nodes[rank].is_up) {
        group->nodes[rank].was_disturbed = true;
        group->counts.restarts++;
        start(group, &group->nodes[rank]);
    }
}

void membership_stop(struct membership *group, uint32_t rank, uint64_t time_ns)
{
    struct node *node = &group->nodes[rank];
    if (node->is_up && !node->is_stopped) {
        node->is_stopped = node->was_disturbed = true;
        node->goes_on_ns = group->now_ns + time_ns;
        group->counts.stops++;
    }
}

void membership_leave(struct membership *group, uint32_t rank)
{
    struct node *node = &group->nodes[rank];
    if (node->is_up && !node->is_stopped && !node->has_left) {
        node->has_left = true;
        group->counts.leaves++;
        swim_leave(&node->swim, group->now_ns);
        arm(group, node);
    }
}

void membership_part(struct membership *group, uint32_t percent)
{
    group->is_partitioned = true;
    group->counts.partitions++;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        group->nodes[rank].side = dice_percent(&group->faults, percent);
        group->nodes[rank].was_disturbed = true;
    }
}

void membership_heal(struct membership *group)
{
    group->is_partitioned = false;
}

/* --- lies --- */

static size_t compose_lie(struct membership *group, uint32_t from, uint32_t to,
                          uint8_t ret_bytes[SWIM_MESSAGE_MAX])
{
    struct dice *dice = &group->faults;
    uint32_t own = dice_percent(dice, 50) ? 0 : (uint32_t)dice_next(dice);
    struct swim_message message = {
        .kind = SWIM_PING,
        .from = dice_percent(dice, 50) ? from : dice_below(dice, group->size),
        .size = group->size,
        .subject = to,
        .held = (uint32_t)dice_next(dice),
        .own = own,
        .news_count = dice_range(dice, 1, SWIM_NEWS_MAX),
    };
    uint8_t *at = ret_bytes + SWIM_HEADER_LENGTH;
    swim_header_pack(&message, ret_bytes);
    for (unsigned i = 0; i < message.news_count; i++, at += 8) {
        uint32_t rank = dice_below(dice, group->size);
        uint32_t truth = group->nodes[from].swim.view.standings[rank];
        put_u32(at, rank);
        put_u32(at + 4, dice_percent(dice, 80)
                            ? swim_standing(swim_incarnation_of(truth) + dice_below(dice, 3),
                                            (enum swim_state)dice_below(dice, 4))
                            : (uint32_t)dice_next(dice));
    }
    if (dice_percent(dice, 20)) {
        ret_bytes[dice_below(dice, SWIM_HEADER_LENGTH)] = (uint8_t)dice_next(dice);
    }
    return (size_t)(at - ret_bytes);
}

void membership_lie(struct membership *group, uint32_t rank)
{
    struct node *node = &group->nodes[rank];
    uint8_t bytes[SWIM_MESSAGE_MAX];
    for (unsigned i = 0; node->is_up && i < 4; i++) {
        uint32_t to = dice_below(&group->faults, group->size);
        if (to != rank) {
            group->counts.lies++;
            size_t length = compose_lie(group, rank, to, bytes);
            send(node, to, 0, bytes, length, MEMBERSHIP_PERIOD_NS);
        }
    }
}
