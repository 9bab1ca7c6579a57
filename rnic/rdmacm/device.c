/* The devices that ids are bound to, and the thread that routes cm's events.
 *
 * Opened when an id first needs it and kept until the process ends; a forked child opens its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "rnic/io/system/cancel.h"
#include "rnic/io/system/quiet.h"
#include "rnic/rdmacm/cma.h"

static struct cma_device *the_device;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void after_fork(void)
{
    pthread_mutex_init(&open_lock, NULL);
    pthread_mutex_init(&cma_lock, NULL);
    pthread_cond_init(&cma_acknowledged, NULL);
}

static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* Under the engine's lock: may not call cm. */
static void wake(void *context)
{
    struct cma_device *device = context;
    struct notify_record record = {.object = device};
    device->core->notify_post(device->wake, &record);
}

/* Milliseconds, rounded up, for poll; -1 for ever. */
static int until(struct cma_device *device, struct instant when)
{
    uint64_t rest_ns = instant_elapsed_ns(engine_now(device->engine), when);
    return instant_is_never(when) ? -1 : (int)(rest_ns / 1000000) + 1;
}

static void *run(void *context)
{
    struct cma_device *device = context;
    struct pollfd wait = {.fd = device->core->notify_descriptor(device->wake), .events = POLLIN};
    struct instant next = INSTANT_NEVER;
    for (;;) {
        struct notify_record record;
        if (poll(&wait, 1, until(device, next)) > 0 &&
            device->core->notify_wait(device->wake, &record) != 0) {
            return NULL;
        }
        next = cma_dispatch(device);
    }
}

static int start_thread(struct cma_device *device)
{
    pthread_t thread;
    sigset_t before = quiet_begin();
    int error = pthread_create(&thread, NULL, run, device);
    quiet_end(before);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

/* 0 or an errno value; what was opened stands in the table. */
static int open_all(struct cma_device *device)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    int error = list == NULL || list[0] == NULL ? ENODEV : 0;
    for (uint32_t i = 0; error == 0 && list[i] != NULL && i < DEVICES_MAX; i++) {
        device->verbs[i] = ibv_open_device(list[i]);
        if (device->verbs[i] == NULL) {
            error = errno;
            break;
        }
        device->count = i + 1;
        device->pds[i] = ibv_alloc_pd(device->verbs[i]);
        error = device->pds[i] == NULL ? ENOMEM : 0;
    }
    ibv_free_device_list(list);
    return error;
}

static void close_all(struct cma_device *device)
{
    for (uint32_t i = 0; i < device->count; i++) {
        if (device->pds[i] != NULL) {
            ibv_dealloc_pd(device->pds[i]);
        }
        ibv_close_device(device->verbs[i]);
    }
}

static uint8_t reads_at_once(struct ibv_context *verbs)
{
    struct ibv_device_attr attributes;
    bool told = ibv_query_device(verbs, &attributes) == 0;
    return told ? (uint8_t)attributes.max_qp_rd_atom : 1;
}

static struct cma_device *open_device(void)
{
    struct cma_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return NULL;
    }
    device->core = weir_seam();
    int error = open_all(device);
    if (error == 0 && device->core->notify_create(&device->wake) != STATUS_OK) {
        error = ENOMEM;
    }
    if (error != 0) {
        goto failed;
    }
    device->max_reads = reads_at_once(device->verbs[0]);
    device->engine = device->core->context_engine(device->verbs[0]);
    device->core->loop_set_cm_wake(device->engine, wake, device);
    error = start_thread(device);
    if (error != 0) {
        device->core->loop_set_cm_wake(device->engine, NULL, NULL);
        goto failed;
    }
    return device;
failed:
    device->core->notify_destroy(device->wake);
    close_all(device);
    free(device);
    errno = error;
    return NULL;
}

struct cma_device *cma_device_open(void)
{
    pthread_once(&once, watch_fork);
    int cancel = cancel_hold();
    pthread_mutex_lock(&open_lock);
    struct cma_device *device = the_device;
    if (device == NULL || !device->core->loop_is_ours(device->engine)) {
        cma_forget_listeners();
        cma_retry_forget_all();
        device = open_device();
        the_device = device != NULL ? device : the_device; /* a parent's, for what came with it */
    }
    pthread_mutex_unlock(&open_lock);
    cancel_restore(cancel);
    return device;
}

struct cma_device *cma_device(void)
{
    return the_device;
}

bool cma_is_ours(const struct cma_id *id)
{
    struct cma_device *device = cma_device();
    return id->home == device && device->core->loop_is_ours(device->engine);
}

void cma_attach(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    struct device_place place;
    if (!device->core->devices_find(&id->path.local, &place)) {
        place = (struct device_place){.device = 0, .port = 1};
    }
    id->ibv.verbs = device->verbs[place.device];
    id->ibv.port_num = place.port;
    if (id->ibv.pd == NULL) {
        id->ibv.pd = device->pds[place.device];
    }
}

PUBLIC struct ibv_context **rdma_get_devices(int *ret_count)
{
    struct cma_device *device = cma_device_open();
    struct ibv_context **list = device == NULL ? NULL : calloc(device->count + 1, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < device->count; i++) {
        list[i] = device->verbs[i];
    }
    if (ret_count != NULL) {
        *ret_count = list != NULL ? (int)device->count : 0;
    }
    return list;
}

PUBLIC void rdma_free_devices(struct ibv_context **list)
{
    free(list);
}

int cma_error(int error)
{
    if (error == 0) {
        return 0;
    }
    errno = error;
    return -1;
}

int cma_status(enum status status)
{
    return status == STATUS_OK ? 0 : cma_error(cma_device()->core->errno_of(status));
}

static struct ibv_xrcd *default_xrc_domain(struct cma_device *device,
                                           const struct ibv_context *verbs)
{
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        .fd = -1,
        .oflags = O_CREAT,
    };
    for (uint32_t i = 0; i < device->count; i++) {
        if (device->verbs[i] == verbs) {
            if (device->xrcds[i] == NULL) {
                device->xrcds[i] = ibv_open_xrcd(device->verbs[i], &init);
            }
            return device->xrcds[i];
        }
    }
    errno = EINVAL;
    return NULL;
}

bool cma_name_xrc_domain(struct ibv_context *verbs, uint32_t *mask, uint32_t bit,
                         struct ibv_xrcd **domain)
{
    if ((*mask & bit) != 0 && *domain != NULL) {
        return true;
    }
    pthread_mutex_lock(&cma_lock);
    *domain = default_xrc_domain(cma_device(), verbs);
    pthread_mutex_unlock(&cma_lock);
    *mask |= bit;
    return *domain != NULL;
}
