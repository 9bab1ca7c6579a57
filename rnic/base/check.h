/* CHECK: an invariant of our own code, always on. A broken one is our bug, never a peer's or a
 * caller's: those get a status, a verdict or a counter.
 *
 * The handler is the one symbol that the core needs from its surroundings besides string.h. */
#ifndef WEIR_BASE_CHECK_H
#define WEIR_BASE_CHECK_H

/* Says what broke and ends the process. Provided by whoever links the core (io, sim, tests). */
_Noreturn void check_failed(const char *file, int line, const char *condition);

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

#define BUILD_CHECK(condition) _Static_assert(condition, #condition)

#endif
