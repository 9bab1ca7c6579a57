/* A word in memory shared with other processes that says whether the thread that holds it lives:
 * the kernel clears it when that thread ends, however it does (also when its process runs another
 * program), before its process's number can be anybody else's. Reading it is no system call. */
#ifndef WEIR_IO_LIFE_H
#define WEIR_IO_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* By the thread, once, which uses no robust mutexes. `word` stays where it is until the thread has
 * ended. False: this kernel does not do it, and the word stays 0. */
bool life_hold(_Atomic uint32_t *word);
/* The word's value says so. */
bool life_is_held(uint32_t value);

/* A thread, of the process of `any` thread, is stopped by a signal: it stands outside of any system
 * call then, and what it was about to call it finds out again is not to be called. One that a
 * debugger has stopped may stand at a call's beginning. */
bool life_is_stopped(uint32_t any, uint32_t thread);

#endif
