/* What the subcommands share: the table's row, exit codes, and opening the fabric. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/fabric.h>

/* Said in every man page; a number never changes its meaning. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_SOME_FAILED = 1, /* the transfer went through, but not every file was copied */
    EXIT_USAGE = 2,       /* */
    EXIT_UNREACHED = 3,   /* no connection to the other side */
    EXIT_LOST = 4,        /* the connection ended before the transfer */
    EXIT_REFUSED = 5,     /* the other side said no, or did not keep to the protocol */
    EXIT_SETUP = 6,       /* could not begin here: no device, no memory, no folder */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NO_PROGRAM = 127,
    EXIT_INTERRUPTED = 130, /* by SIGINT, SIGTERM or SIGHUP */
};

struct command {
    const char *name;
    const char *summary; /* for the list */
    const char *usage;   /* for --help: all there is to know at the keyboard */
    int (*run)(const struct command *command, int argc, char **argv);
};

int command_cp(const struct command *command, int argc, char **argv);
int command_serve(const struct command *command, int argc, char **argv);
int command_key(const struct command *command, int argc, char **argv);
int command_info(const struct command *command, int argc, char **argv);
int command_bench(const struct command *command, int argc, char **argv);
int command_run(const struct command *command, int argc, char **argv);

extern const char cp_usage[], serve_usage[], key_usage[], info_usage[], run_usage[], bench_usage[];

/* "weir NAME: " and the message to standard error; EXIT_USAGE, with a pointer to --help. */
int command_usage_error(const struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct option;
/* getopt_long. What that says of an option is said as command_usage_error says it, for the option
 * may hold anything. */
int command_option(const struct command *command, int argc, char **argv, const char *letters,
                   const struct option *options);
/* The pointer alone, after getopt has said what is wrong. */
int command_usage_hint(const struct command *command);
/* The message alone. */
void command_error(const struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* weir_fabric_open, with our drop-in libraries where dropin.h finds them. */
enum weir_status fabric_open(const struct weir_fabric_options *options,
                             struct weir_fabric **ret_fabric, struct weir_error *ret_error);
/* What --fabric takes: "auto", "rdma", "soft". False: none of these, which has been said. */
bool fabric_kind_take(const struct command *command, const char *text,
                      enum weir_fabric_kind *ret_kind);
/* weir_fabric_reason, fit for a terminal and for JSON. Static, until the next call. */
const char *fabric_reason(const struct weir_fabric *fabric);
/* "weir0, software RNIC: no RDMA device on this machine" into ret_text. */
void fabric_describe(const struct weir_fabric *fabric, char *ret_text, size_t length);

#endif
