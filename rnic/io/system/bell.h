/* What other processes wake a sleeping thread by: an event descriptor of its own, of which they
 * have got copies.
 *
 * Unlike a message to a socket it is no hint that who rings is about to wait for an answer: that
 * hint has the scheduler put the woken thread on the ringer's processor, where it keeps the ringer
 * from running, or is kept from it, while another processor idles. */
#ifndef WEIR_IO_BELL_H
#define WEIR_IO_BELL_H

#include <stdbool.h>
#include <sys/types.h>

/* -1: the kernel gives none. Closed by the caller. */
int bell_create(void);
/* Takes back what was rung. */
void bell_hear(int bell);
/* A copy of another process's bell, which the caller closes; -1: the kernel does not let us, it is
 * no event descriptor, or this process has so many descriptors that one more might be missed. Who
 * `process` is by the time it was asked is the caller's to find out, afterwards: nothing has been
 * done to it by then. */
int bell_borrow(pid_t process, int bell);
/* False: it is not rung. */
bool bell_ring(int bell);

#endif
