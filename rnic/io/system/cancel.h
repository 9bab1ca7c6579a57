/* Where a thread of the application's is in what must come to its end: it is not cancelled. Costs
 * two atomic operations, so it is for control calls and for what is met seldom; what each message
 * needs makes no call that is a cancellation point (raw_file.h, raw_socket.h). */
#ifndef WEIR_IO_CANCEL_H
#define WEIR_IO_CANCEL_H

#include <pthread.h>

/* What cancel_restore is to be given. */
static inline int cancel_hold(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_restore(int before)
{
    pthread_setcancelstate(before, NULL);
}

#endif
