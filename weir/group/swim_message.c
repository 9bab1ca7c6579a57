/* Packing and parsing. */
#include "weir/group/swim_message.h"

#include "weir/bytes.h"

#define MAGIC   0x7377 /* "sw" */
#define VERSION 1

void swim_header_pack(const struct swim_message *message, uint8_t ret_bytes[SWIM_HEADER_LENGTH])
{
    put_u16(ret_bytes, MAGIC);
    ret_bytes[2] = VERSION;
    ret_bytes[3] = (uint8_t)message->kind;
    put_u32(ret_bytes + 4, message->from);
    put_u32(ret_bytes + 8, message->size);
    put_u32(ret_bytes + 12, message->subject);
    put_u32(ret_bytes + 16, message->held);
    put_u32(ret_bytes + 20, message->own);
    put_u32(ret_bytes + 24, message->salt);
    put_u16(ret_bytes + 28, (uint16_t)message->news_count);
    put_u16(ret_bytes + 30, (uint16_t)message->digest_count);
    put_u16(ret_bytes + 32, (uint16_t)message->block);
    put_u16(ret_bytes + 34, (uint16_t)message->entry_count);
}

static const char *check(const struct swim_message *message, uint32_t size)
{
    if (message->size != size) {
        return "a group of another size";
    }
    if ((message->from >= size && message->from != SWIM_NOBODY) || message->subject >= size) {
        return "a rank that there is not";
    }
    if (message->news_count > SWIM_NEWS_MAX) {
        return "too much news";
    }
    if (message->digest_count != 0 && message->digest_count != swim_blocks(size)) {
        return "digests of another group";
    }
    if (message->entry_count != 0 &&
        (message->block >= swim_blocks(size) || message->entry_count > SWIM_BLOCK ||
         message->entry_count > size - message->block * SWIM_BLOCK)) {
        return "entries of ranks that there are not";
    }
    return NULL;
}

const char *swim_message_parse(const uint8_t *bytes, size_t length, uint32_t size,
                               struct swim_message *ret_message)
{
    if (length < SWIM_HEADER_LENGTH || get_u16(bytes) != MAGIC) {
        return "a message that is none of a group's";
    }
    if (bytes[2] != VERSION) {
        return "another version of group";
    }
    if (bytes[3] < SWIM_PING || bytes[3] >= SWIM_KIND_END) {
        return "a message of unknown kind";
    }
    struct swim_message message = {
        .kind = (enum swim_kind)bytes[3],
        .from = get_u32(bytes + 4),
        .size = get_u32(bytes + 8),
        .subject = get_u32(bytes + 12),
        .held = get_u32(bytes + 16),
        .own = get_u32(bytes + 20),
        .salt = get_u32(bytes + 24),
        .news_count = get_u16(bytes + 28),
        .digest_count = get_u16(bytes + 30),
        .block = get_u16(bytes + 32),
        .entry_count = get_u16(bytes + 34),
    };
    const char *wrong = check(&message, size);
    if (wrong != NULL) {
        return wrong;
    }
    message.news = bytes + SWIM_HEADER_LENGTH;
    message.digests = message.news + 8 * message.news_count;
    message.entries = message.digests + 2 * message.digest_count;
    if (length != SWIM_HEADER_LENGTH + 8 * message.news_count + 2 * message.digest_count +
                      4 * message.entry_count) {
        return "a message of another length than it says";
    }
    for (unsigned i = 0; i < message.news_count; i++) {
        if (swim_message_news(&message, i).rank >= size) {
            return "news of a rank that there is not";
        }
    }
    *ret_message = message;
    return NULL;
}

struct swim_item swim_message_news(const struct swim_message *message, unsigned index)
{
    const uint8_t *at = message->news + 8 * index;
    return (struct swim_item){get_u32(at), get_u32(at + 4)};
}

uint16_t swim_message_digest(const struct swim_message *message, unsigned index)
{
    return get_u16(message->digests + 2 * index);
}

uint32_t swim_message_entry(const struct swim_message *message, unsigned index)
{
    return get_u32(message->entries + 4 * index);
}
