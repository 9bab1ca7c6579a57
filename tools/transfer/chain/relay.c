#include "tools/transfer/chain/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/chain/feed.h"
#include "tools/transfer/chain/stream.h"
#include "tools/transfer/ends/sender.h"
#include "tools/transfer/wire/digest.h"

/* Of messages no source has more under way than its sender's backlog and what it adds at once. */
#define MESSAGES_LENGTH_MAX (2 * SENDER_BACKLOG)
/* Each of the frames costs memory, however short it is; an entry and its end have more. */
#define FRAMES_MAX (MESSAGES_LENGTH_MAX / 16)
/* Of a chunk, at a time. */
#define FETCH_LENGTH (128u << 10)

enum role {
    ROLE_UNKNOWN, /* what comes is held */
    ROLE_FEEDS,
    ROLE_LAST,
};

/* Whom this one is fed by. */
struct inlet {
    struct link *link;     /* NULL: nobody */
    struct relay **holder; /* to be told when the relay ends first */
    const uint8_t *memory; /* which the one that feeds may write to at any time */
    uint64_t from;         /* the first frame that is to come by it */
    uint64_t chunks, released;
    uint64_t acked; /* as it was told; at first nothing, for those behind may have less */
    bool failed;
    struct hop_message announced; /* a CHUNK, the put for which is to come; or of type 0 */
};

struct relay {
    struct link link; /* first: the session's */
    struct relay_host *host;
    struct relay *next;
    struct link *source;
    bool source_closed, given_up;
    bool welcomed;        /* the source may push to here */
    struct stream stream; /* up to its end has been taken here */
    uint8_t *fetched;     /* its chunks, in turn: as many as there may be; NULL: no memory yet */
    uint64_t fetched_count;
    struct digest *digest;
    struct inlet inlet;
    bool awaits; /* somebody, by the token */
    struct hop_token token;
    char why[HOP_WHY_LENGTH]; /* the one before is gone */
    enum role role;
    struct hop_target target; /* with ROLE_FEEDS */
    unsigned address;         /* of it, that is tried next */
    struct feed *feed;        /* NULL: none */
    uint64_t below;           /* all behind have what is before it */
};

static const struct link_operations operations;
static const struct link_events source_events;

static bool say_to_source(struct relay *relay, const struct hop_message *message)
{
    uint8_t bytes[HOP_LENGTH_MAX];
    const struct weir_piece piece = {bytes, hop_pack(message, bytes)};
    return relay->source->operations->send(relay->source, &piece, 1);
}

/* Asks for somebody to come. */
static bool await(struct relay *relay)
{
    struct hop_message message = {.type = HOP_READY};
    if (!relay->host->random(relay->token.id, HOP_ID_LENGTH) ||
        !relay->host->random(relay->token.secret.bytes, SECRET_LENGTH)) {
        return false;
    }
    relay->token.guarded = relay->host->guarded;
    relay->awaits = true;
    message.ready = relay->token;
    snprintf(message.why, sizeof(message.why), "%s", relay->why);
    return say_to_source(relay, &message);
}

struct relay *relay_create(struct relay_host *host, struct link *source)
{
    struct relay *relay = calloc(1, sizeof(*relay));
    if (relay == NULL) {
        return NULL;
    }
    relay->link.operations = &operations;
    relay->link.carries_data = true;
    relay->host = host;
    relay->source = source;
    if (!await(relay)) {
        free(relay);
        return NULL;
    }
    source->events = &source_events;
    source->user = relay;
    relay->next = host->relays;
    host->relays = relay;
    return relay;
}

struct link *relay_link(struct relay *relay)
{
    return &relay->link;
}

static void end_feed(struct relay *relay)
{
    if (relay->feed != NULL) {
        relay->host->dialer.drop(relay->host->dialer.user, feed_link(relay->feed));
        feed_destroy(relay->feed);
        relay->feed = NULL;
    }
}

/* The one that feeds is not needed any more, or is not to be believed. */
static void end_inlet(struct relay *relay, const char *why)
{
    struct inlet *inlet = &relay->inlet;
    if (inlet->link != NULL && !inlet->failed) {
        inlet->failed = true;
        snprintf(relay->why, sizeof(relay->why), "%s", why);
        inlet->link->operations->abort(inlet->link, why);
    }
}

void relay_destroy(struct relay *relay)
{
    if (relay == NULL) {
        return;
    }
    end_feed(relay);
    end_inlet(relay, "the copy is over");
    if (relay->inlet.holder != NULL) {
        *relay->inlet.holder = NULL;
    }
    for (struct relay **at = &relay->host->relays; *at != NULL; at = &(*at)->next) {
        if (*at == relay) {
            *at = relay->next;
            break;
        }
    }
    stream_clear(&relay->stream);
    free(relay->fetched);
    digest_destroy(relay->digest);
    explicit_bzero(&relay->token, sizeof(relay->token));
    explicit_bzero(&relay->target, sizeof(relay->target));
    free(relay);
}

/* Fed from outside, all of it at once, or not at all. */
static void give_up(struct relay *relay, const char *why)
{
    relay->given_up = true;
    relay->source->operations->abort(relay->source, why);
    end_inlet(relay, why);
}

/* The session's link has its backlog from the source's. */
static void follow(struct relay *relay)
{
    relay->link.backlog_length = relay->source->backlog_length;
    relay->link.backlog_count = relay->source->backlog_count;
}

/* What is held for those behind is let go of when they have it, and who feeds is told. */
static void release(struct relay *relay)
{
    struct stream *stream = &relay->stream;
    struct inlet *inlet = &relay->inlet;
    uint64_t below = relay->role == ROLE_LAST ? stream->end : relay->below;
    if (relay->feed != NULL && feed_acked(relay->feed) > below) {
        below = feed_acked(relay->feed);
    }
    below = below < stream->end ? below : stream->end;
    relay->below = below;
    while (stream->begin < below) {
        const struct frame *frame = stream_at(stream, stream->begin);
        inlet->released += frame->is_chunk && stream->begin >= inlet->from;
        stream_drop(stream);
    }
    if (inlet->link != NULL && !inlet->failed && inlet->acked < below) {
        const struct hop_message message = {.type = HOP_ACK, .acked = below};
        uint8_t bytes[HOP_LENGTH_MAX];
        const struct weir_piece piece = {bytes, hop_pack(&message, bytes)};
        inlet->acked = below;
        inlet->link->operations->send(inlet->link, &piece, 1);
    }
}

/* Nobody is to be fed from here any more, for now: the source says what next. */
static void say_lost(struct relay *relay, const char *why)
{
    struct hop_message message = {.type = HOP_LOST};
    memcpy(message.ready.id, relay->target.token.id, HOP_ID_LENGTH);
    snprintf(message.why, sizeof(message.why), "%s", why);
    relay->address = relay->target.address_count;
    say_to_source(relay, &message);
}

/* Addresses in turn, until one of them works. */
static void dial(struct relay *relay, const char *why)
{
    char text[HOP_WHY_LENGTH];
    snprintf(text, sizeof(text), "%s", why);
    while (relay->feed == NULL && relay->address < relay->target.address_count) {
        struct link *link = relay->host->dialer.dial(relay->host->dialer.user, &relay->target,
                                                     relay->address++, text);
        if (link == NULL) {
            continue;
        }
        relay->feed = feed_create(link, &relay->stream, relay->target.token.id);
        if (relay->feed == NULL) {
            relay->host->dialer.drop(relay->host->dialer.user, link);
        }
    }
    if (relay->feed == NULL) {
        say_lost(relay, text);
    }
}

static void feed_on(struct relay *relay)
{
    if (relay->feed != NULL && feed_is_closed(relay->feed)) {
        char why[HOP_WHY_LENGTH];
        bool began = feed_has_begun(relay->feed);
        snprintf(why, sizeof(why), "%s", feed_why(relay->feed));
        end_feed(relay);
        if (began) {
            say_lost(relay, why);
        } else {
            dial(relay, why);
        }
    }
    if (relay->feed != NULL) {
        feed_pump(relay->feed);
    }
}

static void take_target(struct relay *relay, const struct hop_target *target)
{
    end_feed(relay);
    relay->role = ROLE_FEEDS;
    relay->target = *target;
    relay->address = 0;
    dial(relay, "no address of it is known");
}

/* Once a link has closed, who comes next is awaited. */
static void renew(struct relay *relay, const uint8_t id[HOP_ID_LENGTH])
{
    if (memcmp(relay->token.id, id, HOP_ID_LENGTH) != 0) {
        return; /* there is a newer one, which is on its way */
    }
    if (relay->inlet.link != NULL) {
        end_inlet(relay, "another one is to come");
    } else if (!await(relay)) {
        give_up(relay, "no random bytes");
    }
}

static void source_opened(void *user)
{
}

static void source_received(void *user, const void *bytes, size_t length)
{
    struct relay *relay = user;
    struct hop_message message;
    follow(relay);
    if (!hop_is_one(bytes, length)) {
        relay->link.events->received(relay->link.user, bytes, length);
        return;
    }
    bool sound = relay->welcomed && hop_parse(bytes, length, &message);
    if (relay->given_up) {
        return;
    }
    if (sound && message.type == HOP_FORWARD) {
        take_target(relay, &message.forward);
    } else if (sound && message.type == HOP_RENEW) {
        renew(relay, message.ready.id);
    } else if (sound && message.type == HOP_LAST) {
        end_feed(relay);
        relay->role = ROLE_LAST;
    } else {
        give_up(relay, "it broke the protocol of a chain");
    }
}

static void source_noticed(void *user, uint32_t notice, size_t length)
{
    give_up(user, "data came from the source itself");
}

static void source_put_done(void *user, size_t offset)
{
}

static void source_closed(void *user, const struct weir_error *reason)
{
    struct relay *relay = user;
    relay->source_closed = true;
    end_inlet(relay, "the source is gone");
    end_feed(relay);
    relay->link.events->closed(relay->link.user, reason);
}

static const struct link_events source_events = {
    .opened = source_opened,
    .received = source_received,
    .noticed = source_noticed,
    .put_done = source_put_done,
    .closed = source_closed,
};

static bool link_send(struct link *link, const struct weir_piece *pieces, unsigned count)
{
    struct relay *relay = (struct relay *)link;
    bool sent = relay->source->operations->send(relay->source, pieces, count);
    relay->welcomed |= count > 0 && *(const uint8_t *)pieces[0].bytes == MESSAGE_WELCOME;
    follow(relay);
    return sent;
}

static bool link_flush(struct link *link)
{
    struct relay *relay = (struct relay *)link;
    if (relay->source_closed) {
        return false;
    }
    feed_on(relay);
    release(relay);
    if (relay->inlet.link != NULL) {
        relay->inlet.link->operations->flush(relay->inlet.link);
    }
    return relay->source->operations->flush(relay->source);
}

static bool link_put(struct link *link, const struct link_put *put)
{
    return false;
}

static void *link_allocate(struct link *link, size_t length, unsigned rights,
                           struct weir_remote *ret_remote, struct weir_error *ret_error)
{
    snprintf(ret_error->message, sizeof(ret_error->message), "a relay has no memory for data");
    return NULL;
}

static void link_close(struct link *link)
{
    struct relay *relay = (struct relay *)link;
    relay->source->operations->close(relay->source);
}

static void link_abort(struct link *link, const char *reason)
{
    give_up((struct relay *)link, reason);
}

static const struct link_operations operations = {
    .send = link_send,
    .flush = link_flush,
    .put = link_put,
    .allocate = link_allocate,
    .close = link_close,
    .abort = link_abort,
};

static struct relay *find(const struct relay_host *host, const char *name)
{
    char its_name[HOP_NAME_LENGTH];
    for (struct relay *relay = host->relays; relay != NULL; relay = relay->next) {
        hop_name(relay->token.id, its_name);
        if (relay->awaits && strcmp(its_name, name) == 0) {
            return relay;
        }
    }
    return NULL;
}

const struct secret *relay_secret(const struct relay_host *host, const char *name)
{
    const struct relay *relay = find(host, name);
    return relay != NULL ? &relay->token.secret : NULL;
}

/* False: no memory. */
static bool have_memory(struct relay *relay)
{
    if (relay->fetched == NULL) {
        relay->fetched = malloc((size_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT);
    }
    if (relay->digest == NULL) {
        relay->digest = digest_create();
    }
    return relay->fetched != NULL && relay->digest != NULL;
}

/* Says from where on, and gives memory. */
static bool take(struct relay *relay)
{
    struct inlet *inlet = &relay->inlet;
    struct weir_error error;
    struct hop_message message = {.type = HOP_TAKE};
    uint8_t bytes[HOP_LENGTH_MAX];
    if (!have_memory(relay)) {
        return false;
    }
    inlet->memory =
        inlet->link->operations->allocate(inlet->link, (size_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT,
                                          WEIR_REMOTE_WRITE, &message.take.remote, &error);
    if (inlet->memory == NULL) {
        return false;
    }
    inlet->from = message.take.position = relay->stream.end;
    message.take.chunk_length = HOP_CHUNK_LENGTH;
    message.take.chunk_count = HOP_CHUNK_COUNT;
    const struct weir_piece piece = {bytes, hop_pack(&message, bytes)};
    return inlet->link->operations->send(inlet->link, &piece, 1);
}

bool relay_attach(struct relay_host *host, const char *name, const void *bytes, size_t length,
                  struct link *link, struct relay **holder)
{
    struct hop_message message;
    char its_name[HOP_NAME_LENGTH];
    if (!hop_parse(bytes, length, &message) || message.type != HOP_ATTACH) {
        return false;
    }
    hop_name(message.ready.id, its_name);
    struct relay *relay = find(host, its_name);
    if (relay == NULL || !relay->welcomed || (host->guarded && strcmp(its_name, name) != 0) ||
        relay->inlet.link != NULL) {
        return false;
    }
    relay->inlet = (struct inlet){.link = link, .holder = holder};
    relay->awaits = false;
    *holder = relay;
    message.type = HOP_FED;
    if (!take(relay) || !say_to_source(relay, &message)) {
        end_inlet(relay, "no memory for chunks");
    }
    return true;
}

/* More than any source leaves to be taken. */
static bool is_too_much(const struct stream *stream)
{
    return stream->messages_length > MESSAGES_LENGTH_MAX || stream->chunks > HOP_CHUNK_COUNT ||
           stream->end - stream->begin > FRAMES_MAX;
}

/* It is there: it goes on to whom is fed from here before anything else. */
static bool pass_on(struct relay *relay)
{
    if (relay->feed != NULL) {
        feed_pump(relay->feed);
    }
    return true;
}

void relay_received(struct relay *relay, const void *bytes, size_t length)
{
    struct inlet *inlet = &relay->inlet;
    if (inlet->failed) {
        return;
    }
    if (!hop_is_one(bytes, length)) {
        if (!stream_add_message(&relay->stream, bytes, length)) {
            give_up(relay, "no memory");
            return;
        }
        if (is_too_much(&relay->stream)) {
            give_up(relay, "more is under way than a copy has");
            return;
        }
        pass_on(relay);
        follow(relay);
        relay->link.events->received(relay->link.user, bytes, length);
        return;
    }
    bool sound = hop_parse(bytes, length, &inlet->announced);
    if (!sound || inlet->announced.type != HOP_CHUNK) {
        end_inlet(relay, "it broke the protocol of a chain");
    }
}

/* Whoever feeds may be one that is itself fed, and the digests are the source's: what one puts must
 * not be other bytes when it is used than when it was proven. So each byte is read once out of what
 * that one may write to (where chunks are sealed: have others opened over), and what is proven,
 * held, passed on and written is the copy. That the source itself feeds this one is not known here.
 * In parts that stay in the processor's cache. */
static const uint8_t *fetch(struct relay *relay, const uint8_t *bytes, size_t length,
                            uint8_t ret_digest[DIGEST_LENGTH])
{
    unsigned place = (unsigned)(relay->fetched_count % HOP_CHUNK_COUNT);
    uint8_t *fetched = relay->fetched + (size_t)place * HOP_CHUNK_LENGTH;
    digest_start(relay->digest);
    for (size_t done = 0; done < length; done += FETCH_LENGTH) {
        size_t count = length - done < FETCH_LENGTH ? length - done : FETCH_LENGTH;
        memcpy(fetched + done, bytes + done, count);
        digest_data(relay->digest, fetched + done, count);
    }
    digest_result(relay->digest, ret_digest);
    return fetched;
}

void relay_noticed(struct relay *relay, uint32_t notice, size_t length)
{
    struct inlet *inlet = &relay->inlet;
    uint8_t digest[DIGEST_LENGTH];
    unsigned slot = (unsigned)(inlet->chunks % HOP_CHUNK_COUNT);
    const struct hop_message announced = inlet->announced;
    inlet->announced = (struct hop_message){0};
    if (inlet->failed) {
        return;
    }
    if (announced.type != HOP_CHUNK || announced.chunk.length != length ||
        length > HOP_CHUNK_LENGTH || inlet->chunks - inlet->released >= HOP_CHUNK_COUNT ||
        notice != notice_pack((uint16_t)slot, (uint16_t)inlet->chunks)) {
        end_inlet(relay, "it put a chunk where none was wanted");
        return;
    }
    if (relay->stream.chunks >= HOP_CHUNK_COUNT) { /* there is no place to fetch it to */
        give_up(relay, "more is under way than a copy has");
        return;
    }
    const uint8_t *bytes =
        fetch(relay, inlet->memory + (size_t)slot * HOP_CHUNK_LENGTH, length, digest);
    if (memcmp(digest, announced.chunk.digest, DIGEST_LENGTH) != 0) {
        end_inlet(relay, "a chunk is not what it was at the source (digest)");
        return;
    }
    inlet->chunks++;
    relay->fetched_count++;
    if (!stream_add_chunk(&relay->stream, bytes, length, digest, 0)) {
        give_up(relay, "no memory");
        return;
    }
    pass_on(relay);
    follow(relay);
    relay->link.events->data(relay->link.user, bytes, length);
}

void relay_closed(struct relay *relay, const char *why)
{
    struct inlet *inlet = &relay->inlet;
    if (!inlet->failed) {
        snprintf(relay->why, sizeof(relay->why), "%s", why);
    }
    *inlet = (struct inlet){0};
    if (!relay->source_closed && !relay->given_up && !await(relay)) {
        give_up(relay, "no random bytes");
    }
}
