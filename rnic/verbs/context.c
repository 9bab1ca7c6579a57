/* Open devices: the tables of calls, and sharing objects between processes (which is refused). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "rnic/io/loop.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/objects.h"

#define VECTORS_MAX 64

static struct ibv_mw *window_allocate(struct ibv_pd *pd, enum ibv_mw_type type)
{
    errno = EOPNOTSUPP;
    return NULL;
}

static int window_bind(struct ibv_qp *qp, struct ibv_mw *window, struct ibv_mw_bind *bind)
{
    return EOPNOTSUPP;
}

static int window_free(struct ibv_mw *window)
{
    return EOPNOTSUPP;
}

void context_fill_operations(struct verbs_context *verbs)
{
    verbs->query_port = port_query;
    verbs->query_device_ex = device_query_ex;
    verbs->query_rt_values = device_query_clock;
    verbs->alloc_parent_domain = pd_allocate_parent;
    verbs->alloc_td = pd_allocate_thread_domain;
    verbs->dealloc_td = pd_free_thread_domain;
    verbs->create_cq_ex = cq_create_extended;
    verbs->modify_cq = cq_modify;
    verbs->create_srq_ex = srq_create_extended;
    verbs->get_srq_num = srq_number;
    verbs->create_qp_ex = qp_create_extended;
    verbs->open_xrcd = xrc_open_domain;
    verbs->close_xrcd = xrc_close_domain;
    verbs->open_qp = xrc_open_target;

    struct ibv_context_ops *calls = &verbs->context.ops;
    calls->alloc_mw = window_allocate;
    calls->bind_mw = window_bind;
    calls->dealloc_mw = window_free;
    calls->poll_cq = cq_poll;
    calls->req_notify_cq = cq_arm;
    calls->post_srq_recv = srq_post_receive;
    calls->post_send = post_send;
    calls->post_recv = post_receive;
}

/* One for each processor, as programs expect; the engine serves them all. */
static int vector_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > VECTORS_MAX ? VECTORS_MAX : (int)count;
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct soft_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return NULL;
    }
    if (notify_create(&context->async) != STATUS_OK) {
        free(context);
        errno = EMFILE;
        return NULL;
    }
    context->engine = device_open();
    if (context->engine == NULL) {
        int error = errno;
        notify_destroy(context->async);
        free(context);
        errno = error;
        return NULL;
    }
    struct ibv_context *ibv = &context->verbs.context;
    context->verbs.sz = sizeof context->verbs;
    context_fill_operations(&context->verbs);
    ibv->device = device;
    /* Leads nowhere, but programs that share a device duplicate it before they ask whether they
     * may. */
    ibv->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ibv->async_fd = notify_descriptor(context->async);
    ibv->num_comp_vectors = vector_count();
    pthread_mutex_init(&ibv->mutex, NULL);
    ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
    gid_table_refresh();
    event_attach(context);
    if (strict_is_on()) {
        engine_lock(context->engine);
        strict_watch(context->engine->device);
        engine_unlock(context->engine);
    }
    return ibv;
}

/* With objects left in it, which a kernel would clean up, the context stays for as long as the
 * process: events may still name it. */
PUBLIC int ibv_close_device(struct ibv_context *ibv)
{
    struct soft_context *context = soft_context(ibv);
    if (atomic_load(&context->objects) != 0) {
        return 0;
    }
    event_detach(context);
    device_close(context->engine);
    notify_destroy(context->async);
    if (ibv->cmd_fd >= 0) {
        close(ibv->cmd_fd);
    }
    pthread_mutex_destroy(&ibv->mutex);
    free(context);
    return 0;
}

PUBLIC struct ibv_context *ibv_import_device(int command_descriptor)
{
    errno = EOPNOTSUPP;
    return NULL;
}

PUBLIC struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    errno = EOPNOTSUPP;
    return NULL;
}

PUBLIC void ibv_unimport_pd(struct ibv_pd *pd)
{
}

PUBLIC struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    errno = EOPNOTSUPP;
    return NULL;
}

PUBLIC void ibv_unimport_mr(struct ibv_mr *mr)
{
}

PUBLIC struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    errno = EOPNOTSUPP;
    return NULL;
}

PUBLIC void ibv_unimport_dm(struct ibv_dm *dm)
{
}
