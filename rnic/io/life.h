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

#endif
