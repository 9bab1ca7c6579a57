/* Memory for objects that a process may have thousands of and goes to in no order. Blocks of one
 * size lie close together, in runs that the kernel is asked to map as one page as soon as they are
 * full: else the processor would have to find out, for nearly each object, where its page is. A run
 * is never given back, but its blocks are used again. Any thread. */
#ifndef WEIR_IO_SLAB_H
#define WEIR_IO_SLAB_H

#include <stddef.h>

#define SLAB_LINE 64u
#define SLAB_MAX  4096u

/* An address sanitizer is to see each block: then they are malloc's. */
#define SLAB_IS_WATCHED 0
#if defined __SANITIZE_ADDRESS__
#undef SLAB_IS_WATCHED
#define SLAB_IS_WATCHED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#undef SLAB_IS_WATCHED
#define SLAB_IS_WATCHED 1
#endif
#endif

/* Zeroed, aligned to SLAB_LINE, of 1 to SLAB_MAX bytes. NULL and errno. */
void *slab_take(size_t size);
/* NULL is allowed. */
void slab_give(void *block);

#endif
