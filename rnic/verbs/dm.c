/* Device memory: ours is the host's, in amounts like an adapter's, and reached by copying calls and
 * keys only. Its size is counted over the whole process; no engine is asked, so that a forked child
 * may use it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

#define ALIGNMENT           4u /* of offsets and lengths that the host copies */
#define LOG_ALIGNMENT_LEAST 6u
#define LOG_ALIGNMENT_MOST  20u

struct device_memory {
    uint8_t *bytes;
    size_t length;
    uint32_t handle;
    _Atomic uint32_t holders; /* handles of applications */
    _Atomic uint32_t regions;
};

static _Atomic size_t allocated; /* bytes, of all */
static _Atomic uint32_t last_handle;

static bool take_room(size_t length)
{
    size_t before = atomic_load(&allocated);
    do {
        if (!limits_allow(before + length, limits_now()->max_device_memory, "max_dm_size")) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&allocated, &before, before + length));
    return true;
}

static struct device_memory *create(size_t length, uint32_t log_alignment)
{
    uint32_t log = log_alignment < LOG_ALIGNMENT_LEAST ? LOG_ALIGNMENT_LEAST : log_alignment;
    struct device_memory *memory = calloc(1, sizeof *memory);
    void *bytes = NULL;
    if (memory == NULL || posix_memalign(&bytes, (size_t)1 << log, length) != 0) {
        free(memory);
        return errno_null(STATUS_NO_MEMORY);
    }
    if (!take_room(length)) {
        free(bytes);
        free(memory);
        return errno_null(STATUS_NO_MEMORY);
    }
    memset(bytes, 0, length);
    memory->bytes = bytes;
    memory->length = length;
    memory->handle = atomic_fetch_add(&last_handle, 1) + 1;
    memory->holders = 1;
    return memory;
}

static void drop(struct device_memory *memory)
{
    if (atomic_fetch_sub(&memory->holders, 1) == 1) {
        atomic_fetch_sub(&allocated, memory->length);
        free(memory->bytes);
        free(memory);
    }
}

struct device_memory *device_memory_hold(struct device_memory *memory)
{
    atomic_fetch_add(&memory->holders, 1);
    return memory;
}

void device_memory_use(struct device_memory *memory, int change)
{
    atomic_fetch_add(&memory->regions, (uint32_t)change);
    if (change < 0) {
        drop(memory);
    } else {
        device_memory_hold(memory);
    }
}

static int check_copy(const struct device_memory *memory, uint64_t offset, size_t length)
{
    if (offset % ALIGNMENT != 0 || length % ALIGNMENT != 0) {
        return EINVAL;
    }
    return offset > memory->length || length > memory->length - offset ? EFAULT : 0;
}

static int copy_to(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t length)
{
    struct device_memory *memory = ((struct soft_dm *)ibv)->memory;
    int error = check_copy(memory, offset, length);
    if (error == 0 && length > 0) {
        memcpy(memory->bytes + offset, from, length);
    }
    return error;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
    struct device_memory *memory = ((struct soft_dm *)ibv)->memory;
    int error = check_copy(memory, offset, length);
    if (error == 0 && length > 0) {
        memcpy(to, memory->bytes + offset, length);
    }
    return error;
}

struct soft_dm *dm_wrap(struct ibv_context *context, struct device_memory *memory)
{
    struct soft_dm *dm = calloc(1, sizeof *dm);
    if (dm != NULL) {
        dm->memory = memory;
        dm->ibv = (struct ibv_dm){
            .context = context,
            .memcpy_to_dm = copy_to,
            .memcpy_from_dm = copy_from,
            .handle = memory->handle,
        };
        context_hold(context);
    }
    return dm;
}

void dm_unwrap(struct soft_dm *dm)
{
    drop(dm->memory);
    context_drop(dm->ibv.context);
    free(dm);
}

struct ibv_dm *dm_allocate(struct ibv_context *context, struct ibv_alloc_dm_attr *attributes)
{
    if (!limits_offer(ABILITY_DEVICE_MEMORY)) {
        return NULL;
    }
    if (attributes->comp_mask != 0 || attributes->length == 0 ||
        attributes->log_align_req > LOG_ALIGNMENT_MOST) {
        return errno_null(STATUS_INVALID);
    }
    if (attributes->length > DEVICE_MEMORY_MAX) {
        return errno_null(STATUS_NO_MEMORY);
    }
    struct device_memory *memory = create(attributes->length, attributes->log_align_req);
    if (memory == NULL) {
        return NULL;
    }
    struct soft_dm *dm = dm_wrap(context, memory);
    if (dm == NULL) {
        drop(memory);
        return NULL;
    }
    file_add_dm(soft_context(context)->file, dm);
    return &dm->ibv;
}

int dm_free(struct ibv_dm *ibv)
{
    struct soft_dm *dm = (struct soft_dm *)ibv;
    if (atomic_load(&dm->memory->regions) != 0) {
        return EBUSY;
    }
    file_remove(soft_context(ibv->context)->file, &dm->node);
    dm_unwrap(dm);
    return 0;
}

struct ibv_mr *dm_register(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t offset, size_t length,
                           unsigned access)
{
    struct device_memory *memory = ((struct soft_dm *)ibv)->memory;
    struct region_attributes attributes = {.domain = soft_pd(pd)->domain, .length = length};
    /* It has no address of the host's, so its own can but begin at 0. */
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 || !convert_access(access, &attributes.access) ||
        offset > memory->length || length > memory->length - offset) {
        return errno_null(STATUS_INVALID);
    }
    attributes.access &= ~(unsigned)ACCESS_ON_DEMAND;
    attributes.bytes = memory->bytes + offset;
    struct soft_mr *mr = mr_create(pd, &attributes);
    if (mr == NULL) {
        return NULL;
    }
    mr->ibv.addr = NULL;
    mr->is_fixed = true;
    mr->device = memory;
    device_memory_use(memory, 1);
    return &mr->ibv;
}
