/* Loading of the verbs libraries, and finding of ours. */
#include "weir/library.h"

#include <dlfcn.h>
#include <libgen.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weir/error_private.h"

#define IBVERBS "libibverbs.so.1"
#define RDMACM  "librdmacm.so.1"

/* Symbol -> place in struct verbs. */
struct entry {
    const char *symbol;
    size_t offset;
    bool of_cm;
    bool optional;
};
#define IB(field)                                                                                  \
    {                                                                                              \
        "ibv_" #field, offsetof(struct verbs, field), false, false                                 \
    }
#define CM(field, symbol)                                                                          \
    {                                                                                              \
        "rdma_" symbol, offsetof(struct verbs, cm_##field), true, false                            \
    }
static const struct entry entries[] = {
    IB(get_device_list),
    IB(free_device_list),
    IB(get_device_name),
    IB(open_device),
    IB(close_device),
    IB(query_device),
    {"ibv_query_port", offsetof(struct verbs, query_port), false, false},
    IB(query_gid),
    {"_ibv_query_gid_ex", offsetof(struct verbs, query_gid_entry), false, true},
    {"weir_same_host", offsetof(struct verbs, same_host), false, true},
    {"weir_retransmissions", offsetof(struct verbs, retransmissions), false, true},
    {"weir_carried", offsetof(struct verbs, carried), false, true},
    IB(alloc_pd),
    IB(dealloc_pd),
    {"ibv_reg_mr", offsetof(struct verbs, reg_mr), false, false},
    IB(dereg_mr),
    IB(create_comp_channel),
    IB(destroy_comp_channel),
    IB(create_cq),
    IB(destroy_cq),
    IB(get_cq_event),
    IB(ack_cq_events),
    IB(create_qp),
    IB(modify_qp),
    IB(destroy_qp),
    IB(wc_status_str),
    CM(get_devices, "get_devices"),
    CM(free_devices, "free_devices"),
    CM(create_event_channel, "create_event_channel"),
    CM(destroy_event_channel, "destroy_event_channel"),
    CM(create_id, "create_id"),
    CM(destroy_id, "destroy_id"),
    CM(bind_addr, "bind_addr"),
    CM(resolve_addr, "resolve_addr"),
    CM(resolve_route, "resolve_route"),
    CM(listen, "listen"),
    CM(connect, "connect"),
    CM(accept, "accept"),
    CM(reject, "reject"),
    CM(disconnect, "disconnect"),
    CM(create_qp, "create_qp"),
    CM(destroy_qp, "destroy_qp"),
    CM(get_event, "get_cm_event"),
    CM(ack_event, "ack_cm_event"),
    CM(get_src_port, "get_src_port"),
    {"rdma_set_option", offsetof(struct verbs, cm_set_option), true, true},
};

/* File that holds `symbol` of `handle`, without symbolic links. */
static bool file_of(void *handle, const char *symbol, char ret_path[PATH_MAX])
{
    void *address = dlsym(handle, symbol);
    Dl_info info;
    return address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL &&
           realpath(info.dli_fname, ret_path) != NULL;
}

static enum weir_status fill(struct library *library, struct weir_error *ret_error)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *handle = entries[i].of_cm ? library->rdmacm : library->ibverbs;
        void *address = dlsym(handle, entries[i].symbol);
        if (address == NULL && !entries[i].optional) {
            return error_set(ret_error, WEIR_NO_LIBRARY, "%s lacks %s",
                             entries[i].of_cm ? RDMACM : library->path, entries[i].symbol);
        }
        memcpy((char *)&library->verbs + entries[i].offset, &address, sizeof(address));
    }
    return WEIR_OK;
}

bool library_is_loaded(char ret_path[PATH_MAX])
{
    void *handle = dlopen(IBVERBS, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) {
        return false;
    }
    if (!file_of(handle, "ibv_get_device_list", ret_path)) {
        ret_path[0] = '\0';
    }
    dlclose(handle);
    return true;
}

static enum weir_status load_pair(const char *ibverbs, const char *rdmacm, struct library *library,
                                  struct weir_error *ret_error)
{
    library->ibverbs = dlopen(ibverbs, RTLD_NOW | RTLD_LOCAL);
    if (library->ibverbs == NULL) {
        return error_set(ret_error, WEIR_NO_LIBRARY, "%s", dlerror());
    }
    library->rdmacm = dlopen(rdmacm, RTLD_NOW | RTLD_LOCAL);
    if (library->rdmacm == NULL) {
        return error_set(ret_error, WEIR_NO_LIBRARY, "%s", dlerror());
    }
    if (!file_of(library->ibverbs, "ibv_get_device_list", library->path)) {
        return error_set(ret_error, WEIR_NO_LIBRARY, "%s is not a verbs library", ibverbs);
    }
    return fill(library, ret_error);
}

enum weir_status library_adopt(struct library *ret_library, struct weir_error *ret_error)
{
    struct library library = {0};
    enum weir_status status = load_pair(IBVERBS, RDMACM, &library, ret_error);
    if (status != WEIR_OK) {
        library_unload(&library);
        return status;
    }
    *ret_library = library;
    return WEIR_OK;
}

enum weir_status library_load(const char *directory, struct library *ret_library,
                              struct weir_error *ret_error)
{
    if (directory == NULL) {
        return library_adopt(ret_library, ret_error);
    }
    char ibverbs[PATH_MAX + sizeof(IBVERBS) + 1];
    char rdmacm[PATH_MAX + sizeof(RDMACM) + 1];
    snprintf(ibverbs, sizeof(ibverbs), "%s/" IBVERBS, directory);
    snprintf(rdmacm, sizeof(rdmacm), "%s/" RDMACM, directory);
    char meant[PATH_MAX];
    if (realpath(ibverbs, meant) == NULL) {
        return error_set(ret_error, WEIR_NO_LIBRARY, "%s: %m", ibverbs);
    }
    struct library library = {0};
    enum weir_status status = load_pair(ibverbs, rdmacm, &library, ret_error);
    char bound[PATH_MAX];
    if (status == WEIR_OK && strcmp(meant, library.path) != 0) {
        status = error_set(ret_error, WEIR_NO_LIBRARY, "loaded %s where %s was meant", library.path,
                           meant);
    }
    /* What a lookup by SONAME finds is what librdmacm was bound to. */
    if (status == WEIR_OK && (!library_is_loaded(bound) || strcmp(meant, bound) != 0)) {
        status = error_set(ret_error, WEIR_NO_LIBRARY,
                           "another libibverbs (%s) is in the process beside %s", bound, meant);
    }
    if (status != WEIR_OK) {
        library_unload(&library);
        return status;
    }
    *ret_library = library;
    return WEIR_OK;
}

void library_unload(struct library *library)
{
    if (library->rdmacm != NULL) {
        dlclose(library->rdmacm);
    }
    if (library->ibverbs != NULL) {
        dlclose(library->ibverbs);
    }
    memset(library, 0, sizeof(*library));
}

static bool holds_library(const char *directory)
{
    char path[PATH_MAX + sizeof(IBVERBS) + 1];
    snprintf(path, sizeof(path), "%s/" IBVERBS, directory);
    return access(path, R_OK) == 0;
}

/* `file`'s folder + `suffix`. Of a name without its whole path it would be the working directory's,
 * in which anybody may have put a library. */
static bool beside(const char *file, const char *suffix, char ret_directory[PATH_MAX])
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", file);
    int length = snprintf(ret_directory, PATH_MAX, "%s/%s", dirname(copy), suffix);
    return file[0] == '/' && length < PATH_MAX && holds_library(ret_directory);
}

bool library_find_soft(const char *wished, char ret_directory[PATH_MAX])
{
    const char *variable = secure_getenv("WEIR_LIBRARY_DIR");
    const char *given = wished != NULL                            ? wished
                        : variable != NULL && variable[0] != '\0' ? variable
                                                                  : NULL;
    if (given != NULL) {
        snprintf(ret_directory, PATH_MAX, "%s", given);
        return holds_library(given);
    }
    char self[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    if (beside(self, "dropin", ret_directory) || beside(self, "../dropin", ret_directory) ||
        beside(self, "../lib/weir", ret_directory)) {
        return true;
    }
    /* libweir's own file; within a program it has no name, where dladdr tells of argv[0]. */
    Dl_info info;
    struct link_map *map = NULL;
    static const char inside;
    if (dladdr1(&inside, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL &&
        (beside(map->l_name, "weir", ret_directory) ||
         beside(map->l_name, "../dropin", ret_directory))) {
        return true;
    }
#ifdef WEIR_INSTALLED_DIR
    snprintf(ret_directory, PATH_MAX, "%s", WEIR_INSTALLED_DIR);
    return holds_library(ret_directory);
#else
    beside(self, "dropin", ret_directory);
    return false;
#endif
}
