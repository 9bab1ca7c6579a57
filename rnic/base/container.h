/* From a member back to the object that it is embedded in. */
#ifndef WEIR_BASE_CONTAINER_H
#define WEIR_BASE_CONTAINER_H

#include <stddef.h>

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
