/* What of the process's address space can be touched. */
#ifndef WEIR_IO_MAPPING_H
#define WEIR_IO_MAPPING_H

#include <stdbool.h>
#include <stddef.h>

#include "rnic/memory/memory.h"

/* Whether every page of the range is mapped: what a kernel finds out when it pins. Brings none in,
 * and says nothing about the rights. */
bool mapping_is_there(const void *address, size_t length);
/* Whether the range can be written, as far as its first and its last page tell: a kernel refuses to
 * pin for writing what cannot. The range is there. */
bool mapping_is_writable(void *address, size_t length);
/* Brings every page of the range in, for reading or for writing. False: some cannot be touched so.
 */
bool mapping_populate(void *address, size_t length, bool write);
/* Answers with mapping_populate. One for all. */
struct memory_probe *mapping_probe(void);

#endif
