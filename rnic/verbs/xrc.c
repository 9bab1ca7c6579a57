/* XRC domains, and handles of one target queue pair opened more than once.
 *
 * A domain belongs to a device and, where it was opened with a file, to that file's inode: opening
 * it again gives another handle of the same one, in other processes of the user and host too (how
 * requests get from one to the other: transport/relay). It ends with its last handle. The limit:
 * ibv_open_qp finds the targets of its own process only.
 *
 * Not here: shared receive queues of a domain (srq.c), creating queue pairs (qp.c).
 *
 * Everything is under the engine's lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/objects.h"

/* What handles of the same domain share. */
struct shared_domain {
    struct list_node node;
    struct engine *engine;
    struct xrc_domain domain;
    uint32_t handles;
    struct list targets; /* struct soft_qp: every handle of every target */
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

/* A new domain, or a handle more of one; NULL and errno. `file` is NULL for one without a file. */
static struct shared_domain *acquire(struct engine *engine, const struct stat *file, int flags)
{
    struct shared_domain *domain = file == NULL ? NULL : find_domain(engine, file);
    if (domain != NULL && (flags & O_EXCL) != 0) {
        errno = EINVAL;
        return NULL;
    }
    if (domain == NULL && file != NULL && (flags & O_CREAT) == 0) {
        errno = EAGAIN; /* as the kernel has it: nobody has opened it yet */
        return NULL;
    }
    if (domain == NULL) {
        domain = calloc(1, sizeof *domain);
        if (domain == NULL) {
            return NULL;
        }
        domain->engine = engine;
        domain->domain = file == NULL ? device_allocate_xrc_domain(engine->device) : name_of(file);
        list_init(&domain->targets);
        list_append(&domains, &domain->node);
    }
    domain->handles++;
    return domain;
}

static void release(struct shared_domain *domain)
{
    if (--domain->handles == 0) {
        list_remove(&domain->node);
        free(domain);
    }
}

struct ibv_xrcd *xrc_open_domain(struct ibv_context *context, struct ibv_xrcd_init_attr *attributes)
{
    const uint32_t known = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attributes->comp_mask != known || (attributes->oflags & ~(O_CREAT | O_EXCL)) != 0) {
        errno = (attributes->comp_mask & ~known) != 0 ? EOPNOTSUPP : EINVAL;
        return NULL;
    }
    struct stat file;
    bool has_file = attributes->fd != -1;
    if (has_file && fstat(attributes->fd, &file) != 0) {
        return NULL;
    }
    struct soft_xrcd *handle = calloc(1, sizeof *handle);
    if (handle == NULL) {
        return NULL;
    }
    struct engine *engine = context_engine(context);
    engine_lock(engine);
    handle->shared = acquire(engine, has_file ? &file : NULL, attributes->oflags);
    engine_unlock(engine);
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
    if (!busy) {
        release(handle->shared);
    }
    engine_unlock(engine);
    if (busy) {
        return EBUSY;
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
    qp->xrcd = handle;
    handle->users++;
    list_append(&handle->shared->targets, &qp->target);
}

/* Any handle of the target of that number. */
static struct soft_qp *find_target(const struct shared_domain *domain, uint32_t number)
{
    LIST_FOR_EACH(node, &domain->targets)
    {
        struct soft_qp *qp = CONTAINER_OF(node, struct soft_qp, target);
        if (qp_number(qp->qp).value == number) {
            return qp;
        }
    }
    return NULL;
}

bool xrc_remove_target(struct soft_qp *qp)
{
    list_remove(&qp->target);
    qp->xrcd->users--;
    struct soft_qp *other = find_target(qp->xrcd->shared, qp_number(qp->qp).value);
    if (other != NULL && qp_context(qp->qp) == qp) {
        qp_set_context(qp->qp, other);
    }
    return other == NULL;
}

/* Events of the target go to the handle that is older. */
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
    if ((attributes->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) {
        init.qp_context = attributes->qp_context;
    }
    struct soft_qp *qp = qp_allocate(context, NULL, &init);
    if (qp == NULL) {
        return NULL;
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
        return errno_null(STATUS_INVALID);
    }
    qp_announce(qp);
    return &qp->extended.qp_base;
}
