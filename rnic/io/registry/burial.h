/* Noticing that a process has died, and doing what it owed: its slot, claims and places are given
 * back, and its wills executed, so that its peers learn at once and not by their timeouts.
 *
 * The kernel tells of each death, since it closes the registry's file for the dead. Each process is
 * answerable for the slots after its own, up to the next one that is told, too; so one acts for
 * each death, within milliseconds. A second later whoever comes first looks at all, for those whose
 * neighbour is stopped, or died with them. Where the user has no inotify instance left, one of
 * those who are not told looks each second. The next process to start buries all who died with
 * nobody left. What an heir had begun when it died falls to its own heir.
 *
 * On the background thread, without the engine's lock. */
#ifndef WEIR_IO_BURIAL_H
#define WEIR_IO_BURIAL_H

#include "rnic/base/time.h"
#include "rnic/device/engine.h"
#include "rnic/io/registry/registry.h"

struct burial {
    struct registry *registry;
    struct engine *engine;
    void (*wake)(void *context);
    void *wake_context;
    int descriptor;                 /* readable when a process may have died; -1: we are not told */
    struct instant told;            /* ... the last time */
    uint32_t looks;                 /* at our neighbours since then */
    struct instant next_look;       /* at our neighbours */
    struct instant search;          /* of all slots */
    _Atomic bool inherited;         /* there are wills to execute */
    _Atomic uint64_t deaths, wills; /* buried; executed */
};

/* `wake` is called, by any thread, when burial_advance has something to do. */
void burial_open(struct burial *burial, struct registry *registry, struct engine *engine,
                 void (*wake)(void *context), void *context);
/* One that was never opened, too. */
void burial_close(struct burial *burial);
/* In a forked child: closes the child's copy of the descriptor. */
void burial_abandon(struct burial *burial);

/* The descriptor is readable. */
void burial_hear(struct burial *burial);
/* Does what is due; costs nothing if nothing is. True: it has looked, so somebody may have died. */
bool burial_advance(struct burial *burial);
struct instant burial_next_deadline(const struct burial *burial);

#endif
