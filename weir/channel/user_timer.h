/* The program's timers: a table, for one is taken back by what it was set with. */
#ifndef WEIR_CHANNEL_USER_TIMER_H
#define WEIR_CHANNEL_USER_TIMER_H

#include <stddef.h>

struct user_timer;

struct user_timers {
    struct user_timer **buckets; /* their count is a power of two */
    size_t bucket_count, count;
    struct user_timer *spare; /* the last that was over: who sets one anew needs no memory */
};

/* Frees them; the heap that they stand in is not looked at again. */
void user_timers_fini(struct user_timers *timers);

#endif
