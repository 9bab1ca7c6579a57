/* Which names a sender has said of its sources, to know one again that has gone from there since.
 *
 * Never wrong about a name that was added. About another it is, where there are more than
 * SENT_NAMES_EXACT: for a few in a million with 10 million names, for one in six with 100 million,
 * and for other ones each time.
 *
 * Bounded: up to 22 bytes for each name, and 64 MiB for all, twice that for a moment. */
#ifndef TOOLS_TRANSFER_SENT_NAMES_H
#define TOOLS_TRANSFER_SENT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SENT_NAMES_SLOTS ((size_t)1 << 23)
#define SENT_NAMES_EXACT (SENT_NAMES_SLOTS / 4 * 3)

struct sent_names {
    size_t capacity_max; /* a power of two; 0: SENT_NAMES_SLOTS */
    uint64_t *slots;     /* a hash table of keys; later a Bloom filter */
    size_t capacity, count;
    bool is_filter;
    bool is_lost; /* for want of memory: any name may have been added */
    uint64_t salt;
};

/* `below` is the name's path below its source. */
void sent_names_add(struct sent_names *names, unsigned source, const char *below);
bool sent_names_has(const struct sent_names *names, unsigned source, const char *below);
void sent_names_clear(struct sent_names *names);

#endif
