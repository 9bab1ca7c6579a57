/* riomap and riowrite: memory of the application that the peer writes to by an offset, beside the
 * stream of bytes but in its order.
 *
 * A mapping travels as an entry of a table in the peer's memory, just before the next bytes that
 * are sent. What stands in our own table is the peer's word: it is checked for sense before use,
 * and can only name memory of the peer. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/rdmacm/rsocket.h"

struct mapping {
    struct list_node node;
    uint64_t offset;
    struct ibv_mr *region;
    int slot; /* in the peer's table; -1: only local */
};

static struct rsocket *lookup_stream(int descriptor)
{
    struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket != NULL && socket->type != SOCK_STREAM) {
        rsocket_leave(socket);
        errno = EOPNOTSUPP;
        return NULL;
    }
    return socket;
}

/* -1: none is free. With map_lock held. */
static int free_slot(struct stream *stream)
{
    if (stream->slots == NULL && stream->peer_mappings.length != 0) {
        stream->slots = calloc(stream->peer_mappings.length, sizeof *stream->slots);
    }
    if (stream->slots == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < stream->peer_mappings.length; i++) {
        if (!stream->slots[i]) {
            return (int)i;
        }
    }
    return -1;
}

static int map(struct stream *stream, const struct iovec *memory, int protection, uint64_t offset)
{
    struct mapping *mapping = calloc(1, sizeof *mapping);
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (mapping == NULL) {
        return cma_error(ENOMEM);
    }
    mapping->offset = offset;
    mapping->slot = -1;
    if ((protection & PROT_WRITE) != 0) {
        access |= IBV_ACCESS_REMOTE_WRITE;
        mapping->slot = free_slot(stream);
        if (mapping->slot < 0) {
            free(mapping);
            return cma_error(ENOMEM);
        }
    }
    mapping->region = ibv_reg_mr(stream->id->pd, memory->iov_base, memory->iov_len, access);
    if (mapping->region == NULL) {
        int error = errno;
        free(mapping);
        return cma_error(error);
    }
    if (mapping->slot >= 0) {
        stream->slots[mapping->slot] = true;
        list_append(&stream->unsent, &mapping->node);
        atomic_store(&stream->has_unsent, true);
    } else {
        list_append(&stream->mapped, &mapping->node);
    }
    return 0;
}

PUBLIC off_t riomap(int descriptor, void *bytes, size_t length, int protection, int flags,
                    off_t offset)
{
    RSOCKET_USED struct rsocket *socket = lookup_stream(descriptor);
    if (socket == NULL) {
        return -1;
    }
    struct stream *stream = stream_of(socket);
    bool is_told = (protection & PROT_WRITE) != 0; /* to the peer, in an entry of its table */
    if (stream->id->pd == NULL || socket->is_foreign || (protection & ~PROT_WRITE) != 0 ||
        (is_told && length > UINT32_MAX)) {
        return cma_error(EINVAL);
    }
    const struct iovec memory = {bytes, length};
    offset = offset == -1 ? (off_t)(uintptr_t)bytes : offset;
    pthread_mutex_lock(&stream->map_lock);
    int result = map(stream, &memory, protection, (uint64_t)offset);
    pthread_mutex_unlock(&stream->map_lock);
    return result == 0 ? offset : -1;
}

static void forget(struct stream *stream, struct mapping *mapping)
{
    list_remove(&mapping->node);
    ibv_dereg_mr(mapping->region);
    if (mapping->slot >= 0) {
        stream->slots[mapping->slot] = false;
    }
    free(mapping);
}

static bool forget_exactly(struct stream *stream, struct list *list, const struct iovec *memory)
{
    LIST_FOR_EACH(node, list)
    {
        struct mapping *mapping = CONTAINER_OF(node, struct mapping, node);
        if (mapping->region->addr == memory->iov_base &&
            mapping->region->length == memory->iov_len) {
            forget(stream, mapping);
            return true;
        }
    }
    return false;
}

PUBLIC int riounmap(int descriptor, void *bytes, size_t length)
{
    RSOCKET_USED struct rsocket *socket = lookup_stream(descriptor);
    const struct iovec memory = {bytes, length};
    if (socket == NULL) {
        return -1;
    }
    struct stream *stream = stream_of(socket);
    pthread_mutex_lock(&stream->map_lock);
    bool found = forget_exactly(stream, &stream->mapped, &memory) ||
                 forget_exactly(stream, &stream->unsent, &memory);
    atomic_store(&stream->has_unsent, !list_is_empty(&stream->unsent));
    pthread_mutex_unlock(&stream->map_lock);
    return found ? 0 : cma_error(EINVAL);
}

void stream_forget_mappings(struct stream *stream)
{
    LIST_FOR_EACH(node, &stream->mapped)
    {
        forget(stream, CONTAINER_OF(node, struct mapping, node));
    }
    LIST_FOR_EACH(other, &stream->unsent)
    {
        forget(stream, CONTAINER_OF(other, struct mapping, node));
    }
    free(stream->slots);
    stream->slots = NULL;
}

static int send_mapping(struct stream *stream, const struct mapping *mapping)
{
    uint8_t bytes[RSOCKET_MAPPING_LENGTH];
    const struct iovec piece = {bytes, sizeof bytes};
    struct stream_cursor cursor = {.piece = &piece};
    const struct rsocket_mapping entry = {
        .offset = mapping->offset,
        .place = {.address = (uintptr_t)mapping->region->addr,
                  .key = mapping->region->rkey,
                  .length = (uint32_t)mapping->region->length},
    };
    const struct stream_write write = {
        .address = stream->peer_mappings.address + (uint64_t)mapping->slot * RSOCKET_MAPPING_LENGTH,
        .key = stream->peer_mappings.key,
        .length = sizeof bytes,
        .immediate = rsocket_message_encode(RSOCKET_MAPPING, (uint32_t)mapping->slot),
        .has_immediate = true,
    };
    rsocket_mapping_encode(&entry, stream->swaps, bytes);
    return stream_write(stream, &write, &cursor);
}

/* Where it has not been taken back meanwhile. */
static int send_first(struct stream *stream)
{
    int result = 0;
    pthread_mutex_lock(&stream->map_lock);
    struct list_node *node = list_pop_first(&stream->unsent);
    if (node != NULL) {
        list_append(&stream->mapped, node);
        result = send_mapping(stream, CONTAINER_OF(node, struct mapping, node));
    }
    atomic_store(&stream->has_unsent, !list_is_empty(&stream->unsent));
    pthread_mutex_unlock(&stream->map_lock);
    return result;
}

int stream_send_mappings(struct stream *stream, int flags)
{
    int result = 0;
    while (result == 0 && atomic_load(&stream->has_unsent)) {
        result = stream_wait_for_room(stream, flags); /* who maps more does not wait for that */
        if (result == 0) {
            result = send_first(stream);
        }
    }
    return result;
}

/* Where `offset` lies in the peer's memory, and how much follows it there. */
static bool find_place(const struct stream *stream, uint64_t offset,
                       struct rsocket_place *ret_place)
{
    for (uint32_t i = 0; i < stream->base.sizes.mappings; i++) {
        volatile struct rsocket_mapping *entry = &stream->mappings[i];
        const uint64_t start = entry->offset;
        const uint32_t length = entry->place.length;
        if (offset >= start && offset - start < length) {
            *ret_place = (struct rsocket_place){
                .address = entry->place.address + (offset - start),
                .key = entry->place.key,
                .length = length - (uint32_t)(offset - start),
            };
            return true;
        }
    }
    return false;
}

static uint32_t smaller(uint32_t a, uint64_t b)
{
    return b < a ? (uint32_t)b : a;
}

static ssize_t write_directly(struct stream *stream, const struct iovec *piece, uint64_t offset,
                              int flags)
{
    struct stream_cursor cursor = {.piece = piece};
    struct rsocket_place place;
    size_t sent = 0;
    uint32_t transfer = FIRST_TRANSFER;
    int result = stream_send_mappings(stream, flags);
    while (result == 0 && sent < piece->iov_len) {
        result = stream_wait_for_room(stream, flags);
        if (result != 0 || !find_place(stream, offset + sent, &place)) {
            break;
        }
        const struct stream_write write = {
            .address = place.address,
            .key = place.key,
            .length = smaller(smaller(smaller(transfer, piece->iov_len - sent), place.length),
                              stream_room(stream)),
        };
        result = stream_write(stream, &write, &cursor);
        sent += result == 0 ? write.length : 0;
        transfer = transfer < TRANSFER_MAX ? transfer * 2 : transfer;
    }
    return result != 0 && sent == 0 ? -1 : (ssize_t)sent;
}

PUBLIC size_t riowrite(int descriptor, const void *bytes, size_t count, off_t offset, int flags)
{
    RSOCKET_USED struct rsocket *socket = lookup_stream(descriptor);
    if (socket == NULL) {
        return (size_t)-1;
    }
    struct stream *stream = stream_of(socket);
    if (stream_finish_connecting(stream, rsocket_blocks(socket, flags)) != 0) {
        return (size_t)-1;
    }
    if (stream->targets == NULL) {
        errno = ENOTCONN;
        return (size_t)-1;
    }
    const struct iovec piece = {(void *)bytes, count};
    RSOCKET_HOLDS(held, &stream->send_lock);
    return (size_t)write_directly(stream, &piece, (uint64_t)offset, flags);
}
