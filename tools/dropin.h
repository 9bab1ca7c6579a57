/* Where the drop-in libraries are: libibverbs.so.1 and librdmacm.so.1 of the software RNIC. */
#ifndef TOOLS_DROPIN_H
#define TOOLS_DROPIN_H

#include <limits.h>
#include <stdbool.h>

#define DROPIN_REASON (4 * PATH_MAX)

/* The folder, absolute; or false and a sentence that says where they were looked for. */
bool dropin_find(char ret_folder[PATH_MAX], char ret_reason[DROPIN_REASON]);

#endif
