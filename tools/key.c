/* weir key: makes the key by which a client proves to a standing server who it is. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/trust/keys.h"

const char key_usage[] =
    "usage: weir key [OPTION...] FILE\n"
    "\n"
    "Makes a key, 256 random bits, and writes it with its name to FILE, which must\n"
    "not be there yet, for its owner's eyes alone (mode 0600); '-' is standard\n"
    "output. The client gives it to 'weir cp --key FILE'; the same line goes into the\n"
    "file of keys that 'weir serve --keys FILE' knows. Carry it there as you would\n"
    "carry a password: by ssh, not by mail.\n"
    "\n"
    "  --name NAME  what the key is called, by which the server's log names its\n"
    "               owner: letters, digits and . _ - @ (default: this host's name)\n"
    "  -h, --help   print this text\n"
    "\n"
    "  weir key --name laptop laptop.key\n"
    "  ssh server 'umask 077; cat >> weir.keys' < laptop.key\n"
    "  ssh server weir serve --keys weir.keys --root data --listen 192.0.2.7\n"
    "  weir cp -a --key laptop.key src weir://192.0.2.7/\n"
    "\n"
    "In the server's file a line may go on with 'read-only' and, at its end,\n"
    "'root=DIR': what this key's owner may. To take a key back, remove its line and\n"
    "restart the server.\n"
    "\n"
    "Exit status: 0, 2 usage, 6 the file cannot be made.\n";

static const struct option long_options[] = {
    {"name", required_argument, NULL, 'n'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

int command_key(const struct command *command, int argc, char **argv)
{
    char host[SECRET_NAME_MAX + 1] = "", why[KEYS_WHY_LENGTH];
    const char *name = host;
    gethostname(host, sizeof(host) - 1);
    for (int option; (option = command_option(command, argc, argv, "h", long_options)) != -1;) {
        switch (option) {
        case 'n':
            name = optarg;
            break;
        case 'h':
            fputs(key_usage, stdout);
            return EXIT_DONE;
        default:
            return command_usage_hint(command);
        }
    }
    if (argc - optind != 1) {
        return command_usage_error(command, "the name of one file is needed");
    }
    if (!secret_name_is_valid(name)) {
        return command_usage_error(
            command,
            "'%s' cannot be a key's name: letters, digits and . _ - @, 64 at "
            "most; give another with --name",
            name);
    }
    if (!keys_create(argv[optind], name, why)) {
        command_error(command, "%s", why);
        return EXIT_SETUP;
    }
    return EXIT_DONE;
}
