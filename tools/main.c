/* The weir command: a table of subcommands. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/printable.h"

static const struct command commands[] = {
    {"cp", "copy files and trees to or from another host", cp_usage, command_cp},
    {"serve", "serve a folder to weir cp", serve_usage, command_serve},
    {"key", "make a key for a standing server", key_usage, command_key},
    {"info", "say which device is used, and why", info_usage, command_info},
    {"bench", "measure latency, bandwidth and rate", bench_usage, command_bench},
    {"run", "run a program on the software RNIC", run_usage, command_run},
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *stream)
{
    fputs("usage: weir COMMAND [OPTION...] [ARGUMENT...]\n"
          "\n"
          "Moves files over RDMA: over the machine's RDMA device, or, where it has none,\n"
          "over a software RNIC that speaks RoCEv2 and needs no kernel support.\n"
          "\n",
          stream);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(stream, "  %-9s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("  version   print the version\n"
          "  help      this text, or that of a COMMAND\n"
          "\n"
          "For example, to a host that ssh reaches and where weir is installed:\n"
          "\n"
          "  weir cp -r results server:data/\n"
          "\n"
          "'weir COMMAND --help' and 'man weir-COMMAND' say more.\n",
          stream);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int unknown(const char *name)
{
    char text[256];
    printable(name, strlen(name), text, sizeof(text));
    fprintf(stderr, "weir: there is no command '%s'\nTry 'weir help'.\n", text);
    return EXIT_USAGE;
}

static bool is_help(const char *name)
{
    return strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
}

static bool is_version(const char *name)
{
    return strcmp(name, "version") == 0 || strcmp(name, "--version") == 0;
}

/* These two have no more than their line in the list. */
static int help(const char *name)
{
    const struct command *command = name != NULL ? find(name) : NULL;
    if (name != NULL && command == NULL && !is_help(name) && !is_version(name)) {
        return unknown(name);
    }
    if (command != NULL) {
        fputs(command->usage, stdout);
    } else {
        print_help(stdout);
    }
    return EXIT_DONE;
}

/* A stream that is closed would be the next file that is opened, and what is printed would go into
 * that. It is held so that it fails as before; a program that is run finds it closed. */
static bool hold_streams(void)
{
    bool held = true;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && held; fd++) {
        int way = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        held = fcntl(fd, F_GETFD) >= 0 || open("/dev/null", way | O_CLOEXEC) == fd;
    }
    return held;
}

/* Who prints to a full disk or a closed pipe has not said what was asked for. Why is known of the
 * last attempt only. */
static int close_output(int code)
{
    bool failed = ferror(stdout) != 0;
    int error = fflush(stdout) != 0 ? errno : 0;
    if ((error != 0 || failed) && code == EXIT_DONE) {
        fprintf(stderr, "weir: standard output: %s\n",
                error != 0 ? strerror(error) : "not all could be written");
        return EXIT_SETUP;
    }
    return code;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (is_help(name)) {
        return help(argc > 2 ? argv[2] : NULL);
    }
    if (is_version(name)) {
        puts("weir " WEIR_VERSION);
        return EXIT_DONE;
    }
    const struct command *command = find(name);
    if (command == NULL) {
        return unknown(name);
    }
    char title[32];
    snprintf(title, sizeof(title), "weir %s", command->name);
    argv[1] = title; /* what getopt begins its messages with */
    return command->run(command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_DFL); /* who has started us may want to hear of no child's end: we do */
    return hold_streams() ? close_output(run(argc, argv)) : EXIT_SETUP;
}
