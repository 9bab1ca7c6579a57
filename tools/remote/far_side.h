/* The other side of a transfer, started at a host through a remote shell: `ssh HOST weir serve
 * --session`. It serves whoever knows the secret that it says over the shell's pipe, and ends with
 * the pipe. */
#ifndef TOOLS_REMOTE_FAR_SIDE_H
#define TOOLS_REMOTE_FAR_SIDE_H

#include "tools/command.h"
#include "tools/remote/greeting.h"
#include "tools/remote/shell.h"

struct far_options {
    const char *rsh;       /* the remote shell's command; NULL: $WEIR_RSH, or "ssh" */
    const char *weir_path; /* what its shell is to run; NULL: "weir" */
    enum weir_fabric_kind fabric;
    bool again;        /* for a copy that is under way: where there is no terminal, nothing asks */
    double patience_s; /* 0: no bound */
};

#define FAR_WHY_LENGTH 1024

struct far_side {
    struct shell shell;
    struct greeting greeting; /* sorted */
    const char *host;         /* borrowed */
    bool is_here;             /* it is this host, in the same network namespace */
    char why[FAR_WHY_LENGTH]; /* it could not be started: what has been said; "" */
};

/* Starts it; who starts several begins with all before hearing one. EXIT_DONE, or an exit code
 * after saying why. */
enum exit_code far_side_begin(const struct command *command, const struct far_options *options,
                              const char *host, struct far_side *ret_far);
/* Hears its greeting. EXIT_DONE, or an exit code after saying why; it has ended then. */
enum exit_code far_side_hear(const struct command *command, const struct far_options *options,
                             struct far_side *far);
/* Both. */
enum exit_code far_side_start(const struct command *command, const struct far_options *options,
                              const char *host, struct far_side *ret_far);
/* Asks it to end and waits for it; says so if it ended badly and `failed` is not known yet. */
void far_side_end(const struct command *command, struct far_side *far, bool failed);

#endif
