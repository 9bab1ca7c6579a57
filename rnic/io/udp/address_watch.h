/* Hears from the kernel that addresses or links of this host change. What they are now is
 * address.h's. */
#ifndef WEIR_IO_ADDRESS_WATCH_H
#define WEIR_IO_ADDRESS_WATCH_H

#include <stdbool.h>

/* A descriptor that is readable when something has changed; -1 where the kernel gives none, which
 * poll overlooks. Closed with close. */
int address_watch_open(void);
/* Takes all that was said. True: something may have changed. Never blocks. */
bool address_watch_take(int descriptor);

#endif
