/* The far side's end of the remote shell's pipe: its standard input and output. */
#ifndef TOOLS_REMOTE_PIPE_H
#define TOOLS_REMOTE_PIPE_H

#include <stdbool.h>

#include <weir/channel.h>

#include "tools/trust/secret.h"

/* Says where it listens and what proves who comes. The listeners are for IPv4 and IPv6; NULL: none
 * is. False: nobody reads it. */
bool pipe_greet(const struct weir_fabric *fabric, struct weir_listener *const listeners[2],
                const struct secret *secret);
/* Whoever started this is gone. */
bool pipe_has_ended(void);
/* Until then, until `fd` is readable or until the time is over. */
void pipe_wait(int fd, int timeout_ms);

#endif
