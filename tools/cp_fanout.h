/* weir cp to several targets at once. */
#ifndef TOOLS_CP_FANOUT_H
#define TOOLS_CP_FANOUT_H

#include "tools/command.h"

struct cp;

/* What --to and --hosts name. */
struct cp_targets {
    char **list; /* as they were written */
    unsigned count;
};

/* -1, or the exit status, after saying why. */
int cp_targets_add(const struct command *command, struct cp_targets *targets, const char *text);
/* One a line; empty lines and those that begin with "#" are none. */
int cp_targets_read(const struct command *command, struct cp_targets *targets, const char *path);
void cp_targets_free(struct cp_targets *targets);

/* What does not go with several targets, or not with these sources. EXIT_DONE, or the exit status.
 */
int cp_check_targets(const struct cp *cp, char **sources, unsigned count);
/* The copy, to its end; what went wrong has been said. */
enum exit_code cp_fanout(struct cp *cp, char **sources, unsigned count);

#endif
