#include "tools/serve_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRANSFERS          64
#define TRANSFERS_MAX      4096
#define IDLE_TIMEOUT_S     60
#define IDLE_TIMEOUT_MAX_S 86400

const char serve_usage[] =
    "usage: weir serve [OPTION...]\n"
    "\n"
    "Serves a folder to 'weir cp', until it is interrupted, and to nobody whose key\n"
    "it does not know. (Between hosts that ssh reaches it is not needed: see 'weir cp\n"
    "--help'.)\n"
    "\n"
    "  --keys FILE              who may: the keys of clients, one a line, as 'weir\n"
    "                           key' makes them; a line may go on with 'read-only'\n"
    "                           and 'root=DIR'\n"
    "  --client-ca FILE         who may, too: clients with a certificate of these\n"
    "                           authorities\n"
    "  --certificate FILE       what is shown to clients without a key (weir cp --ca)\n"
    "  --certificate-key FILE   its private key\n"
    "  --encrypt                serve only clients that encrypt file data, too (weir\n"
    "                           cp --encrypt)\n"
    "  --listen ADDRESS[:PORT]  where to listen; 127.0.0.1:7471 unless given. '*',\n"
    "                           '::' and ':PORT' are every address, IPv4 and IPv6;\n"
    "                           port 0 is any free one. May be repeated\n"
    "  --root DIR               the folder; nothing outside it is read or written\n"
    "                           (default: .)\n"
    "  --root NAME=DIR[,read-only]  a folder for weir://HOST/NAME; may be repeated\n"
    "  --read-only              files can be copied from here, not to here\n"
    "  --super                  let clients set owners, set-ID bits and any extended\n"
    "                           attribute, and make devices, as far as this process\n"
    "                           may\n"
    "  --insecure               without keys: whoever reaches the port can read the\n"
    "                           folder, and write to it unless --read-only is given\n"
    "  --max-transfers N        how many run at a time; more are refused (default:\n"
    "                           64)\n"
    "  --max-per-client N       how many of them one address, or one key, may have\n"
    "                           (default: half)\n"
    "  --idle-timeout SECONDS   end the transfer of a client that does nothing for so\n"
    "                           long; 0: never (default: 60)\n"
    "  --json                   print events to standard output, one JSON object a\n"
    "                           line\n"
    "  -q, --quiet              print errors only\n"
    "  --fabric KIND            auto: the machine's RDMA device, else the software\n"
    "                           RNIC (default); rdma: a device or nothing; soft: the\n"
    "                           software RNIC\n"
    "  -h, --help               print this text\n"
    "\n"
    "  weir serve --root /data --keys weir.keys --listen 192.0.2.7\n"
    "  weir serve --root /data --insecure        whoever is on this machine may\n"
    "\n"
    "Exit status: 0 after SIGINT, SIGTERM or SIGHUP, 2 usage, 6 cannot begin here.\n";

enum {
    OPTION_LISTEN = 256,
    OPTION_ROOT,
    OPTION_READ_ONLY,
    OPTION_SUPER,
    OPTION_KEYS,
    OPTION_CERTIFICATE,
    OPTION_CERTIFICATE_KEY,
    OPTION_CLIENT_CA,
    OPTION_ENCRYPT,
    OPTION_INSECURE,
    OPTION_SESSION,
    OPTION_MAX_TRANSFERS,
    OPTION_MAX_PER_CLIENT,
    OPTION_IDLE_TIMEOUT,
    OPTION_JSON,
    OPTION_FABRIC
};

static const struct option long_options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"root", required_argument, NULL, OPTION_ROOT},
    {"read-only", no_argument, NULL, OPTION_READ_ONLY},
    {"super", no_argument, NULL, OPTION_SUPER},
    {"keys", required_argument, NULL, OPTION_KEYS},
    {"certificate", required_argument, NULL, OPTION_CERTIFICATE},
    {"certificate-key", required_argument, NULL, OPTION_CERTIFICATE_KEY},
    {"client-ca", required_argument, NULL, OPTION_CLIENT_CA},
    {"encrypt", no_argument, NULL, OPTION_ENCRYPT},
    {"insecure", no_argument, NULL, OPTION_INSECURE},
    {"session", no_argument, NULL, OPTION_SESSION},
    {"max-transfers", required_argument, NULL, OPTION_MAX_TRANSFERS},
    {"max-per-client", required_argument, NULL, OPTION_MAX_PER_CLIENT},
    {"idle-timeout", required_argument, NULL, OPTION_IDLE_TIMEOUT},
    {"json", no_argument, NULL, OPTION_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* A number in digits, from `least` to `most`. */
static bool parse_number(const char *text, unsigned least, unsigned most, unsigned *ret_number)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long number = strtoul(text, NULL, 10);
    if (digits == 0 || digits > 9 || text[digits] != 0 || number < least || number > most) {
        return false;
    }
    *ret_number = (unsigned)number;
    return true;
}

static int take_number(const struct command *command, struct serve_options *options, int option)
{
    if (option == OPTION_MAX_TRANSFERS) {
        return parse_number(optarg, 1, TRANSFERS_MAX, &options->transfers_max)
                   ? -1
                   : command_usage_error(command,
                                         "--max-transfers takes a number from 1 to %u, not '%s'",
                                         TRANSFERS_MAX, optarg);
    }
    if (option == OPTION_MAX_PER_CLIENT) {
        return parse_number(optarg, 1, TRANSFERS_MAX, &options->per_client_max)
                   ? -1
                   : command_usage_error(command,
                                         "--max-per-client takes a number from 1 to %u, not '%s'",
                                         TRANSFERS_MAX, optarg);
    }
    return parse_number(optarg, 0, IDLE_TIMEOUT_MAX_S, &options->idle_timeout_s)
               ? -1
               : command_usage_error(command, "--idle-timeout takes seconds from 0 to %u, not '%s'",
                                     IDLE_TIMEOUT_MAX_S, optarg);
}

/* True: there is nothing more to the option than that. */
static bool take_plain(struct serve_options *options, int option)
{
    switch (option) {
    case OPTION_KEYS:
        options->keys = optarg;
        return true;
    case OPTION_CERTIFICATE:
        options->certificates.certificate = optarg;
        return true;
    case OPTION_CERTIFICATE_KEY:
        options->certificates.key = optarg;
        return true;
    case OPTION_CLIENT_CA:
        options->certificates.authorities = optarg;
        return true;
    case OPTION_READ_ONLY:
        options->read_only = true;
        return true;
    case OPTION_SUPER:
        options->super = true;
        return true;
    case OPTION_ENCRYPT:
        options->encrypt = true;
        return true;
    case OPTION_INSECURE:
        options->insecure = true;
        return true;
    case OPTION_SESSION:
        options->session = true;
        return true;
    case OPTION_JSON:
        options->json = true;
        return true;
    case 'q':
        options->quiet = true;
        return true;
    default:
        return false;
    }
}

/* -1: go on. */
static int take_option(const struct command *command, struct serve_options *options, int option)
{
    if (take_plain(options, option)) {
        return -1;
    }
    switch (option) {
    case OPTION_ROOT:
        if (options->root_count == SERVE_ROOTS_MAX) {
            return command_usage_error(command, "more than %d times --root", SERVE_ROOTS_MAX);
        }
        options->roots[options->root_count++] = optarg;
        return -1;
    case OPTION_LISTEN:
        if (options->listen_count == SERVE_LISTENERS_MAX) {
            return command_usage_error(command, "more than %d times --listen; '*' is every address",
                                       SERVE_LISTENERS_MAX);
        }
        options->listen[options->listen_count++] = optarg;
        return -1;
    case OPTION_MAX_TRANSFERS:
    case OPTION_MAX_PER_CLIENT:
    case OPTION_IDLE_TIMEOUT:
        return take_number(command, options, option);
    case OPTION_FABRIC:
        return fabric_kind_take(command, optarg, &options->fabric.kind) ? -1 : EXIT_USAGE;
    case 'h':
        fputs(serve_usage, stdout);
        return EXIT_DONE;
    default:
        return command_usage_hint(command);
    }
}

static int check_certificates(const struct command *command, const struct serve_options *options)
{
    const struct certificate_files *files = &options->certificates;
    if ((files->certificate != NULL) != (files->key != NULL)) {
        return command_usage_error(command, "--certificate and --certificate-key go together");
    }
    if (files->authorities != NULL && files->certificate == NULL) {
        return command_usage_error(command, "--client-ca wants a --certificate to show to clients");
    }
    if (files->certificate != NULL && files->authorities == NULL && !options->insecure) {
        return command_usage_error(command, "--certificate says who serves: give --client-ca for "
                                            "who may, or --insecure for whoever comes");
    }
    return -1;
}

static int check(const struct command *command, const struct serve_options *options)
{
    bool knows_whom = options->keys != NULL || options->certificates.authorities != NULL;
    if (options->session &&
        (options->insecure || knows_whom || options->certificates.certificate != NULL)) {
        return command_usage_error(command, "a --session has its own key, and serves nobody else");
    }
    if (options->session) {
        return -1;
    }
    int code = check_certificates(command, options);
    if (code >= 0) {
        return code;
    }
    if (!knows_whom && !options->insecure) {
        return command_usage_error(
            command, "whom to serve? --keys FILE names the clients' keys ('weir key' makes one), "
                     "--client-ca FILE who certifies them; "
                     "--insecure serves whoever reaches the port. Between hosts that ssh reaches "
                     "no server is needed: weir cp FILE HOST:PATH");
    }
    if (knows_whom && options->insecure) {
        return command_usage_error(command, "either --keys or --insecure%s",
                                   options->keys == NULL ? ": --client-ca is as good as --keys"
                                                         : "");
    }
    if (options->encrypt && options->insecure && options->certificates.certificate == NULL) {
        return command_usage_error(command,
                                   "--encrypt wants --keys or --certificate to encrypt by");
    }
    return -1;
}

int serve_take_options(const struct command *command, int argc, char **argv,
                       struct serve_options *ret_options)
{
    *ret_options = (struct serve_options){.fabric = {.kind = WEIR_FABRIC_AUTO},
                                          .transfers_max = TRANSFERS,
                                          .idle_timeout_s = IDLE_TIMEOUT_S};
    for (int option; (option = command_option(command, argc, argv, "qh", long_options)) != -1;) {
        int code = take_option(command, ret_options, option);
        if (code >= 0) {
            return code;
        }
    }
    if (ret_options->per_client_max == 0) {
        ret_options->per_client_max = (ret_options->transfers_max + 1) / 2;
    }
    if (optind < argc) {
        return command_usage_error(command, "'%s' is not an option; a folder is given with --root",
                                   argv[optind]);
    }
    return check(command, ret_options);
}
