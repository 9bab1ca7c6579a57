#include "rnic/io/registry/burial.h"

#include <sys/inotify.h>
#include <unistd.h>

#include "rnic/cm/cm.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/clock.h"

/* The file is closed just before the lock on it goes, so the first looks may come too early: after
 * 1, 4, 16, 64 and 256 ms more. */
#define LOOKS          5u
#define FIRST_LOOK_NS  1000000u
#define SEARCH_NS      UINT64_C(1000000000)
#define LOCKED_WAIT_NS 5000000u

static void wake_heir(void *context)
{
    struct burial *burial = context;
    atomic_store(&burial->inherited, true);
    burial->wake(burial->wake_context);
}

void burial_open(struct burial *burial, struct registry *registry, struct engine *engine,
                 void (*wake)(void *context), void *context)
{
    *burial = (struct burial){
        .registry = registry,
        .engine = engine,
        .descriptor = inotify_init1(IN_CLOEXEC | IN_NONBLOCK),
        .next_look = INSTANT_NEVER,
        .search = clock_now(), /* for those who died with nobody left */
        .wake = wake,
        .wake_context = context,
    };
    if (burial->descriptor >= 0 &&
        inotify_add_watch(burial->descriptor, registry->path, IN_CLOSE_WRITE) < 0) {
        close(burial->descriptor);
        burial->descriptor = -1;
    }
    registry->wake_context = burial;
    atomic_store(&registry->wake, wake_heir);
    atomic_store(&registry->file->slots[registry->slot].watches, burial->descriptor >= 0);
}

void burial_abandon(struct burial *burial)
{
    if (burial->registry != NULL && burial->descriptor >= 0) {
        close(burial->descriptor);
        burial->descriptor = -1;
    }
}

void burial_close(struct burial *burial)
{
    if (burial->registry != NULL) {
        atomic_store(&burial->registry->file->slots[burial->registry->slot].watches, 0);
        atomic_store(&burial->registry->wake, NULL);
        burial_abandon(burial);
        burial->registry = NULL;
    }
}

/* What the events say is not looked at: they come of processes that end in order, too. */
void burial_hear(struct burial *burial)
{
    char events[4096];
    struct instant now = clock_now();
    while (read(burial->descriptor, events, sizeof events) > 0) {
    }
    burial->told = now;
    burial->looks = 0;
    burial->next_look = instant_after(now, FIRST_LOOK_NS);
    burial->search = instant_earlier(burial->search, instant_after(now, SEARCH_NS));
}

/* Somebody died in it, or left wills to nobody. */
static bool wants_burial(const struct registry *registry, uint32_t slot)
{
    const struct registry_slot *entry = &registry->file->slots[slot];
    if (atomic_load(&entry->used) != 0) {
        return !registry_slot_lives(registry, slot);
    }
    return atomic_load(&entry->estate) != 0 && registry_heir(registry, slot) == SLOT_NONE;
}

static bool neighbours_want_burial(const struct registry *registry)
{
    for (uint32_t i = 1; i < SLOT_COUNT; i++) {
        uint32_t slot = (registry->slot + i) % SLOT_COUNT;
        const struct registry_slot *entry = &registry->file->slots[slot];
        if (wants_burial(registry, slot)) {
            return true;
        }
        if (atomic_load(&entry->used) != 0 && atomic_load(&entry->watches) != 0) {
            return false; /* the others are its own neighbours */
        }
    }
    return false;
}

/* False: the registry is locked, come again. */
static bool bury(struct burial *burial)
{
    struct registry *registry = burial->registry;
    if (!registry_try_lock(registry)) {
        return false;
    }
    atomic_store(&registry->file->searched_ns, clock_now().ns);
    uint32_t buried = registry_bury_dead(registry);
    if (registry_inherit(registry)) {
        atomic_store(&burial->inherited, true);
    }
    burial->deaths += buried;
    registry_unlock(registry);
    return true;
}

static void execute(void *context, const struct cm_will *will)
{
    struct burial *burial = context;
    enum status status = cm_execute_will(burial->engine->cm, engine_now(burial->engine), will);
    burial->wills += status == STATUS_OK; /* else it is being done, or the peer's timers do it */
}

/* Wills of ours are kept for each that is executed, before the dead one's are forgotten. */
static void execute_wills(struct burial *burial)
{
    struct registry *registry = burial->registry;
    for (uint32_t slot = 0; slot < SLOT_COUNT; slot++) {
        struct registry_slot *entry = &registry->file->slots[slot];
        if (atomic_load(&entry->used) != 0 || atomic_load(&entry->estate) == 0 ||
            atomic_load(&entry->heir) != registry->slot + 1) {
            continue;
        }
        engine_lock(burial->engine);
        wills_read(registry, slot, execute, burial);
        engine_unlock(burial->engine);
        atomic_store(&entry->estate, 0);
    }
}

/* There are wills whose heir has not executed them: it may be stopped. */
static bool somebody_owes(const struct registry *registry)
{
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        const struct registry_slot *entry = &registry->file->slots[i];
        if (atomic_load(&entry->used) == 0 && atomic_load(&entry->estate) != 0) {
            return true;
        }
    }
    return false;
}

static void look(struct burial *burial, struct instant now)
{
    if (neighbours_want_burial(burial->registry) && !bury(burial)) {
        burial->next_look = instant_after(now, LOCKED_WAIT_NS);
        return;
    }
    burial->looks++;
    burial->next_look = burial->looks < LOOKS
                            ? instant_after(now, FIRST_LOOK_NS << 2 * burial->looks)
                            : INSTANT_NEVER;
}

/* One process's search does for all that were told of a death some time before it began. Who is not
 * told of deaths takes each search for the telling of the next. */
static void search(struct burial *burial, struct instant now)
{
    struct instant searched = {atomic_load(&burial->registry->file->searched_ns)};
    bool done = instant_elapsed_ns(burial->told, searched) >= SEARCH_NS / 2 &&
                !instant_before(now, searched) && !somebody_owes(burial->registry);
    if (!done && !bury(burial)) {
        burial->search = instant_after(now, LOCKED_WAIT_NS);
        return;
    }
    if (burial->descriptor < 0) {
        burial->told = now;
    }
    bool goes_on = burial->descriptor < 0 || somebody_owes(burial->registry);
    burial->search = goes_on ? instant_after(now, SEARCH_NS) : INSTANT_NEVER;
}

bool burial_advance(struct burial *burial)
{
    struct instant now = clock_now();
    bool looks = !instant_before(now, burial->next_look);
    bool searches = !instant_before(now, burial->search);
    if (looks) {
        look(burial, now);
    }
    if (searches) {
        search(burial, now);
    }
    if (atomic_load_explicit(&burial->inherited, memory_order_relaxed) &&
        atomic_exchange(&burial->inherited, false)) {
        execute_wills(burial);
    }
    return looks || searches;
}

struct instant burial_next_deadline(const struct burial *burial)
{
    return instant_earlier(burial->next_look, burial->search);
}
