/* Written bytes stay out of sight until all of them have come. */
#ifndef WEIR_STRICT_VISIBILITY_H
#define WEIR_STRICT_VISIBILITY_H

#include <stdint.h>

/* The range is no longer ours to touch. Engine's lock. */
void visibility_forget(const void *bytes, uint64_t length);

#endif
