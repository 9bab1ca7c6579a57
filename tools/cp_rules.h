/* The rules of weir cp about names: --exclude, --include and --filter, from the command line and
 * from files. */
#ifndef TOOLS_CP_RULES_H
#define TOOLS_CP_RULES_H

#include "tools/command.h"
#include "tools/transfer/choice/filter.h"

/* Each adds to `*filter`, which is made where it is NULL; returns -1, or the exit status when it
 * has been said what is wrong. */

/* One pattern; `bits`: RULE_INCLUDE or 0. As in rsync, "+ " or "- " before it says which kind it is
 * after all, and
 * "!" forgets all rules before it. */
int cp_take_pattern(const struct command *command, struct filter **filter, unsigned bits,
                    const char *text);
/* A pattern a line; empty lines and those that begin with "#" or ";" are none. "-": standard input.
 * `zeros`: lines end with a zero instead. */
int cp_take_patterns(const struct command *command, struct filter **filter, unsigned bits,
                     bool zeros, const char *path);
/* One rule as --filter has it; `zeros` of the files that it merges. */
int cp_take_rule(const struct command *command, struct filter **filter, bool zeros,
                 const char *text);

#endif
