/* Protection domains: what a peer's key can open.
 *
 * Each connection has a domain of its own, which holds its queue pairs and the memory its peer may
 * touch; so a key, guessed or told, is worth nothing on any other connection. Memory of the fabric
 * is registered anew, for this side only, in the domain of each connection that uses it.
 *
 * A domain lives as long as its connection or memory in it. The fabric's lock guards holders and
 * shares, so that memory of the fabric may be used by pollers of several threads. */
#ifndef WEIR_DOMAIN_H
#define WEIR_DOMAIN_H

#include "weir/fabric_private.h"

struct share;

struct domain {
    struct weir_fabric *fabric;
    struct ibv_pd *pd;
    unsigned holders;
    struct share *shares; /* memory of the fabric that is registered here too */
};

/* A registration of the fabric's memory in a connection's domain: in both of their lists. */
struct share {
    struct share *next, *previous; /* of the domain's */
    struct share *next_of_memory, *previous_of_memory;
    struct domain *domain;
    struct weir_memory *memory;
    struct ibv_mr *region;
};

enum weir_status domain_create(struct weir_fabric *fabric, struct domain **ret_domain,
                               struct weir_error *ret_error);
void domain_hold(struct domain *domain);
void domain_release(struct domain *domain);
/* Ends the shares of a connection whose queue pairs are gone. */
void domain_forget_shares(struct domain *domain);

/* Registers memory that peers may reach through this domain's queue pairs, or buffers of the
 * connection; the holder of the last reference frees the domain. */
enum weir_status memory_register_in(struct domain *domain, void *bytes, size_t length,
                                    unsigned rights, struct weir_memory **ret_memory,
                                    struct weir_error *ret_error);
enum weir_status memory_allocate_in(struct domain *domain, size_t length, unsigned rights,
                                    struct weir_memory **ret_memory, struct weir_error *ret_error);
/* The same of memory that this side only reads, so that read-only mappings will do. */
enum weir_status memory_register_source(struct domain *domain, const void *bytes, size_t length,
                                        unsigned rights, struct weir_memory **ret_memory,
                                        struct weir_error *ret_error);
/* The key in its own domain. */
uint32_t memory_local_key(const struct weir_memory *memory);
/* The key by which queue pairs of `domain` reach it, registering memory of the fabric there at the
 * first use. INVALID: it belongs to another connection. */
enum weir_status memory_key_in(struct weir_memory *memory, struct domain *domain,
                               uint32_t *ret_key);
void memory_end_share(struct share *share);

#endif
