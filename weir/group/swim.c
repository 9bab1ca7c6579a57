/* Probes, suspicions, time. */
#include "weir/group/swim.h"

#include <string.h>

#define LOOKS_MAX       64u /* for one that is absent, in each period */
#define SUSPECTS_PROBED 8u  /* in each period */

/* --- time --- */

static uint64_t next_due(const struct swim *swim)
{
    uint64_t due_ns = swim->period_due_ns;
    if (swim->stage == PROBE_DIRECT && swim->probe_due_ns < due_ns) {
        due_ns = swim->probe_due_ns;
    }
    for (unsigned i = 0; i < swim->suspect_count; i++) {
        due_ns = swim->suspects[i].due_ns < due_ns ? swim->suspects[i].due_ns : due_ns;
    }
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        const struct relay *relay = &swim->relays[i];
        due_ns = relay->request != NULL && relay->due_ns < due_ns ? relay->due_ns : due_ns;
    }
    return due_ns;
}

/* Late is who is called a quarter of a period after what was due. No conclusion is drawn then from
 * the probe that was under way: its answer may have come in time, and wait to be read. */
static void pass(struct swim *swim, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns > swim->last_ns ? now_ns - swim->last_ns : 0;
    uint64_t due_ns = next_due(swim);
    uint64_t left_ns = due_ns > swim->clock_ns ? due_ns - swim->clock_ns : 0;
    uint64_t grace_ns = swim->options.probe_ns / 2;
    bool is_late = passed_ns > left_ns + swim->options.period_ns / 4;
    swim->last_ns = now_ns;
    if (is_late && !swim->has_forgiven) {
        swim->has_forgiven = true;
        swim->stage = PROBE_NONE;
        swim->clock_ns += left_ns > grace_ns ? left_ns - grace_ns : 0;
        swim->health += swim->health < SWIM_HEALTH_MAX;
        return;
    }
    if (passed_ns >= left_ns) {
        swim->has_forgiven = false;
    }
    swim->clock_ns += is_late ? left_ns : passed_ns;
}

uint64_t swim_next_ns(const struct swim *swim)
{
    uint64_t due_ns = next_due(swim);
    return swim->last_ns + (due_ns > swim->clock_ns ? due_ns - swim->clock_ns : 0);
}

static uint64_t slowed(const struct swim *swim, uint64_t time_ns)
{
    return time_ns * (1 + swim->health);
}

/* --- probes --- */

static bool is_member(const struct swim *swim)
{
    return swim->options.rank != SWIM_NOBODY;
}

static uint64_t send(struct swim *swim, enum swim_kind kind, uint32_t subject, uint32_t to,
                     uint64_t timeout_ns)
{
    uint8_t bytes[SWIM_MESSAGE_MAX];
    uint64_t token = swim->token++;
    size_t length = swim_compose(swim, kind, subject, to, NULL, bytes);
    swim->port->send(swim->user, to, token, bytes, length, timeout_ns);
    return token;
}

/* Another one, at random, that is held alive, and not suspect; SWIM_NOBODY: none was found. */
static uint32_t choose_other(struct swim *swim, uint32_t but)
{
    for (unsigned looks = 0; looks < LOOKS_MAX; looks++) {
        uint32_t rank = (uint32_t)(shuffle_mix(&swim->random) % swim->options.size);
        if (rank != swim->options.rank && rank != but &&
            swim_state_of(swim->view.standings[rank]) == SWIM_ALIVE) {
            return rank;
        }
    }
    return SWIM_NOBODY;
}

/* The next in turn; suspects are probed besides. */
static uint32_t choose_subject(struct swim *swim)
{
    for (uint32_t looks = 0; looks < 2 * swim->options.size; looks++) {
        uint32_t rank = shuffle_next(&swim->order);
        if (rank != swim->options.rank && swim_state_of(swim->view.standings[rank]) == SWIM_ALIVE) {
            return rank;
        }
    }
    return SWIM_NOBODY;
}

/* --- suspicions --- */

static void forget_suspect(struct swim *swim, unsigned index)
{
    swim->suspect_count--;
    memmove(&swim->suspects[index], &swim->suspects[index + 1],
            (swim->suspect_count - index) * sizeof(*swim->suspects));
}

static bool holds(const struct swim *swim, const struct suspicion *suspicion)
{
    return swim->view.standings[suspicion->rank] == suspicion->standing;
}

/* A suspicion is ours alone: it is no news. */
static void suspect(struct swim *swim, uint32_t rank)
{
    uint32_t incarnation = swim_incarnation_of(swim->view.standings[rank]);
    if (swim->suspect_count == SWIM_SUSPECTS) {
        return;
    }
    uint32_t standing = swim_standing(incarnation, SWIM_SUSPECT);
    swim->suspects[swim->suspect_count++] = (struct suspicion){
        rank, standing, swim->clock_ns + slowed(swim, swim->options.suspicion_ns)};
    view_set(&swim->view, rank, standing);
    swim->port->changed(swim->user, rank, SWIM_SUSPECT);
}

/* It was reached, by us or by whom we asked. */
static void acquit(struct swim *swim, uint32_t rank)
{
    for (unsigned i = 0; i < swim->suspect_count; i++) {
        struct suspicion suspicion = swim->suspects[i];
        if (suspicion.rank == rank) {
            forget_suspect(swim, i--);
            if (holds(swim, &suspicion)) {
                view_set(&swim->view, rank, swim_told(suspicion.standing));
                swim->port->changed(swim->user, rank, SWIM_ALIVE);
            }
        }
    }
}

/* Each of them in each period, directly and through another; of many, some in turn. */
static void probe_suspects(struct swim *swim)
{
    unsigned most = swim->suspect_count < SUSPECTS_PROBED ? swim->suspect_count : SUSPECTS_PROBED;
    for (unsigned i = 0; i < most; i++) {
        uint32_t rank = swim->suspects[swim->next_suspect++ % swim->suspect_count].rank;
        uint32_t other = choose_other(swim, rank);
        send(swim, SWIM_PING, rank, rank, slowed(swim, swim->options.period_ns));
        if (other != SWIM_NOBODY) {
            send(swim, SWIM_ASK, rank, other, slowed(swim, swim->options.period_ns));
        }
    }
}

static void end_suspicions(struct swim *swim)
{
    for (unsigned i = 0; i < swim->suspect_count; i++) {
        struct suspicion suspicion = swim->suspects[i];
        bool is_over = suspicion.due_ns <= swim->clock_ns;
        if (is_over || !holds(swim, &suspicion)) {
            forget_suspect(swim, i--);
        }
        if (is_over && holds(swim, &suspicion)) {
            swim_hear(swim, suspicion.rank,
                      swim_standing(swim_incarnation_of(suspicion.standing), SWIM_DEAD));
        }
    }
}

/* --- periods --- */

/* Who is held dead may be back, or was never dead but on the other side. */
static void probe_absent(struct swim *swim)
{
    if (swim->view.absent == 0) {
        return;
    }
    for (unsigned looks = 0; looks < LOOKS_MAX; looks++) {
        uint32_t rank = shuffle_next(&swim->absent_order);
        if (rank != swim->options.rank && swim_state_of(swim->view.standings[rank]) == SWIM_DEAD) {
            send(swim, SWIM_PING, rank, rank, swim->options.period_ns);
            return;
        }
    }
}

static void begin_period(struct swim *swim)
{
    swim->period_due_ns = swim->clock_ns + slowed(swim, swim->options.period_ns);
    swim->probe_due_ns = swim->clock_ns + slowed(swim, swim->options.probe_ns);
    swim->subject = choose_subject(swim);
    swim->stage = PROBE_NONE;
    if (swim->subject != SWIM_NOBODY) {
        swim->stage = PROBE_DIRECT;
        swim->probe_token = send(swim, SWIM_PING, swim->subject, swim->subject,
                                 slowed(swim, swim->options.period_ns));
    }
    probe_suspects(swim);
    probe_absent(swim);
}

static void ask_others(struct swim *swim)
{
    uint32_t chosen[SWIM_INDIRECT_MAX];
    swim->stage = PROBE_INDIRECT;
    swim->asked = swim->heard = 0;
    swim->first_ask = swim->token;
    unsigned most = is_member(swim) ? swim->options.indirect : 0;
    for (unsigned i = 0; i < most; i++) {
        uint32_t other = choose_other(swim, swim->subject);
        bool is_new = other != SWIM_NOBODY;
        for (unsigned k = 0; k < swim->asked; k++) {
            is_new &= chosen[k] != other;
        }
        if (is_new) {
            chosen[swim->asked++] = other;
            send(swim, SWIM_ASK, swim->subject, other,
                 slowed(swim, swim->options.period_ns - swim->options.probe_ns));
        }
    }
}

/* Whose helpers are silent, too, is itself who is cut off, or slow. */
static void conclude(struct swim *swim)
{
    uint32_t held = swim->view.standings[swim->subject];
    if (swim->asked > 0 && swim->heard == 0 && swim->health < SWIM_HEALTH_MAX) {
        swim->health++;
    }
    if (is_member(swim) && swim_state_of(held) == SWIM_ALIVE) {
        suspect(swim, swim->subject);
    }
}

/* --- relays --- */

static void answer_relay(struct swim *swim, struct relay *relay, enum swim_kind kind)
{
    static const struct swim_message nothing;
    uint8_t bytes[SWIM_MESSAGE_MAX];
    void *request = relay->request;
    relay->request = NULL;
    size_t length = swim_compose(swim, kind, relay->subject, SWIM_NOBODY, &nothing, bytes);
    swim->port->reply(swim->user, request, bytes, length);
}

static void end_relays(struct swim *swim)
{
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        struct relay *relay = &swim->relays[i];
        if (relay->request != NULL && relay->due_ns <= swim->clock_ns) {
            answer_relay(swim, relay, SWIM_NACK);
        }
    }
}

void swim_advance(struct swim *swim, uint64_t now_ns)
{
    pass(swim, now_ns);
    end_relays(swim);
    if (swim->stage == PROBE_DIRECT && swim->clock_ns >= swim->probe_due_ns) {
        ask_others(swim);
    }
    if (swim->clock_ns >= swim->period_due_ns) {
        if (swim->stage != PROBE_NONE) {
            conclude(swim);
        }
        begin_period(swim);
    }
    end_suspicions(swim);
}

/* --- requests --- */

static void relay(struct swim *swim, void *request, const struct swim_message *asks)
{
    uint8_t bytes[SWIM_MESSAGE_MAX];
    uint64_t time_ns = swim->options.probe_ns;
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        struct relay *free_one = &swim->relays[i];
        if (free_one->request == NULL && asks->subject != swim->options.rank) {
            *free_one = (struct relay){request, asks->subject, 0, swim->clock_ns + time_ns};
            free_one->token = send(swim, SWIM_PING, asks->subject, asks->subject, time_ns);
            return;
        }
    }
    size_t length = swim_compose(swim, SWIM_NACK, asks->subject, asks->from, asks, bytes);
    swim->port->reply(swim->user, request, bytes, length);
}

bool swim_take(struct swim *swim, uint64_t now_ns, void *request, const uint8_t *bytes,
               size_t length)
{
    struct swim_message message;
    uint8_t answer[SWIM_MESSAGE_MAX];
    bool is_good = swim_message_parse(bytes, length, swim->options.size, &message) == NULL &&
                   message.kind <= SWIM_ASK && message.from != swim->options.rank &&
                   (message.kind != SWIM_PING || message.subject == swim->options.rank) &&
                   is_member(swim);
    if (!is_good) {
        return false;
    }
    pass(swim, now_ns);
    swim_hear_message(swim, &message);
    if (message.kind == SWIM_ASK) {
        relay(swim, request, &message);
        return true;
    }
    size_t answer_length =
        swim_compose(swim, SWIM_ACK, message.subject, message.from, &message, answer);
    swim->port->reply(swim->user, request, answer, answer_length);
    return true;
}

void swim_gone(struct swim *swim, const void *request)
{
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        if (swim->relays[i].request == request) {
            swim->relays[i].request = NULL;
        }
    }
}

/* --- answers --- */

static void probe_answered(struct swim *swim)
{
    if (swim->stage != PROBE_NONE) {
        swim->stage = PROBE_NONE;
        swim->health -= swim->health > 0;
    }
}

static struct relay *find_relay(struct swim *swim, uint64_t token)
{
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        if (swim->relays[i].request != NULL && swim->relays[i].token == token) {
            return &swim->relays[i];
        }
    }
    return NULL;
}

static bool is_ask(const struct swim *swim, uint64_t token)
{
    return swim->stage == PROBE_INDIRECT && token >= swim->first_ask &&
           token < swim->first_ask + swim->asked;
}

void swim_answered(struct swim *swim, uint64_t now_ns, uint64_t token, const uint8_t *bytes,
                   size_t length)
{
    struct swim_message message;
    if (swim_message_parse(bytes, length, swim->options.size, &message) != NULL ||
        message.kind < SWIM_ACK || message.from == swim->options.rank) {
        swim_unanswered(swim, now_ns, token);
        return;
    }
    pass(swim, now_ns);
    swim_hear_message(swim, &message);
    struct relay *relay = find_relay(swim, token);
    bool is_ack = message.kind == SWIM_ACK;
    if (is_ack) {
        acquit(swim, message.subject);
    }
    if (relay != NULL) {
        answer_relay(swim, relay, is_ack ? SWIM_ACK : SWIM_NACK);
    } else if (is_ask(swim, token)) {
        swim->heard++;
        if (is_ack && message.subject == swim->subject) {
            probe_answered(swim);
        }
    } else if (token == swim->probe_token && is_ack) {
        probe_answered(swim);
    }
}

void swim_unanswered(struct swim *swim, uint64_t now_ns, uint64_t token)
{
    pass(swim, now_ns);
    struct relay *relay = find_relay(swim, token);
    if (relay != NULL) {
        answer_relay(swim, relay, SWIM_NACK);
    } else if (swim->stage == PROBE_DIRECT && token == swim->probe_token) {
        ask_others(swim);
    }
}

/* --- life --- */

static unsigned logarithm(uint32_t size)
{
    unsigned bits = 0;
    while ((UINT64_C(1) << bits) < size) {
        bits++;
    }
    return bits;
}

bool swim_init(struct swim *swim, const struct swim_port *port, void *user,
               const struct swim_options *options, uint64_t now_ns)
{
    *swim = (struct swim){.port = port, .user = user, .options = *options, .random = options->seed};
    if (!view_init(&swim->view, options->size)) {
        return false;
    }
    news_init(&swim->news, logarithm(options->size) + 4);
    shuffle_init(&swim->order, options->size, shuffle_mix(&swim->random));
    shuffle_init(&swim->absent_order, options->size, shuffle_mix(&swim->random));
    swim->last_ns = now_ns;
    swim->token = 1;
    swim->period_due_ns = shuffle_mix(&swim->random) % options->period_ns;
    return true;
}

void swim_fini(struct swim *swim)
{
    view_fini(&swim->view);
    news_fini(&swim->news);
    *swim = (struct swim){0};
}

void swim_leave(struct swim *swim, uint64_t now_ns)
{
    uint32_t rank = swim->options.rank;
    if (swim->has_left || !is_member(swim)) {
        return;
    }
    pass(swim, now_ns);
    swim->has_left = true;
    view_set(&swim->view, rank,
             swim_standing(swim_incarnation_of(swim->view.standings[rank]), SWIM_LEFT));
    news_add(&swim->news, rank);
    for (unsigned i = 0; i <= swim->options.indirect; i++) {
        uint32_t other = choose_other(swim, SWIM_NOBODY);
        if (other != SWIM_NOBODY) {
            send(swim, SWIM_PING, other, other, swim->options.period_ns);
        }
    }
}
