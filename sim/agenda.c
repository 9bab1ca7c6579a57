/* A binary heap. */
#include "sim/agenda.h"

#include <stdbool.h>
#include <stdlib.h>

#include "rnic/base/check.h"

static bool is_before(const struct agenda_entry *a, const struct agenda_entry *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->sequence < b->sequence);
}

void agenda_put(struct agenda *agenda, uint64_t at_ns, void *what)
{
    struct agenda_entry entry = {at_ns, agenda->sequence++, what};
    if (agenda->count == agenda->capacity) {
        agenda->capacity = agenda->capacity > 0 ? 2 * agenda->capacity : 256;
        agenda->heap = realloc(agenda->heap, agenda->capacity * sizeof(*agenda->heap));
        CHECK(agenda->heap != NULL);
    }
    size_t place = agenda->count++;
    while (place > 0 && is_before(&entry, &agenda->heap[(place - 1) / 2])) {
        agenda->heap[place] = agenda->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    agenda->heap[place] = entry;
}

uint64_t agenda_next_ns(const struct agenda *agenda)
{
    return agenda->count > 0 ? agenda->heap[0].at_ns : UINT64_MAX;
}

void *agenda_take(struct agenda *agenda)
{
    struct agenda_entry first = agenda->heap[0], last = agenda->heap[--agenda->count];
    size_t place = 0;
    for (size_t child = 1; child < agenda->count; child = 2 * place + 1) {
        child +=
            child + 1 < agenda->count && is_before(&agenda->heap[child + 1], &agenda->heap[child]);
        if (!is_before(&agenda->heap[child], &last)) {
            break;
        }
        agenda->heap[place] = agenda->heap[child];
        place = child;
    }
    agenda->heap[place] = last;
    return first.what;
}

void agenda_fini(struct agenda *agenda, void (*release)(void *what))
{
    while (agenda->count > 0) {
        release(agenda->heap[--agenda->count].what);
    }
    free(agenda->heap);
    *agenda = (struct agenda){0};
}
