/* SELDOM: of a function that hardly ever runs, so that it stays out of those that often do. */
#ifndef WEIR_BASE_SELDOM_H
#define WEIR_BASE_SELDOM_H

#define SELDOM __attribute__((cold, noinline))

#endif
