/* Live keys in a chained table, dead ones in a ring that forgets the oldest. */
#include "rnic/strict/ledger.h"

#include <pthread.h>
#include <stdlib.h>

#define BUCKETS  1024u
#define DEAD_MAX 1024u

struct live {
    struct live *next;
    struct key_record record;
};

static struct {
    pthread_mutex_t lock;
    struct live *buckets[BUCKETS];
    struct key_record *dead; /* DEAD_MAX, allocated with the first */
    uint64_t dead_count;     /* ever */
} ledger = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&ledger.lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static struct live **find(uint32_t key)
{
    struct live **link = &ledger.buckets[(key >> 8) % BUCKETS];
    while (*link != NULL && (*link)->record.key != key) {
        link = &(*link)->next;
    }
    return link;
}

void ledger_register(uint32_t key, uint64_t address, uint64_t length, bool window)
{
    struct key_record record = {.key = key, .window = window, .address = address, .length = length};
    trace_take(&record.where);
    pthread_mutex_lock(&ledger.lock);
    struct live **link = find(key);
    if (*link == NULL) {
        *link = calloc(1, sizeof **link);
    }
    if (*link != NULL) { /* else the key goes unremembered */
        (*link)->record = record;
    }
    pthread_mutex_unlock(&ledger.lock);
}

void ledger_deregister(uint32_t key)
{
    struct trace here;
    trace_take(&here);
    pthread_mutex_lock(&ledger.lock);
    struct live **link = find(key);
    struct live *live = *link;
    if (live != NULL) {
        *link = live->next;
        if (ledger.dead == NULL) {
            ledger.dead = calloc(DEAD_MAX, sizeof *ledger.dead);
        }
        if (ledger.dead != NULL) {
            struct key_record *record = &ledger.dead[ledger.dead_count++ % DEAD_MAX];
            *record = live->record;
            record->dead = true;
            record->where = here;
        }
        free(live);
    }
    pthread_mutex_unlock(&ledger.lock);
}

bool ledger_find(uint32_t key, struct key_record *ret_record)
{
    bool found = false;
    pthread_mutex_lock(&ledger.lock);
    struct live *live = *find(key);
    if (live != NULL) {
        *ret_record = live->record;
        found = true;
    }
    uint64_t kept = ledger.dead_count < DEAD_MAX ? ledger.dead_count : DEAD_MAX;
    for (uint64_t i = 1; !found && i <= kept; i++) {
        struct key_record *record = &ledger.dead[(ledger.dead_count - i) % DEAD_MAX];
        if (record->key == key) {
            *ret_record = *record;
            found = true;
        }
    }
    pthread_mutex_unlock(&ledger.lock);
    return found;
}
