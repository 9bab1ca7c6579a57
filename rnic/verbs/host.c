/* Finds, loads and keeps the distribution's library. It is never unloaded: objects point into it.
 */
#include "rnic/verbs/host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rnic/verbs/devices.h"
#include "rnic/verbs/objects.h"

bool host_is_on;

static struct host_calls calls;

/* Where distributions keep it, by full path: names would lead back to us, through
 * LD_LIBRARY_PATH. WEIR_HOST_VERBS names another place. */
static const char *const places[] = {
    "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
    "/usr/lib64/libibverbs.so.1",
    "/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/usr/lib/libibverbs.so.1",
};

/* A distribution may well have installed us in its place. */
static bool is_us(const char *path)
{
    Dl_info own;
    struct stat one, other;
    return dladdr(&calls, &own) != 0 && stat(own.dli_fname, &one) == 0 && stat(path, &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static const char *find(void)
{
    const char *named = secure_getenv("WEIR_HOST_VERBS");
    struct stat found;
    if (named != NULL) {
        return named;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (stat(places[i], &found) == 0 && !is_us(places[i])) {
            return places[i];
        }
    }
    return NULL;
}

static bool load(void *library)
{
    bool complete = true;
#define HOST_LOAD(name)                                                                            \
    calls.name = (__typeof__(calls.name))dlsym(library, #name);                                    \
    complete = complete && calls.name != NULL;
    HOST_CALLS(HOST_LOAD)
#undef HOST_LOAD
    return complete;
}

static void start(void)
{
    const char *wanted = secure_getenv("WEIR_HOST_DEVICES");
    if (wanted == NULL || wanted[0] == '\0' || strcmp(wanted, "0") == 0) {
        return;
    }
    const char *path = find();
    if (path == NULL) {
        fprintf(stderr, "weir: WEIR_HOST_DEVICES: no libibverbs.so.1 of this host was found (name "
                        "it in WEIR_HOST_VERBS); only our own devices are offered\n");
        return;
    }
    void *library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL || !load(library)) {
        const char *error = dlerror();
        fprintf(stderr, "weir: WEIR_HOST_DEVICES: %s: %s; only our own devices are offered\n", path,
                error != NULL ? error : "it lacks calls");
        return;
    }
    host_is_on = true;
}

const struct host_calls *host_calls(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    return host_is_on ? &calls : NULL;
}

bool host_owns_device(const struct ibv_device *device)
{
    if (!host_is_on) {
        return false;
    }
    for (uint32_t i = 0; i < devices_count(); i++) {
        if (device == &devices_get(i)->ibv) {
            return false;
        }
    }
    return true;
}
