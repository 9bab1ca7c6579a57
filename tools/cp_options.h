/* The options of weir cp. */
#ifndef TOOLS_CP_OPTIONS_H
#define TOOLS_CP_OPTIONS_H

#include <stdbool.h>

#include "tools/command.h"
#include "tools/cp_fanout.h"
#include "tools/transfer/choice/filter.h"
#include "tools/transfer/disk/modes.h"
#include "tools/transfer/disk/owners.h"
#include "tools/trust/certificates.h"

struct cp_options {
    bool quiet, json, itemize, stats;
    bool relative;          /* the paths of the sources are kept */
    const char *files_from; /* a file with what to copy; NULL: none */
    bool zeros;             /* its lines, and those of patterns, end with a byte 0 */
    bool as_cvs;            /* what CVS leaves out is left out */
    bool recursive;         /* by itself, not with -a */
    bool progress;          /* also where there is no terminal */
    bool no_progress;       /* and not even where there is one */
    bool partial;           /* what an interrupt leaves of a file is of use */
    unsigned verbose;       /* how often */
    struct wishes wishes;
    struct owner_choice owners[2];
    struct mode_changes modes;
    struct filter *filter;    /* NULL: no rule was given */
    unsigned directory_rules; /* how often -F */
    struct weir_fabric_options fabric;
    const char *rsh, *weir_path; /* NULL: as they are unless given */
    const char *key;             /* a file; NULL: none */
    struct certificate_files certificates;
    bool encrypt;
    struct cp_targets targets; /* several, instead of the last name */
    unsigned timeout_s;        /* to connect again within; 0: that is not tried */
    const char *note;          /* on an option that was taken and does nothing; NULL: none */
};

/* Takes them off the command line; optind is then where the names begin. -1, or the exit status. */
int cp_take_options(const struct command *command, int argc, char **argv,
                    struct cp_options *ret_options);

#endif
