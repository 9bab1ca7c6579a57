/* What stands behind options of weir cp: numbers, modes, owners. Each is in optarg, of getopt_long.
 */
#ifndef TOOLS_CP_VALUES_H
#define TOOLS_CP_VALUES_H

#include "tools/cp_options.h"

/* -1, or the exit status when it has been said what is wrong. */
int cp_take_chown(const struct command *command, struct cp_options *options);
int cp_take_window(const struct command *command, struct cp_options *options);
int cp_take_rate(const struct command *command, struct cp_options *options);
int cp_take_size(const struct command *command, struct cp_options *options, bool is_max);
int cp_take_modes(const struct command *command, struct cp_options *options);
int cp_take_info(const struct command *command, struct cp_options *options);
int cp_take_deletions(const struct command *command, struct cp_options *options);

/* False: no whole seconds. */
bool cp_take_seconds(unsigned *ret_seconds);

#endif
