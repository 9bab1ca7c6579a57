/* What a key may touch: protection domains and regions in one table, and memory_check, the only
 * gate from a key to an address. Windows, whose keys come from the same table: window.h.
 *
 * A region says where bytes lie in this process (`bytes`) and under which addresses the peers and
 * work requests name them (`address`, the I/O virtual address). The memory is the application's;
 * it is touched only through memory_check, and never after memory_deregister has returned.
 * Not thread-safe: the engine's lock covers every call. */
#ifndef WEIR_MEMORY_MEMORY_H
#define WEIR_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/allocator.h"
#include "rnic/base/siphash.h"
#include "rnic/base/status.h"
#include "rnic/memory/access.h"
#include "rnic/wire/ids.h"

#define MEMORY_DOMAINS_MAX 32768u

struct memory; /* the table of one device */

/* A protection domain by number; 0 is none. */
struct domain {
    uint32_t value;
};

struct region_attributes {
    struct domain domain;
    uint64_t address; /* first address as keys' users name it */
    uint64_t length;  /* bytes; 0 is allowed and grants nothing */
    uint8_t *bytes;   /* where address lies in this process */
    unsigned access;  /* of enum access */
};

/* `key` makes keys hard to guess and runs repeatable. INVALID: more regions than a key can name
 * (2^24 - 1). */
enum status memory_create(struct allocator *allocator, uint32_t max_regions,
                          const struct siphash_key *key, struct memory **ret_memory) MUST_USE;
void memory_destroy(struct memory *memory);

enum status memory_allocate_domain(struct memory *memory, struct domain *ret_domain) MUST_USE;
/* BUSY while regions or windows (or queue pairs, see memory_domain_use) belong to it. */
enum status memory_free_domain(struct memory *memory, struct domain domain) MUST_USE;
bool memory_domain_is_alive(const struct memory *memory, struct domain domain);
/* Counts a user that is not a region: +1 or -1. The domain is alive. */
void memory_domain_use(struct memory *memory, struct domain domain, int change);

/* INVALID: REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE [IBA 10.6.3.1], an address range that
 * wraps, or no such domain. FULL: max_regions. One key serves as L_Key and R_Key. */
enum status memory_register(struct memory *memory, const struct region_attributes *attributes,
                            struct memory_key *ret_key) MUST_USE;
/* BUSY: windows are bound to it. */
enum status memory_deregister(struct memory *memory, struct memory_key key) MUST_USE;
/* Gives a key another meaning; the old one stays if this fails. NOT_FOUND: no such key. BUSY:
 * windows are bound to it. */
enum status memory_reregister(struct memory *memory, struct memory_key key,
                              const struct region_attributes *attributes) MUST_USE;

/* A region without memory, for local use: reads find zeroes, writes vanish, at any address. Of
 * more than PACKET_PAYLOAD_MAX bytes in one request memory_check grants the claim alone, with NULL.
 * memory_deregister ends it. INVALID: no such domain. */
enum status memory_register_null(struct memory *memory, struct domain domain,
                                 struct memory_key *ret_key) MUST_USE;
/* A region by the number in its key (without the variant). NOT_FOUND: none in that domain. */
enum status memory_find_region(const struct memory *memory, struct domain domain, uint32_t number,
                               struct memory_key *ret_key,
                               struct region_attributes *ret_attributes) MUST_USE;

/* Says of a few bytes whether they can be touched now. Asked, if there is one, before each access
 * to a region with ACCESS_ON_DEMAND: its pages may come and go while it is registered. */
struct memory_probe {
    bool (*is_mapped)(struct memory_probe *probe, uint8_t *bytes, uint64_t length, bool write);
};
void memory_set_probe(struct memory *memory, struct memory_probe *probe);

/* Told which regions there are, and, before their end has returned to whoever asked for it, that
 * they are no more. Not of null regions, nor of windows. */
struct memory_observer {
    void (*opened)(struct memory_observer *observer, struct memory_key key,
                   const struct region_attributes *attributes);
    void (*closed)(struct memory_observer *observer, struct memory_key key);
};
/* NULL: nobody. */
void memory_set_observer(struct memory *memory, struct memory_observer *observer);

struct memory_request {
    struct domain domain;
    struct memory_key key;
    uint64_t address;
    uint64_t length; /* 0: the key is not looked at [IBA 9.7.4.1.5] and *ret_bytes is NULL */
    unsigned rights; /* all of these, of enum access */
    struct qpn qpn;  /* through which a peer asks; 0: a local access */
    bool is_touched; /* now, all of it; else more than PACKET_PAYLOAD_MAX is a claim alone, and the
                      * probe is not asked */
};

enum memory_verdict {
    MEMORY_GRANTED,
    MEMORY_NO_KEY, /* no such key, or an old variant of it */
    MEMORY_WRONG_DOMAIN,
    MEMORY_WRONG_QP, /* of a window */
    MEMORY_OUT_OF_RANGE,
    MEMORY_NO_RIGHT,
    MEMORY_NOT_MAPPED,
};

enum memory_verdict memory_check(const struct memory *memory, const struct memory_request *request,
                                 uint8_t **ret_bytes) MUST_USE;
/* Where the bytes are that memory_check grants of a region whose pages are always there, to who is
 * no peer. NULL: memory_check says why not, or where else. */
uint8_t *memory_find(const struct memory *memory, const struct memory_request *request);
/* Whether what memory_check grants of that key can be touched however much it is: it is of a region
 * whose pages are always there. */
bool memory_is_steady(const struct memory *memory, struct memory_key key);
/* It is the key of a region, not of a window, which work in the middle of a queue shuts. */
bool memory_is_region(const struct memory *memory, struct memory_key key);
/* "outside the region", static. */
const char *memory_verdict_name(enum memory_verdict verdict);

/* Keys and domains alive, for leak checks. */
uint32_t memory_region_count(const struct memory *memory);
uint32_t memory_domain_count(const struct memory *memory);

#endif
