/* What will happen in a simulated group, in the order of time, and of what is at one time in the
 * order it was put there. */
#ifndef WEIR_SIM_AGENDA_H
#define WEIR_SIM_AGENDA_H

#include <stddef.h>
#include <stdint.h>

struct agenda_entry {
    uint64_t at_ns, sequence;
    void *what;
};

struct agenda {
    struct agenda_entry *heap;
    size_t count, capacity;
    uint64_t sequence;
};

/* Gives back what is left. */
void agenda_fini(struct agenda *agenda, void (*release)(void *what));
void agenda_put(struct agenda *agenda, uint64_t at_ns, void *what);
/* UINT64_MAX: nothing will. */
uint64_t agenda_next_ns(const struct agenda *agenda);
/* There is something. */
void *agenda_take(struct agenda *agenda);

#endif
