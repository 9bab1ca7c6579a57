#include "tools/cp_options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/cp_rules.h"

#define CP_TIMEOUT_S 30

const char cp_usage[] =
    "usage: weir cp [OPTION...] SOURCE... [USER@]HOST:PATH     to a host that ssh reaches\n"
    "       weir cp [OPTION...] [USER@]HOST:PATH... TARGET     or from it\n"
    "       weir cp [OPTION...] SOURCE... weir://HOST[:PORT]/PATH     to or from 'weir serve'\n"
    "       weir cp [OPTION...] SOURCE... --to TARGET --to TARGET...     to several at once\n"
    "\n"
    "Copies files over RDMA. One side is local. The other is written as for scp and rsync: weir "
    "is\n"
    "started there through ssh, which brings a secret of this one session and where to connect;\n"
    "the data goes over RDMA. PATH is relative to the home there. Or it is what a standing 'weir\n"
    "serve' serves, with PATH relative to its folder, taken as it stands, without "
    "percent-encoding.\n"
    "\n"
    "What is copied:\n"
    "  -r, --recursive    copy directories and what is below them\n"
    "  -a, --archive      -rlptgoD: everything but -H, -A, -X\n"
    "  -p, --perms        the whole mode, set-user-ID and set-group-ID bits too\n"
    "  -g, --group        groups; as rsync, without root those one belongs to\n"
    "  -o, --owner        owners (root only)\n"
    "  -D                 devices (root only), FIFOs and sockets: --devices --specials\n"
    "  -H, --hard-links   names of one file stay names of one file\n"
    "  -A, --acls         ACLs\n"
    "  -X, --xattrs       extended attributes; without root those of the user's\n"
    "  -S, --sparse       blocks of zeros become holes, too\n"
    "      --numeric-ids  owners and groups by number, not by name\n"
    "      --chown USER:GROUP  whose the copies are, by names of the receiving side or numbers\n"
    "  -l, -t             links and times: kept in any case\n"
    "      --exclude PATTERN, --include PATTERN, --exclude-from FILE, --include-from FILE\n"
    "                     leave out what matches, or do not; the first rule that matches decides\n"
    "  -f, --filter RULE  a rule of rsync's: '- PATTERN', '+ PATTERN', of what is sent only (H, "
    "S)\n"
    "                     or of what is deleted only (P, R), '. FILE' with such rules, or\n"
    "                     ': NAME', a file of that name with such rules in each directory\n"
    "  -F                 ': /.rsync-filter'; twice: and do not copy these files\n"
    "\n"
    "What is replaced, where the target has the file already (see the manual page):\n"
    "  (none of these)    what differs in size or time\n"
    "  -c, --checksum     what differs in contents, by digest\n"
    "  -u, --update       nothing that is newer there\n"
    "  -I, --ignore-times everything\n"
    "      --size-only    what differs in size\n"
    "      --modify-window SECONDS  times so far apart are the same\n"
    "      --existing     make no new files; --ignore-existing: replace none\n"
    "      --force        a directory in the way of a file goes with all that is in it\n"
    "      --delete       at the end, delete what the source directories have not;\n"
    "                     --delete-excluded: also what was left out\n"
    "      --max-delete N delete N at most; --ignore-errors: also when a source cannot be read\n"
    "\n"
    "How:\n"
    "  -n, --dry-run      only say what would be done (with -v or -i: of each file)\n"
    "      --bwlimit RATE no more than so many KiB a second, or with K, M, G, KB, MB, GB, B\n"
    "      --inplace      write into the files that are there, which are not whole meanwhile\n"
    "      --timeout SECONDS  a connection that is lost is made again within so long (30; 0: it\n"
    "                     is not), and the copy goes on\n"
    "      --resume       go on with the files that an interrupted copy was in the middle of\n"
    "      --verify       read each file back from storage before it gets its name\n"
    "      --fsync        have each file on stable storage before it gets its name\n"
    "  -q, --quiet        print errors only\n"
    "  -v, --verbose      print each name that is copied; twice: those left as they are, too\n"
    "  -i, --itemize-changes  print what changes of each, in rsync's letters\n"
    "      --json         print events to standard output, one JSON object a line\n"
    "  -e, --rsh COMMAND  instead of ssh (or $WEIR_RSH): 'ssh -p 2222'\n"
    "      --weir-path PATH  where weir is there, if its shell does not find it\n"
    "      --to TARGET    one of several targets: the source is read and sent once, and they hand "
    "it\n"
    "                     on to each other; --hosts FILE: one target a line\n"
    "      --key FILE     proves to a standing server who one is (see weir key)\n"
    "      --ca FILE      proves who a standing server is by its certificate, of these "
    "authorities\n"
    "      --certificate FILE  is shown to it; --certificate-key FILE: with this key\n"
    "      --encrypt      seal file data, too; names and small files of a session with a key or\n"
    "                     through ssh are sealed in any case\n"
    "      --fabric KIND  auto: the machine's RDMA device, else the software RNIC (default);\n"
    "                     rdma: a device or nothing (also --require-rdma); soft: the software "
    "RNIC\n"
    "  -h, --help         print this text\n"
    "\n"
    "If TARGET is a directory, sources go into it under their own names, and of a source that "
    "ends\n"
    "with a slash what is in it; else a single source gets TARGET's name. Permissions and\n"
    "modification times are kept, symbolic links are copied as links, holes as holes. A file\n"
    "appears under its name only when it is whole and its digest is proven at the receiving side.\n"
    "\n"
    "  weir cp -r results server:                   the tree 'results' into the home at server\n"
    "  weir cp -a results/ me@server:results        the same; what has not changed is not sent\n"
    "  weir cp server:/data/run7.h5 .               one file back\n"
    "  weir cp -a --key my.key src weir://server/   to a standing server\n"
    "\n"
    "Exit status: 0 all copied, 1 some files or targets were not, 2 usage, 3 no connection, 4 "
    "connection "
    "lost,\n"
    "5 refused by the other side, 6 cannot begin here, 130 interrupted.\n";

enum {
    OPTION_FSYNC = 256,
    OPTION_JSON,
    OPTION_FABRIC,
    OPTION_DEVICES,
    OPTION_SPECIALS,
    OPTION_NUMERIC_IDS,
    OPTION_CHOWN,
    OPTION_SIZE_ONLY,
    OPTION_EXISTING,
    OPTION_IGNORE_EXISTING,
    OPTION_FORCE,
    OPTION_DELETE,
    OPTION_MAX_DELETE,
    OPTION_IGNORE_ERRORS,
    OPTION_INPLACE,
    OPTION_RESUME,
    OPTION_VERIFY,
    OPTION_BWLIMIT,
    OPTION_DELETE_EXCLUDED,
    OPTION_EXCLUDE,
    OPTION_INCLUDE,
    OPTION_EXCLUDE_FROM,
    OPTION_INCLUDE_FROM,
    OPTION_WEIR_PATH,
    OPTION_REQUIRE_RDMA,
    OPTION_KEY,
    OPTION_ENCRYPT,
    OPTION_TO,
    OPTION_HOSTS,
    OPTION_TIMEOUT,
    OPTION_CA,
    OPTION_CERTIFICATE,
    OPTION_CERTIFICATE_KEY,
};

static const struct option long_options[] = {
    {"archive", no_argument, NULL, 'a'},
    {"links", no_argument, NULL, 'l'},
    {"perms", no_argument, NULL, 'p'},
    {"times", no_argument, NULL, 't'},
    {"group", no_argument, NULL, 'g'},
    {"owner", no_argument, NULL, 'o'},
    {"devices", no_argument, NULL, OPTION_DEVICES},
    {"specials", no_argument, NULL, OPTION_SPECIALS},
    {"hard-links", no_argument, NULL, 'H'},
    {"acls", no_argument, NULL, 'A'},
    {"xattrs", no_argument, NULL, 'X'},
    {"sparse", no_argument, NULL, 'S'},
    {"chown", required_argument, NULL, OPTION_CHOWN},
    {"numeric-ids", no_argument, NULL, OPTION_NUMERIC_IDS},
    {"recursive", no_argument, NULL, 'r'},
    {"checksum", no_argument, NULL, 'c'},
    {"update", no_argument, NULL, 'u'},
    {"ignore-times", no_argument, NULL, 'I'},
    {"size-only", no_argument, NULL, OPTION_SIZE_ONLY},
    {"modify-window", required_argument, NULL, '@'},
    {"existing", no_argument, NULL, OPTION_EXISTING},
    {"ignore-non-existing", no_argument, NULL, OPTION_EXISTING},
    {"ignore-existing", no_argument, NULL, OPTION_IGNORE_EXISTING},
    {"force", no_argument, NULL, OPTION_FORCE},
    {"inplace", no_argument, NULL, OPTION_INPLACE},
    {"resume", no_argument, NULL, OPTION_RESUME},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"bwlimit", required_argument, NULL, OPTION_BWLIMIT},
    {"delete", no_argument, NULL, OPTION_DELETE},
    {"delete-after", no_argument, NULL, OPTION_DELETE},
    {"delete-excluded", no_argument, NULL, OPTION_DELETE_EXCLUDED},
    {"max-delete", required_argument, NULL, OPTION_MAX_DELETE},
    {"ignore-errors", no_argument, NULL, OPTION_IGNORE_ERRORS},
    {"filter", required_argument, NULL, 'f'},
    {"dry-run", no_argument, NULL, 'n'},
    {"itemize-changes", no_argument, NULL, 'i'},
    {"exclude", required_argument, NULL, OPTION_EXCLUDE},
    {"include", required_argument, NULL, OPTION_INCLUDE},
    {"exclude-from", required_argument, NULL, OPTION_EXCLUDE_FROM},
    {"include-from", required_argument, NULL, OPTION_INCLUDE_FROM},
    {"fsync", no_argument, NULL, OPTION_FSYNC},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"json", no_argument, NULL, OPTION_JSON},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"rsh", required_argument, NULL, 'e'},
    {"weir-path", required_argument, NULL, OPTION_WEIR_PATH},
    {"require-rdma", no_argument, NULL, OPTION_REQUIRE_RDMA},
    {"key", required_argument, NULL, OPTION_KEY},
    {"encrypt", no_argument, NULL, OPTION_ENCRYPT},
    {"to", required_argument, NULL, OPTION_TO},
    {"hosts", required_argument, NULL, OPTION_HOSTS},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"ca", required_argument, NULL, OPTION_CA},
    {"certificate", required_argument, NULL, OPTION_CERTIFICATE},
    {"certificate-key", required_argument, NULL, OPTION_CERTIFICATE_KEY},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

#define PRESERVE_D (PRESERVE_DEVICES | PRESERVE_SPECIALS)

/* What an option says is to be kept; as in rsync, -A takes the whole mode with it. */
static const struct {
    int option;
    unsigned preserve;
} preserve_of[] = {
    {'a', PRESERVE_SET_IDS | PRESERVE_GROUP | PRESERVE_OWNER | PRESERVE_D},
    {'l', 0},
    {'p', PRESERVE_SET_IDS},
    {'t', 0},
    {'g', PRESERVE_GROUP},
    {'o', PRESERVE_OWNER},
    {'D', PRESERVE_D},
    {OPTION_DEVICES, PRESERVE_DEVICES},
    {OPTION_SPECIALS, PRESERVE_SPECIALS},
    {'H', PRESERVE_HARD_LINKS},
    {'A', PRESERVE_ACLS | PRESERVE_SET_IDS},
    {'X', PRESERVE_XATTRS},
    {'S', PRESERVE_SPARSE},
    {OPTION_NUMERIC_IDS, PRESERVE_NUMBERS},
};

/* What an option says is wished. */
static const struct {
    int option;
    uint32_t wishes;
} wishes_of[] = {
    {'a', WISH_RECURSIVE | WISH_PERMS},
    {'p', WISH_PERMS},
    {'t', WISH_PERMS},
    {'A', WISH_PERMS},
    {'r', WISH_RECURSIVE},
    {'c', WISH_CHECKSUM},
    {'u', WISH_UPDATE},
    {'I', WISH_IGNORE_TIMES},
    {'n', WISH_DRY_RUN},
    {OPTION_SIZE_ONLY, WISH_SIZE_ONLY},
    {OPTION_EXISTING, WISH_EXISTING},
    {OPTION_IGNORE_EXISTING, WISH_IGNORE_EXISTING},
    {OPTION_FORCE, WISH_FORCE},
    {OPTION_INPLACE, WISH_INPLACE},
    {OPTION_DELETE, WISH_DELETE},
    {OPTION_DELETE_EXCLUDED, WISH_DELETE | WISH_DELETE_EXCLUDED},
    {OPTION_IGNORE_ERRORS, WISH_IGNORE_ERRORS},
    {OPTION_FSYNC, WISH_FSYNC},
    {OPTION_RESUME, WISH_RESUME},
    {OPTION_VERIFY, WISH_VERIFY},
};

/* True: there is nothing more to the option than that. */
static bool take_bits(struct cp_options *options, int option)
{
    bool taken = false;
    for (size_t i = 0; i < sizeof(preserve_of) / sizeof(preserve_of[0]); i++) {
        if (preserve_of[i].option == option) {
            options->wishes.preserve |= (uint16_t)preserve_of[i].preserve;
            taken = true;
        }
    }
    for (size_t i = 0; i < sizeof(wishes_of) / sizeof(wishes_of[0]); i++) {
        if (wishes_of[i].option == option) {
            options->wishes.bits |= wishes_of[i].wishes;
            taken = true;
        }
    }
    return taken;
}

/* Implies -o and -g, each where it is given. */
static int take_chown(const struct command *command, struct cp_options *options)
{
    if (!owners_parse(optarg, options->owners)) {
        return command_usage_error(command, "--chown takes USER, USER:GROUP or :GROUP, not '%s'",
                                   optarg);
    }
    options->wishes.preserve |= options->owners[OWNER_USER].set ? PRESERVE_OWNER : 0;
    options->wishes.preserve |= options->owners[OWNER_GROUP].set ? PRESERVE_GROUP : 0;
    return -1;
}

static bool take_seconds(unsigned *ret_seconds)
{
    size_t digits = strspn(optarg, "0123456789");
    bool good = digits > 0 && digits <= 9 && optarg[digits] == 0;
    *ret_seconds = good ? (unsigned)strtoul(optarg, NULL, 10) : 0;
    return good;
}

static int take_window(const struct command *command, struct cp_options *options)
{
    unsigned seconds;
    if (!take_seconds(&seconds)) {
        return command_usage_error(
            command, "--modify-window takes whole seconds from 0 on, not '%s'", optarg);
    }
    options->wishes.bits |= WISH_WINDOW;
    options->wishes.window_s = seconds;
    return -1;
}

/* rsync's units: without a letter KiB, "K", "KiB" and so on by 1024, "KB" by 1000, "B" by 1. */
static int take_rate(const struct command *command, struct cp_options *options)
{
    static const char letters[] = "BKMGTP";
    char *end;
    double rate = optarg[0] >= '0' && optarg[0] <= '9' ? strtod(optarg, &end) : -1;
    if (rate >= 0) {
        const char *letter =
            *end != 0 ? strchr(letters, toupper((unsigned char)*end)) : letters + 1;
        const char *rest = *end != 0 ? end + 1 : end;
        bool thousands = strcasecmp(rest, "B") == 0;
        bool known =
            letter != NULL &&
            (*rest == 0 || (letter > letters && (thousands || strcasecmp(rest, "iB") == 0)));
        for (const char *at = letters; known && at < letter; at++) {
            rate *= thousands ? 1000 : 1024;
        }
        rate = known ? rate : -1;
    }
    if (rate < 0 || (rate > 0 && rate < 512) || rate > 1e18) {
        return command_usage_error(command,
                                   "--bwlimit takes KiB a second, or a number with K, M, G, KB, "
                                   "MB, GB or B, from 512 B on, or 0 for no limit; not '%s'",
                                   optarg);
    }
    options->wishes.rate = (uint64_t)rate;
    return -1;
}

static int take_deletions(const struct command *command, struct cp_options *options)
{
    size_t digits = strspn(optarg, "0123456789");
    if (digits == 0 || digits > 9 || optarg[digits] != 0) {
        return command_usage_error(command, "--max-delete takes a number from 0 on, not '%s'",
                                   optarg);
    }
    options->wishes.bits |= WISH_MAX_DELETE;
    options->wishes.deletions_max = (uint32_t)strtoul(optarg, NULL, 10);
    return -1;
}

/* Of how the other side is reached. True: it was one of these. */
static bool take_way(struct cp_options *options, int option)
{
    switch (option) {
    case 'e':
        options->rsh = optarg;
        return true;
    case OPTION_WEIR_PATH:
        options->weir_path = optarg;
        return true;
    case OPTION_REQUIRE_RDMA:
        options->fabric.kind = WEIR_FABRIC_RDMA;
        return true;
    case OPTION_KEY:
        options->key = optarg;
        return true;
    case OPTION_ENCRYPT:
        options->encrypt = true;
        return true;
    case OPTION_CA:
        options->certificates.authorities = optarg;
        return true;
    case OPTION_CERTIFICATE:
        options->certificates.certificate = optarg;
        return true;
    case OPTION_CERTIFICATE_KEY:
        options->certificates.key = optarg;
        return true;
    default:
        return false;
    }
}

/* -F, the first time and the second. */
static int take_directory_rules(const struct command *command, struct cp_options *options)
{
    static const char *const rules[] = {"dir-merge /.rsync-filter", "exclude .rsync-filter"};
    unsigned before = options->directory_rules++;
    return before < 2 ? cp_take_rule(command, &options->filter, rules[before]) : -1;
}

/* -1: go on. */
static int take_option(const struct command *command, struct cp_options *options, int option)
{
    if (take_bits(options, option) || take_way(options, option)) {
        return -1;
    }
    switch (option) {
    case 'q':
        options->quiet = true;
        return -1;
    case 'v':
        options->verbose++;
        return -1;
    case 'i':
        options->itemize = true;
        return -1;
    case '@':
        return take_window(command, options);
    case OPTION_BWLIMIT:
        return take_rate(command, options);
    case OPTION_TIMEOUT:
        return take_seconds(&options->timeout_s)
                   ? -1
                   : command_usage_error(command, "--timeout takes whole seconds, not '%s'",
                                         optarg);
    case OPTION_CHOWN:
        return take_chown(command, options);
    case OPTION_EXCLUDE:
    case OPTION_INCLUDE:
        return cp_take_pattern(command, &options->filter,
                               option == OPTION_INCLUDE ? RULE_INCLUDE : 0, optarg);
    case OPTION_EXCLUDE_FROM:
    case OPTION_INCLUDE_FROM:
        return cp_take_patterns(command, &options->filter,
                                option == OPTION_INCLUDE_FROM ? RULE_INCLUDE : 0, optarg);
    case 'f':
        return cp_take_rule(command, &options->filter, optarg);
    case 'F':
        return take_directory_rules(command, options);
    case OPTION_MAX_DELETE:
        return take_deletions(command, options);
    case OPTION_TO:
        return cp_targets_add(command, &options->targets, optarg);
    case OPTION_HOSTS:
        return cp_targets_read(command, &options->targets, optarg);
    case OPTION_JSON:
        options->json = true;
        return -1;
    case OPTION_FABRIC:
        return fabric_kind_take(command, optarg, &options->fabric.kind) ? -1 : EXIT_USAGE;
    case 'h':
        fputs(cp_usage, stdout);
        return EXIT_DONE;
    default:
        return command_usage_hint(command);
    }
}

int cp_take_options(const struct command *command, int argc, char **argv,
                    struct cp_options *ret_options)
{
    *ret_options = (struct cp_options){.timeout_s = CP_TIMEOUT_S};
    for (int option; (option = getopt_long(argc, argv, "arlptgoDHAXScuIn@:e:f:Fiqvh", long_options,
                                           NULL)) != -1;) {
        int code = take_option(command, ret_options, option);
        if (code >= 0) {
            return code;
        }
    }
    const uint32_t both = WISH_RESUME | WISH_INPLACE;
    if ((ret_options->wishes.bits & both) == both) {
        return command_usage_error(command, "--inplace keeps nothing that --resume could go on "
                                            "with; give one of them");
    }
    if ((ret_options->wishes.bits & WISH_IGNORE_EXISTING) != 0) { /* there is nothing to write to */
        ret_options->wishes.bits &= ~(uint32_t)WISH_INPLACE;
    }
    return -1;
}
