/* The registry's file, for registry.c (the file, slots), registry_era.c, registry_lock.c,
 * registry_inbox.c, claims.c (services), domains.c (of XRC), wills.c (what the dead owe) and
 * steering.c (sockets).
 *
 * A process may be killed between any two writes. So what the file says of a slot counts only while
 * the slot's life lock is held, and every reader tolerates half-made entries: a claim becomes valid
 * by the last store to it, `state`; a will by its checksum. Nothing read from the file is used as
 * an index before it is compared with a bound, and then it is not read again. Behind the struct lie
 * the wills, a window for each slot, which are read and written, not mapped. */
#ifndef WEIR_IO_REGISTRY_PRIVATE_H
#define WEIR_IO_REGISTRY_PRIVATE_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "rnic/io/registry/registry.h"
#include "rnic/io/system/own_file.h"
#include "rnic/io/udp/udp.h"

#define REGISTRY_MAGIC   UINT64_C(0x5765697252656731) /* "WeirReg1" */
#define REGISTRY_VERSION 9u
#define REGISTRY_CLAIMS  4096u
#define REGISTRY_DOMAINS 1024u
#define REGISTRY_NAME    256u /* bytes of a path */

#define WILLS_PER_SLOT SLOT_QPNS /* more connections than queue pairs are not kept */

enum claim_state {
    CLAIM_FREE,
    CLAIM_BOUND,
    CLAIM_LISTENING,
    CLAIM_FORMER, /* released; still tells where repeated REQs for the service belong */
};

struct registry_claim {
    _Atomic uint32_t state; /* an enum claim_state, and above it a serial number of changes */
    uint32_t slot;
    uint64_t stamp; /* order of release, for reuse */
    struct registry_name name;
    bool reuse;
};

struct registry_domain {
    uint32_t is_used;
    uint32_t slot;
    uint64_t space, name;
};

/* Of a slot; all but the first are used. */
enum {
    SLOT_FREE,
    SLOT_USED,
    SLOT_COUNTS_ON_OTHERS, /* about to end, and somebody else stays */
    SLOT_LEAVES,           /* about to end, and does what it owes before */
};

struct registry_slot {
    _Atomic uint32_t used;          /* one of these */
    uint32_t process;               /* for people */
    _Atomic uint32_t generation;    /* which holder of the slot it is: its wills say so, too */
    _Atomic uint32_t will_end;      /* it has no will at or above */
    _Atomic uint32_t watches;       /* it is told of deaths, see burial.h */
    _Atomic uint32_t estate;        /* of one not used: its wills are still to be executed */
    _Atomic uint32_t heir;          /* of one not used: 1 + who answers for it; 0: nobody */
    _Atomic uint64_t inherited_ns;  /* when the heir became that, by the monotonic clock */
    _Atomic uint64_t inbox;         /* the incarnation of its inbox; 0: it has none */
    _Atomic uint32_t inbox_process; /* see struct registry_inbox */
    _Atomic int32_t inbox_descriptor;
    _Atomic uint64_t handoff_token; /* what comes to its local socket begins with that, */
    _Atomic uint64_t handoff_name;  /* whose name is made of this; 0: it has none */
};

/* Slots whose sockets share the port, in the kernel's order as far as we know it. */
struct registry_group {
    _Atomic uint64_t changed_ns; /* when the record last changed, by the monotonic clock */
    uint32_t count;
    uint32_t slots[SLOT_COUNT];
};

struct registry_head {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t lock_serial; /* counts who took the lock */
    uint32_t lock_holder; /* a process id, for people */
};

/* The kernel's name of its run, and of the network namespace in it; empty, and 0: not known. */
struct registry_era {
    char boot_id[40];
    uint64_t namespace_cookie;
};

struct registry_file {
    struct registry_head head;
    struct registry_era era;      /* from before a reboot nothing counts */
    _Atomic uint64_t searched_ns; /* when all slots were last searched for dead processes */
    uint32_t next_slot;
    uint64_t next_stamp;
    uint32_t claim_end; /* no claim at or above it has ever been made */
    struct registry_group groups[UDP_FAMILY_COUNT];
    struct registry_slot slots[SLOT_COUNT];
    uint16_t
        claim_tags[REGISTRY_CLAIMS]; /* what their service ids come to: looked at for each REQ */
    struct registry_claim claims[REGISTRY_CLAIMS];
    struct registry_domain domains[REGISTRY_DOMAINS];
};

struct registry {
    pthread_mutex_t mutex; /* among threads; the file's lock is among processes */
    int cancel;            /* of who has both, see cancel.h */
    int descriptor;
    struct own_file own_file; /* see registry_has_file */
    uint32_t slot;
    bool has_buried; /* and not told the kernel yet who has which place */
    char path[REGISTRY_NAME];
    struct registry_file *file;
    struct udp *udp;     /* whose sockets steering works through; NULL: none yet */
    uint32_t will_count; /* ours that are kept, */
    uint8_t will_kept[WILLS_PER_SLOT / 8]; /* by index */
    void (*_Atomic wake)(void *context);   /* we have become an heir; NULL: nobody to tell */
    void *wake_context;
};

/* registry_era.c */

struct registry_era registry_era_now(void);
/* What a file of that era says counts now. `lives`: for somebody who has it open. */
bool registry_era_counts(const struct registry_era *its, const struct registry_era *now,
                         bool lives);

/* registry_lock.c */

#define REGISTRY_LIFE_BYTE 4096 /* of slot 0; see registry_lock.c */

/* One lock on bytes of the file, for all processes: fcntl's result. */
int registry_lock_bytes(int descriptor, int command, short type, off_t start, off_t length,
                        struct flock *ret_lock);
/* TIMED_OUT: who holds the lock has not let go of it for REGISTRY_PATIENCE_NS: it is stopped. */
enum status registry_lock_file(int descriptor) MUST_USE;
void registry_unlock_file(int descriptor);
/* The same with the threads of this process kept out. STATE: see registry_has_file. */
enum status registry_lock(struct registry *registry) MUST_USE;
/* False: somebody holds it, or we have the file no more. */
bool registry_try_lock(struct registry *registry) MUST_USE;
void registry_unlock(struct registry *registry);

/* registry.c */

/* DENIED: something else lies there than a file of ours, of mode 0600. NOT_FOUND: nothing does, and
 * with O_CREAT among the flags: its folder is not there, or not to be written to. */
enum status registry_open_file(const char *path, int flags, int *ret_descriptor) MUST_USE;
/* A file of ours, of mode 0600, and with no second name. */
bool registry_is_ours(int descriptor);
/* Locked. The last process that had it may have removed it while we waited for the lock; or
 * somebody else has, though processes live in it. */
bool registry_is_removed(int descriptor);
/* As long as the program has not closed it. To the others we are dead then, and what the kernel
 * says of locks is of another file. */
bool registry_has_file(const struct registry *registry);
/* Any slot's holder. */
bool registry_anybody_lives(int descriptor);
/* Says the truth, by a system call, as long as we have the file. */
bool registry_slot_lives(const struct registry *registry, uint32_t slot);
/* Locked. Forgets a slot of a dead process: its claims, its places in the groups, as the kernel is
 * told before we let go of the lock. We inherit its wills, and those that it had inherited. */
void registry_bury(struct registry *registry, uint32_t slot);
/* Locked. Wills of slots not used that nobody executes, or has begun to for a while, are ours. True
 * if there are any of ours to be executed. */
bool registry_inherit(struct registry *registry);
/* Locked. Buries all that have died; returns how many. */
uint32_t registry_bury_dead(struct registry *registry);
/* Locked. */
bool claims_is_listening(const struct registry_claim *claim);
/* Locked. */
void claims_forget_slot(struct registry *registry, uint32_t slot);

/* domains.c: locked. */
void domains_forget_slot(struct registry *registry, uint32_t slot);

/* registry_removed.c */

/* Opens what lay at `path`, and that a process of ours still has open. False: /proc shows none. */
bool registry_find_removed(const char *path, int *ret_descriptor) MUST_USE;

/* registry_sweep.c */

/* Removes registries that killed processes have left for ever, since nobody starts in their
 * namespace any more: files beside `path` whose name begins as its does, up to the last '-', that
 * have nobody living and were not written to for `age_s`. */
void registry_sweep(const char *path, uint32_t age_s);

/* wills.c */

/* Reads the wills of a slot that are whole, of its last holder, and name nobody who lives. */
void wills_read(const struct registry *registry, uint32_t slot,
                void (*visit)(void *context, const struct cm_will *will), void *context);
/* Gives back what the slot's wills take of the file. */
void wills_forget(struct registry *registry, uint32_t slot);

/* steering.c */

/* Locked. Puts what the file says into the kernel: who has which place, who listens where. */
void steering_attach(struct registry *registry);
/* Locked. The kernel moves the last socket of a group into the place of one that closes. */
void registry_group_remove(struct registry_group *group, uint32_t slot);
/* Locked. Members have gone: what was queued before is no evidence against the record. */
void steering_attach_changed(struct registry *registry);

/* As far as there is room for them, whatever the file says. */
static inline uint32_t registry_group_count(const struct registry_group *group)
{
    uint32_t count = __atomic_load_n(&group->count, __ATOMIC_RELAXED);
    return count < SLOT_COUNT ? count : SLOT_COUNT;
}

#endif
