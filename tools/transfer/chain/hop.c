#include "tools/transfer/chain/hop.h"

#include <stdio.h>
#include <string.h>

/* Both ways through the same list of fields: `reads` says which. */
struct cursor {
    uint8_t *at;
    size_t left;
    bool reads, failed;
};

static void take_bytes(struct cursor *cursor, void *field, size_t length)
{
    if (length > cursor->left || cursor->failed) {
        cursor->failed = true;
        return;
    }
    memcpy(cursor->reads ? field : cursor->at, cursor->reads ? cursor->at : field, length);
    cursor->at += length;
    cursor->left -= length;
}

static uint64_t take_number(struct cursor *cursor, uint64_t number, unsigned length)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(number >> 8 * (length - 1 - i));
    }
    take_bytes(cursor, bytes, length);
    number = 0;
    for (unsigned i = 0; i < length && !cursor->failed; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

static void take_flag(struct cursor *cursor, bool *flag)
{
    uint64_t number = take_number(cursor, *flag, 1);
    cursor->failed |= number > 1;
    *flag = number == 1;
}

static void take_text(struct cursor *cursor, char *text, size_t capacity)
{
    size_t length = (size_t)take_number(cursor, cursor->reads ? 0 : strlen(text), 2);
    if (length >= capacity) {
        cursor->failed = true;
        return;
    }
    take_bytes(cursor, text, length);
    if (cursor->reads && !cursor->failed) {
        text[length] = 0;
        cursor->failed |= strlen(text) != length;
    }
}

static void take_token(struct cursor *cursor, struct hop_token *token)
{
    take_bytes(cursor, token->id, HOP_ID_LENGTH);
    take_bytes(cursor, token->secret.bytes, SECRET_LENGTH);
    take_flag(cursor, &token->guarded);
}

static void take_target(struct cursor *cursor, struct hop_target *target)
{
    take_token(cursor, &target->token);
    take_flag(cursor, &target->encrypt);
    target->address_count = (unsigned)take_number(cursor, target->address_count, 1);
    cursor->failed |= target->address_count > HOP_ADDRESSES_MAX;
    for (unsigned i = 0; i < target->address_count && !cursor->failed; i++) {
        take_text(cursor, target->addresses[i], HOP_ADDRESS_LENGTH);
    }
}

static void take_memory(struct cursor *cursor, struct hop_message *message)
{
    uint8_t remote[WEIR_REMOTE_LENGTH];
    message->take.position = take_number(cursor, message->take.position, 8);
    message->take.chunk_length = (uint32_t)take_number(cursor, message->take.chunk_length, 4);
    message->take.chunk_count = (uint16_t)take_number(cursor, message->take.chunk_count, 2);
    weir_remote_pack(&message->take.remote, remote);
    take_bytes(cursor, remote, sizeof(remote));
    message->take.remote = weir_remote_unpack(remote);
    uint64_t length = (uint64_t)message->take.chunk_length * message->take.chunk_count;
    cursor->failed |= length == 0 || message->take.chunk_length > CHUNK_LENGTH_MAX ||
                      message->take.chunk_count > CHUNK_COUNT_MAX ||
                      (cursor->reads && message->take.remote.length < length);
}

static void take_message(struct cursor *cursor, struct hop_message *message)
{
    switch (message->type) {
    case HOP_JOIN:
        message->version = (uint16_t)take_number(cursor, message->version, 2);
        return;
    case HOP_READY:
        take_token(cursor, &message->ready);
        take_text(cursor, message->why, HOP_WHY_LENGTH);
        return;
    case HOP_LOST:
        take_bytes(cursor, message->ready.id, HOP_ID_LENGTH);
        take_text(cursor, message->why, HOP_WHY_LENGTH);
        return;
    case HOP_FED:
    case HOP_RENEW:
    case HOP_ATTACH:
        take_bytes(cursor, message->ready.id, HOP_ID_LENGTH);
        return;
    case HOP_FORWARD:
        take_target(cursor, &message->forward);
        return;
    case HOP_LAST:
        return;
    case HOP_TAKE:
        take_memory(cursor, message);
        return;
    case HOP_CHUNK:
        message->chunk.length = (uint32_t)take_number(cursor, message->chunk.length, 4);
        take_bytes(cursor, message->chunk.digest, DIGEST_LENGTH);
        cursor->failed |= message->chunk.length == 0;
        return;
    case HOP_ACK:
        message->acked = take_number(cursor, message->acked, 8);
        return;
    }
    cursor->failed = true;
}

bool hop_is_one(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    return length > 0 && at[0] >= HOP_JOIN && at[0] <= HOP_ACK;
}

bool hop_parse(const void *bytes, size_t length, struct hop_message *ret_message)
{
    if (!hop_is_one(bytes, length)) {
        return false;
    }
    *ret_message = (struct hop_message){.type = *(const uint8_t *)bytes};
    struct cursor cursor = {.at = (uint8_t *)bytes + 1, .left = length - 1, .reads = true};
    take_message(&cursor, ret_message);
    return !cursor.failed && cursor.left == 0;
}

size_t hop_pack(const struct hop_message *message, uint8_t ret_bytes[HOP_LENGTH_MAX])
{
    struct hop_message fields = *message;
    struct cursor cursor = {.at = ret_bytes + 1, .left = HOP_LENGTH_MAX - 1};
    ret_bytes[0] = (uint8_t)message->type;
    take_message(&cursor, &fields);
    return (size_t)(cursor.at - ret_bytes);
}

void hop_name(const uint8_t id[HOP_ID_LENGTH], char ret_name[HOP_NAME_LENGTH])
{
    strcpy(ret_name, "hop-");
    for (unsigned i = 0; i < HOP_ID_LENGTH; i++) {
        snprintf(ret_name + 4 + 2 * i, 3, "%02x", id[i]);
    }
}
