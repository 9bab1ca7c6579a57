/* The words of weir run --strict, which the library reads from WEIR_STRICT: they are known here,
 * too, so that a wrong one is wrong usage and not a warning of a program that runs on. */
#ifndef TOOLS_RUN_STRICT_H
#define TOOLS_RUN_STRICT_H

#include "tools/command.h"

/* EXIT_DONE, or EXIT_USAGE: a part of the list is none of its words, which has been said. */
int run_strict_check(const struct command *command, const char *list);

#endif
