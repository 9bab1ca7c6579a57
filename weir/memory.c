/* Registered memory: keys for peers, and the explanation when registration is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "weir/error_private.h"
#include "weir/fabric_private.h"

#define HUGE_PAGE ((size_t)2 << 20)

struct weir_memory {
    struct weir_fabric *fabric;
    struct ibv_mr *region;
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
    return error_set(ret_error, error == ENOMEM ? WEIR_NO_MEMORY : WEIR_SYSTEM,
                     "%s: registering %zu bytes: %s", fabric->device, length, strerror(error));
}

static enum weir_status register_with(struct weir_fabric *fabric, void *bytes, size_t length,
                                      int access, struct weir_memory **ret_memory,
                                      struct weir_error *ret_error)
{
    if (length == 0 || bytes == NULL) {
        return error_set(ret_error, WEIR_INVALID, "registering no bytes");
    }
    struct weir_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    errno = 0;
    memory->region = fabric->library.verbs.reg_mr(fabric->domain, bytes, length, access);
    if (memory->region == NULL) {
        int error = errno;
        free(memory);
        return explain(fabric, length, error, ret_error);
    }
    memory->fabric = fabric;
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

enum weir_status memory_register_source(struct weir_fabric *fabric, const void *bytes,
                                        size_t length, unsigned rights,
                                        struct weir_memory **ret_memory,
                                        struct weir_error *ret_error)
{
    return register_with(fabric, (void *)(uintptr_t)bytes, length, access_of(rights), ret_memory,
                         ret_error);
}

enum weir_status weir_memory_register(struct weir_fabric *fabric, void *bytes, size_t length,
                                      unsigned rights, struct weir_memory **ret_memory,
                                      struct weir_error *ret_error)
{
    int access = access_of(rights) | IBV_ACCESS_LOCAL_WRITE;
    if (fabric->is_iwarp) {
        access |= IBV_ACCESS_REMOTE_WRITE; /* a READ's answer comes as tagged data [RFC 5040] */
    }
    return register_with(fabric, bytes, length, access, ret_memory, ret_error);
}

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

enum weir_status weir_memory_allocate(struct weir_fabric *fabric, size_t length, unsigned rights,
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
    struct weir_memory *memory;
    enum weir_status status =
        weir_memory_register(fabric, bytes, length, rights, &memory, ret_error);
    if (status != WEIR_OK) {
        munmap(bytes, mapped);
        return status;
    }
    memory->mapped = mapped;
    *ret_memory = memory;
    return WEIR_OK;
}

void weir_memory_deregister(struct weir_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    memory->fabric->library.verbs.dereg_mr(memory->region);
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
