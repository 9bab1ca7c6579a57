/* Which paths of the system's are answered from the private tree, and where they are in it. String
 * work only: no file is touched here.
 *
 * The tree mirrors the system from "/" on, so the answer is the tree's root before the path. Only
 * /sys/class/infiniband..., /sys/class/misc/rdma_cm... and /dev/infiniband are concerned; every
 * other path costs the comparison of a few bytes. One way is not the mirrored one: in sysfs a
 * device of a class is a link, and NAME/../.. is its adapter; here that is NAME/device. Safe in
 * signal handlers, in every thread, and before any constructor has run. */
#ifndef WEIR_PATHS_REDIRECT_H
#define WEIR_PATHS_REDIRECT_H

#include <stdbool.h>
#include <stddef.h>

#define REDIRECT_VARIABLE "WEIR_PATHS" /* names the tree's root; unset: nothing is redirected */
#define REDIRECT_ROOM     512u /* the longest path within a tree; small, for a signal's stack */

/* `path` itself, or its place below `root` in ret_room. NULL and relative paths stay as they are.
 */
const char *redirect(const char *root, const char *path, char ret_room[REDIRECT_ROOM]);
/* The reverse, in place: takes the root off `path` if what remains would be redirected. */
void redirect_undo(const char *root, char *path);
/* A file below /dev/infiniband: what is a device to programs is a symbolic link in the tree. */
bool redirect_is_device(const char *path);

#endif
