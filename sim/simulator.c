#include "sim/simulator.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"

void simulator_init(struct simulator *simulator, uint64_t seed, FILE *trace)
{
    *simulator = (struct simulator){
        .now = {0},
        .seed = seed,
        .hash = UINT64_C(0x243f6a8885a308d3),
        .trace = trace,
        .trace_times = true,
        .capacity = 256,
    };
    simulator->heap = malloc(simulator->capacity * sizeof *simulator->heap);
    CHECK(simulator->heap != NULL);
}

void simulator_fini(struct simulator *simulator)
{
    free(simulator->heap);
    simulator->heap = NULL;
}

static bool earlier(const struct simulator_event *a, const struct simulator_event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->number < b->number;
}

void simulator_at(struct simulator *simulator, struct instant when,
                  void (*run)(void *context, uint64_t argument), void *context, uint64_t argument)
{
    if (simulator->count == simulator->capacity) {
        simulator->capacity *= 2;
        simulator->heap = realloc(simulator->heap, simulator->capacity * sizeof *simulator->heap);
        CHECK(simulator->heap != NULL);
    }
    struct simulator_event event = {
        .time_ns = when.ns < simulator->now.ns ? simulator->now.ns : when.ns,
        .number = simulator->next_number++,
        .run = run,
        .context = context,
        .argument = argument,
    };
    uint32_t place = simulator->count++;
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (!earlier(&event, &simulator->heap[parent])) {
            break;
        }
        simulator->heap[place] = simulator->heap[parent];
        place = parent;
    }
    simulator->heap[place] = event;
}

void simulator_after(struct simulator *simulator, uint64_t delay_ns,
                     void (*run)(void *context, uint64_t argument), void *context,
                     uint64_t argument)
{
    simulator_at(simulator, instant_after(simulator->now, delay_ns), run, context, argument);
}

static struct simulator_event take_first(struct simulator *simulator)
{
    struct simulator_event first = simulator->heap[0];
    struct simulator_event last = simulator->heap[--simulator->count];
    uint32_t place = 0;
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= simulator->count) {
            break;
        }
        if (child + 1 < simulator->count &&
            earlier(&simulator->heap[child + 1], &simulator->heap[child])) {
            child++;
        }
        if (!earlier(&simulator->heap[child], &last)) {
            break;
        }
        simulator->heap[place] = simulator->heap[child];
        place = child;
    }
    simulator->heap[place] = last;
    return first;
}

enum simulator_end simulator_run(struct simulator *simulator, struct instant until,
                                 uint64_t max_events)
{
    while (!simulator_is_violated(simulator)) {
        if (simulator->count == 0) {
            return SIMULATOR_IDLE;
        }
        if (simulator->heap[0].time_ns > until.ns || max_events-- == 0) {
            return SIMULATOR_LIMIT;
        }
        struct simulator_event event = take_first(simulator);
        simulator->now.ns = event.time_ns;
        simulator->events_run++;
        event.run(event.context, event.argument);
    }
    return SIMULATOR_VIOLATION;
}

void simulator_note(struct simulator *simulator, const char *format, ...)
{
    if (simulator->trace == NULL) {
        return;
    }
    if (simulator->trace_times) {
        uint64_t ns = simulator->now.ns;
        if (ns % 1000 == 0) {
            fprintf(simulator->trace, "%lluus ", (unsigned long long)(ns / 1000));
        } else {
            fprintf(simulator->trace, "%llu.%03uus ", (unsigned long long)(ns / 1000),
                    (unsigned)(ns % 1000));
        }
    }
    va_list arguments;
    va_start(arguments, format);
    vfprintf(simulator->trace, format, arguments);
    va_end(arguments);
    fputc('\n', simulator->trace);
}

void simulator_violate(struct simulator *simulator, const char *oracle, const char *format, ...)
{
    if (simulator_is_violated(simulator)) {
        return;
    }
    int length = snprintf(simulator->violation, sizeof simulator->violation, "%s: ", oracle);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(simulator->violation + length, sizeof simulator->violation - (size_t)length, format,
              arguments);
    va_end(arguments);
    simulator_note(simulator, "VIOLATION %s", simulator->violation);
}
