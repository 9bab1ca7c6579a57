/* What a process knows of where it runs, for its greeting. */
#ifndef TOOLS_REMOTE_HERE_H
#define TOOLS_REMOTE_HERE_H

#include <weir/fabric.h>

#include "tools/remote/greeting.h"

/* The same text for two processes that reach each other by loopback: the kernel's boot and the
 * network namespace. "?" where it cannot be had, which is like no other. */
void here_host(char ret_text[128]);
/* Every address of the interfaces that are up, with the port of a listener for its family (0: none
 * listens), as the device's where the fabric has a GID of it. */
void here_addresses(const struct weir_fabric *fabric, unsigned port_v4, unsigned port_v6,
                    struct greeting *greeting);

#endif
