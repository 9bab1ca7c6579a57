/* Memory that is used again: objects of one size, and chunks of bytes in sizes of powers of two. In
 * the steady state neither asks the system for anything. */
#ifndef WEIR_RPC_POOL_H
#define WEIR_RPC_POOL_H

#include <stddef.h>
#include <stdint.h>

struct spare;

struct pool {
    size_t size;    /* of an object */
    size_t cleared; /* so much of it when it is taken */
    struct spare *first;
};

/* NULL: no memory. */
void *pool_take(struct pool *pool);
void pool_give(struct pool *pool, void *object);
/* Objects that were not given back are not the pool's. */
void pool_fini(struct pool *pool);

#define CHUNK_CLASSES 32

struct chunk {
    struct chunk *next;
    unsigned class;
    uint8_t bytes[];
};

struct chunks {
    struct chunk *spare[CHUNK_CLASSES];
    size_t spare_length; /* of all: what lies idle is bounded */
};

/* Room for `length` bytes, at most 2^31; NULL: no memory. */
struct chunk *chunk_take(struct chunks *chunks, size_t length);
/* NULL is fine. */
void chunk_give(struct chunks *chunks, struct chunk *chunk);
void chunks_fini(struct chunks *chunks);

#endif
