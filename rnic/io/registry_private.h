/* The registry's file, for registry.c (lock, slots), claims.c (services) and steering.c (sockets).
 *
 * A process may be killed between any two writes. So what the file says of a slot counts only while
 * the slot's life lock is held, and every reader tolerates half-made entries: a claim becomes valid
 * by the last store to it, `state`. */
#ifndef WEIR_IO_REGISTRY_PRIVATE_H
#define WEIR_IO_REGISTRY_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "rnic/io/registry.h"
#include "rnic/io/udp.h"

#define REGISTRY_MAGIC   UINT64_C(0x5765697252656731) /* "WeirReg1" */
#define REGISTRY_VERSION 1u
#define REGISTRY_CLAIMS  4096u
#define REGISTRY_COOKIE  16u

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

struct registry_slot {
    _Atomic uint32_t used;
    uint32_t process; /* for people */
};

/* Slots whose sockets share the port, in the kernel's order as far as we know it. */
struct registry_group {
    _Atomic uint64_t changed_ns; /* when the record last changed, by the monotonic clock */
    uint32_t count;
    uint32_t slots[REGISTRY_SLOTS];
};

struct registry_file {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint8_t cookie[REGISTRY_COOKIE]; /* random: part of the abstract socket names */
    uint32_t next_slot;
    uint64_t next_stamp;
    uint32_t claim_end; /* no claim at or above it has ever been made */
    struct registry_group groups[UDP_FAMILY_COUNT];
    struct registry_slot slots[REGISTRY_SLOTS];
    struct registry_claim claims[REGISTRY_CLAIMS];
};

struct registry {
    pthread_mutex_t mutex; /* among threads; the file's lock is among processes */
    int descriptor;
    uint32_t slot;
    struct registry_file *file;
    struct udp *udp; /* whose sockets steering works through; NULL: none yet */
};

void registry_lock(struct registry *registry);
/* False: somebody holds it. */
bool registry_try_lock(struct registry *registry);
void registry_unlock(struct registry *registry);

/* Says the truth, by a system call. */
bool registry_slot_lives(const struct registry *registry, uint32_t slot);
/* Locked. Forgets a slot of a dead process: its claims, its places in the groups. */
void registry_bury(struct registry *registry, uint32_t slot);
/* Locked. Buries all that have died; returns how many. */
uint32_t registry_bury_dead(struct registry *registry);
/* Locked. */
bool claims_is_listening(const struct registry_claim *claim);
/* Locked. */
void claims_forget_slot(struct registry *registry, uint32_t slot);
/* Locked. Puts what the file says into the kernel: who has which place, who listens where. */
void steering_attach(struct registry *registry);
/* Locked. The kernel moves the last socket of a group into the place of one that closes. */
void registry_group_remove(struct registry_group *group, uint32_t slot);

#endif
