/* A mount namespace of this process's own, in which /sys/class and /dev show the devices of a tree
 * (dropin.h) instead of the machine's: for scripts, `ls`, static programs, whatever no preload
 * reaches. */
#ifndef TOOLS_PRIVATE_MOUNTS_H
#define TOOLS_PRIVATE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#define PRIVATE_MOUNTS_REASON 512

/* Moves this process, which must have one thread, there: by a user namespace where it may not
 * mount. Its user and group stay what they were. False, with the reason: what was begun is not
 * undone; give up. */
bool private_mounts_enter(const char *tree, char ret_reason[PRIVATE_MOUNTS_REASON]);

#endif
