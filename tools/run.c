/* weir run: a program on the software RNIC, by putting our two libraries before the system's. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/dropin.h"

const char run_usage[] =
    "usage: weir run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM with Weir's libibverbs.so.1 and librdmacm.so.1 in place of the system's, so "
    "that\n"
    "it finds one RDMA device, weir0, which needs no hardware and no kernel module.\n"
    "\n"
    "  -n, --dry-run  print the environment that would be set, and stop\n"
    "  -h, --help     print this text\n"
    "\n"
    "The libraries are looked for in WEIR_LIBRARY_DIR, then beside the command, then where Weir\n"
    "was installed.\n"
    "\n"
    "  weir run ibv_devinfo\n"
    "  weir run rping -s -a 127.0.0.1\n"
    "\n"
    "Exit status: that of PROGRAM; 2 usage, 6 libraries not found, 126 PROGRAM cannot be "
    "executed,\n"
    "127 PROGRAM not found.\n";

/* Puts `value` before what the variable holds already. */
static bool prepend(const char *variable, const char *value)
{
    const char *old = getenv(variable);
    char *joined = NULL;
    int length = old != NULL && old[0] != 0 ? asprintf(&joined, "%s:%s", value, old)
                                            : asprintf(&joined, "%s", value);
    bool good = length >= 0 && setenv(variable, joined, 1) == 0;
    if (length >= 0) {
        free(joined);
    }
    return good;
}

static bool set_environment(const char *folder)
{
    char preload[2 * PATH_MAX + 64];
    snprintf(preload, sizeof(preload), "%s/libibverbs.so.1:%s/librdmacm.so.1", folder, folder);
    return prepend("LD_PRELOAD", preload) && prepend("LD_LIBRARY_PATH", folder);
}

static int execute(const struct command *command, char **argv)
{
    execvp(argv[0], argv);
    int error = errno;
    command_error(command, "%s: %s", argv[0], strerror(error));
    return error == ENOENT ? EXIT_NO_PROGRAM : EXIT_NOT_EXECUTABLE;
}

int command_run(const struct command *command, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"dry-run", no_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool dry = false;
    for (int option; (option = getopt_long(argc, argv, "+nh", long_options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(run_usage, stdout);
            return EXIT_DONE;
        }
        if (option != 'n') {
            return command_usage_hint(command);
        }
        dry = true;
    }
    char folder[PATH_MAX], reason[DROPIN_REASON];
    if (!dropin_find(folder, reason)) {
        command_error(command, "%s", reason);
        return EXIT_SETUP;
    }
    if (strpbrk(folder, ": ") != NULL) {
        command_error(command, "%s: the loader takes no folder with a colon or space in its name",
                      folder);
        return EXIT_SETUP;
    }
    if (!set_environment(folder)) {
        command_error(command, "%s", strerror(errno));
        return EXIT_SETUP;
    }
    if (dry) {
        printf("LD_PRELOAD=%s\nLD_LIBRARY_PATH=%s\n", getenv("LD_PRELOAD"),
               getenv("LD_LIBRARY_PATH"));
        return EXIT_DONE;
    }
    if (optind == argc) {
        return command_usage_error(command, "a program is needed");
    }
    return execute(command, argv + optind);
}
