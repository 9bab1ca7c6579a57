/* The choice of library and device. */
#include "weir/fabric_private.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/domain.h"
#include "weir/error_private.h"
#include "weir/sysfs.h"

#define WHY 192 /* room for why a device was not taken */

/* NAME[:PORT[:GID_INDEX]], or an address that it is to lead to. */
struct wish {
    char name[64]; /* "": any */
    unsigned port; /* 0: any */
    int gid_index;
    const char *toward; /* NULL: any */
};

static bool parse_number(const char *text, unsigned max, unsigned *ret_number, const char **ret_end)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || *text < '0' || *text > '9' || number > max) {
        return false;
    }
    *ret_number = (unsigned)number;
    *ret_end = end;
    return true;
}

static enum weir_status parse_wish(const char *text, struct wish *ret_wish,
                                   struct weir_error *ret_error)
{
    struct wish wish = {.gid_index = FABRIC_GID_ANY};
    if (text != NULL) {
        size_t length = strcspn(text, ":");
        const char *rest = text + length;
        unsigned gid_index = 0;
        bool is_good = length < sizeof(wish.name);
        if (is_good && *rest == ':') {
            is_good = parse_number(rest + 1, UINT8_MAX, &wish.port, &rest) && wish.port > 0;
        }
        if (is_good && *rest == ':') {
            is_good = parse_number(rest + 1, UINT8_MAX, &gid_index, &rest); /* as a route has it */
            wish.gid_index = (int)gid_index;
        }
        if (!is_good || *rest != '\0') {
            return error_set(ret_error, WEIR_INVALID, "device \"%s\": not NAME[:PORT[:GID_INDEX]]",
                             text);
        }
        memcpy(wish.name, text, length);
    }
    *ret_wish = wish;
    return WEIR_OK;
}

static bool has_real_device(void)
{
    DIR *directory = opendir(SYSFS_DEVICES);
    if (directory == NULL) {
        return false;
    }
    struct dirent *entry;
    bool is_there = false;
    while (!is_there && (entry = readdir(directory)) != NULL) {
        is_there = entry->d_name[0] != '.';
    }
    closedir(directory);
    return is_there;
}

/* The header's inline falls back to a symbol that we do not link. */
static int query_port(const struct verbs *verbs, struct ibv_context *context, uint8_t port,
                      struct ibv_port_attr *ret_attributes)
{
    memset(ret_attributes, 0, sizeof(*ret_attributes));
    struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
    if (extended != NULL) {
        return extended->query_port(context, port, ret_attributes, sizeof(*ret_attributes));
    }
    return verbs->query_port(context, port, ret_attributes);
}

/* Takes the context if it fits the wish and has an active port. */
static bool take_context(struct weir_fabric *fabric, struct ibv_context *context,
                         const struct wish *wish)
{
    const struct verbs *verbs = &fabric->library.verbs;
    const char *name = verbs->get_device_name(context->device);
    if ((wish->name[0] != '\0' && strcmp(wish->name, name) != 0) ||
        verbs->query_device(context, &fabric->attributes) != 0) {
        return false;
    }
    for (unsigned port = 1; port <= fabric->attributes.phys_port_cnt; port++) {
        if ((wish->port != 0 && wish->port != port) ||
            query_port(verbs, context, (uint8_t)port, &fabric->port_attributes) != 0 ||
            fabric->port_attributes.state != IBV_PORT_ACTIVE) {
            continue;
        }
        fabric->context = context;
        fabric->port = (uint8_t)port;
        fabric->gid_index = wish->gid_index;
        fabric->is_iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
        fabric->transfer_max = fabric->port_attributes.max_msg_sz;
        snprintf(fabric->device, sizeof(fabric->device), "%s", name);
        return true;
    }
    return false;
}

/* Of the first that the wish is about. A port that the wish names may be one that is not there. */
static void say_why_not(const struct weir_fabric *fabric, const struct wish *wish, const char *name,
                        int error, char ret_why[WHY])
{
    if (ret_why[0] != '\0' || (wish->name[0] != '\0' && strcmp(wish->name, name) != 0) ||
        (error == 0 && wish->port != 0)) {
        return;
    }
    snprintf(ret_why, WHY, ": %.63s: %s", name,
             error != 0                         ? strerror(error)
             : fabric->kind == WEIR_FABRIC_SOFT ? "no port of it has an address"
                                                : "no port of it is active");
}

/* Without rdma_cm (no /dev/infiniband/rdma_cm) the TCP bootstrap still works. */
static void take_plain_device(struct weir_fabric *fabric, const struct wish *wish, int *ret_count,
                              char ret_why[WHY])
{
    const struct verbs *verbs = &fabric->library.verbs;
    struct ibv_device **list = verbs->get_device_list(ret_count);
    for (int i = 0; list != NULL && list[i] != NULL && fabric->context == NULL; i++) {
        const char *name = verbs->get_device_name(list[i]);
        errno = ENODEV;
        struct ibv_context *context = verbs->open_device(list[i]);
        if (context == NULL) {
            say_why_not(fabric, wish, name, errno, ret_why);
        } else if (!take_context(fabric, context, wish)) {
            say_why_not(fabric, wish, name, 0, ret_why);
            verbs->close_device(context);
        }
    }
    if (list != NULL) {
        verbs->free_device_list(list);
    }
}

/* With one device there is nothing to choose, and so nothing to wait for. */
static void take_device_toward(struct weir_fabric *fabric, int count, const struct wish *wish)
{
    if (wish->toward == NULL || wish->name[0] != '\0' || count < 2) {
        return;
    }
    struct wish found = *wish;
    struct ibv_context *context = fabric_find_toward(&fabric->library.verbs, fabric->cm_contexts,
                                                     count, wish->toward, &found.port);
    fabric->is_toward = context != NULL && take_context(fabric, context, &found);
}

/* Finds the device in the library loaded. rdma_cm's own contexts come first: a queue pair of one
 * of its ids needs a domain of the same context. */
static enum weir_status open_device(struct weir_fabric *fabric, const struct wish *wish,
                                    struct weir_error *ret_error)
{
    const struct verbs *verbs = &fabric->library.verbs;
    int count = 0;
    char why[WHY] = "";
    fabric->cm_contexts = verbs->cm_get_devices(&count);
    if (fabric->cm_contexts != NULL) {
        take_device_toward(fabric, count, wish);
    }
    for (int i = 0; fabric->cm_contexts != NULL && i < count && fabric->context == NULL; i++) {
        take_context(fabric, fabric->cm_contexts[i], wish);
    }
    if (fabric->context == NULL) {
        if (fabric->cm_contexts != NULL) {
            verbs->cm_free_devices(fabric->cm_contexts);
            fabric->cm_contexts = NULL;
        }
        take_plain_device(fabric, wish, &count, why);
    }
    if (fabric->context == NULL) {
        if (wish->name[0] != '\0' && wish->port != 0) {
            return error_set(ret_error, WEIR_NO_DEVICE,
                             "no device %s with an active port %u%s (%s)", wish->name, wish->port,
                             why, fabric->library.path);
        }
        if (wish->name[0] != '\0') {
            return error_set(ret_error, WEIR_NO_DEVICE, "no device %s with an active port%s (%s)",
                             wish->name, why, fabric->library.path);
        }
        if (count <= 0) {
            return error_set(ret_error, WEIR_NO_DEVICE, "%d devices offered by %s", count,
                             fabric->library.path);
        }
        return error_set(ret_error, WEIR_NO_DEVICE,
                         "none of %d devices opens with an active port%s (%s)", count, why,
                         fabric->library.path);
    }
    return domain_create(fabric, &fabric->domain, ret_error);
}

static void close_device(struct weir_fabric *fabric)
{
    const struct verbs *verbs = &fabric->library.verbs;
    domain_release(fabric->domain);
    fabric->domain = NULL;
    if (fabric->cm_contexts != NULL) {
        verbs->cm_free_devices(fabric->cm_contexts);
        fabric->cm_contexts = NULL;
    } else if (fabric->context != NULL) {
        verbs->close_device(fabric->context);
    }
    fabric->context = NULL;
}

static enum weir_status open_in(struct weir_fabric *fabric, const char *directory,
                                const struct wish *wish, struct weir_error *ret_error)
{
    enum weir_status status = library_load(directory, &fabric->library, ret_error);
    if (status == WEIR_OK) {
        status = open_device(fabric, wish, ret_error);
        if (status != WEIR_OK) {
            close_device(fabric);
            library_unload(&fabric->library);
        }
    }
    return status;
}

static enum weir_status open_soft(struct weir_fabric *fabric,
                                  const struct weir_fabric_options *options,
                                  const struct wish *wish, struct weir_error *ret_error)
{
    char directory[PATH_MAX];
    if (!library_find_soft(options->soft_dir, directory)) {
        return error_set(ret_error, WEIR_NO_LIBRARY,
                         "the software RNIC's libibverbs.so.1 is not in %.200s"
                         " (WEIR_LIBRARY_DIR names another folder)",
                         directory);
    }
    fabric->kind = WEIR_FABRIC_SOFT;
    return open_in(fabric, directory, wish, ret_error);
}

static enum weir_status say_it_stays(const char *path, const char *why,
                                     struct weir_error *ret_error)
{
    return error_set(ret_error, WEIR_NO_LIBRARY,
                     "%.150s stays in the process, so the software RNIC cannot be loaded (%.150s)",
                     path, why);
}

/* A verbs library is in the process already: linked, preloaded by `weir run`, or loaded for an
 * earlier fabric. There can be no second one. */
static enum weir_status open_loaded(struct weir_fabric *fabric, const char *path,
                                    const struct weir_fabric_options *options,
                                    const struct wish *wish, struct weir_error *ret_error)
{
    char soft_directory[PATH_MAX];
    char soft_path[PATH_MAX] = "";
    if (library_find_soft(options->soft_dir, soft_directory)) {
        char file[PATH_MAX + 32];
        snprintf(file, sizeof(file), "%s/libibverbs.so.1", soft_directory);
        if (realpath(file, soft_path) == NULL) {
            soft_path[0] = '\0';
        }
    }
    struct weir_error why;
    enum weir_status status = library_adopt(&fabric->library, &why);
    bool is_ours = strcmp(path, soft_path) == 0 || fabric->library.verbs.same_host != NULL;
    if (status == WEIR_OK) {
        status = open_device(fabric, wish, &why);
    }
    if (status != WEIR_OK) {
        close_device(fabric);
        library_unload(&fabric->library);
        return is_ours || options->kind == WEIR_FABRIC_RDMA
                   ? error_set(ret_error, status, "%s", why.message)
                   : say_it_stays(path, why.message, ret_error);
    }
    bool is_soft = strcmp(path, soft_path) == 0 || strncmp(fabric->device, "weir", 4) == 0;
    fabric->kind = is_soft ? WEIR_FABRIC_SOFT : WEIR_FABRIC_RDMA;
    if (options->kind != WEIR_FABRIC_AUTO && options->kind != fabric->kind) {
        status = error_set(ret_error, is_soft ? WEIR_NO_DEVICE : WEIR_NO_LIBRARY,
                           "this process runs on %.200s already, which is %s", path,
                           is_soft ? "the software RNIC" : "the system's verbs library");
        close_device(fabric);
        library_unload(&fabric->library);
        return status;
    }
    snprintf(fabric->reason, sizeof(fabric->reason), "%.200s is in this process already", path);
    return WEIR_OK;
}

static enum weir_status open_chosen(struct weir_fabric *fabric,
                                    const struct weir_fabric_options *options,
                                    const struct wish *wish, struct weir_error *ret_error)
{
    char path[PATH_MAX];
    if (library_is_loaded(path)) {
        return open_loaded(fabric, path, options, wish, ret_error);
    }
    if (options->kind == WEIR_FABRIC_SOFT) {
        snprintf(fabric->reason, sizeof(fabric->reason), "asked for");
        return open_soft(fabric, options, wish, ret_error);
    }
    struct weir_error why = {WEIR_NO_DEVICE,
                             "no RDMA device on this machine (" SYSFS_DEVICES " is empty)"};
    if (has_real_device()) {
        fabric->kind = WEIR_FABRIC_RDMA;
        if (open_in(fabric, NULL, wish, &why) == WEIR_OK) {
            snprintf(fabric->reason, sizeof(fabric->reason), "%s port %u %s", fabric->device,
                     fabric->port,
                     fabric->is_toward ? "leads to the other side, or has the address asked for"
                                       : "is active");
            return WEIR_OK;
        }
    }
    if (options->kind == WEIR_FABRIC_RDMA) {
        return error_set(ret_error, why.status, "%s", why.message);
    }
    snprintf(fabric->reason, sizeof(fabric->reason), "%.250s", why.message);
    if (library_is_loaded(path)) {
        return say_it_stays(path, fabric->reason, ret_error);
    }
    return open_soft(fabric, options, wish, ret_error);
}

/* One at a time: who finds the one library of the pair loaded must find the other. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* The thread that was opening one is not in the child. */
static void after_fork(void)
{
    pthread_mutex_init(&opening, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* A thread that were cancelled while a name is looked up would leave the lock to nobody. */
static enum weir_status open_alone(struct weir_fabric *fabric,
                                   const struct weir_fabric_options *options,
                                   const struct wish *wish, struct weir_error *ret_error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int before;
    pthread_once(&once, watch_forks);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&opening);
    enum weir_status status = open_chosen(fabric, options, wish, ret_error);
    pthread_mutex_unlock(&opening);
    pthread_setcancelstate(before, NULL);
    return status;
}

enum weir_status weir_fabric_open(const struct weir_fabric_options *options,
                                  struct weir_fabric **ret_fabric, struct weir_error *ret_error)
{
    static const struct weir_fabric_options defaults;
    if (options == NULL) {
        options = &defaults;
    }
    struct wish wish;
    if (options->kind > WEIR_FABRIC_SOFT) {
        return error_set(ret_error, WEIR_INVALID, "fabric: no such kind");
    }
    enum weir_status status = parse_wish(options->device, &wish, ret_error);
    if (status != WEIR_OK) {
        return status;
    }
    wish.toward = options->toward;
    struct weir_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    pthread_mutex_init(&fabric->lock, NULL);
    status = open_alone(fabric, options, &wish, ret_error);
    if (status != WEIR_OK) {
        pthread_mutex_destroy(&fabric->lock);
        free(fabric);
        return status;
    }
    *ret_fabric = fabric;
    return WEIR_OK;
}

void weir_fabric_close(struct weir_fabric *fabric)
{
    if (fabric == NULL) {
        return;
    }
    /* The library stays mapped: drivers, and our RNIC's engine, may have threads in it. */
    close_device(fabric);
    pthread_mutex_destroy(&fabric->lock);
    free(fabric);
}

enum weir_fabric_kind weir_fabric_kind(const struct weir_fabric *fabric)
{
    return fabric->kind;
}

const char *weir_fabric_device(const struct weir_fabric *fabric)
{
    return fabric->device;
}

const char *weir_fabric_reason(const struct weir_fabric *fabric)
{
    return fabric->reason;
}

const char *weir_fabric_library(const struct weir_fabric *fabric)
{
    return fabric->library.path;
}
