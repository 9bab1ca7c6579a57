/* Who has a UDP port of this network namespace, as /proc shows it. */
#ifndef WEIR_IO_PORT_HOLDER_H
#define WEIR_IO_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/io/udp/udp.h"

/* In words for people, when binding it has failed: "UDP port 4791 is held by ...", and what to do
 * about it. Processes of others are named only where /proc shows their descriptors. */
void port_holder_describe(uint16_t port, char *ret_text, size_t size);
/* Processes of this user have it. False also: /proc does not say. */
bool port_holder_is_ours(uint16_t port);
/* How many sockets are bound to just the address and port that this one has, itself included; 0:
 * /proc does not say. */
uint32_t port_holder_count(int descriptor, enum udp_family family);

#endif
