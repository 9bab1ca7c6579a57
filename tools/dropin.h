/* Where the drop-in libraries are: libibverbs.so.1 and librdmacm.so.1 of the software RNIC, and
 * with them what makes /sys and /dev show it. */
#ifndef TOOLS_DROPIN_H
#define TOOLS_DROPIN_H

#include <limits.h>
#include <stdbool.h>

#define DROPIN_REASON (4 * PATH_MAX)
#define DROPIN_PATHS  "libweir-paths.so"

/* The folder, absolute; or false and a sentence that says where they were looked for. */
bool dropin_find(char ret_folder[PATH_MAX], char ret_reason[DROPIN_REASON]);

/* Has `folder`'s weir-tree describe the devices as this process's environment wants them, and waits
 * for it: the root of the tree; or false, after weir-tree has said why on standard error. */
bool dropin_tree(const char *folder, char ret_tree[PATH_MAX]);

#endif
