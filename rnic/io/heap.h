/* The process heap as an allocator for the core. */
#ifndef WEIR_IO_HEAP_H
#define WEIR_IO_HEAP_H

#include "rnic/base/allocator.h"

/* Static; any thread. */
struct allocator *heap_allocator(void);

#endif
