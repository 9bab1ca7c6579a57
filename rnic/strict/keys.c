/* Keys in local work, and the limit of locked memory. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"
#include "rnic/strict/keys.h"
#include "rnic/strict/ledger.h"
#include "rnic/strict/strict.h"

#define CAPABILITY_IPC_LOCK 14u

static struct {
    pthread_mutex_t lock;
    uint64_t pages;
} locked = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a child: a thread that held it is gone, and locked memory is not inherited. */
static void after_fork(void)
{
    pthread_mutex_init(&locked.lock, NULL);
    locked.pages = 0;
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static uint64_t pages_of(const void *bytes, uint64_t length)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t first = (uintptr_t)bytes / page;
    return length == 0 ? 0 : ((uintptr_t)bytes + length - 1) / page - first + 1;
}

/* A process with CAP_IPC_LOCK locks what it likes. */
static bool may_lock_all(void)
{
    unsigned long long capabilities = 0;
    char line[128];
    int cancel = cancel_hold();
    FILE *file = fopen("/proc/thread-self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "CapEff: %llx", &capabilities) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    cancel_restore(cancel);
    return (capabilities >> CAPABILITY_IPC_LOCK & 1) != 0;
}

static uint64_t limit_bytes(void)
{
    struct rlimit limit;
    if (strict_settings.has_memlock) {
        return strict_settings.memlock_bytes;
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        may_lock_all()) {
        return UINT64_MAX;
    }
    return limit.rlim_cur;
}

bool strict_lock(const void *bytes, uint64_t length)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t pages = pages_of(bytes, length);
    uint64_t limit = limit_bytes();
    pthread_mutex_lock(&locked.lock);
    uint64_t before = locked.pages;
    bool fits = pages <= limit / page && before <= limit / page - pages;
    locked.pages += fits ? pages : 0;
    pthread_mutex_unlock(&locked.lock);
    if (!fits) {
        pitfall_warn(PITFALL_MEMLOCK, NULL, "registered at",
                     "registering %" PRIu64 " bytes beside the %" PRIu64
                     " that are registered passes the limit of locked memory, %" PRIu64 " bytes",
                     length, before * page, limit);
    }
    return fits;
}

void strict_unlock(const void *bytes, uint64_t length)
{
    uint64_t pages = pages_of(bytes, length);
    pthread_mutex_lock(&locked.lock);
    locked.pages -= pages < locked.pages ? pages : locked.pages; /* a child gives up its parent's */
    pthread_mutex_unlock(&locked.lock);
}

void strict_registered(uint32_t key, uint64_t address, uint64_t length)
{
    ledger_register(key, address, length, false);
}

void strict_window_posted(const struct send_request *request)
{
    if (request->kind == WORK_LOCAL_INVALIDATE) {
        ledger_deregister(request->invalidate.value);
    } else if (request->kind == WORK_BIND_WINDOW) {
        ledger_deregister(request->bind->window.value);
        if (request->bind->length > 0) {
            ledger_register(request->bind->key.value, request->bind->address, request->bind->length,
                            true);
        }
    }
}

void strict_window_freed(uint32_t key)
{
    ledger_deregister(key);
}

void strict_deregistered(uint32_t key, const void *bytes, uint64_t length)
{
    ledger_deregister(key);
    strict_open(bytes, length);
}

static const char *right_name(unsigned rights)
{
    return (rights & ACCESS_LOCAL_WRITE) != 0     ? "IBV_ACCESS_LOCAL_WRITE"
           : (rights & ACCESS_REMOTE_WRITE) != 0  ? "IBV_ACCESS_REMOTE_WRITE"
           : (rights & ACCESS_REMOTE_READ) != 0   ? "IBV_ACCESS_REMOTE_READ"
           : (rights & ACCESS_REMOTE_ATOMIC) != 0 ? "IBV_ACCESS_REMOTE_ATOMIC"
           : (rights & ACCESS_BIND_WINDOW) != 0   ? "IBV_ACCESS_MW_BIND"
                                                  : "the right";
}

void keys_explain(const struct memory_request *request, enum memory_verdict verdict,
                  unsigned rights, const char *what)
{
    struct key_record record;
    bool known = request != NULL && ledger_find(request->key.value, &record);
    if (request == NULL) {
        pitfall_warn(PITFALL_WRONG_ACCESS, NULL, "met at",
                     "%s was refused: the qp_access_flags of the queue pair lack %s", what,
                     right_name(rights));
    } else if (known && record.window && (record.dead || verdict == MEMORY_NO_KEY)) {
        /* A peer invalidates without the program's doing: then only the bind is known. */
        pitfall_warn(
            PITFALL_DEAD_KEY, &record.where,
            record.dead ? "given up at" : "invalidated by a peer; bound at",
            "%s names key 0x%x, whose window has been bound anew, invalidated or freed (it "
            "opened %" PRIu64 " bytes at 0x%" PRIx64 ")",
            what, record.key, record.length, record.address);
    } else if (known && record.dead) {
        pitfall_warn(PITFALL_DEAD_KEY, &record.where, "deregistered at",
                     "%s names key 0x%x, which was deregistered (it stood for %" PRIu64
                     " bytes at 0x%" PRIx64 ")",
                     what, record.key, record.length, record.address);
    } else if (!known) {
        pitfall_warn(PITFALL_UNKNOWN_KEY, NULL, "met at",
                     "%s names key 0x%x, which is no region of this process and no window that "
                     "is open",
                     what, request->key.value);
    } else if (verdict == MEMORY_NO_RIGHT) {
        pitfall_warn(PITFALL_WRONG_ACCESS, &record.where,
                     record.window ? "bound at" : "registered at",
                     "%s needs %s, which the region of key 0x%x (%" PRIu64 " bytes at 0x%" PRIx64
                     ") does not give",
                     what, right_name(rights), record.key, record.length, record.address);
    } else if (verdict == MEMORY_WRONG_QP) {
        pitfall_warn(PITFALL_WRONG_ACCESS, &record.where, "bound at",
                     "%s names key 0x%x of a window that is bound to another queue pair, or that "
                     "only peers may use",
                     what, record.key);
    } else if (verdict == MEMORY_WRONG_DOMAIN) {
        pitfall_warn(PITFALL_UNKNOWN_KEY, &record.where,
                     record.window ? "bound at" : "registered at",
                     "%s names key 0x%x of another protection domain", what, record.key);
    } else if (verdict == MEMORY_NOT_MAPPED) {
        pitfall_warn(PITFALL_OUT_OF_REGION, &record.where, "registered at",
                     "%s names %" PRIu64 " bytes at 0x%" PRIx64
                     ", where the region of key 0x%x, which is on demand, has no memory that could "
                     "be brought in",
                     what, request->length, request->address, record.key);
    } else {
        pitfall_warn(
            PITFALL_OUT_OF_REGION, &record.where, record.window ? "bound at" : "registered at",
            "%s names %" PRIu64 " bytes at 0x%" PRIx64 ", and key 0x%x stands for %" PRIu64
            " bytes at 0x%" PRIx64,
            what, request->length, request->address, record.key, record.length, record.address);
    }
}

void strict_check_sges(const struct memory *memory, struct domain domain, const struct sge *sges,
                       uint32_t count, unsigned rights, const char *what)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct memory_request request = {
            .domain = domain,
            .key = sges[i].key,
            .address = sges[i].address,
            .length = sges[i].length,
            .rights = rights,
        };
        uint8_t *bytes;
        enum memory_verdict verdict = memory_check(memory, &request, &bytes);
        if (verdict != MEMORY_GRANTED) {
            keys_explain(&request, verdict, rights, what);
        }
    }
}
