/* Memory regions. Memory is not pinned: it is touched by its address, in this process. */
#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "rnic/io/system/mapping.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/take_back.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static enum status register_region(struct ibv_pd *pd, const struct region_attributes *attributes,
                                   struct memory_key *ret_key)
{
    struct engine *engine = context_engine(pd->context);
    engine_lock(engine);
    enum status status = memory_register(device_memory(engine->device), attributes, ret_key);
    engine_unlock(engine);
    if (status == STATUS_OK && strict_is_on()) {
        strict_registered(ret_key->value, attributes->address, attributes->length);
    }
    return status;
}

static enum status deregister_region(struct engine *engine, struct memory_key key,
                                     const struct region_attributes *attributes)
{
    engine_lock(engine);
    enum status status = take_back_region(engine, key, attributes->access);
    if (status == STATUS_OK) {
        status = memory_deregister(device_memory(engine->device), key);
    }
    if (status == STATUS_OK && strict_is_on()) {
        strict_deregistered(key.value, attributes->bytes, attributes->length);
    }
    if (status == STATUS_OK) {
        take_back_bytes(engine, attributes);
    }
    engine_unlock(engine);
    return status;
}

/* Whether an adapter would pin it, within the limit of locked memory. */
static bool is_pinned(const struct region_attributes *attributes)
{
    return strict_is_on() && (attributes->access & ACCESS_ON_DEMAND) == 0;
}

/* Whether the memory can be what the region is to be. */
static bool memory_is_fit(struct engine *engine, const struct region_attributes *attributes)
{
    bool write = (attributes->access & ACCESS_LOCAL_WRITE) != 0;
    if (strict_is_on()) { /* which may have closed these pages for a moment */
        engine_lock(engine);
        strict_open(attributes->bytes, attributes->length);
    }
    bool fit = mapping_is_there(attributes->bytes, attributes->length) &&
               (!write || mapping_is_writable(attributes->bytes, attributes->length));
    if (strict_is_on()) {
        engine_unlock(engine);
    }
    return fit;
}

/* Sets errno where the arguments cannot be. Pages that are brought in on demand need not be there
 * yet. */
static bool describe(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                     unsigned access, struct region_attributes *ret_attributes)
{
    struct region_attributes attributes = {
        .domain = soft_pd(pd)->domain,
        .address = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova,
        .length = length,
        .bytes = address,
    };
    if (!convert_access(access, &attributes.access) ||
        !limits_allow(length, limits_now()->max_mr_size, "max_mr_size")) {
        errno = EINVAL;
        return false;
    }
    if ((attributes.access & ACCESS_ON_DEMAND) != 0 && !limits_offer(ABILITY_ON_DEMAND)) {
        return false;
    }
    if ((attributes.access & ACCESS_ON_DEMAND) == 0 &&
        !memory_is_fit(context_engine(pd->context), &attributes)) {
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

struct soft_mr *mr_wrap(struct ibv_pd *pd, const struct region_attributes *attributes,
                        struct memory_key key)
{
    struct soft_mr *mr = calloc(1, sizeof *mr);
    if (mr != NULL) {
        fill(mr, pd, attributes, key);
    }
    return mr;
}

struct soft_mr *mr_create(struct ibv_pd *pd, const struct region_attributes *attributes)
{
    struct memory_key key;
    if (!limits_take(COUNT_MR)) {
        return NULL;
    }
    enum status status = register_region(pd, attributes, &key);
    if (status != STATUS_OK) {
        limits_give(COUNT_MR);
        return errno_null(status);
    }
    struct soft_mr *mr = mr_wrap(pd, attributes, key);
    if (mr == NULL) {
        limits_give(COUNT_MR);
        (void)deregister_region(context_engine(pd->context), key, attributes);
        return errno_null(STATUS_NO_MEMORY);
    }
    return mr;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
                                       uint64_t iova, unsigned int access)
{
    HOST_FORWARD(pd->context, ibv_reg_mr_iova2, pd, address, length, iova, access);
    struct region_attributes attributes;
    if (!describe(pd, address, length, iova, access, &attributes)) {
        return NULL;
    }
    bool pinned = is_pinned(&attributes);
    if (pinned && !strict_lock(address, length)) {
        return errno_null(STATUS_NO_MEMORY);
    }
    struct soft_mr *mr = mr_create(pd, &attributes);
    if (mr == NULL) {
        int error = errno;
        if (pinned) {
            strict_unlock(address, length);
        }
        errno = error;
        return NULL;
    }
    mr->is_pinned = pinned;
    return &mr->ibv;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
                                      uint64_t iova, int access)
{
    HOST_FORWARD(pd->context, ibv_reg_mr_iova, pd, address, length, iova, access);
    return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned)access);
}

PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    HOST_FORWARD(pd->context, ibv_reg_mr, pd, address, length, access);
    return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned)access);
}

/* Only the local key means something: peers have no use for it. */
struct ibv_mr *mr_register_null(struct ibv_pd *pd)
{
    struct engine *engine = context_engine(pd->context);
    struct region_attributes attributes = {
        .domain = soft_pd(pd)->domain, .length = UINT64_MAX, .access = ACCESS_LOCAL_WRITE};
    struct memory_key key;
    if (!limits_offer(ABILITY_NULL_REGION) || !limits_take(COUNT_MR)) {
        return NULL;
    }
    engine_lock(engine);
    enum status status =
        memory_register_null(device_memory(engine->device), attributes.domain, &key);
    engine_unlock(engine);
    if (status != STATUS_OK) {
        limits_give(COUNT_MR);
        return errno_null(status);
    }
    struct soft_mr *mr = mr_wrap(pd, &attributes, key);
    if (mr == NULL) {
        limits_give(COUNT_MR);
        (void)deregister_region(engine, key, &attributes);
        return errno_null(STATUS_NO_MEMORY);
    }
    mr->is_fixed = true;
    mr->ibv.rkey = 0;
    return &mr->ibv;
}

/* The size of the pages of a dma-buf, or of a file that lies in memory; 0 and errno: it is neither.
 */
static uint64_t page_size_of(int descriptor)
{
    struct statfs system;
    struct stat status;
    if (fstatfs(descriptor, &system) != 0 || fstat(descriptor, &status) != 0) {
        return 0;
    }
    bool is_file = S_ISREG(status.st_mode); /* device nodes may lie on tmpfs */
    switch ((unsigned long)system.f_type) {
    case HUGETLBFS_MAGIC:
        if (is_file) {
            return (uint64_t)system.f_bsize;
        }
        break;
    case TMPFS_MAGIC:
    case RAMFS_MAGIC: /* also of kernels without tmpfs */
    case DMA_BUF_MAGIC:
        if (is_file || system.f_type == DMA_BUF_MAGIC) {
            return (uint64_t)sysconf(_SC_PAGESIZE);
        }
        break;
    default:
        break;
    }
    errno = EOPNOTSUPP;
    return 0;
}

/* A part of the file behind a descriptor, in our address space; NULL and errno. Of large pages only
 * whole ones are mapped, and unmapped. */
static uint8_t *map_part(int descriptor, uint64_t offset, size_t length, bool write,
                         void **ret_mapped, size_t *ret_length)
{
    struct stat status;
    uint64_t page = page_size_of(descriptor);
    if (page == 0 || fstat(descriptor, &status) != 0) {
        return NULL;
    }
    uint64_t size = (uint64_t)status.st_size, lead = offset & (page - 1);
    if (length == 0 || offset > size || length > size - offset) {
        errno = EINVAL;
        return NULL;
    }
    size_t whole = (lead + length + page - 1) & ~(page - 1);
    void *mapped = mmap(NULL, whole, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                        descriptor, (off_t)(offset - lead));
    if (mapped == MAP_FAILED) {
        errno = errno == ENODEV ? EOPNOTSUPP : errno; /* an exporter without memory to map */
        return NULL;
    }
    *ret_mapped = mapped;
    *ret_length = whole;
    return (uint8_t *)mapped + lead;
}

/* A dma-buf that its exporter lets us map, as udmabuf does, or a file in memory (memfd). */
PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                        uint64_t iova, int descriptor, int access)
{
    HOST_FORWARD(pd->context, ibv_reg_dmabuf_mr, pd, offset, length, iova, descriptor, access);
    struct region_attributes attributes = {
        .domain = soft_pd(pd)->domain, .address = iova, .length = length};
    if (!convert_access((unsigned)access, &attributes.access)) {
        return errno_null(STATUS_INVALID);
    }
    if (!limits_offer(ABILITY_DMABUF)) {
        return NULL;
    }
    bool write = (attributes.access & ACCESS_LOCAL_WRITE) != 0;
    void *mapped;
    size_t mapped_length;
    attributes.bytes = map_part(descriptor, offset, length, write, &mapped, &mapped_length);
    if (attributes.bytes == NULL) {
        return NULL;
    }
    struct soft_mr *mr = mr_create(pd, &attributes);
    if (mr == NULL) {
        int error = errno;
        munmap(mapped, mapped_length);
        errno = error;
        return NULL;
    }
    mr->ibv.addr = (void *)(uintptr_t)offset;
    mr->is_fixed = true;
    mr->mapped = mapped;
    mr->mapped_length = mapped_length;
    return &mr->ibv;
}

static bool rereg_makes_sense(const struct soft_mr *mr, int flags, const struct ibv_pd *pd,
                              const void *address, size_t length, int access)
{
    bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    bool changes = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    bool migrates = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    return !mr->is_fixed && flags != 0 && (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) == 0 &&
           (!moves || (length != 0 && address != NULL)) && (changes || access == 0) &&
           (!migrates ||
            (pd != NULL && context_engine(pd->context) == context_engine(mr->ibv.context)));
}

/* Gives the key another meaning, within the limits of strict mode. */
static enum status reregister(struct soft_mr *mr, const struct region_attributes *attributes)
{
    struct engine *engine = context_engine(mr->ibv.context);
    struct memory_key key = {mr->ibv.lkey};
    bool pinned = is_pinned(attributes);
    bool moves =
        attributes->bytes != mr->attributes.bytes || attributes->length != mr->attributes.length;
    bool pins = pinned && (moves || !mr->is_pinned); /* else it is locked as it is */
    if (pins && !strict_lock(attributes->bytes, attributes->length)) {
        return STATUS_NO_MEMORY;
    }
    engine_lock(engine);
    enum status status = take_back_region(engine, key, mr->attributes.access);
    if (status == STATUS_OK) {
        status = memory_reregister(device_memory(engine->device), key, attributes);
    }
    if (status == STATUS_OK && strict_is_on()) {
        strict_deregistered(key.value, mr->attributes.bytes, mr->attributes.length);
        strict_registered(key.value, attributes->address, attributes->length);
    }
    if (status == STATUS_OK) {
        take_back_bytes(engine, &mr->attributes);
    }
    engine_unlock(engine);
    const struct region_attributes *old = status == STATUS_OK ? &mr->attributes : attributes;
    if (status == STATUS_OK ? mr->is_pinned && (pins || !pinned) : pins) {
        strict_unlock(old->bytes, old->length);
    }
    mr->is_pinned = status == STATUS_OK ? pinned : mr->is_pinned;
    return status;
}

/* What was registered stays so on every failure. */
PUBLIC int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *address,
                        size_t length, int access)
{
    HOST_FORWARD(ibv->context, ibv_rereg_mr, ibv, flags, pd, address, length, access);
    struct soft_mr *mr = (struct soft_mr *)ibv;
    struct region_attributes attributes = mr->attributes;
    if (!rereg_makes_sense(mr, flags, pd, address, length, access)) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    struct ibv_pd *owner = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : ibv->pd;
    unsigned rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0
                          ? (unsigned)access
                          : convert_access_back(attributes.access);
    if (!describe(owner, moves ? address : attributes.bytes, moves ? length : attributes.length,
                  moves ? (uintptr_t)address : attributes.address, rights, &attributes)) {
        return IBV_REREG_MR_ERR_INPUT;
    }
    enum status status = reregister(mr, &attributes);
    if (status != STATUS_OK) {
        errno = errno_of(status);
        return IBV_REREG_MR_ERR_INPUT;
    }
    fill(mr, owner, &attributes, (struct memory_key){ibv->lkey});
    return 0;
}

void mr_end(struct soft_mr *mr)
{
    if (mr->is_pinned) {
        strict_unlock(mr->attributes.bytes, mr->attributes.length);
    }
    if (mr->device != NULL) {
        device_memory_use(mr->device, -1);
    }
    if (mr->mapped != NULL) {
        munmap(mr->mapped, mr->mapped_length);
    }
    free(mr);
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *ibv)
{
    HOST_FORWARD(ibv->context, ibv_dereg_mr, ibv);
    struct soft_mr *mr = (struct soft_mr *)ibv;
    enum status status = deregister_region(context_engine(ibv->context),
                                           (struct memory_key){ibv->lkey}, &mr->attributes);
    if (status != STATUS_OK) {
        return errno_of(status);
    }
    limits_give(COUNT_MR);
    mr_end(mr);
    return 0;
}

/* Where an entry of a list lies. 0, or an errno value of ibv_advise_mr(3). */
static int find_range(struct ibv_pd *pd, const struct ibv_sge *entry, bool write,
                      uint8_t **ret_bytes)
{
    struct engine *engine = context_engine(pd->context);
    struct memory *memory = device_memory(engine->device);
    const struct memory_request request = {
        .domain = soft_pd(pd)->domain, .key = {entry->lkey}, .address = entry->addr, .length = 1};
    struct region_attributes region;
    struct memory_key key;
    uint8_t *first;
    engine_lock(engine);
    bool found =
        memory_find_region(memory, request.domain, entry->lkey >> 8, &key, &region) == STATUS_OK &&
        key.value == entry->lkey;
    bool is_other_domains = !found && memory_check(memory, &request, &first) == MEMORY_WRONG_DOMAIN;
    engine_unlock(engine);
    if (!found) {
        return is_other_domains ? EPERM : ENOENT;
    }
    if ((region.access & ACCESS_ON_DEMAND) == 0) {
        return EINVAL;
    }
    if (write && (region.access & ACCESS_LOCAL_WRITE) == 0) {
        return EPERM;
    }
    uint64_t offset = entry->addr - region.address;
    if (offset > region.length || entry->length > region.length - offset) {
        return EFAULT;
    }
    *ret_bytes = (uint8_t *)((uintptr_t)region.bytes + (uintptr_t)offset);
    return 0;
}

/* Brings it in; strict mode may have closed it for a moment. */
static bool populate(struct engine *engine, uint8_t *bytes, size_t length, bool write)
{
    if (!strict_is_on()) {
        return mapping_populate(bytes, length, write);
    }
    engine_lock(engine);
    strict_open(bytes, length);
    bool there = mapping_populate(bytes, length, write);
    engine_unlock(engine);
    return there;
}

/* Without FLUSH the caller does not wait for an answer, so what cannot be brought in is not told.
 */
int mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
              struct ibv_sge *list, uint32_t count)
{
    bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    bool faults = advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    bool waits = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || !limits_offer(ABILITY_ON_DEMAND)) {
        return ENOTSUP;
    }
    if ((flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) != 0 || count == 0) {
        return EINVAL;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *bytes;
        int error = find_range(pd, &list[i], write, &bytes);
        if (error != 0) {
            return error;
        }
        if (faults && !populate(context_engine(pd->context), bytes, list[i].length, write) &&
            waits) {
            return EFAULT;
        }
    }
    return 0;
}
