/* Many processes of one user behind one address: who has which queue pair numbers, communication
 * ids and services.
 *
 * A file in /dev/shm, one per user and network namespace, under a lock. Each process holds a slot;
 * that it lives is proven by a file lock that the kernel drops when it dies, so any process may be
 * killed at any instant and the others go on. Claims on services die with their slot; what it owed
 * to peers of its connections, its wills, lies in the file for an heir to do (burial.h). The file
 * goes with the last process that ends in order; what killed ones leave the next process takes
 * over, or makes anew if it is from before a reboot, of another version, or broken. One that was
 * removed under living processes goes on, and the next process joins them, where /proc shows it.
 *
 * Calls may be made by any thread, with the engine's lock held or not; they take the file's lock
 * for some microseconds. A process that is stopped while it holds it makes the others' calls fail
 * with TIMED_OUT after REGISTRY_PATIENCE_NS; what they give back meanwhile is taken from them when
 * they end. What the engine asks for packets takes no lock and does not wait:
 * registry_find_listener, registry_slot_is_used, registry_heir, registry_keep_will. Not here:
 * moving packets between processes (handoff.h). */
#ifndef WEIR_IO_REGISTRY_H
#define WEIR_IO_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"
#include "rnic/io/system/slots.h"
#include "rnic/wire/ids.h"

#define REGISTRY_PATIENCE_NS UINT64_C(5000000000)

struct registry;
struct cm_will;

/* Which addresses a claim covers. */
enum registry_scope {
    REGISTRY_EXACT,    /* `address` only */
    REGISTRY_ANY_IPV4, /* 0.0.0.0 */
    REGISTRY_ANY_IPV6, /* [::], IPv6 only */
    REGISTRY_ANY,      /* [::] that takes IPv4 too */
};

struct registry_name {
    uint64_t service_id; /* of rdma_cm: rdma_cm_service_id(port space, port) */
    enum registry_scope scope;
    struct gid address;
};

/* FULL: all slots are taken. DENIED: neither the file nor any of those that stand in for it, named
 * PATH.1 and so on, is ours and of the right mode. NOT_FOUND: it cannot be made there. IN_USE: live
 * processes use a registry of another version. TIMED_OUT: registry_lock_holder has been stopped.
 * `path` is NULL but in tests. */
enum status registry_open(const char *path, struct registry **ret_registry) MUST_USE;
/* Gives slot and claims back. NULL is allowed. */
void registry_close(struct registry *registry);
/* In a forked child: drops the parent's registry without touching its slot. */
void registry_abandon(struct registry *registry);
/* Where the registry of this user, network namespace and addresses (WEIR_BIND) lies. */
#define REGISTRY_PATH_MAX 128u
void registry_path(char ret_path[REGISTRY_PATH_MAX]);
/* The process id of who took the lock of that file last; 0: unknown. */
uint32_t registry_lock_holder(const char *path);

uint32_t registry_slot(const struct registry *registry);
/* Our range of queue pair numbers: first and count. */
struct qpn registry_first_qpn(const struct registry *registry);
uint32_t registry_qpn_count(const struct registry *registry);

/* Ports that the registry chooses. */
#define REGISTRY_PORT_FIRST 32768u
#define REGISTRY_PORT_LAST  60999u
#define REGISTRY_PORTS      (REGISTRY_PORT_LAST - REGISTRY_PORT_FIRST + 1)

/* Claims. `registry` may be NULL, of a loop from before a fork: STATE then, as where the file says
 * that a claim is not ours any more, or the program has closed our descriptor.
 *
 * Claims a service name (an rdma_cm bind). IN_USE: another claim covers the same service and a
 * common address, unless both say `reuse` and neither listens. FULL: the table has no room. */
enum status registry_claim(struct registry *registry, const struct registry_name *name, bool reuse,
                           uint32_t *ret_claim) MUST_USE;
/* The same for an rdma_cm port of `port_space` (0x0106 for RDMA_PS_TCP) that the registry chooses:
 * REGISTRY_PORT_FIRST..LAST, free for the scope, by `reuse` also of those who would share it.
 * `name->service_id` is ignored. `modest`: for who only connects; the last quarter of the table is
 * not for him. */
enum status registry_claim_port(struct registry *registry, uint16_t port_space,
                                const struct registry_name *name, bool reuse, bool modest,
                                uint16_t *ret_port, uint32_t *ret_claim) MUST_USE;
/* REQs for the claimed name come to this process from now on. IN_USE: another claim covers
 * the name, be it by reuse. */
enum status registry_listen(struct registry *registry, uint32_t claim) MUST_USE;
/* It was not to be: the claim is as before. */
void registry_unlisten(struct registry *registry, uint32_t claim);
void registry_release(struct registry *registry, uint32_t claim);

/* The slot of the live process that listens for a service at an address; exact claims come before
 * wide ones. SLOT_NONE: none. */
uint32_t registry_find_listener(const struct registry *registry, uint64_t service_id,
                                const struct gid *address);

/* Shared domains of XRC, by name (transport/xrc.h): one is open as long as a living process holds
 * it. IN_USE, NOT_FOUND: as `how` says. FULL: the table has no room. TIMED_OUT: see registry_open.
 * STATE: `registry` is NULL. */
enum registry_hold {
    REGISTRY_HOLD_ANY,
    REGISTRY_HOLD_NEW,  /* nobody may have it open */
    REGISTRY_HOLD_OPEN, /* somebody must */
};
enum status registry_hold_domain(struct registry *registry, uint64_t space, uint64_t name,
                                 enum registry_hold how) MUST_USE;
/* Gives up one hold of ours. */
void registry_release_domain(struct registry *registry, uint64_t space, uint64_t name);

/* We are about to end. True: so are all others that live, if there are any, so nobody would inherit
 * what we owe; and of them those count on us that were told of none who stays but us. */
bool registry_end(struct registry *registry);
/* After that: somebody still does, or has left what is to be done, and nobody has come for it. */
bool registry_is_counted_on(const struct registry *registry);
/* A process holds the slot, as far as the file says: a dead one may not have been noticed yet. */
bool registry_slot_is_used(const struct registry *registry, uint32_t slot);
/* How many processes hold slots. */
uint32_t registry_process_count(struct registry *registry);
/* Who does what the last holder of a slot owed; SLOT_NONE: nobody living. */
uint32_t registry_heir(const struct registry *registry, uint32_t slot);

/* Keeps a will of ours, in place of the one before at that index; NULL: forgets it. What does not
 * fit into the file, or on the disk, is not kept. Under the engine's lock. */
void registry_keep_will(struct registry *registry, uint32_t index, const struct cm_will *will);

/* Where the process of a slot takes packets from others of this host, see inbox.h. The thread is
 * the engine's: by the number of a process whose first thread has ended nothing is found. */
struct registry_inbox {
    uint64_t incarnation; /* random, not 0: tells this holder of the slot from any other */
    uint32_t thread;      /* whose descriptor table has it, */
    int descriptor;       /* and where */
};
void registry_publish_inbox(struct registry *registry, const struct registry_inbox *inbox);
/* False: nobody there has one. Takes no lock. */
bool registry_find_inbox(const struct registry *registry, uint32_t slot,
                         struct registry_inbox *ret_inbox);
/* Whether it is the one of that incarnation, still. */
bool registry_has_inbox(const struct registry *registry, uint32_t slot, uint64_t incarnation);

#endif
