/* The thread behind rsockets: it looks after what happens to connections while the application
 * does something else, and sends keepalives.
 *
 * Handlers run one at a time under the service's lock and never block. An entry is embedded in its
 * owner; once service_remove has returned, its handlers do not run any more. */
#ifndef WEIR_RDMACM_RSOCKET_SERVICE_H
#define WEIR_RDMACM_RSOCKET_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/list.h"
#include "rnic/rdmacm/rsocket_waiters.h"

#define SERVICE_NEVER UINT64_MAX

struct service_entry {
    struct list_node node;
    int descriptor;                              /* -1: none */
    void (*handle)(struct service_entry *entry); /* the descriptor is readable, or it is time */
    uint64_t due_us;                             /* by rsocket_now_us; SERVICE_NEVER */
};

/* 0 or -1 and errno: there is no thread. May be called again to change `due_us`. */
int service_add(struct service_entry *entry);
/* Does nothing to what was never added. May be called by handlers. */
void service_remove(struct service_entry *entry);

/* For what handlers share with the application's threads. Recursive. */
void service_lock(void);
void service_unlock(void);
/* With it held once, as rsocket_wait. */
int service_wait(struct rsocket_waiters *waiters);

/* In a forked child: the thread and what it looked after were the parent's. */
void service_forget(void);

#endif
