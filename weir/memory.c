/* Registered memory: keys for peers, and the explanation when registration is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "weir/domain.h"
#include "weir/error_private.h"

#define HUGE_PAGE ((size_t)2 << 20)

struct weir_memory {
    struct weir_fabric *fabric;
    struct domain *domain; /* held; the fabric's or a connection's */
    struct ibv_mr *region;
    struct share *shares; /* of the fabric's memory, in domains of connections */
    int access;
    void *bytes;
    size_t length;
    size_t mapped; /* ours to unmap; 0: the caller's */
};

static enum weir_status explain(struct weir_fabric *fabric, size_t length, int error,
                                struct weir_error *ret_error)
{
    struct rlimit limit;
    if ((error == ENOMEM || error == EAGAIN || error == EPERM) &&
        getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        fabric->kind == WEIR_FABRIC_RDMA) {
        return error_set(ret_error, WEIR_NO_MEMORY,
                         "%s: registering %zu bytes: %s (locked memory is limited to %llu KiB: see "
                         "ulimit -l, LimitMEMLOCK of the service)",
                         fabric->device, length, strerror(error),
                         (unsigned long long)(limit.rlim_cur / 1024));
    }
    if (fabric->attributes.max_mr_size != 0 && length > fabric->attributes.max_mr_size) {
        return error_set(ret_error, WEIR_NO_MEMORY,
                         "%s: registering %zu bytes: the device takes %llu at once", fabric->device,
                         length, (unsigned long long)fabric->attributes.max_mr_size);
    }
    return error_set(ret_error, error == ENOMEM ? WEIR_NO_MEMORY : WEIR_SYSTEM,
                     "%s: registering %zu bytes: %s", fabric->device, length, strerror(error));
}

static enum weir_status register_with(struct domain *domain, void *bytes, size_t length, int access,
                                      struct weir_memory **ret_memory, struct weir_error *ret_error)
{
    struct weir_fabric *fabric = domain->fabric;
    if (length == 0 || bytes == NULL) {
        return error_set(ret_error, WEIR_INVALID, "registering no bytes");
    }
    struct weir_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    errno = 0;
    memory->region = fabric->library.verbs.reg_mr(domain->pd, bytes, length, access);
    if (memory->region == NULL) {
        int error = errno;
        free(memory);
        return explain(fabric, length, error, ret_error);
    }
    domain_hold(domain);
    memory->fabric = fabric;
    memory->domain = domain;
    memory->access = access;
    memory->bytes = bytes;
    memory->length = length;
    *ret_memory = memory;
    return WEIR_OK;
}

static int access_of(unsigned rights)
{
    return ((rights & WEIR_REMOTE_WRITE) != 0 ? IBV_ACCESS_REMOTE_WRITE : 0) |
           ((rights & WEIR_REMOTE_READ) != 0 ? IBV_ACCESS_REMOTE_READ : 0);
}

enum weir_status memory_register_source(struct domain *domain, const void *bytes, size_t length,
                                        unsigned rights, struct weir_memory **ret_memory,
                                        struct weir_error *ret_error)
{
    return register_with(domain, (void *)(uintptr_t)bytes, length, access_of(rights), ret_memory,
                         ret_error);
}

enum weir_status memory_register_in(struct domain *domain, void *bytes, size_t length,
                                    unsigned rights, struct weir_memory **ret_memory,
                                    struct weir_error *ret_error)
{
    int access = access_of(rights) | IBV_ACCESS_LOCAL_WRITE;
    if ((rights & ~(unsigned)(WEIR_REMOTE_WRITE | WEIR_REMOTE_READ)) != 0) {
        return error_set(ret_error, WEIR_INVALID, "0x%x: no such rights to memory", rights);
    }
    if (domain->fabric->is_iwarp) {
        access |= IBV_ACCESS_REMOTE_WRITE; /* a READ's answer comes as tagged data [RFC 5040] */
    }
    return register_with(domain, bytes, length, access, ret_memory, ret_error);
}

/* --- memory of the fabric in the domains of connections --- */

/* The fabric's lock is held. */
void memory_end_share(struct share *share)
{
    if (share->previous != NULL) {
        share->previous->next = share->next;
    } else {
        share->domain->shares = share->next;
    }
    if (share->next != NULL) {
        share->next->previous = share->previous;
    }
    if (share->previous_of_memory != NULL) {
        share->previous_of_memory->next_of_memory = share->next_of_memory;
    } else {
        share->memory->shares = share->next_of_memory;
    }
    if (share->next_of_memory != NULL) {
        share->next_of_memory->previous_of_memory = share->previous_of_memory;
    }
    share->domain->fabric->library.verbs.dereg_mr(share->region);
    free(share);
}

/* The fabric's lock is held. */
static enum weir_status begin_share(struct weir_memory *memory, struct domain *domain,
                                    struct share **ret_share)
{
    struct share *share = calloc(1, sizeof(*share));
    if (share == NULL) {
        return WEIR_NO_MEMORY;
    }
    errno = 0;
    share->region = domain->fabric->library.verbs.reg_mr(domain->pd, memory->bytes, memory->length,
                                                         memory->access);
    if (share->region == NULL) {
        enum weir_status status = errno == ENOMEM ? WEIR_NO_MEMORY : WEIR_SYSTEM;
        free(share);
        return status;
    }
    share->domain = domain;
    share->memory = memory;
    share->next = domain->shares;
    if (share->next != NULL) {
        share->next->previous = share;
    }
    domain->shares = share;
    share->next_of_memory = memory->shares;
    if (share->next_of_memory != NULL) {
        share->next_of_memory->previous_of_memory = share;
    }
    memory->shares = share;
    *ret_share = share;
    return WEIR_OK;
}

/* Along both lists: the shorter one ends the search. The fabric's lock is held. */
static struct share *find_share(const struct weir_memory *memory, const struct domain *domain)
{
    struct share *of_domain = domain->shares, *of_memory = memory->shares;
    while (of_domain != NULL && of_memory != NULL) {
        if (of_domain->memory == memory) {
            return of_domain;
        }
        if (of_memory->domain == domain) {
            return of_memory;
        }
        of_domain = of_domain->next;
        of_memory = of_memory->next_of_memory;
    }
    return NULL;
}

enum weir_status memory_key_in(struct weir_memory *memory, struct domain *domain, uint32_t *ret_key)
{
    if (memory->domain == domain) {
        *ret_key = memory->region->lkey;
        return WEIR_OK;
    }
    if (memory->domain != domain->fabric->domain) {
        return WEIR_INVALID;
    }
    pthread_mutex_lock(&domain->fabric->lock);
    enum weir_status status = WEIR_OK;
    struct share *share = find_share(memory, domain);
    if (share == NULL) {
        status = begin_share(memory, domain, &share);
    }
    if (status == WEIR_OK) {
        *ret_key = share->region->lkey;
    }
    pthread_mutex_unlock(&domain->fabric->lock);
    return status;
}

/* --- allocation --- */

static void *map(size_t length, size_t *ret_mapped)
{
    if (length >= HUGE_PAGE) {
        size_t rounded = (length + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
        void *bytes = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (bytes != MAP_FAILED) {
            *ret_mapped = rounded;
            return bytes;
        }
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (length + page - 1) & ~(page - 1);
    void *bytes = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        return NULL;
    }
    if (length >= HUGE_PAGE) {
        madvise(bytes, rounded, MADV_HUGEPAGE);
    }
    *ret_mapped = rounded;
    return bytes;
}

enum weir_status memory_allocate_in(struct domain *domain, size_t length, unsigned rights,
                                    struct weir_memory **ret_memory, struct weir_error *ret_error)
{
    if (length == 0 || length > PTRDIFF_MAX - HUGE_PAGE) {
        return error_set(ret_error, WEIR_INVALID, "allocating %zu bytes", length);
    }
    size_t mapped;
    void *bytes = map(length, &mapped);
    if (bytes == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "allocating %zu bytes: %m", length);
    }
    struct weir_memory *memory = NULL;
    enum weir_status status = memory_register_in(domain, bytes, length, rights, &memory, ret_error);
    if (status != WEIR_OK) {
        munmap(bytes, mapped);
        return status;
    }
    memory->mapped = mapped;
    *ret_memory = memory;
    return WEIR_OK;
}

/* --- the public calls of the fabric's memory --- */

static enum weir_status check_rights(unsigned rights, struct weir_error *ret_error)
{
    if (rights == WEIR_LOCAL) {
        return WEIR_OK;
    }
    return error_set(ret_error, WEIR_INVALID,
                     "memory that a peer may reach belongs to a connection"
                     " (weir_memory_register_for, weir_memory_allocate_for)");
}

enum weir_status weir_memory_register(struct weir_fabric *fabric, void *bytes, size_t length,
                                      unsigned rights, struct weir_memory **ret_memory,
                                      struct weir_error *ret_error)
{
    enum weir_status status = check_rights(rights, ret_error);
    return status != WEIR_OK
               ? status
               : memory_register_in(fabric->domain, bytes, length, rights, ret_memory, ret_error);
}

enum weir_status weir_memory_allocate(struct weir_fabric *fabric, size_t length, unsigned rights,
                                      struct weir_memory **ret_memory, struct weir_error *ret_error)
{
    enum weir_status status = check_rights(rights, ret_error);
    return status != WEIR_OK
               ? status
               : memory_allocate_in(fabric->domain, length, rights, ret_memory, ret_error);
}

void weir_memory_deregister(struct weir_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&memory->fabric->lock);
    while (memory->shares != NULL) {
        memory_end_share(memory->shares);
    }
    pthread_mutex_unlock(&memory->fabric->lock);
    memory->fabric->library.verbs.dereg_mr(memory->region);
    domain_release(memory->domain);
    if (memory->mapped != 0) {
        munmap(memory->bytes, memory->mapped);
    }
    free(memory);
}

void *weir_memory_bytes(const struct weir_memory *memory)
{
    return memory->bytes;
}

size_t weir_memory_length(const struct weir_memory *memory)
{
    return memory->length;
}

uint32_t memory_local_key(const struct weir_memory *memory)
{
    return memory->region->lkey;
}

struct weir_remote weir_memory_remote(const struct weir_memory *memory)
{
    return (struct weir_remote){
        .address = (uintptr_t)memory->bytes,
        .length = memory->length,
        .key = memory->region->rkey,
    };
}
