/* Memory regions. Memory is not pinned: it is touched by its address, in this process. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Whether every page of the range is mapped: what a kernel finds out when it pins. msync with
 * MS_ASYNC writes nothing, but says ENOMEM for a hole. */
static bool is_mapped(const void *address, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)address & ~(page - 1);
    uintptr_t end = (uintptr_t)address + length;
    return end >= first &&
           (length == 0 || msync((void *)first, end - first, MS_ASYNC) == 0 || errno != ENOMEM);
}

static enum status register_region(struct soft_pd *pd, const struct region_attributes *attributes,
                                   struct memory_key *ret_key)
{
    struct engine *engine = context_engine(pd->ibv.context);
    if (strict_is_on() && !strict_lock(attributes->bytes, attributes->length)) {
        return STATUS_NO_MEMORY;
    }
    engine_lock(engine);
    enum status status = memory_register(device_memory(engine->device), attributes, ret_key);
    engine_unlock(engine);
    if (strict_is_on()) {
        if (status == STATUS_OK) {
            strict_registered(ret_key->value, attributes->address, attributes->length);
        } else {
            strict_unlock(attributes->bytes, attributes->length);
        }
    }
    return status;
}

static enum status deregister_region(struct ibv_mr *mr)
{
    struct engine *engine = context_engine(mr->context);
    engine_lock(engine);
    enum status status =
        memory_deregister(device_memory(engine->device), (struct memory_key){mr->lkey});
    if (status == STATUS_OK && strict_is_on()) {
        strict_deregistered(mr->lkey, mr->addr, mr->length);
    }
    engine_unlock(engine);
    return status;
}

/* Sets errno where the arguments cannot be. */
static bool describe(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                     unsigned access, struct region_attributes *ret_attributes)
{
    struct region_attributes attributes = {
        .domain = soft_pd(pd)->domain,
        .address = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova,
        .length = length,
        .bytes = address,
    };
    if (!convert_access(access, &attributes.access)) {
        errno = EINVAL;
        return false;
    }
    if (!is_mapped(address, length)) {
        errno = EFAULT;
        return false;
    }
    *ret_attributes = attributes;
    return true;
}

static void fill(struct soft_mr *mr, struct ibv_pd *pd, const struct region_attributes *attributes,
                 struct memory_key key)
{
    mr->attributes = *attributes;
    mr->ibv = (struct ibv_mr){
        .context = pd->context,
        .pd = pd,
        .addr = attributes->bytes,
        .length = attributes->length,
        .handle = key.value >> 8,
        .lkey = key.value,
        .rkey = key.value,
    };
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
                                       uint64_t iova, unsigned int access)
{
    struct region_attributes attributes;
    struct memory_key key;
    if (!describe(pd, address, length, iova, access, &attributes)) {
        return NULL;
    }
    struct soft_mr *mr = calloc(1, sizeof *mr);
    if (mr == NULL) {
        return NULL;
    }
    enum status status = register_region(soft_pd(pd), &attributes, &key);
    if (status != STATUS_OK) {
        free(mr);
        return errno_null(status);
    }
    fill(mr, pd, &attributes, key);
    return &mr->ibv;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
                                      uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned)access);
}

PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned)access);
}

PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                        uint64_t iova, int descriptor, int access)
{
    errno = EOPNOTSUPP;
    return NULL;
}

PUBLIC int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *address,
                        size_t length, int access)
{
    struct soft_mr *mr = (struct soft_mr *)ibv;
    struct region_attributes attributes = mr->attributes;
    struct memory_key key = {ibv->lkey};
    bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || (moves && length == 0)) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    struct ibv_pd *owner = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : ibv->pd;
    bool changes = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    if (!describe(owner, moves ? address : attributes.bytes, moves ? length : attributes.length,
                  moves ? (uintptr_t)address : attributes.address,
                  changes ? (unsigned)access : convert_access_back(attributes.access),
                  &attributes)) {
        return IBV_REREG_MR_ERR_INPUT;
    }
    struct engine *engine = context_engine(ibv->context);
    engine_lock(engine);
    enum status status = memory_reregister(device_memory(engine->device), key, &attributes);
    engine_unlock(engine);
    if (status != STATUS_OK) {
        errno = errno_of(status);
        return IBV_REREG_MR_ERR_INPUT;
    }
    fill(mr, owner, &attributes, key);
    return 0;
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *mr)
{
    enum status status = deregister_region(mr);
    if (status == STATUS_OK) {
        free(mr);
    }
    return errno_of(status);
}
