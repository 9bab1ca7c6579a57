/* Opening a device a second time by the descriptor of the first, and the objects of one by their
 * handles in the other.
 *
 * The descriptor is a file in memory of its own, so that a duplicate is recognized by its inode.
 * Objects live in this process and nowhere else: a descriptor that came from another process is
 * recognized by what is written in it, and refused with EOPNOTSUPP.
 * Invariant: a file is in `files` while a context holds it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/objects.h"

static const char mark[] = "weir command descriptor\n";

struct open_file {
    struct open_file *next;
    dev_t device;
    ino_t inode;
    struct ibv_device *opened;
    struct engine *engine;
    uint32_t holders; /* contexts */
    struct list pds;  /* of struct soft_pd */
    struct list dms;  /* of struct soft_dm */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of these */
static struct open_file *files;

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

struct open_file *file_create(struct ibv_device *opened, struct engine *engine, int *ret_descriptor)
{
    struct open_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return NULL;
    }
    struct stat status;
    int descriptor = memfd_create("weir", MFD_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status) != 0 ||
        write(descriptor, mark, sizeof mark) != (ssize_t)sizeof mark) {
        int error = errno;
        if (descriptor >= 0) {
            close(descriptor);
        }
        free(file);
        errno = error;
        return NULL;
    }
    *file = (struct open_file){.device = status.st_dev,
                               .inode = status.st_ino,
                               .opened = opened,
                               .engine = engine,
                               .holders = 1};
    list_init(&file->pds);
    list_init(&file->dms);
    pthread_mutex_lock(&lock);
    file->next = files;
    files = file;
    pthread_mutex_unlock(&lock);
    *ret_descriptor = descriptor;
    return file;
}

void file_drop(struct open_file *file)
{
    pthread_mutex_lock(&lock);
    bool last = --file->holders == 0;
    if (last) {
        struct open_file **place = &files;
        while (*place != file) {
            place = &(*place)->next;
        }
        *place = file->next;
    }
    pthread_mutex_unlock(&lock);
    if (last) {
        free(file);
    }
}

/* The file behind a descriptor, held; NULL and errno. */
static struct open_file *find(int descriptor)
{
    char text[sizeof mark];
    struct stat status;
    if (fstat(descriptor, &status) != 0) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    struct open_file *file = files;
    while (file != NULL && (file->device != status.st_dev || file->inode != status.st_ino)) {
        file = file->next;
    }
    if (file != NULL) {
        file->holders++;
    }
    pthread_mutex_unlock(&lock);
    if (file == NULL) {
        bool ours = pread(descriptor, text, sizeof text, 0) == (ssize_t)sizeof text &&
                    memcmp(text, mark, sizeof mark) == 0;
        errno = ours ? EOPNOTSUPP : EINVAL;
    }
    return file;
}

void file_add_pd(struct open_file *file, struct soft_pd *pd)
{
    pthread_mutex_lock(&lock);
    list_append(&file->pds, &pd->node);
    pthread_mutex_unlock(&lock);
}

void file_add_dm(struct open_file *file, struct soft_dm *dm)
{
    pthread_mutex_lock(&lock);
    list_append(&file->dms, &dm->node);
    pthread_mutex_unlock(&lock);
}

bool file_remove(struct open_file *file, struct list_node *node)
{
    pthread_mutex_lock(&lock);
    bool was_in = list_node_is_linked(node);
    list_remove(node);
    pthread_mutex_unlock(&lock);
    return was_in;
}

void file_forget_pd(struct open_file *file, struct soft_pd *pd)
{
    pthread_mutex_lock(&lock);
    if (list_node_is_linked(&pd->node)) {
        list_remove(&pd->node);
    } else { /* an import, or one whose domain another has */
        LIST_FOR_EACH(node, &file->pds)
        {
            if (CONTAINER_OF(node, struct soft_pd, node)->ibv.handle == pd->ibv.handle) {
                list_remove(node);
            }
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Takes over the hold of `file`. */
static struct ibv_context *import(struct open_file *file, int command_descriptor)
{
    struct engine *engine = device_open();
    struct ibv_context *context = NULL;
    if (engine != NULL && engine != file->engine) {
        errno = EOPNOTSUPP; /* of the process that forked this one */
    } else if (engine != NULL) {
        context = context_open(file->opened, engine, file, command_descriptor);
    }
    if (context == NULL) {
        int error = errno;
        if (engine != NULL) {
            device_close(engine);
        }
        file_drop(file);
        errno = error;
    }
    return context;
}

/* The new context owns the descriptor and closes it. */
PUBLIC struct ibv_context *ibv_import_device(int command_descriptor)
{
    int cancel = cancel_hold();
    struct open_file *file = find(command_descriptor);
    struct ibv_context *context = file == NULL ? NULL : import(file, command_descriptor);
    cancel_restore(cancel);
    return file == NULL && host_calls() != NULL
               ? host_calls()->ibv_import_device(command_descriptor)
               : context;
}

PUBLIC struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    HOST_FORWARD(context, ibv_import_pd, context, handle);
    struct open_file *file = soft_context(context)->file;
    bool found = false;
    pthread_mutex_lock(&lock);
    LIST_FOR_EACH(node, &file->pds)
    {
        found |= CONTAINER_OF(node, struct soft_pd, node)->ibv.handle == handle;
    }
    pthread_mutex_unlock(&lock);
    struct soft_pd *pd = found ? calloc(1, sizeof *pd) : errno_null(STATUS_NOT_FOUND);
    if (pd != NULL) {
        pd->ibv = (struct ibv_pd){.context = context, .handle = handle};
        pd->domain = (struct domain){handle};
        pd->is_imported = true;
        pd_hold(&pd->ibv);
        context_hold(context);
    }
    return pd == NULL ? NULL : &pd->ibv;
}

/* Also an original, where the import was the handle that destroyed it. One whose domain nobody has
 * destroyed leaves that in its context. */
PUBLIC void ibv_unimport_pd(struct ibv_pd *pd)
{
    HOST_FORWARD_VOID(pd->context, ibv_unimport_pd, pd);
    bool is_left = file_remove(soft_context(pd->context)->file, &soft_pd(pd)->node);
    if (!is_left) {
        context_drop(pd->context);
    }
    if (soft_pd(pd)->is_imported) {
        pd_drop(pd); /* queue pairs may still name it */
    } else {
        free(pd);
    }
}

/* The address is not told, as the manual has it. */
PUBLIC struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    HOST_FORWARD(pd->context, ibv_import_mr, pd, handle);
    struct engine *engine = context_engine(pd->context);
    struct region_attributes attributes;
    struct memory_key key;
    engine_lock(engine);
    enum status status = memory_find_region(device_memory(engine->device), soft_pd(pd)->domain,
                                            handle, &key, &attributes);
    engine_unlock(engine);
    if (status != STATUS_OK) {
        return errno_null(status);
    }
    struct soft_mr *mr = mr_wrap(pd, &attributes, key);
    if (mr != NULL) {
        mr->ibv.addr = NULL;
        mr->is_fixed = true;
    }
    return mr == NULL ? NULL : &mr->ibv;
}

/* Also an original, see ibv_unimport_pd: then what it holds is to go with it. */
PUBLIC void ibv_unimport_mr(struct ibv_mr *mr)
{
    HOST_FORWARD_VOID(mr->context, ibv_unimport_mr, mr);
    struct engine *engine = context_engine(mr->context);
    struct soft_mr *handle = (struct soft_mr *)mr;
    struct region_attributes attributes;
    struct memory_key key;
    engine_lock(engine);
    bool lives = memory_find_region(device_memory(engine->device), handle->attributes.domain,
                                    mr->lkey >> 8, &key, &attributes) == STATUS_OK &&
                 key.value == mr->lkey;
    engine_unlock(engine);
    if (lives) {
        free(handle);
    } else {
        mr_end(handle);
    }
}

PUBLIC struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    HOST_FORWARD(context, ibv_import_dm, context, handle);
    struct open_file *file = soft_context(context)->file;
    struct device_memory *memory = NULL;
    pthread_mutex_lock(&lock);
    LIST_FOR_EACH(node, &file->dms)
    {
        struct soft_dm *dm = CONTAINER_OF(node, struct soft_dm, node);
        if (memory == NULL && dm->ibv.handle == handle) {
            memory = device_memory_hold(dm->memory);
        }
    }
    pthread_mutex_unlock(&lock);
    if (memory == NULL) {
        return errno_null(STATUS_NOT_FOUND);
    }
    struct soft_dm *dm = dm_wrap(context, memory);
    return dm == NULL ? NULL : &dm->ibv;
}

PUBLIC void ibv_unimport_dm(struct ibv_dm *dm)
{
    HOST_FORWARD_VOID(dm->context, ibv_unimport_dm, dm);
    file_remove(soft_context(dm->context)->file, &((struct soft_dm *)dm)->node);
    dm_unwrap((struct soft_dm *)dm);
}
