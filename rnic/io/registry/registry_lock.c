/* The registry's locks: bytes of its file, locked by open file description, so that the kernel lets
 * go of them with the process. Byte 0 is the lock of all that the file says; from
 * REGISTRY_LIFE_BYTE on each slot has one that its holder has for life. Nobody waits for a process
 * that is stopped. */
#include <errno.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/cancel.h"
#include "rnic/io/system/clock.h"

#define TABLE_BYTE  0
#define WAIT_MIN_NS 20000u
#define WAIT_MAX_NS 2000000u

int registry_lock_bytes(int descriptor, int command, short type, off_t start, off_t length,
                        struct flock *ret_lock)
{
    *ret_lock = (struct flock){
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = start,
        .l_len = length,
    };
    int result;
    do {
        result = fcntl(descriptor, command, ret_lock);
    } while (result != 0 && errno == EINTR);
    return result;
}

/* The head of a file of our version; false: it is another, or not yet one. */
static bool read_head(int descriptor, struct registry_head *ret_head)
{
    return pread(descriptor, ret_head, sizeof *ret_head, 0) == (ssize_t)sizeof *ret_head &&
           ret_head->magic == REGISTRY_MAGIC && ret_head->version == REGISTRY_VERSION;
}

/* More than a file may have is asked for at the price of a signal. */
static void set_holder(int descriptor)
{
    struct registry_head head;
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= sizeof head &&
        read_head(descriptor, &head)) {
        head.lock_serial++;
        head.lock_holder = (uint32_t)getpid();
        ssize_t written = pwrite(descriptor, &head, sizeof head, 0);
        (void)written; /* where it cannot be written, those who wait are less patient */
    }
}

static uint32_t read_serial(int descriptor)
{
    struct registry_head head;
    return read_head(descriptor, &head) ? head.lock_serial : 0;
}

static bool try_lock_file(int descriptor)
{
    struct flock lock;
    bool locked = registry_lock_bytes(descriptor, F_OFD_SETLK, F_WRLCK, TABLE_BYTE, 1, &lock) == 0;
    if (locked) {
        set_holder(descriptor);
    }
    return locked;
}

/* Patience begins anew with each holder: a crowd is no reason to give up. */
enum status registry_lock_file(int descriptor)
{
    struct timespec wait = {.tv_nsec = WAIT_MIN_NS};
    struct instant since = clock_now();
    uint32_t serial = read_serial(descriptor);
    while (!try_lock_file(descriptor)) {
        uint32_t now = read_serial(descriptor);
        if (now != serial) {
            serial = now;
            since = clock_now();
        } else if (instant_elapsed_ns(since, clock_now()) >= REGISTRY_PATIENCE_NS) {
            return STATUS_TIMED_OUT;
        }
        nanosleep(&wait, NULL);
        wait.tv_nsec = wait.tv_nsec * 2 < WAIT_MAX_NS ? wait.tv_nsec * 2 : WAIT_MAX_NS;
    }
    return STATUS_OK;
}

void registry_unlock_file(int descriptor)
{
    struct flock lock;
    int result = registry_lock_bytes(descriptor, F_OFD_SETLK, F_UNLCK, TABLE_BYTE, 1, &lock);
    CHECK(result == 0);
}

/* A thread that was cancelled with the lock would keep it, for all processes. */
enum status registry_lock(struct registry *registry)
{
    if (!registry_has_file(registry)) {
        return STATUS_STATE;
    }
    int cancel = cancel_hold();
    pthread_mutex_lock(&registry->mutex);
    enum status status = registry_lock_file(registry->descriptor);
    if (status == STATUS_OK) {
        registry->cancel = cancel;
    } else {
        pthread_mutex_unlock(&registry->mutex);
        cancel_restore(cancel);
    }
    return status;
}

bool registry_try_lock(struct registry *registry)
{
    if (!registry_has_file(registry)) {
        return false;
    }
    int cancel = cancel_hold();
    bool locked = pthread_mutex_trylock(&registry->mutex) == 0;
    if (locked && !try_lock_file(registry->descriptor)) {
        pthread_mutex_unlock(&registry->mutex);
        locked = false;
    }
    if (locked) {
        registry->cancel = cancel;
    } else {
        cancel_restore(cancel);
    }
    return locked;
}

void registry_unlock(struct registry *registry)
{
    int cancel = registry->cancel;
    if (registry->has_buried) {
        steering_attach_changed(registry);
    }
    registry_unlock_file(registry->descriptor);
    pthread_mutex_unlock(&registry->mutex);
    cancel_restore(cancel);
}

uint32_t registry_lock_holder(const char *path)
{
    struct registry_head head;
    uint32_t process = 0;
    int descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0) {
        process = read_head(descriptor, &head) ? head.lock_holder : 0;
        close(descriptor);
    }
    return process;
}
