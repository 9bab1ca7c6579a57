/* An allocator on malloc, for those who may have one: io, the simulator, tests. Not part of the
 * core, which is handed its memory. */
#ifndef WEIR_BASE_HEAP_H
#define WEIR_BASE_HEAP_H

#include "rnic/base/allocator.h"

/* Stateless and usable from any thread. */
struct allocator *heap_allocator(void);

#endif
