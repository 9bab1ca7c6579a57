/* XRC domains, and handles of one target queue pair opened more than once.
 *
 * A domain belongs to a device and, where it was opened with a file, to that file's inode: opening
 * it again gives another handle of the same one, in other processes of the user and host too (how
 * requests get from one to the other: transport/relay). It ends with its last handle. The limit:
 * ibv_open_qp finds the targets of its own process only. Who has a domain open is in the registry.
 *
 * Not here: shared receive queues of a domain (srq.c), creating queue pairs (qp.c).
 *
 * Everything is under the engine's lock but the calls of the registry: they may wait for a process
 * that is stopped. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic/io/loop/loop.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

/* What handles of the same domain share. */
struct shared_domain {
    struct list_node node;
    struct engine *engine;
    struct xrc_domain domain;
    int file; /* ours, so that no other gets its inode; -1: none */
    uint32_t handles;
    struct list targets; /* struct soft_target: every handle of every target */
};

static struct list domains = {{&domains.head, &domains.head}};

/* No file system has the number -1. */
static struct xrc_domain name_of(const struct stat *file)
{
    return (struct xrc_domain){.space = (uint64_t)file->st_dev + 1, .name = file->st_ino};
}

static struct shared_domain *find_domain(const struct engine *engine, const struct stat *file)
{
    LIST_FOR_EACH(node, &domains)
    {
        struct shared_domain *domain = CONTAINER_OF(node, struct shared_domain, node);
        if (domain->engine == engine && xrc_domain_equal(domain->domain, name_of(file))) {
            return domain;
        }
    }
    return NULL;
}

static void let_go(const struct shared_domain *domain)
{
    registry_release_domain(loop_registry(domain->engine), domain->domain.space,
                            domain->domain.name);
}

/* Among all processes; the error numbers are the kernel's. */
static bool hold(const struct shared_domain *domain, int flags)
{
    bool creates = (flags & O_CREAT) != 0, excludes = (flags & O_EXCL) != 0;
    enum registry_hold how = !creates   ? REGISTRY_HOLD_OPEN
                             : excludes ? REGISTRY_HOLD_NEW
                                        : REGISTRY_HOLD_ANY;
    enum status status = registry_hold_domain(loop_registry(domain->engine), domain->domain.space,
                                              domain->domain.name, how);
    if (status == STATUS_OK && excludes && !creates) {
        let_go(domain);
        status = STATUS_IN_USE;
    }
    errno = status == STATUS_IN_USE      ? EINVAL
            : status == STATUS_NOT_FOUND ? EAGAIN
                                         : errno_of(status);
    return status == STATUS_OK;
}

static struct shared_domain *allocate(struct engine *engine)
{
    struct shared_domain *domain = calloc(1, sizeof *domain);
    if (domain != NULL) {
        domain->engine = engine;
        domain->file = -1;
        list_init(&domain->targets);
    }
    return domain;
}

static void destroy(struct shared_domain *domain)
{
    if (domain->file >= 0) {
        let_go(domain);
        raw_close(domain->file);
    }
    free(domain);
}

/* A file's, held in the registry once more; NULL and errno. */
static struct shared_domain *create(struct engine *engine, int file, const struct stat *facts,
                                    int flags)
{
    struct shared_domain *domain = allocate(engine);
    if (domain == NULL) {
        return NULL;
    }
    domain->domain = name_of(facts);
    domain->file = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* no stream of the program's */
    if (domain->file < 0 || !hold(domain, flags)) {
        int error = errno;
        if (domain->file >= 0) {
            raw_close(domain->file);
        }
        free(domain);
        errno = error;
        return NULL;
    }
    return domain;
}

/* Locked. A handle more of a domain that this process has open; NULL: it has not. */
static struct shared_domain *join(struct engine *engine, int file, const struct stat *facts)
{
    struct shared_domain *known = file == -1 ? NULL : find_domain(engine, facts);
    if (known != NULL) {
        known->handles++;
    }
    return known;
}

/* Another thread may have opened the same meanwhile. */
static struct shared_domain *enter(struct engine *engine, struct shared_domain *domain, int file,
                                   const struct stat *facts)
{
    engine_lock(engine);
    struct shared_domain *known = join(engine, file, facts);
    if (file == -1) {
        domain->domain = device_allocate_xrc_domain(engine->device);
    }
    if (known == NULL) {
        domain->handles++;
        list_append(&domains, &domain->node);
    }
    engine_unlock(engine);
    if (known != NULL) {
        destroy(domain);
    }
    return known != NULL ? known : domain;
}

/* A new domain, or a handle more of one; NULL and errno. */
static struct shared_domain *acquire(struct engine *engine, int file, const struct stat *facts,
                                     int flags)
{
    engine_lock(engine);
    bool refused = (flags & O_EXCL) != 0 && file != -1 && find_domain(engine, facts) != NULL;
    struct shared_domain *known = refused ? NULL : join(engine, file, facts);
    engine_unlock(engine);
    if (refused) {
        errno = EINVAL;
    }
    if (refused || known != NULL) {
        return known;
    }
    struct shared_domain *domain =
        file == -1 ? allocate(engine) : create(engine, file, facts, flags);
    return domain == NULL ? NULL : enter(engine, domain, file, facts);
}

struct ibv_xrcd *xrc_open_domain(struct ibv_context *context, struct ibv_xrcd_init_attr *attributes)
{
    const uint32_t known = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attributes->comp_mask != known || (attributes->oflags & ~(O_CREAT | O_EXCL)) != 0) {
        errno = (attributes->comp_mask & ~known) != 0 ? EOPNOTSUPP : EINVAL;
        return NULL;
    }
    if (!limits_offer(ABILITY_XRC)) {
        return NULL;
    }
    struct stat facts;
    if (attributes->fd != -1 && fstat(attributes->fd, &facts) != 0) {
        return NULL;
    }
    struct soft_xrcd *handle = calloc(1, sizeof *handle);
    if (handle == NULL) {
        return NULL;
    }
    struct engine *engine = context_engine(context);
    handle->shared = acquire(engine, attributes->fd, &facts, attributes->oflags);
    if (handle->shared == NULL) {
        int error = errno;
        free(handle);
        errno = error;
        return NULL;
    }
    handle->ibv.context = context;
    context_hold(context);
    return &handle->ibv;
}

int xrc_close_domain(struct ibv_xrcd *ibv)
{
    struct soft_xrcd *handle = soft_xrcd(ibv);
    struct engine *engine = context_engine(ibv->context);
    engine_lock(engine);
    bool busy = handle->users != 0;
    bool last = !busy && --handle->shared->handles == 0;
    if (last) {
        list_remove(&handle->shared->node);
    }
    engine_unlock(engine);
    if (busy) {
        return EBUSY;
    }
    if (last) {
        destroy(handle->shared);
    }
    context_drop(ibv->context);
    free(handle);
    return 0;
}

struct xrc_domain xrc_domain_of(const struct soft_xrcd *handle)
{
    return handle->shared->domain;
}

void xrc_add_target(struct soft_qp *qp, struct soft_xrcd *handle)
{
    soft_target(qp)->xrcd = handle;
    handle->users++;
    list_append(&handle->shared->targets, &soft_target(qp)->node);
}

/* Any handle of the target of that number. */
static struct soft_qp *find_target(const struct shared_domain *domain, uint32_t number)
{
    LIST_FOR_EACH(node, &domain->targets)
    {
        struct soft_target *target = CONTAINER_OF(node, struct soft_target, node);
        if (qp_number(target->qp.qp).value == number) {
            return &target->qp;
        }
    }
    return NULL;
}

void xrc_tell_all(struct soft_qp *qp, void (*tell)(struct soft_qp *handle, enum event_kind kind),
                  enum event_kind kind)
{
    LIST_FOR_EACH(node, &soft_target(qp)->xrcd->shared->targets)
    {
        struct soft_target *target = CONTAINER_OF(node, struct soft_target, node);
        if (target->qp.qp == qp->qp) {
            tell(&target->qp, kind);
        }
    }
}

bool xrc_remove_target(struct soft_qp *qp)
{
    struct soft_target *target = soft_target(qp);
    list_remove(&target->node);
    target->xrcd->users--;
    struct soft_qp *other = find_target(target->xrcd->shared, qp_number(qp->qp).value);
    if (other != NULL && qp_context(qp->qp) == &qp->extended.qp_base) {
        qp_set_context(qp->qp, &other->extended.qp_base);
    }
    return other == NULL;
}

/* Why there is no target of that number. */
static enum status refusal(struct engine *engine, uint32_t number)
{
    struct registry *registry = loop_registry(engine);
    uint32_t slot = slot_of_qpn((struct qpn){number});
    bool elsewhere = registry != NULL && slot != registry_slot(registry) &&
                     registry_slot_is_used(registry, slot);
    return elsewhere ? STATUS_UNSUPPORTED : STATUS_INVALID;
}

struct ibv_qp *xrc_open_target(struct ibv_context *context, struct ibv_qp_open_attr *attributes)
{
    const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    const uint32_t known = needed | IBV_QP_OPEN_ATTR_CONTEXT;
    if ((attributes->comp_mask & ~known) != 0) {
        return errno_null(STATUS_UNSUPPORTED);
    }
    if ((attributes->comp_mask & needed) != needed || attributes->qp_type != IBV_QPT_XRC_RECV) {
        return errno_null(STATUS_INVALID);
    }
    struct soft_xrcd *handle = soft_xrcd(attributes->xrcd);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_XRC_RECV};
    struct soft_qp *qp = qp_allocate(context, NULL, &init, false, NULL);
    if (qp == NULL) {
        return NULL;
    }
    if ((attributes->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) {
        qp->extended.qp_base.qp_context = attributes->qp_context;
    }
    engine_lock(qp->engine);
    struct soft_qp *other = find_target(handle->shared, attributes->qp_num);
    if (other != NULL) {
        qp->qp = other->qp;
        qp->extended.qp_base.state = other->extended.qp_base.state;
        xrc_add_target(qp, handle);
    }
    engine_unlock(qp->engine);
    if (other == NULL) {
        qp_free(qp);
        return errno_null(refusal(context_engine(context), attributes->qp_num));
    }
    qp_announce(qp);
    return &qp->extended.qp_base;
}
