/* Options of rsync that are none of weir cp's, so that nobody has to guess what there is instead.
 * What is so here anyway is taken; what would change the result, and is not to be had, is refused
 * by a sentence. */
#ifndef TOOLS_CP_FOREIGN_H
#define TOOLS_CP_FOREIGN_H

#include <getopt.h>
#include <stdbool.h>

#include "tools/command.h"

/* The letters among them, for getopt_long. */
#define CP_FOREIGN_LETTERS "WszyB:LkKUNOJEdmbT:M:46V8"
/* getopt_long returns this and more for a long one, which cp_foreign_options says. */
#define CP_FOREIGN_FIRST 1000

/* Writes their long forms, at most `room`, and returns how many there are. */
unsigned cp_foreign_options(struct option *ret_options, unsigned room);

/* What getopt_long returned. */
bool cp_is_foreign(int option);
/* -1: taken, and ret_note is what a person is to know, or NULL; else the exit status, and it has
 * been said. */
int cp_take_foreign(const struct command *command, int option, const char **ret_note);

#endif
