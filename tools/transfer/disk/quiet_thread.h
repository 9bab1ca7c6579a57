/* A thread that no signal comes to: those are for who waits for them. */
#ifndef TOOLS_TRANSFER_QUIET_THREAD_H
#define TOOLS_TRANSFER_QUIET_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* To be joined. False: there is none to be had. */
bool quiet_thread_start(pthread_t *ret_thread, void *(*run)(void *), void *argument);

#endif
