/* What the sources of weir cp are called at the target. */
#ifndef TOOLS_CP_NAMES_H
#define TOOLS_CP_NAMES_H

#include "tools/command.h"

/* Two sources of one name would end as one file: the second, or, without --force, the first.
 * EXIT_DONE, or an exit code after saying why. */
int cp_check_names(const struct command *command, char **sources, unsigned count);

#endif
