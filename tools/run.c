/* weir run: a program on the software RNIC, by putting our libraries before the system's, and by
 * showing the device where programs look for it besides. Ends in the program itself: its process is
 * this one, so that signals and the exit status need no passing on. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/dropin.h"
#include "tools/private_mounts.h"
#include "tools/run_report.h"
#include "tools/run_strict.h"

#define DEVICES_MAX 16

const char run_usage[] =
    "usage: weir run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM, unmodified, with Weir's libibverbs.so.1 and librdmacm.so.1 in\n"
    "place of the system's: it finds an RDMA device, weir0, which needs no hardware,\n"
    "no kernel module and no root. The machine's own RDMA devices are hidden from it\n"
    "unless --host-devices is given.\n"
    "\n"
    "  -d, --devices N         show N devices, weir0 to weirN-1 (1)\n"
    "  -l, --link-layer KIND   what the ports say they are: ethernet (RoCE, the\n"
    "                          default) or infiniband (for programs that refuse\n"
    "                          anything else)\n"
    "  -s, --strict[=WHAT]     limits and surprises of a real adapter, and a warning\n"
    "                          in words for each mistake that one would punish\n"
    "                          WHAT, a list: mlx5 (the default), mlx4, irdma, bnxt or\n"
    "                          rxe, whose limits hold; memlock=SIZE; no-PITFALL\n"
    "  -H, --host-devices      list the machine's own RDMA devices behind ours, for\n"
    "                          programs that choose by name; rdma_cm goes over ours.\n"
    "                          Implies --no-paths: /sys and /dev are then the\n"
    "                          machine's\n"
    "  -N, --namespace         show /sys/class/infiniband and /dev/infiniband to\n"
    "                          everything the program starts, shell scripts and\n"
    "                          static programs too, in a mount namespace of its own\n"
    "  -P, --no-paths          show them to nobody: the two libraries alone\n"
    "  -n, --dry-run           print the environment that would be set, and stop\n"
    "  -v, --verbose           say on standard error what the program gets, and why\n"
    "  -h, --help              print this text\n"
    "\n"
    "Every address of this machine is a GID of weir0, so two programs that are both\n"
    "run so reach each other by any of them: through memory here, across machines by\n"
    "UDP port 4791:\n"
    "\n"
    "  weir run ibv_devinfo\n"
    "  weir run ib_write_bw &  sleep 1; weir run ib_write_bw 127.0.0.1\n"
    "  weir run --namespace ibstatus\n"
    "  UCX_TLS=rc_verbs,ud_verbs,self weir run ucx_perftest -t tag_lat\n"
    "  weir run mpirun -np 2 --mca pml ucx -x UCX_TLS=rc_verbs,ud_verbs,self PROGRAM\n"
    "\n"
    "The libraries are looked for in WEIR_LIBRARY_DIR, then beside the command, then\n"
    "where Weir was installed. Without this command: LD_LIBRARY_PATH set to that\n"
    "folder.\n"
    "\n"
    "Exit status: that of PROGRAM; 2 usage, 6 no libraries, device or namespace to be\n"
    "had, 126 PROGRAM cannot be executed, 127 PROGRAM not found.\n";

struct wishes {
    bool dry, verbose, namespace, no_paths;
};

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

/* The file that execvp takes; false: there is none, which it says itself. */
static bool find_program(const char *name, char ret_path[PATH_MAX])
{
    const char *folder = getenv("PATH");
    if (folder == NULL || strchr(name, '/') != NULL) {
        return snprintf(ret_path, PATH_MAX, "%s", name) < PATH_MAX;
    }
    for (size_t length;; folder += length + 1) {
        length = strcspn(folder, ":");
        int needed = snprintf(ret_path, PATH_MAX, "%.*s%s%s", (int)length, folder,
                              length > 0 ? "/" : "", name);
        if (needed < PATH_MAX && access(ret_path, X_OK) == 0) {
            return true;
        }
        if (folder[length] == '\0') {
            return false;
        }
    }
}

/* Such a program goes without our libraries, of which nobody else says a word. */
static void warn_of_other_rights(const struct command *command, const char *program)
{
    char path[PATH_MAX];
    struct stat facts;
    if (!find_program(program, path) || stat(path, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return;
    }
    bool other_user = (facts.st_mode & S_ISUID) != 0 && facts.st_uid != geteuid();
    bool other_group = (facts.st_mode & S_ISGID) != 0 && (facts.st_mode & S_IXGRP) != 0 &&
                       facts.st_gid != getegid();
    bool more = geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
    if (other_user || other_group || more) {
        command_error(command,
                      "note: %s gets other rights than yours (set-user-id and the like), so the "
                      "loader ignores LD_PRELOAD: it has nothing of the software RNIC",
                      path);
    }
}

static int execute(const struct command *command, char **argv)
{
    warn_of_other_rights(command, argv[0]);
    execvp(argv[0], argv);
    int error = errno;
    command_error(command, "%s: %s", argv[0], strerror(error));
    return error == ENOENT ? EXIT_NO_PROGRAM : EXIT_NOT_EXECUTABLE;
}

/* What an option says goes straight to the environment, where the libraries read it. */
static int want_devices(const struct command *command, const char *text)
{
    char *end;
    long count = strtol(text, &end, 10);
    /* Names begin with a letter; the library reads them. */
    bool is_list = isalpha((unsigned char)text[0]) || strpbrk(text, "=,:") != NULL;
    if (!is_list && (end == text || *end != 0 || count < 1 || count > DEVICES_MAX)) {
        return command_usage_error(command,
                                   "--devices %s: a number from 1 to %d is needed, or a list of "
                                   "names (weir0=eth0,other)",
                                   text, DEVICES_MAX);
    }
    return setenv("WEIR_DEVICES", text, 1) == 0 ? EXIT_DONE : EXIT_SETUP;
}

static int want_link_layer(const struct command *command, const char *text)
{
    if (strcmp(text, "ethernet") != 0 && strcmp(text, "infiniband") != 0) {
        return command_usage_error(command, "--link-layer %s: ethernet or infiniband is needed",
                                   text);
    }
    return setenv("WEIR_LINK_LAYER", text, 1) == 0 ? EXIT_DONE : EXIT_SETUP;
}

static int want_strict(const struct command *command, const char *list)
{
    int code = run_strict_check(command, list);
    return code != EXIT_DONE ? code : setenv("WEIR_STRICT", list, 1) == 0 ? EXIT_DONE : EXIT_SETUP;
}

static int parse(const struct command *command, int option, struct wishes *wishes)
{
    switch (option) {
    case 'd':
        return want_devices(command, optarg);
    case 'l':
        return want_link_layer(command, optarg);
    case 's':
        return want_strict(command, optarg != NULL ? optarg : "1");
    case 'H':
        wishes->no_paths = true;
        return setenv("WEIR_HOST_DEVICES", "1", 1) == 0 ? EXIT_DONE : EXIT_SETUP;
    case 'N':
        wishes->namespace = true;
        return EXIT_DONE;
    case 'P':
        wishes->no_paths = true;
        return EXIT_DONE;
    case 'n':
        wishes->dry = true;
        return EXIT_DONE;
    case 'v':
        wishes->verbose = true;
        return EXIT_DONE;
    default:
        return command_usage_hint(command);
    }
}

/* Finds the libraries and has the tree made; `ret_tree` is empty where none is wanted. */
static int look(const struct command *command, const struct wishes *wishes,
                char ret_folder[PATH_MAX], char ret_tree[PATH_MAX])
{
    char reason[DROPIN_REASON];
    if (!dropin_find(ret_folder, reason)) {
        command_error(command, "%s", reason);
        return EXIT_SETUP;
    }
    if (strpbrk(ret_folder, ": ") != NULL) {
        command_error(command, "%s: the loader takes no folder with a colon or space in its name",
                      ret_folder);
        return EXIT_SETUP;
    }
    ret_tree[0] = 0;
    if (!wishes->no_paths && !dropin_tree(ret_folder, ret_tree)) {
        command_error(command, "the device cannot be shown in /sys and /dev; --no-paths goes "
                               "without");
        return EXIT_SETUP;
    }
    return EXIT_DONE;
}

/* A mount needs no redirection: the object that redirects stays out of such a process. */
static bool set_environment(const struct wishes *wishes, const char *folder, const char *tree)
{
    char preload[3 * PATH_MAX + 64];
    bool redirects = tree[0] != 0 && !wishes->namespace;
    int length =
        snprintf(preload, sizeof(preload), "%s/libibverbs.so.1:%s/librdmacm.so.1", folder, folder);
    if (redirects) {
        snprintf(preload + length, sizeof(preload) - (size_t)length, ":%s/" DROPIN_PATHS, folder);
    }
    /* Also where it is mounted: weir-tree keeps the trees that processes were started with. */
    bool told = tree[0] != 0 ? setenv("WEIR_PATHS", tree, 1) == 0 : unsetenv("WEIR_PATHS") == 0;
    /* A program built with gcc's -fsanitize=address refuses to start behind a preloaded object that
     * is not the sanitizer's own; ours replace nothing that the sanitizer does. */
    return told && prepend("LD_PRELOAD", preload) && prepend("LD_LIBRARY_PATH", folder) &&
           prepend("ASAN_OPTIONS", "verify_asan_link_order=0");
}

static void print_environment(const struct wishes *wishes, const char *tree)
{
    static const char *const variables[] = {"LD_PRELOAD",        "LD_LIBRARY_PATH", "WEIR_PATHS",
                                            "WEIR_DEVICES",      "WEIR_LINK_LAYER", "WEIR_STRICT",
                                            "WEIR_HOST_DEVICES", "ASAN_OPTIONS"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (getenv(variables[i]) != NULL) {
            printf("%s=%s\n", variables[i], getenv(variables[i]));
        }
    }
    if (wishes->namespace) {
        printf("# and, in a mount namespace, %s over / for /sys/class and /dev\n", tree);
    }
}

static int go(const struct command *command, const struct wishes *wishes, char **argv)
{
    char folder[PATH_MAX], tree[PATH_MAX], reason[PRIVATE_MOUNTS_REASON];
    int code = look(command, wishes, folder, tree);
    if (code != EXIT_DONE) {
        return code;
    }
    if (wishes->verbose) {
        run_report_hidden(stderr); /* before a namespace hides them from us, too */
    }
    if (!set_environment(wishes, folder, tree)) {
        command_error(command, "%s", strerror(errno));
        return EXIT_SETUP;
    }
    if (wishes->verbose) {
        run_report(stderr, folder, tree, wishes->namespace);
    }
    if (wishes->dry) {
        print_environment(wishes, tree);
        return EXIT_DONE;
    }
    if (argv[0] == NULL) {
        return command_usage_error(command, "a program is needed");
    }
    if (wishes->namespace && !private_mounts_enter(tree, reason)) {
        command_error(command, "--namespace: %s", reason);
        return EXIT_SETUP;
    }
    return execute(command, argv);
}

int command_run(const struct command *command, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"devices", required_argument, NULL, 'd'},
        {"dry-run", no_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {"host-devices", no_argument, NULL, 'H'},
        {"link-layer", required_argument, NULL, 'l'},
        {"namespace", no_argument, NULL, 'N'},
        {"no-paths", no_argument, NULL, 'P'},
        {"strict", optional_argument, NULL, 's'},
        {"verbose", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct wishes wishes = {.dry = false};
    for (int option;
         (option = command_option(command, argc, argv, "+d:hHl:nNPs::v", long_options)) != -1;) {
        if (option == 'h') {
            fputs(run_usage, stdout);
            return EXIT_DONE;
        }
        int code = parse(command, option, &wishes);
        if (code != EXIT_DONE) {
            return code;
        }
    }
    if (wishes.namespace && wishes.no_paths) {
        return command_usage_error(command,
                                   "--namespace shows what --no-paths and --host-devices hide: "
                                   "one of them");
    }
    return go(command, &wishes, argv + optind);
}
