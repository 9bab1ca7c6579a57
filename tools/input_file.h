/* A file that an option names, "-" for standard input, which has one reader. */
#ifndef TOOLS_INPUT_FILE_H
#define TOOLS_INPUT_FILE_H

#include <stdio.h>

#include "tools/command.h"

/* NULL: why has been said, and *ret_code is the exit code. Its reader closes it. */
FILE *input_file_open(const struct command *command, const char *path, int *ret_code);
void input_file_close(FILE *file);

#endif
