/* A command on another host, through a remote shell such as ssh, with a pipe to its standard input
 * and one from its output. Its errors go where ours go. */
#ifndef TOOLS_REMOTE_SHELL_H
#define TOOLS_REMOTE_SHELL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SHELL_WORDS_MAX 32

struct shell {
    pid_t pid;         /* 0: none */
    int input, output; /* ours of the pipes; -1: closed */
};

/* Splits a command at its blanks; quotes of both kinds keep them. ret_words point into `buffer`.
 * The number of words, or -1: too many, too long, or a quote without its end. */
int shell_split(const char *command, char *buffer, size_t capacity,
                char *ret_words[SHELL_WORDS_MAX]);
/* 0, or an errno: of a program that is not there, too. */
int shell_start(char *const words[], struct shell *ret_shell);
/* Its output has ended. */
bool shell_has_ended(const struct shell *shell);
/* Closes its input, which asks it to end; waits so long, then asks by a signal and, shortly after,
 * kills it. Its exit status, 128 and the signal's number if one ended it, -1 if it was started
 * never or stopped by us. */
int shell_end(struct shell *shell, unsigned patience_ms);

#endif
