/* Free lists. */
#include "weir/rpc/pool.h"

#include <stdlib.h>
#include <string.h>

#define CLASS_LEAST 6 /* 64 bytes */
#define SPARE_MAX   ((size_t)8 << 20)

struct spare {
    struct spare *next;
};

void *pool_take(struct pool *pool)
{
    struct spare *object = pool->first;
    if (object == NULL) {
        return calloc(1, pool->size);
    }
    pool->first = object->next;
    return memset(object, 0, pool->cleared);
}

void pool_give(struct pool *pool, void *object)
{
    struct spare *spare = object;
    spare->next = pool->first;
    pool->first = spare;
}

void pool_fini(struct pool *pool)
{
    while (pool->first != NULL) {
        struct spare *spare = pool->first;
        pool->first = spare->next;
        free(spare);
    }
}

static unsigned class_of(size_t length)
{
    unsigned class = CLASS_LEAST;
    while (((size_t)1 << class) < length) {
        class ++;
    }
    return class;
}

struct chunk *chunk_take(struct chunks *chunks, size_t length)
{
    unsigned class = class_of(length);
    struct chunk *chunk = chunks->spare[class];
    if (chunk != NULL) {
        chunks->spare[class] = chunk->next;
        chunks->spare_length -= (size_t)1 << class;
        return chunk;
    }
    chunk = malloc(sizeof(*chunk) + ((size_t)1 << class));
    if (chunk != NULL) {
        chunk->class = class;
    }
    return chunk;
}

void chunk_give(struct chunks *chunks, struct chunk *chunk)
{
    if (chunk == NULL) {
        return;
    }
    size_t length = (size_t)1 << chunk->class;
    if (length > SPARE_MAX - chunks->spare_length) {
        free(chunk);
        return;
    }
    chunk->next = chunks->spare[chunk->class];
    chunks->spare[chunk->class] = chunk;
    chunks->spare_length += length;
}

void chunks_fini(struct chunks *chunks)
{
    for (unsigned class = 0; class < CHUNK_CLASSES; class ++) {
        while (chunks->spare[class] != NULL) {
            struct chunk *chunk = chunks->spare[class];
            chunks->spare[class] = chunk->next;
            free(chunk);
        }
    }
    chunks->spare_length = 0;
}
