/* The monotonic clock of the host as instants. */
#ifndef WEIR_IO_CLOCK_H
#define WEIR_IO_CLOCK_H

#include "rnic/base/time.h"

struct instant clock_now(void);

#endif
