/* A place in the program: where something was posted, registered, destroyed. Thread-safe. */
#ifndef WEIR_STRICT_TRACE_H
#define WEIR_STRICT_TRACE_H

#include <stdbool.h>

/* Return addresses, innermost first. None: no place of the program. */
#define TRACE_DEPTH 24
struct trace {
    int count;
    void *frames[TRACE_DEPTH];
};

/* From the program's own call outward; this library's frames are left out, and those that began a
 * thread of its. */
void trace_take(struct trace *ret_trace);
/* Whether an address lies in the code of this library. Async-signal-safe. */
bool trace_is_ours(const void *address);

#endif
