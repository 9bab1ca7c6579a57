/* Who holds a UDP port of this network namespace, in words for people: looked up when binding it
 * has failed. */
#ifndef WEIR_IO_PORT_HOLDER_H
#define WEIR_IO_PORT_HOLDER_H

#include <stddef.h>
#include <stdint.h>

/* "UDP port 4791 is held by ...", and what to do about it. Processes of others are named only where
 * /proc shows their descriptors. */
void port_holder_describe(uint16_t port, char *ret_text, size_t size);

#endif
