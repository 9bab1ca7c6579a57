/* The options of weir serve. */
#ifndef TOOLS_SERVE_OPTIONS_H
#define TOOLS_SERVE_OPTIONS_H

#include <stdbool.h>

#include "tools/command.h"
#include "tools/trust/certificates.h"

#define SERVE_LISTENERS_MAX 8
#define SERVE_ROOTS_MAX     64

struct serve_options {
    struct weir_fabric_options fabric;
    const char *listen[SERVE_LISTENERS_MAX]; /* as they were given; none: the default */
    unsigned listen_count;
    const char *roots[SERVE_ROOTS_MAX]; /* as they were given; none: the default */
    unsigned root_count;
    const char *keys; /* a file; NULL: none */
    struct certificate_files certificates;
    bool read_only, super, encrypt, insecure, json, quiet;
    bool session; /* started by weir cp through a remote shell: for one client, on the pipe's terms
                   */
    unsigned transfers_max, per_client_max, idle_timeout_s;
};

/* -1, or the exit status. */
int serve_take_options(const struct command *command, int argc, char **argv,
                       struct serve_options *ret_options);

#endif
