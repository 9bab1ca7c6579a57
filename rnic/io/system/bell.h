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
/* A copy of another process's bell, which the caller closes. A thread's number may mean another
 * one here, or by now: the right one has the very file that is `file` here as its `number`. -1: it
 * is not that one, the kernel does not let us, it is no event descriptor, or this process has so
 * many descriptors that one more might be missed. */
int bell_borrow(pid_t thread, int bell, int number, int file);
/* False: it is not rung. */
bool bell_ring(int bell);

#endif
