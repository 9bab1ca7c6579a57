/* Open devices: the tables of calls. Opening by descriptor: import.c. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rnic/io/loop/loop.h"
#include "rnic/io/system/cancel.h"
#include "rnic/io/system/mapping.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/objects.h"

#define VECTORS_MAX 64

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
    verbs->post_srq_ops = srq_operate;
    verbs->create_qp_ex = qp_create_extended;
    verbs->open_xrcd = xrc_open_domain;
    verbs->close_xrcd = xrc_close_domain;
    verbs->open_qp = xrc_open_target;
    verbs->alloc_null_mr = mr_register_null;
    verbs->advise_mr = mr_advise;
    verbs->alloc_dm = dm_allocate;
    verbs->free_dm = dm_free;
    verbs->reg_dm_mr = dm_register;

    struct ibv_context_ops *calls = &verbs->context.ops;
    calls->alloc_mw = mw_allocate;
    calls->bind_mw = mw_bind;
    calls->dealloc_mw = mw_free;
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

struct ibv_context *context_open(struct ibv_device *device, struct engine *engine,
                                 struct open_file *file, int command_descriptor)
{
    struct soft_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return NULL;
    }
    if (notify_create(&context->async) != STATUS_OK) {
        free(context);
        return NULL;
    }
    context->engine = engine;
    context->file = file;
    struct ibv_context *ibv = &context->verbs.context;
    context->verbs.sz = sizeof context->verbs;
    context_fill_operations(&context->verbs);
    ibv->device = device;
    ibv->cmd_fd = command_descriptor;
    ibv->async_fd = notify_descriptor(context->async);
    ibv->num_comp_vectors = vector_count();
    pthread_mutex_init(&ibv->mutex, NULL);
    ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
    devices_refresh(device);
    event_attach(context);
    if (strict_is_on()) {
        engine_lock(context->engine);
        strict_watch(context->engine->device, mapping_probe());
        engine_unlock(context->engine);
    }
    return ibv;
}

static struct ibv_context *open_ours(struct ibv_device *device)
{
    struct engine *engine = device_open();
    if (engine == NULL) {
        return NULL;
    }
    int descriptor;
    struct open_file *file = file_create(device, engine, &descriptor);
    struct ibv_context *context =
        file == NULL ? NULL : context_open(device, engine, file, descriptor);
    if (context == NULL) {
        int error = errno;
        if (file != NULL) {
            close(descriptor);
            file_drop(file);
        }
        device_close(engine);
        errno = error;
    }
    return context;
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    if (host_owns_device(device)) {
        return host_calls()->ibv_open_device(device);
    }
    int cancel = cancel_hold();
    struct ibv_context *context = open_ours(device);
    cancel_restore(cancel);
    return context;
}

/* With objects left in it, which a kernel would clean up, the context stays for as long as the
 * process: events may still name it. */
PUBLIC int ibv_close_device(struct ibv_context *ibv)
{
    HOST_FORWARD(ibv, ibv_close_device, ibv);
    struct soft_context *context = soft_context(ibv);
    if (atomic_load(&context->objects) != 0) {
        return 0;
    }
    int cancel = cancel_hold();
    event_detach(context);
    device_close(context->engine);
    notify_destroy(context->async);
    close(ibv->cmd_fd);
    file_drop(context->file);
    pthread_mutex_destroy(&ibv->mutex);
    free(context);
    cancel_restore(cancel);
    return 0;
}
