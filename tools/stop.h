/* SIGINT, SIGTERM and SIGHUP as a flag that the loops of cp, serve and bench look at. */
#ifndef TOOLS_STOP_H
#define TOOLS_STOP_H

#include <stdbool.h>

/* The first signal sets the flag, a second SIGINT or SIGTERM ends the process; SIGHUP counts unless
 * it was ignored before. Also: a closed pipe, or a file beyond ulimit -f, is an error to write to,
 * not a signal, and as many files may be open as the system allows. */
void stop_prepare(void);
bool stop_asked(void);
/* Who waits looks at least so often: a signal between the look and the wait does not end the wait,
 * nor does one that another thread gets. */
#define STOP_LOOK_MS 200

#endif
