/* The tables behind memory.h and window.h. Only the memory folder includes this. */
#ifndef WEIR_MEMORY_MEMORY_PRIVATE_H
#define WEIR_MEMORY_MEMORY_PRIVATE_H

#include "rnic/base/list.h"
#include "rnic/base/secret.h"
#include "rnic/memory/memory.h"
#include "rnic/wire/packet.h"

#define KEY_VARIANT_BITS 8
#define KEY_VARIANT_MASK ((UINT32_C(1) << KEY_VARIANT_BITS) - 1)

enum key_kind {
    KEY_REGION,
    KEY_NULL,     /* a region without memory */
    KEY_WINDOW_1, /* for every queue pair of its domain */
    KEY_WINDOW_2, /* for the one that bound it */
};

/* What a key stands for. A window that is bound has the attributes of the range it opens. */
struct region {
    struct region_attributes attributes; /* domain 0: free */
    uint32_t next_free;
    uint8_t kind; /* enum key_kind */
    uint8_t variant;
    uint8_t variant_step; /* odd, so that all variants pass before one comes again; 0: unused yet */
    uint32_t windows;     /* region: those bound to it */
    uint32_t target;      /* window: number of the region it is bound to; 0: to none */
    struct qpn qpn;       /* window of type 2, bound: through whom */
    struct list_node bound; /* alike: in memory->bound */
};

struct domain_entry {
    uint32_t next_free;
    uint32_t users; /* regions, windows, queue pairs */
    bool alive;
};

/* Numbers 1 .. limit, the free ones linked through their entries' next_free. */
struct numbers {
    uint32_t limit;
    uint32_t used;                  /* 1 .. used have been given out at least once */
    uint32_t first_free, last_free; /* 0: none */
    uint32_t free;                  /* in the queue */
};

struct memory {
    struct allocator *allocator;
    struct memory_probe *probe;
    struct secret secret;
    struct memory_observer *observer;
    struct numbers region_numbers;
    struct numbers domain_numbers;
    struct region *regions; /* by number; entry 0 is not used */
    struct domain_entry *domains;
    struct list bound;                   /* windows of type 2 that are bound */
    uint8_t discard[PACKET_PAYLOAD_MAX]; /* where writes to a null region go */
};

/* A number with a fresh key and `attributes`, whose domain is alive; NULL: no number is left. */
struct region *memory_take_key(struct memory *memory, enum key_kind kind,
                               const struct region_attributes *attributes,
                               struct memory_key *ret_key);
/* The number is free again, and its key stale. */
void memory_give_key(struct memory *memory, struct region *region);
/* What the exact key stands for; NULL: nothing. */
struct region *memory_find_key(const struct memory *memory, struct memory_key key);
/* `request` fits the attributes of `region`, its range first, then the rights. */
enum memory_verdict memory_check_range(const struct region_attributes *attributes,
                                       const struct memory_request *request);
/* Whether whoever asks may use the key at all: windows are for peers, and some for one only. */
enum memory_verdict window_check(const struct region *window, const struct memory_request *request);

#endif
