#include "rnic/rdmacm/rsocket_service.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rnic/io/system/quiet.h"
#include "rnic/rdmacm/rsocket.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct list entries = {{&entries.head, &entries.head}};
static size_t count;
static bool is_running;
static int wake = -1;

/* What the thread polls: the wake first. An entry that is removed meanwhile leaves NULL behind. */
static struct pollfd *polled;
static struct service_entry **polled_entries;
static size_t polled_count, polled_capacity;

void service_lock(void)
{
    pthread_mutex_lock(&lock);
}

void service_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int service_wait(struct rsocket_waiters *waiters)
{
    return rsocket_wait(waiters, &lock);
}

static void wake_thread(void)
{
    uint64_t one = 1;
    ssize_t written = raw_write(wake, &one, sizeof one);
    (void)written; /* full means that it is awake */
}

static bool make_room(void)
{
    if (count + 1 <= polled_capacity) {
        return true;
    }
    size_t capacity = (count + 1) * 2;
    struct pollfd *more = realloc(polled, capacity * sizeof *more);
    if (more == NULL) {
        return false;
    }
    polled = more;
    struct service_entry **more_entries = realloc(polled_entries, capacity * sizeof *more_entries);
    if (more_entries == NULL) {
        return false;
    }
    polled_entries = more_entries;
    polled_capacity = capacity;
    return true;
}

/* Returns how long to sleep; without memory only the first entries are looked after, for a while.
 */
static int prepare(void)
{
    uint64_t now_us = rsocket_now_us();
    uint64_t due_us = SERVICE_NEVER;
    if (!make_room()) {
        due_us = now_us + 10000;
    }
    polled_count = 0;
    if (polled_capacity > 0) {
        polled[polled_count] = (struct pollfd){.fd = wake, .events = POLLIN};
        polled_entries[polled_count++] = NULL;
    }
    LIST_FOR_EACH(node, &entries)
    {
        struct service_entry *entry = CONTAINER_OF(node, struct service_entry, node);
        due_us = entry->due_us < due_us ? entry->due_us : due_us;
        if (polled_count < polled_capacity) {
            polled[polled_count] = (struct pollfd){.fd = entry->descriptor, .events = POLLIN};
            polled_entries[polled_count++] = entry;
        }
    }
    if (due_us == SERVICE_NEVER) {
        return -1;
    }
    uint64_t wait_ms = due_us <= now_us ? 0 : (due_us - now_us) / 1000 + 1;
    return wait_ms > 3600000 ? 3600000 : (int)wait_ms;
}

static void handle_ready(void)
{
    uint64_t now_us = rsocket_now_us();
    if (polled_count > 0 && polled[0].revents != 0) {
        uint64_t tokens;
        ssize_t length = read(wake, &tokens, sizeof tokens);
        (void)length;
    }
    for (size_t i = 1; i < polled_count; i++) {
        struct service_entry *entry = polled_entries[i];
        if (entry != NULL && (polled[i].revents != 0 || entry->due_us <= now_us)) {
            entry->handle(entry);
        }
    }
}

static void *run(void *context)
{
    for (;;) {
        service_lock();
        int wait_ms = prepare();
        struct pollfd *descriptors = polled;
        size_t length = polled_count;
        service_unlock();
        int ready = poll(descriptors, length, wait_ms);
        service_lock();
        if (ready >= 0) {
            handle_ready();
        }
        service_unlock();
    }
    return context;
}

static int start(void)
{
    pthread_t thread;
    wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake < 0) {
        return errno;
    }
    sigset_t before = quiet_begin();
    int error = pthread_create(&thread, NULL, run, NULL);
    quiet_end(before);
    if (error != 0) {
        raw_close(wake);
        wake = -1;
        return error;
    }
    pthread_detach(thread);
    is_running = true;
    return 0;
}

int service_add(struct service_entry *entry)
{
    service_lock();
    int error = is_running ? 0 : start();
    if (error == 0) {
        if (!list_node_is_linked(&entry->node)) {
            list_append(&entries, &entry->node);
            count++;
        }
        wake_thread();
    }
    service_unlock();
    return cma_error(error);
}

void service_remove(struct service_entry *entry)
{
    service_lock();
    if (list_node_is_linked(&entry->node)) {
        list_remove(&entry->node);
        count--;
        for (size_t i = 0; i < polled_count; i++) {
            if (polled_entries[i] == entry) {
                polled_entries[i] = NULL;
            }
        }
        wake_thread();
    }
    service_unlock();
}

void service_forget(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    LIST_FOR_EACH(node, &entries)
    {
        list_remove(node);
    }
    count = 0;
    polled_count = 0;
    is_running = false;
    if (wake >= 0) {
        close(wake);
        wake = -1;
    }
}
