/* What is heard and told: standings in, standings out. Not here: probes and time (swim.c). */
#include "weir/bytes.h"
#include "weir/group/swim.h"

/* --- hearing --- */

/* Of ourselves others know what we have said, or a rumor, against which we say more. */
static void hear_of_ourselves(struct swim *swim, uint32_t standing)
{
    uint32_t rank = swim->options.rank;
    uint32_t own = swim->view.standings[rank];
    if (!swim_is_newer(standing, own)) {
        return;
    }
    uint32_t next = swim_incarnation_of(standing) + (swim_state_of(standing) != SWIM_ALIVE);
    view_set(&swim->view, rank, swim_standing(next, swim->has_left ? SWIM_LEFT : SWIM_ALIVE));
    news_add(&swim->news, rank);
    if (swim_state_of(standing) == SWIM_DEAD && swim->health < SWIM_HEALTH_MAX) {
        swim->health++;
    }
}

void swim_hear(struct swim *swim, uint32_t rank, uint32_t standing)
{
    standing = swim_told(standing);
    if (rank == swim->options.rank) {
        hear_of_ourselves(swim, standing);
        return;
    }
    uint32_t held = swim->view.standings[rank];
    if (!swim_is_newer(standing, held)) {
        return;
    }
    enum swim_state state = swim_state_of(standing);
    view_set(&swim->view, rank, standing);
    news_add(&swim->news, rank);
    if (state != swim_state_of(held)) {
        swim->port->changed(swim->user, rank, state);
    }
}

void swim_hear_message(struct swim *swim, const struct swim_message *message)
{
    for (unsigned i = 0; i < message->news_count; i++) {
        struct swim_item item = swim_message_news(message, i);
        swim_hear(swim, item.rank, item.standing);
    }
    for (unsigned i = 0; i < message->entry_count; i++) {
        swim_hear(swim, message->block * SWIM_BLOCK + i, swim_message_entry(message, i));
    }
    if (message->from != SWIM_NOBODY) {
        swim_hear(swim, message->from, message->own);
    }
    swim_hear(swim, message->subject, message->held);
}

/* --- telling --- */

static uint32_t told(const struct swim *swim, uint32_t rank)
{
    return swim_told(swim->view.standings[rank]);
}

static uint8_t *put_item(uint8_t *at, uint32_t rank, uint32_t standing)
{
    put_u32(at, rank);
    put_u32(at + 4, standing);
    return at + 8;
}

/* Who is answered hears first how it is held, if that is not what it says of itself. */
static uint8_t *put_news(struct swim *swim, uint32_t to, uint32_t says, uint8_t *at,
                         struct swim_message *message)
{
    uint32_t ranks[SWIM_NEWS_MAX];
    unsigned most = SWIM_NEWS_MAX;
    if (to != SWIM_NOBODY && swim_is_newer(told(swim, to), says)) {
        at = put_item(at, to, told(swim, to));
        message->news_count++;
        most--;
    }
    unsigned count = news_tell(&swim->news, ranks, most);
    for (unsigned i = 0; i < count; i++) {
        at = put_item(at, ranks[i], told(swim, ranks[i]));
    }
    message->news_count += count;
    return at;
}

static uint8_t *put_digests(struct swim *swim, uint8_t *at, struct swim_message *message)
{
    message->salt = (uint32_t)shuffle_mix(&swim->random);
    message->digest_count = swim_blocks(swim->options.size);
    for (uint32_t block = 0; block < message->digest_count; block++, at += 2) {
        put_u16(at, view_digest(&swim->view, block, message->salt));
    }
    return at;
}

/* The first block that differs, from one that is chosen by chance. */
static uint8_t *put_difference(struct swim *swim, const struct swim_message *asks, uint8_t *at,
                               struct swim_message *message)
{
    uint32_t blocks = asks->digest_count;
    uint32_t start = blocks > 0 ? (uint32_t)(shuffle_mix(&swim->random) % blocks) : 0;
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t block = (start + i) % blocks;
        if (view_digest(&swim->view, block, asks->salt) == swim_message_digest(asks, block)) {
            continue;
        }
        uint32_t first = block * SWIM_BLOCK, left = swim->options.size - first;
        message->block = block;
        message->entry_count = left < SWIM_BLOCK ? left : SWIM_BLOCK;
        for (uint32_t k = 0; k < message->entry_count; k++, at += 4) {
            put_u32(at, told(swim, first + k));
        }
        break;
    }
    return at;
}

size_t swim_compose(struct swim *swim, enum swim_kind kind, uint32_t subject, uint32_t to,
                    const struct swim_message *asks, uint8_t ret_bytes[SWIM_MESSAGE_MAX])
{
    uint32_t rank = swim->options.rank;
    struct swim_message message = {
        .kind = kind,
        .from = rank,
        .size = swim->options.size,
        .subject = subject,
        .held = told(swim, subject),
        .own = rank != SWIM_NOBODY ? swim->view.standings[rank] : 0,
    };
    uint8_t *at = ret_bytes + SWIM_HEADER_LENGTH;
    at =
        put_news(swim, asks != NULL ? to : SWIM_NOBODY, asks != NULL ? asks->own : 0, at, &message);
    if (asks == NULL) {
        at = put_digests(swim, at, &message);
    } else {
        at = put_difference(swim, asks, at, &message);
    }
    swim_header_pack(&message, ret_bytes);
    return (size_t)(at - ret_bytes);
}
