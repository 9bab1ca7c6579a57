/* From descriptors to rsockets: a table in pages, which lookups read without a lock.
 *
 * A slot counts the users of its socket. Nobody enters a slot that is not open, so once a socket is
 * retired its users only become fewer, and one of them is the last. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket.h"

#define PAGE_LENGTH 1024
#define PAGES       1024

#define OPEN 1u /* of a slot's users */
#define USER 2u

struct slot {
    _Atomic(struct rsocket *) socket;
    _Atomic uint32_t users;
};

static _Atomic(struct slot *) pages[PAGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct slot *slot_of(int descriptor)
{
    if (descriptor < 0 || descriptor >= PAGES * PAGE_LENGTH) {
        return NULL;
    }
    struct slot *page =
        atomic_load_explicit(&pages[descriptor / PAGE_LENGTH], memory_order_acquire);
    return page == NULL ? NULL : &page[descriptor % PAGE_LENGTH];
}

struct rsocket *rsocket_find(int descriptor)
{
    struct slot *place = slot_of(descriptor);
    uint32_t users = place == NULL ? 0 : atomic_load(&place->users);
    do {
        if ((users & OPEN) == 0) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&place->users, &users, users + USER));
    return atomic_load_explicit(&place->socket, memory_order_acquire);
}

void rsocket_leave(struct rsocket *socket)
{
    if (atomic_fetch_sub(&slot_of(socket->index)->users, USER) == USER) {
        int error = errno;
        int cancel = cancel_hold();
        rsocket_free(socket);
        cancel_restore(cancel);
        errno = error;
    }
}

bool rsocket_retire(struct rsocket *socket)
{
    return (atomic_fetch_and(&slot_of(socket->index)->users, ~OPEN) & OPEN) != 0;
}

struct rsocket *rsocket_lookup(int descriptor)
{
    struct rsocket *socket = rsocket_find(descriptor);
    if (socket == NULL) {
        errno = EBADF;
    }
    return socket;
}

/* What the parent had connected is the parent's; the child may only close it. */
static void after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    service_forget();
    rsocket_forget_pollers();
    for (int descriptor = 0; descriptor < PAGES * PAGE_LENGTH; descriptor++) {
        if (slot_of(descriptor) == NULL) {
            descriptor += PAGE_LENGTH - 1;
            continue;
        }
        struct slot *place = slot_of(descriptor);
        struct rsocket *socket = atomic_load(&place->socket);
        if (socket == NULL) {
            continue;
        }
        atomic_fetch_and(&place->users, OPEN); /* the others are the parent's threads */
        socket->is_foreign = true;
        rsocket_renew_locks(socket);
        if (socket->type == SOCK_STREAM) {
            atomic_store(&stream_of(socket)->is_readable, false);
            atomic_store(&stream_of(socket)->is_writable, false);
            atomic_store(&stream_of(socket)->state, STREAM_BROKEN);
        }
    }
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

int rsocket_insert(struct rsocket *socket, int descriptor)
{
    pthread_once(&once, watch_forks);
    if (descriptor < 0 || descriptor >= PAGES * PAGE_LENGTH) {
        return cma_error(EMFILE);
    }
    pthread_mutex_lock(&lock);
    struct slot *place = slot_of(descriptor);
    if (place == NULL) {
        struct slot *page = calloc(PAGE_LENGTH, sizeof *page);
        if (page == NULL) {
            pthread_mutex_unlock(&lock);
            return cma_error(ENOMEM);
        }
        atomic_store_explicit(&pages[descriptor / PAGE_LENGTH], page, memory_order_release);
        place = slot_of(descriptor);
    }
    socket->index = descriptor;
    atomic_store_explicit(&place->socket, socket, memory_order_release);
    atomic_store(&place->users, OPEN);
    pthread_mutex_unlock(&lock);
    return 0;
}

void rsocket_remove(struct rsocket *socket)
{
    struct slot *place = slot_of(socket->index);
    if (place != NULL) {
        atomic_store(&place->users, 0);
        atomic_store_explicit(&place->socket, NULL, memory_order_release);
        socket->index = -1;
    }
}
