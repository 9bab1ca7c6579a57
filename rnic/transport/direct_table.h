/* What a process shows of its queue pairs and keys to the others of its host, so that they can do
 * WRITEs and READs on its memory by themselves (direct.h).
 *
 * A queue pair and a key have one place each, by number; a key whose place is taken is not shown,
 * and reached by packets. The owner writes, under its engine's lock; others look at any time, and
 * find all of an entry or nothing. They trust none of it: what it says ends in addresses of the
 * owner's, never of their own. Plain memory, zeroed: nothing is shown. */
#ifndef WEIR_TRANSPORT_DIRECT_TABLE_H
#define WEIR_TRANSPORT_DIRECT_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/fragment.h"
#include "rnic/wire/ids.h"
#include "rnic/wire/path.h"
#include "rnic/wire/psn.h"

#define DIRECT_ENTRY_WORDS 8u

struct direct_entry {
    _Alignas(64) _Atomic uint64_t words[DIRECT_ENTRY_WORDS]; /* the first: a version, odd while the
                                                              * others are being written */
};

struct direct_table {
    struct direct_entry *qps, *keys;
    uint32_t qp_count, key_count;
};

/* A queue pair that executes requests of its peer. */
struct direct_qp {
    struct qpn number;      /* not 0 */
    struct qpn destination; /* its peer, */
    struct gid local, remote;
    uint32_t domain;
    struct psn first_psn; /* that it has expected first */
    uint16_t rights;      /* of enum access */
    uint16_t mtu_shift;
};

/* The part of a region whose pages lie in a file that peers can map, too. */
struct direct_common {
    uint64_t offset; /* in the file; no other part ever lies there */
    uint32_t lead;   /* bytes of the region before it; DIRECT_NEVER: there is none, nor will be */
    uint32_t length; /* 0: there is none */
};

#define DIRECT_NEVER UINT32_MAX

/* A region, or a part of one that a window opens. */
struct direct_key {
    struct memory_key key; /* not 0 */
    uint32_t domain;
    uint64_t address, length; /* as peers name it */
    uint64_t bytes;           /* where it lies in the owner's memory */
    uint32_t rights;
    struct qpn qpn; /* the only one that may use it; 0: all of the domain */
    struct direct_common common;
};

#define DIRECT_BATCH  32u /* what is wanted at once, at most, */
#define DIRECT_PLACES 64u /* of so many places together */

/* What an initiator wants: a message, of which a part is to be moved now. Those of a batch are all
 * WRITEs or all READs. */
struct direct_access {
    const struct path *path; /* as the initiator sees it */
    struct qpn initiator, target;
    struct psn first_psn; /* that the initiator has sent first */
    uint8_t mtu_shift;
    bool write;
    struct memory_key key;
    uint64_t address;
    uint32_t length;                    /* bytes of the message, not 0 */
    uint32_t offset;                    /* of the part */
    uint32_t part;                      /* bytes; 0, of one by itself: whether it is granted */
    const struct payload_place *places; /* where the part comes from or goes to */
    uint32_t place_count;
    bool may_fault; /* the places may not be there: by a call, which survives it */
};

/* Where a part of a message lies at the target. */
struct direct_there {
    uint64_t bytes;              /* in its memory; 0: nowhere */
    uint64_t length;             /* of the region, */
    struct direct_common common; /* of which this is common, */
    uint64_t within;             /* and the part begins; beyond its length: not in it */
};

/* An entry as it was read last. Zeroed: none was. */
struct direct_row {
    const struct direct_entry *entry;
    uint64_t version; /* as long as it has this one it says the same */
    union {
        uint64_t words[DIRECT_ENTRY_WORDS - 1];
        struct direct_qp qp;
        struct direct_key key;
    };
};

/* What an initiator has seen of one table, so that it need not read again what has not changed. */
struct direct_seen {
    struct direct_row qp, key;
};

/* Shows it, instead of what was shown of that number before. */
void direct_table_show_qp(const struct direct_table *table, const struct direct_qp *qp);
/* False: it was not shown. */
bool direct_table_hide_qp(const struct direct_table *table, struct qpn number);
/* Does nothing where another has its place. */
void direct_table_show_key(const struct direct_table *table, const struct direct_key *key);
bool direct_table_hide_key(const struct direct_table *table, struct memory_key key);

/* Where a key stands in a table that has so many places. */
uint32_t direct_table_place(struct memory_key key, uint32_t count);
/* Any key that is shown, by its place; false: none is there. */
bool direct_table_read_key(const struct direct_table *table, uint32_t place,
                           struct direct_key *ret_key);
/* Finds what is shown of a key; false: it is not. */
bool direct_table_find_key(const struct direct_table *table, struct memory_key key,
                           struct direct_key *ret_key);

/* How many of them, from the first on, the target would execute, as packets, now; where the first
 * byte of each lies there, nowhere of one that it would not. `seen`: of this table only. */
uint32_t direct_table_grants(const struct direct_table *table, struct direct_seen *seen,
                             const struct direct_access *accesses, uint32_t count,
                             struct direct_there *ret_there);

#endif
